"""Runs the benchmarks, all of them unless some are named:
`python -m benchmarks [NAME ...] [--quick] [--tpch SCALE] [--tpcds SCALE] [--beside CHECKOUT] [--out FILE]
[--plots FOLDER]`

A target that is missed is a finding, not a failure: the exit code is 1 only when a benchmark could not be
carried out.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.lab import Lab, SideError
from benchmarks.report import Finding, conclude, write
from benchmarks.suite import BENCHMARKS, FULL, QUICK


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 130)
    scale = QUICK if options.quick else FULL
    if options.tpch is not None:
        scale = replace(scale, tpch=options.tpch)
    if options.tpcds is not None:
        scale = replace(scale, tpcds=options.tpcds)
    if options.beside is not None:
        scale = replace(scale, beside=str(options.beside))
    findings: list[Finding] = []
    with Lab(console, options.plots) as lab:
        for name, benchmark in BENCHMARKS.items():
            if options.names and name not in options.names:
                continue
            console.print(f"[bold]{name}[/]: {(benchmark.__doc__ or '').strip()}")
            try:
                findings += benchmark(lab, scale)
            except SideError as failure:
                lab.failures[name] = str(failure)
                console.print("  did not finish; see the end")
        conclude(console, findings, lab.failures)
        write(options.out, findings, lab.runs, lab.failures, options.quick)
    console.print(f"Written to {options.out}")
    return 1 if lab.failures else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Slipstream beside Structured Streaming on this machine. All of it takes more than an hour.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, 3 minutes: tries the harness out")
    parser.add_argument(
        "--tpch", type=float, metavar="SCALE", help="TPC-H's scale factor; default: 1, quick 0.01"
    )
    parser.add_argument("--tpcds", type=float, metavar="SCALE", help="the same of TPC-DS")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="CHECKOUT",
        help="another version's folder, for the benchmark `versions`",
    )
    parser.add_argument("--out", type=Path, default=Path("results.json"), help="default: %(default)s")
    parser.add_argument("--plots", type=Path, default=Path("docs"), help="folder; default: %(default)s")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
