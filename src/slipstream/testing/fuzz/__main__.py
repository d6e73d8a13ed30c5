"""`python -m slipstream.testing.fuzz [--seconds N] [--seed FIRST] [--views N]`: rounds until time is up.

Each round has the next seed. Prints how it goes, and for each view that is wrong the seed, the smallest query found
that is wrong too, and both results. Exit code 1 if there was one. A round is played again with `--seed SEED
--seconds 0`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from slipstream.spark.session import start_session
from slipstream.testing.fuzz.rounds import Tally, play, shrink, tuned


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    logging.getLogger("SQLQueryContextLogger").disabled = True  # what Spark refuses is counted here
    spark = start_session("fuzz", "local[2]", shards=2)
    plain, compiled = tuned(spark, compiled=False), tuned(spark, compiled=True)
    ends, tally, seed = time.monotonic() + options.seconds, Tally(), options.seed
    with tempfile.TemporaryDirectory(prefix="slipstream-fuzz-") as scratch:
        while True:
            session = plain if seed % 5 else compiled
            result = play(session, Path(scratch) / "round", seed, options.views)
            tally.add(result)
            print(f"seed {seed}: {result}; in all {tally}", flush=True)
            for failure in result.failures:
                smallest = shrink(session, Path(scratch) / "shrinking", failure)
                print(f"WRONG {failure}\nsmallest, of {smallest}", flush=True)
            seed += 1
            if time.monotonic() >= ends:
                break
    for why, count in tally.refused.most_common():
        print(f"refused {count}: {why}")
    spark.stop()
    return 1 if tally.failures else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m slipstream.testing.fuzz", description="Random views against batch Spark."
    )
    parser.add_argument("--seconds", type=float, default=300, help="how long to go on; default: %(default)s")
    parser.add_argument("--seed", type=int, default=None, help="the first round's seed; default: the clock")
    parser.add_argument("--views", type=int, default=15, help="views in a round; default: %(default)s")
    options = parser.parse_args(arguments)
    options.seed = int(time.time()) if options.seed is None else options.seed
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
