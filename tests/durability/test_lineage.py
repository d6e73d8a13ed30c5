"""The lineage log: what it says of epochs that were cut, computed and dropped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slipstream.durability.lineage import Computed, Cut, LineageWriter, computed_frontier, read_history
from slipstream.durability.timetravel import resolve_epoch
from slipstream.errors import UnknownEpoch


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "lineage").mkdir()
    return tmp_path


@pytest.fixture
def log(root: Path) -> Iterator[LineageWriter]:
    writer = LineageWriter(root, 1)
    yield writer
    writer.close()


def run(log: LineageWriter, epoch: int, **ranges: object) -> None:
    log.cut(Cut(epoch, 100.0 + epoch, ranges))
    log.computed(Computed(epoch, 100.5 + epoch, 0.1, 10))


def test_an_empty_store_is_at_epoch_0(root: Path) -> None:
    assert computed_frontier(root) == 0
    assert read_history(root).pending is None
    with pytest.raises(UnknownEpoch, match="nothing has been computed yet"):
        read_history(root).at(0)


def test_incarnations_follow_one_another(root: Path) -> None:
    first = LineageWriter(root, 1)
    run(first, 1, orders=[0, 5])
    first.cut(Cut(2, 102.0, {"orders": [5, 9]}))
    first.close()
    assert computed_frontier(root) == 1
    history = read_history(root)
    assert history.pending == Cut(2, 102.0, {"orders": [5, 9]})
    assert history.consumed("orders") == [[0, 5]]
    second = LineageWriter(root, 2)
    run(second, 2, orders=[5, 9], customers=[0, 1])
    second.close()
    assert computed_frontier(root) == 2
    assert read_history(root).consumed("orders") == [[0, 5], [5, 9]]
    assert read_history(root).consumed("customers") == [[0, 1]]
    assert read_history(root).pending is None


def test_a_dropped_cut_is_not_pending(root: Path, log: LineageWriter) -> None:
    run(log, 1, orders=[0, 5])
    log.cut(Cut(2, 102.0, {"orders": [5, 9]}))
    log.dropped(2)
    assert read_history(root).pending is None


def test_a_torn_last_line_is_not_there(root: Path, log: LineageWriter) -> None:
    run(log, 1, orders=[0, 5])
    with (root / "lineage" / "1.jsonl").open("a") as torn:
        torn.write('{"computed":2,"clo')
    assert computed_frontier(root) == 1
    assert read_history(root).frontier == 1


def test_the_frontier_is_found_behind_a_long_tail(root: Path, log: LineageWriter) -> None:
    run(log, 1, orders=[0, 5])
    log.cut(Cut(2, 102.0, {"orders": ["x" * 300_000]}))
    assert computed_frontier(root) == 1


def test_as_of_is_an_epoch_a_time_or_now(root: Path, log: LineageWriter) -> None:
    run(log, 1)
    run(log, 2)
    assert resolve_epoch(root, None) == 2
    assert resolve_epoch(root, "1") == 1
    assert resolve_epoch(root, datetime.fromtimestamp(101.9, UTC)) == 1
    assert resolve_epoch(root, "1970-01-01T00:01:43+00:00") == 2
    with pytest.raises(UnknownEpoch, match="computed up to epoch 2"):
        resolve_epoch(root, 3)
    with pytest.raises(UnknownEpoch, match="neither an epoch nor a time"):
        resolve_epoch(root, "yesterday")
    with pytest.raises(UnknownEpoch, match="the first epoch was computed at"):
        resolve_epoch(root, datetime.fromtimestamp(1, UTC))


def test_watermarks_and_event_times_are_told_as_of_the_last_computed_epoch(
    root: Path, log: LineageWriter
) -> None:
    run(log, 1)
    assert (read_history(root).watermarks, read_history(root).latest) == ({}, {})
    log.cut(Cut(2, 102.0, {}, {"t.ts": 5}))
    log.computed(Computed(2, 102.5, 0.1, 10, {}, {"v_late": 3}, {"t.ts": 9}))
    log.cut(Cut(3, 103.0, {}, {"t.ts": 7}))
    past = read_history(root)
    assert (past.watermarks, past.latest, past.computed[-1].late) == ({"t.ts": 5}, {"t.ts": 9}, {"v_late": 3})
    assert past.pending == Cut(3, 103.0, {}, {"t.ts": 7})
