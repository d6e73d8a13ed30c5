"""The crash points of the agent, each visited in a process of its own, without Spark, and gone on from.

The engine is one that computes nothing (`slipstream.testing.pretend`), so what must be there afterwards is a formula.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.core.crashing import VARIABLE
from slipstream.testing.copies import check_replica_holds
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected

REPLICATING = """
import sys
from pathlib import Path
from slipstream.core.clock import ManualClock
from slipstream.testing.pretend import Pretend

folder = Path(sys.argv[1])
engine = Pretend.on(folder / "store")
clock = ManualClock()
agent = engine.agent(f"file://{folder}/replica", clock=clock)
for _ in range(12):
    word = engine.run(2)
    clock.advance(1.0)
    agent.lineage()
    agent.all(word)
"""


def dies(folder: Path, point: str, times: int) -> None:
    """Run an engine and its agent that end at a point."""
    ran = subprocess.run(
        [sys.executable, "-c", REPLICATING, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, VARIABLE: f"{point}:{times}"},
    )
    assert ran.returncode == -signal.SIGKILL, f"the point was not visited: {ran.stderr}"


@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("replica.before_claim", 1),
        ("replica.after_claim", 1),
        ("replica.before_lineage", 2),
        ("replica.after_lineage", 2),
        ("replica.before_upload", 4),
        ("replica.after_upload", 4),
        ("replica.before_commit", 2),
        ("replica.after_commit", 2),
        ("replica.before_discard", 1),
        ("replica.after_discard", 2),
        ("upkeep.before_merge", 2),
        ("upkeep.after_merge", 2),
        ("upkeep.before_remove", 2),
        ("upkeep.after_remove", 2),
    ],
)
def test_an_agent_that_dies_is_made_up_for(tmp_path: Path, point: str, times: int) -> None:
    dies(tmp_path, point, times)
    url = f"file://{tmp_path}/replica"
    engine = Pretend.on(tmp_path / "store")
    agent = engine.agent(url)
    for _ in range(2):
        agent.all(engine.run(1))
    engine.close()
    for trace in (BAG, KEYED):
        assert contents(engine.root, trace, engine.epoch) == expected(trace, engine.epoch)
    check_replica_holds(url, tmp_path / "back", 1, engine.epoch)
