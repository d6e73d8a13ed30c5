"""Min and max through inserts and deletes, against Python's own; and what a deletion reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.dataflow.accumulate import Accumulate
from slipstream.dataflow.accumulators import Buffer
from slipstream.dataflow.extreme import Extreme
from slipstream.dataflow.task import Task
from slipstream.trace import TraceReader

WHOLE = pa.int64()
INPUT = pa.schema(
    [
        ("h", WHOLE),
        ("k0", WHOLE),
        ("p0", WHOLE),
        ("p1", WHOLE),
        ("e0", WHOLE),
        ("e1", pa.string()),
        ("diff", WHOLE),
    ]
)
ROWS = Buffer("rows", -1, WHOLE)
EXTREME = Extreme(
    Accumulate("v", "totals", INPUT, (), (ROWS,), emits=True),
    ("largest", "smallest"),
    INPUT,
    (True, False),
    (("extreme", 0), ("sum", 0), ("extreme", 1)),
)
Row = tuple[int, int | None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return runner(tmp_path, monkeypatch)


def runner(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs an epoch over (key, value, diff); what it emits as (key, max, rows, min as text, diff)."""
    epochs = iter(range(1, 1000))

    def run(changes: list[tuple[int, int | None, int]]) -> list[tuple[Any, ...]]:
        task = Task(root, next(epochs), 1, 0, 1)
        monkeypatch.setattr(Task, "current", staticmethod(lambda: task))
        made = list(EXTREME(batches(changes)))
        table = pa.Table.from_batches(made, EXTREME.output())
        columns = [table[name].to_pylist() for name in ("k0", "b0", "b1", "b2", "diff")]
        return sorted(zip(*columns, strict=True), key=repr)

    return run


def batches(changes: list[tuple[int, int | None, int]]) -> Iterator[pa.RecordBatch]:
    rows = [
        {
            "h": key % 2,
            "k0": key,
            "p0": 0 if value is None else -(value // 2),
            "p1": 0,  # a prefix that says nothing
            "e0": value,
            "e1": None if value is None else f"{value:03}",
            "diff": diff,
        }
        for key, value, diff in changes
    ]
    yield pa.RecordBatch.from_pylist(rows, schema=INPUT)


def test_taking_the_largest_away_shows_the_next(run: Any) -> None:
    assert run([(1, 5, 1), (1, 9, 1), (1, 8, 1)]) == [(1, 9, 3, "005", 1)]
    assert run([(1, 9, -1)]) == [(1, 8, 2, "005", 1), (1, 9, 3, "005", -1)]
    assert run([(1, 5, -1), (1, 7, 1)]) == [(1, 8, 2, "005", -1), (1, 8, 2, "007", 1)]


def test_a_group_of_nulls_has_no_extreme_and_a_group_of_nothing_no_row(run: Any) -> None:
    assert run([(1, 4, 1), (1, None, 1)]) == [(1, 4, 2, "004", 1)]
    assert run([(1, 4, -1)]) == [(1, 4, 2, "004", -1), (1, None, 1, None, 1)]
    assert run([(1, None, -1)]) == [(1, None, 1, None, -1)]


def test_what_is_not_the_extreme_is_taken_away_without_a_look_at_the_others(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run([(1, value, 1) for value in range(100)])
    monkeypatch.delattr(TraceReader, "heads")
    assert run([(1, 50, -1), (1, 200, 1)]) == [(1, 200, 100, "000", 1), (1, 99, 100, "000", -1)]
    with pytest.raises(AttributeError, match="heads"):
        run([(1, 200, -1)])


changes = st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 30), st.booleans()), max_size=25)


@settings(max_examples=40)
@given(st.lists(changes, min_size=1, max_size=6))
def test_every_epoch_emits_the_difference_of_the_true_extremes(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[list[tuple[int, int | None, bool]]]
) -> None:
    held: list[Row] = []

    def truth() -> set[tuple[Any, ...]]:
        shown = set()
        for key in {key for key, _ in held}:
            rows = [value for k, value in held if k == key]
            values = [value for value in rows if value is not None]
            least = f"{min(values):03}" if values else None
            shown.add((key, max(values, default=None), len(rows), least))
        return shown

    with pytest.MonkeyPatch.context() as patch:
        run = runner(tmp_path_factory.mktemp("extreme"), patch)
        for drawn in epochs:
            before, change = truth(), []
            for key, value, adds in drawn:
                if adds:
                    held.append((key, value))
                elif (key, value) in held:
                    held.remove((key, value))
                else:
                    continue
                change.append((key, value, 1 if adds else -1))
            after = truth()
            wanted = [(*row, -1) for row in before - after] + [(*row, 1) for row in after - before]
            assert run(change) == sorted(wanted, key=repr)
