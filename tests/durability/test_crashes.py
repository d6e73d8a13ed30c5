"""The crash points of durability, each visited in a process of its own, without Spark, and recovered from.

The engine is one that computes nothing (`slipstream.testing.pretend`), so what must be there afterwards is a formula.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.crashing import VARIABLE
from slipstream.durability.board import Board
from slipstream.durability.follower import Follower
from slipstream.durability.fsck import check_replica, check_store
from slipstream.durability.restore import recover
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected

REPLICATING = """
import sys
from pathlib import Path
from slipstream.durability.agent import tend
from slipstream.durability.board import Board
from slipstream.durability.follower import Follower
from slipstream.testing.pretend import Pretend

folder = Path(sys.argv[1])
url = f"file://{folder}/replica"
engine = Pretend.on(folder / "store")
board = Board(engine.root, engine.claim.incarnation, (url,))
follower = Follower(engine.origin(), url, board)
for _ in range(12):
    word = engine.run(2)
    board.tell(word)
    tend(engine.root, word, board.barriers())
    follower.step()
"""

RESTORING = """
import sys
from pathlib import Path
from slipstream.durability.restore import recover

folder = Path(sys.argv[1])
recover(folder / "store", "pretend", [f"file://{folder}/replica"], 1)
"""

TAKING_OVER = """
import sys
from slipstream.durability.store import Store

Store.claim(f"{sys.argv[1]}/store", "pretend", takeover=True)
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
    engine = Pretend.on(folder / "store")
    board = Board(engine.root, engine.claim.incarnation, (url,))
    follower = Follower(engine.origin(), url, board)
    for _ in range(2):
        board.tell(engine.run(1))
        follower.step()
    engine.close()
    for trace in (BAG, KEYED):
        assert contents(engine.root, trace, engine.epoch) == expected(trace, engine.epoch)
    assert check_store(engine.root).findings == ()
    seen = check_replica(url)
    assert (seen.findings, seen.epoch) == ((), engine.epoch)
    return engine.epoch


@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("replica.before_claim", 1),
        ("replica.after_claim", 1),
        ("replica.before_upload", 3),
        ("replica.after_upload", 3),
        ("replica.before_commit", 2),
        ("replica.after_commit", 2),
        ("replica.before_discard", 1),
        ("replica.after_discard", 2),
        ("store.before_begin", 1),
        ("store.after_begin", 1),
    ],
)
def test_an_engine_that_dies_while_it_replicates(tmp_path: Path, point: str, times: int) -> None:
    dies(REPLICATING, tmp_path, point, times)
    goes_on(tmp_path)


@pytest.mark.parametrize("point", ["restore.begun", "restore.fetched", "restore.before_done"])
def test_a_restore_that_dies_is_done_again(tmp_path: Path, point: str) -> None:
    reached = goes_on(tmp_path)
    shutil.rmtree(tmp_path / "store")
    dies(RESTORING, tmp_path, point)
    assert recover(tmp_path / "store", "pretend", [f"file://{tmp_path}/replica"], 1).epoch == reached
    assert goes_on(tmp_path) == reached + 2


def test_a_takeover_that_dies_leaves_the_store_to_the_engine_that_has_it(tmp_path: Path) -> None:
    engine = Pretend.on(tmp_path / "store")
    dies(TAKING_OVER, tmp_path, "store.before_takeover")
    assert not engine.claim.superseded
    engine.run(1)
    engine.close()
    assert goes_on(tmp_path) == 3
