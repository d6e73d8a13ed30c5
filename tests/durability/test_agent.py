"""The agent as a real process: it merges, it may be killed, it ends with its engine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from slipstream.durability.agent import Agent, Charge, Word, rest_within
from slipstream.durability.store import Store
from slipstream.settings import Exposure
from slipstream.trace import Span, TraceReader, TraceWriter, list_layers, validate

TRACE = "traces/view/1-view"


def write(root: Path, epochs: range) -> None:
    for epoch in epochs:
        ones = np.ones(10, dtype=np.int64)
        keys = np.arange(10, dtype=np.int64)
        table = pa.table({"h": keys, "r": keys, "v0": keys, "diff": ones})
        TraceWriter(root / TRACE, 1).write(epoch, Span.whole(), table)


def contents(root: Path, epoch: int) -> int:
    tables = TraceReader(root / TRACE, epoch, Span.whole()).snapshot()
    return sum(int(table["diff"].to_numpy().sum()) for table in tables)


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return False


def test_layers_are_merged_and_a_killed_agent_is_started_again(tmp_path: Path) -> None:
    write(tmp_path, range(1, 21))
    agent = Agent(Charge(str(tmp_path)))
    try:
        agent.tell(Word(20, 0, ()))
        assert eventually(lambda: len(list_layers(tmp_path / TRACE)) < 5), "history is not kept"
        killed = agent.pid
        os.kill(killed, signal.SIGKILL)
        write(tmp_path, range(21, 41))

        def told_again() -> bool:
            agent.tell(Word(40, 0, ()))
            return agent.pid != killed

        assert eventually(told_again)
        assert eventually(lambda: len(list_layers(tmp_path / TRACE)) < 8)
    finally:
        agent.close()
    assert contents(tmp_path, 40) == 400
    validate(tmp_path / TRACE, 40)


def test_history_that_is_wanted_is_kept(tmp_path: Path) -> None:
    write(tmp_path, range(1, 21))
    agent = Agent(Charge(str(tmp_path)))
    try:
        agent.tell(Word(20, 5, (TRACE,)))
        assert eventually(lambda: any(name.hi > name.lo for name in list_layers(tmp_path / TRACE)))
    finally:
        agent.close()
    assert [contents(tmp_path, epoch) for epoch in range(5, 21)] == [10 * epoch for epoch in range(5, 21)]


def test_layers_of_an_epoch_that_was_never_computed_are_discarded(tmp_path: Path) -> None:
    claim = Store.claim(tmp_path, "app")
    write(tmp_path, range(1, 4))
    assert claim.store.discard_after(2) == 1
    assert contents(tmp_path, 2) == 20
    assert claim.store.running()
    claim.release()
    assert not claim.store.running()
    again = Store.claim(tmp_path, "app")
    assert again.incarnation == 2
    again.release()


@pytest.mark.parametrize(
    ("limit", "rest"),
    [
        (Exposure(), 10.0),
        (Exposure(seconds=2.0), 0.5),
        (Exposure(seconds=3600), 10.0),
        (Exposure(bytes=1), 1.0),
    ],
)
def test_an_agent_rests_no_longer_than_what_may_be_unsafe_allows(limit: Exposure, rest: float) -> None:
    assert rest_within(limit) == rest
