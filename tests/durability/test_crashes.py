"""The crash points of durability, each visited in a process of its own, without Spark, and recovered from.

The engine is one that computes nothing (`slipstream.testing.pretend`), so what must be there afterwards is a formula.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import slipstream
from slipstream.core.crashing import POINTS, VARIABLE
from slipstream.durability.fsck import check_replica, check_store
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected

AT_WORK = [
    ("replica.before_claim", 1),
    ("replica.after_claim", 1),
    ("replica.before_lineage", 2),
    ("replica.after_lineage", 2),
    ("replica.before_upload", 3),
    ("replica.after_upload", 3),
    ("replica.before_commit", 2),
    ("replica.after_commit", 2),
    ("replica.before_discard", 1),
    ("replica.after_discard", 2),
    ("store.before_begin", 1),
    ("store.after_begin", 1),
]
"""Points of an engine and its agent, and the how many-eth visit is fatal."""

IN_A_RESTORE = ["restore.begun", "restore.fetched", "restore.before_done"]
IN_A_TAKEOVER = "store.before_takeover"

ELSEWHERE = (
    "epoch.",
    "hold.",
    "layer.",
    "upkeep.",
    "store.before_claim",
    "store.after_claim",
    "store.in_discard",
    "backfill.",
    "sink.",
)
"""Points that are visited with Spark: tests/torture/test_crash_points.py, tests/app/test_changing_crashes.py."""

REPLICATING = """
import sys
from pathlib import Path
from slipstream.testing.pretend import Pretend

folder = Path(sys.argv[1])
engine = Pretend.start(folder / "store", f"file://{folder}/replica")
agent = engine.agent(f"file://{folder}/replica")
for _ in range(12):
    word = engine.run(2)
    agent.lineage()
    agent.all(word)
"""

RESTORING = """
import sys
from pathlib import Path
from slipstream.testing.pretend import Pretend

folder = Path(sys.argv[1])
Pretend.start(folder / "store", f"file://{folder}/replica")
"""

TAKING_OVER = """
import sys
from slipstream.store.store import Store, claim_store

claim_store(Store.at(f"{sys.argv[1]}/store"), "pretend", takeover=True)
"""


def dies(script: str, folder: Path, point: str, times: int = 1) -> None:
    """Run a script that ends at a point."""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, VARIABLE: f"{point}:{times}"},
    )
    assert ran.returncode == -signal.SIGKILL, f"the point was not visited: {ran.stderr}"


def goes_on(folder: Path) -> int:
    """A new engine goes on from where the store is, replicates, and store and replica are sound; its last epoch."""
    url = f"file://{folder}/replica"
    engine = Pretend.start(folder / "store", url)
    agent = engine.agent(url)
    for _ in range(2):
        agent.all(engine.run(1))
    engine.close()
    for trace in (BAG, KEYED):
        assert contents(engine.root, trace, engine.epoch) == expected(trace, engine.epoch)
    assert check_store(engine.root).findings == ()
    seen = check_replica(url)
    assert (seen.findings, seen.epoch) == ((), engine.epoch)
    return engine.epoch


def test_every_point_has_a_case() -> None:
    for module in pkgutil.walk_packages(slipstream.__path__, "slipstream."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    visited = {point for point, _ in AT_WORK} | set(IN_A_RESTORE) | {IN_A_TAKEOVER}
    assert visited == {point for point in POINTS if not point.startswith(ELSEWHERE)}


@pytest.mark.parametrize(("point", "times"), AT_WORK)
def test_an_engine_that_dies_while_it_replicates(tmp_path: Path, point: str, times: int) -> None:
    dies(REPLICATING, tmp_path, point, times)
    goes_on(tmp_path)


@pytest.mark.parametrize("point", IN_A_RESTORE)
def test_a_restore_that_dies_is_done_again(tmp_path: Path, point: str) -> None:
    reached = goes_on(tmp_path)
    shutil.rmtree(tmp_path / "store")
    dies(RESTORING, tmp_path, point)
    assert goes_on(tmp_path) == reached + 2


def test_a_takeover_that_dies_leaves_the_store_to_the_engine_that_has_it(tmp_path: Path) -> None:
    engine = Pretend.on(tmp_path / "store")
    dies(TAKING_OVER, tmp_path, IN_A_TAKEOVER)
    assert not engine.claim.superseded
    engine.run(1)
    engine.close()
    assert goes_on(tmp_path) == 3
