"""Findings: what was compared, the number, the target, and whether it was met; as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.job import Job, Measured

Unit = Literal["rows/s", "ms", "GiB"]
Verdict = Literal["pass", "short", "-"]


@dataclass(frozen=True)
class Target:
    """`at_least` 8 is met by 8 and more, `at_most` 0.5 by 0.5 and less."""

    direction: Literal["at_least", "at_most"]
    value: float
    aim: float | None = None

    def met_by(self, value: float) -> bool:
        return value >= self.value if self.direction == "at_least" else value <= self.value

    def __str__(self) -> str:
        sign = ">=" if self.direction == "at_least" else "<="
        return f"{sign} {self.value:g}" + (f" (aim {self.aim:g})" if self.aim is not None else "")


@dataclass(frozen=True)
class Finding:
    """One line of the report: ours, the number it is compared with, and their ratio (ours / other).

    The target is for the ratio, or for ours itself where there is nothing to compare with. No target: for
    information.
    """

    benchmark: str
    measure: str
    unit: Unit
    ours: float
    other: float | None = None
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.other is None else self.ours / self.other

    @property
    def verdict(self) -> Verdict:
        if self.target is None:
            return "-"
        judged = self.ours if self.ratio is None else self.ratio
        return "pass" if self.target.met_by(judged) else "short"


def shown(value: float, unit: Unit) -> str:
    """A value in a unit fit for reading; times are kept in seconds and shown in milliseconds."""
    match unit:
        case "rows/s":
            return f"{value:,.0f}"
        case "ms":
            return f"{value * 1000:,.1f}"
        case "GiB":
            return f"{value:.2f}"


def table(findings: Sequence[Finding]) -> Table:
    result = Table(title="Slipstream beside Structured Streaming, in one run")
    for heading in ("benchmark", "measure", "unit"):
        result.add_column(heading)
    for heading in ("Slipstream", "compared with", "ratio", "target"):
        result.add_column(heading, justify="right")
    result.add_column("verdict")
    colours = {"pass": "green", "short": "bold red", "-": "dim"}
    previous = ""
    for finding in findings:
        if previous not in ("", finding.benchmark):
            result.add_section()
        result.add_row(
            finding.benchmark if finding.benchmark != previous else "",
            finding.measure,
            finding.unit,
            shown(finding.ours, finding.unit),
            "" if finding.other is None else shown(finding.other, finding.unit),
            "" if finding.ratio is None else f"{finding.ratio:.2f}",
            "" if finding.target is None else str(finding.target),
            Text(finding.verdict, style=colours[finding.verdict]),
        )
        previous = finding.benchmark
    return result


def write(
    path: Path,
    findings: Sequence[Finding],
    runs: Mapping[Job, Measured],
    failures: Mapping[str, str],
    quick: bool,
) -> None:
    """Everything that was measured, batch by batch, and what was concluded from it."""
    document = {
        "quick": quick,
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "pyspark": version("pyspark"),
        },
        "findings": [asdict(f) | {"ratio": f.ratio, "verdict": f.verdict} for f in findings],
        "failures": dict(failures),
        "runs": [{"job": asdict(job), "measured": asdict(measured)} for job, measured in runs.items()],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def conclude(console: Console, findings: Sequence[Finding], failures: Mapping[str, str]) -> None:
    console.print(table(findings))
    judged = [finding.verdict for finding in findings if finding.target is not None]
    console.print(f"{judged.count('pass')} of {len(judged)} targets met.")
    for benchmark, reason in failures.items():
        console.print(f"[bold red]{benchmark} did not finish:[/] ", end="")
        console.print(reason, markup=False, highlight=False)
