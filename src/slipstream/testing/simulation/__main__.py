"""`python -m slipstream.testing.simulation --seconds N --seed N --jobs N`: run histories, one seed after another.

Prints what was tried, and of each kind of failure the shortest story with the seed to run it again. Ends with code 1
if anything failed. Hashes of texts are fixed first, so that a seed is the same history in every process.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter

from slipstream.testing.simulation.campaign import Campaign

_FIXED = {"PYTHONHASHSEED": "0"}
_LONGEST_LINE = 200
_APART = 1_000_000  # between the first seeds of two processes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m slipstream.testing.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on")
    parser.add_argument("--histories", type=int, default=None, help="how many histories, instead of a time")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; by default the time")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes that share the work, each with its own seeds"
    )
    parser.add_argument("--story", action="store_true", help="tell the story of the first history, and end")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, "-m", "slipstream.testing.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **_FIXED})
    seed = int(time.time()) * 1000 if asked.seed is None else asked.seed
    if asked.jobs > 1:
        return _shared(asked.jobs, asked.seconds, asked.histories, seed)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends this command, and is nothing that engines shield from
    gc.freeze()  # what is imported stays: it is not to be looked through again and again
    gc.set_threshold(50_000, 20, 20)
    campaign = Campaign(seed)
    if asked.story:
        return campaign.tell(seed)
    print(f"histories from seed {seed} on", flush=True)
    began = shown = time.monotonic()
    while (
        (campaign.count < asked.histories) if asked.histories else (time.monotonic() - began < asked.seconds)
    ):
        outcome = campaign.step()
        if outcome.failure is not None:
            print(f"seed {outcome.plan.seed} violated {outcome.failure}"[:_LONGEST_LINE], flush=True)
        if time.monotonic() - shown > 10.0:
            shown = time.monotonic()
            print(campaign.summary(shown - began), flush=True)
    print(campaign.summary(time.monotonic() - began))
    faults = Counter(campaign.faults)
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in faults.most_common()))
    for failure in campaign.failures:
        print(failure)
    return 1 if campaign.failed else 0


def _shared(jobs: int, seconds: float, histories: int | None, seed: int) -> int:
    """Have several processes run histories; 1 if any of them found a failure."""
    share = [] if histories is None else ["--histories", str(-(-histories // jobs))]
    each = [sys.executable, "-m", "slipstream.testing.simulation", "--seconds", str(seconds), *share]
    running = [subprocess.Popen([*each, "--seed", str(seed + i * _APART)]) for i in range(jobs)]
    return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main())
