"""`python -m slipstream.testing.tpcds [NUMBER ...]`: the 99 queries of TPC-DS, or some of them, against batch Spark.

Prints what became of each. Exit code 1 if one is wrong, fails or is refused.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from slipstream.spark.session import start_session
from slipstream.testing.tpcds.queries import NUMBERS
from slipstream.testing.tpcds.suite import Outcome, play, tuned
from slipstream.testing.tpcds.tables import generate


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    numbers = options.numbers or list(NUMBERS)
    given = generate()
    session = tuned(start_session("tpcds", "local[2]", shards=1))
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="slipstream-tpcds-") as scratch:
        for first in range(0, len(numbers), options.pack):
            began = time.monotonic()
            pack = numbers[first : first + options.pack]
            played = play(session, Path(scratch) / "pack", given, pack, options.seed)
            outcomes += played
            print("\n".join(map(str, played)), f"({time.monotonic() - began:.0f} s)", flush=True)
    wrong = [outcome for outcome in outcomes if outcome.trouble]
    empty = [outcome.number for outcome in outcomes if not outcome.trouble and not outcome.shown]
    print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} queries are equal to batch Spark in every epoch")
    print(f"without rows to show: {empty or 'none'}")
    session.stop()
    return 1 if wrong else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m slipstream.testing.tpcds",
        description="TPC-DS over changing tables against batch Spark.",
    )
    parser.add_argument("numbers", nargs="*", type=int, help="queries; default: all 99")
    parser.add_argument("--pack", type=int, default=11, help="queries in an app; default: %(default)s")
    parser.add_argument("--seed", type=int, default=7, help="of the changes; default: %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
