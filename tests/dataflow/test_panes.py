"""Panes against the operators by window that they take the place of, fed with each row once for each of its windows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.errors import SumOverflow
from slipstream.dataflow.accumulate import Accumulate
from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.contents import Contents
from slipstream.dataflow.extreme import Extreme
from slipstream.dataflow.panes import LOWER, Panes, Windows
from slipstream.dataflow.sliding import Sliding
from slipstream.dataflow.task import Task
from slipstream.trace import Span
from slipstream.trace.naming import place_of

Row = tuple[int, int, int | None]
"""A key, a time and a value."""

Update = tuple[Row, int]
WHOLE = pa.int64()
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
ARGUMENTS = (Argument("long"), Argument("double", squares=True), Argument("decimal", scale=1))
BUFFERS = (
    Buffer("rows", -1, WHOLE),
    Buffer("sum", 0, WHOLE),
    Buffer("total", 1, pa.float64()),
    Buffer("m2", 1, pa.float64()),
    Buffer("sum", 2, pa.decimal128(38, 1)),
)
INPUT = pa.schema(
    [
        *(("h", WHOLE), ("k0", WHOLE), ("k1", WHOLE)),
        *(("x0", WHOLE), ("x1", pa.float64()), ("x2", pa.decimal128(38, 1)), ("diff", WHOLE)),
    ]
)
VALUES = pa.schema(
    [
        *(("h", WHOLE), ("k0", WHOLE), ("k1", WHOLE), ("p0", WHOLE), ("p1", WHOLE)),
        *(("e0", WHOLE), ("e1", WHOLE), ("diff", WHOLE)),
    ]
)
DOUBLES = {7: 1e300, 8: -1e300, 9: float("inf"), 10: 2.0**60}

rows = st.tuples(st.integers(0, 2), st.integers(-30, 30), st.none() | st.integers(0, 10))


@st.composite
def slidings(draw: st.DrawFn) -> Sliding:
    length = draw(st.integers(1, 12))
    return Sliding(length, draw(st.integers(1, length)), draw(st.integers(-5, 5)))


@st.composite
def deliveries(draw: st.DrawFn, owed: bool) -> list[list[Update]]:
    """Updates of epochs. owed: whether rows may be taken away before they come."""
    epochs: list[list[Update]] = []
    held: list[Row] = []
    for _ in range(draw(st.integers(1, 4))):
        come = draw(st.lists(rows, max_size=6))
        gone = draw(st.lists(st.sampled_from(held), max_size=3, unique=True)) if held else []
        if owed:
            gone += draw(st.lists(rows, max_size=2))
        held = [row for row in held if row not in gone] + come
        epochs.append([*((row, 1) for row in come), *((row, -1) for row in gone)])
    return epochs


def accumulate(trace: str) -> Accumulate:
    return Accumulate("v", trace, INPUT, ARGUMENTS, BUFFERS, emits=True)


def extreme(trace: str) -> Extreme:
    adding = Accumulate("v", trace, VALUES, (), BUFFERS[:1], emits=True)
    traces = (f"{trace}-0", f"{trace}-1")
    return Extreme(adding, traces, VALUES, (True, False), (("extreme", 0), ("sum", 0), ("extreme", 1)))


def by_pane(inner: Accumulate | Extreme, sliding: Sliding, bits: int) -> Panes:
    sums = inner if isinstance(inner, Accumulate) else inner.sums
    largest = () if isinstance(inner, Accumulate) else inner.largest
    return Panes(inner, Windows(sliding, 0, sums.arguments, sums.buffers, largest, bits), WINDOW, emits=True)


def batches(
    schema: pa.Schema, updates: Iterable[tuple[int, Row, int]], bits: int
) -> Iterator[pa.RecordBatch]:
    made = []
    cut = 64 - bits
    for number, (key, _, value), diff in updates:
        h = ((((key * 77777777777) & ~LOWER) | (number & LOWER)) >> cut) << cut
        known: dict[str, Any] = {
            "h": h,
            "k0": number,
            "k1": key,
            "x0": value,
            "diff": diff,
            "e0": value,
            "e1": value,
        }
        known["x1"] = None if value is None else DOUBLES.get(value, value / 4)
        known["x2"] = None if value is None else value
        known |= {"p0": 0 if value is None else -(value // 3), "p1": value or 0}
        made.append([known[name] for name in schema.names])
    columns = list(zip(*made, strict=True)) or [()] * len(schema)
    arrays = [pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def run(operator: Any, root: Path, epoch: int, given: Iterator[pa.RecordBatch]) -> Counter[str]:
    """What an operator emits in an epoch, added up: rows as texts, windows as their numbers."""
    task = Task(root, epoch, 1, 0, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "current", staticmethod(lambda: task))
        emitted = list(operator(given))
    total: Counter[str] = Counter()
    for row in (row for batch in emitted for row in _plain(batch)):
        total[repr([value for name, value in row.items() if name not in ("h", "diff")])] += row["diff"]
    return Counter({row: times for row, times in total.items() if times})


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    if "w" in batch.schema.names:
        starts = batch.column("w").field("start").cast(WHOLE)
        batch = batch.set_column(batch.schema.get_field_index("w"), "w", starts)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def in_panes(sliding: Sliding, updates: list[Update]) -> list[tuple[int, Row, int]]:
    return [((row[1] - sliding.offset) // sliding.pane, row, diff) for row, diff in updates]


def in_windows(sliding: Sliding, updates: list[Update]) -> list[tuple[int, Row, int]]:
    """Rows with the beginning of each window that they are in."""
    spread = []
    for row, diff in updates:
        last = (row[1] - sliding.offset) // sliding.slide
        for window in range(last - sliding.length - 1, last + 1):
            start = window * sliding.slide + sliding.offset
            if start <= row[1] < start + sliding.length:
                spread.append((start, row, diff))
    return spread


def shown(contents: Contents, root: Path, epoch: int) -> Counter[str]:
    tables = contents.now(root, epoch, Span.whole())
    return Counter(repr(list(row.values())) for table in tables for row in _rows(table))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return _plain(batch)


@settings(max_examples=30)
@given(slidings(), deliveries(owed=True), st.sampled_from([64, 20]))
def test_windows_of_panes_are_those_of_rows_also_while_rows_are_owed(
    sliding: Sliding, epochs: list[list[Update]], bits: int
) -> None:
    schema = pa.schema(
        [("w", WINDOW), ("k", WHOLE), *((f"b{i}", each.type) for i, each in enumerate(BUFFERS))]
    )
    columns = ("k0", "k1", *(f"b{i}" for i in range(len(BUFFERS))))
    with TemporaryDirectory() as folder:
        root = Path(folder)
        windows, panes = accumulate("windows"), by_pane(accumulate("panes"), sliding, bits)
        stored = panes.inner.layer_schema()
        said = Contents(
            "panes", schema, stored, columns, ARGUMENTS, BUFFERS, windows=panes.windows
        ).describe()
        contents = Contents.described(json.loads(json.dumps(said)))
        held: list[Counter[str]] = [Counter()]
        for number, updates in enumerate(epochs, 1):
            expected = run(windows, root, number, batches(INPUT, in_windows(sliding, updates), 64))
            assert run(panes, root, number, batches(INPUT, in_panes(sliding, updates), bits)) == expected
            held.append(Counter(held[-1]))
            held[-1].update(expected)
            held[-1] = +held[-1]
            assert shown(contents, root, number) == held[-1]
            assert contents.count(root, number) == held[-1].total()
        for since in range(len(epochs)):
            changed: Counter[str] = Counter(held[since])
            for row in _rows(contents.changes(root, since, len(epochs), Span.whole())):
                changed[repr(list(row.values())[:-2])] += row["_diff"]
            assert {row: times for row, times in changed.items() if times} == held[-1]


@settings(max_examples=30)
@given(slidings(), deliveries(owed=False), st.sampled_from([64, 20]))
def test_extremes_of_panes_are_those_of_rows(sliding: Sliding, epochs: list[list[Update]], bits: int) -> None:
    with TemporaryDirectory() as folder:
        windows, panes = extreme("windows"), by_pane(extreme("panes"), sliding, bits)
        for number, updates in enumerate(epochs, 1):
            expected = run(windows, Path(folder), number, batches(VALUES, in_windows(sliding, updates), 64))
            made = run(panes, Path(folder), number, batches(VALUES, in_panes(sliding, updates), bits))
            assert made == expected


def test_a_sum_of_panes_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    panes = by_pane(accumulate("panes"), Sliding(2, 1), 64)
    large = 2**62
    given = batches(INPUT, in_panes(Sliding(2, 1), [((0, 0, large), 1), ((0, 1, large), 1)]), 64)
    with pytest.raises(SumOverflow):
        run(panes, tmp_path, 1, given)


def test_a_key_is_never_cut_in_two_however_little_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sliding = Sliding(6, 2)
    panes = by_pane(accumulate("panes"), sliding, 64)
    updates: list[Update] = [((key, time, 1), 1) for key in range(3) for time in range(-20, 20, 3)]
    expected = run(panes, tmp_path, 1, batches(INPUT, in_panes(sliding, updates), 64))
    schema = pa.schema(
        [("w", WINDOW), ("k", WHOLE), *((f"b{i}", each.type) for i, each in enumerate(BUFFERS))]
    )
    columns = ("k0", "k1", *(f"b{i}" for i in range(len(BUFFERS))))
    stored = panes.inner.layer_schema()
    contents = Contents("panes", schema, stored, columns, ARGUMENTS, BUFFERS, windows=panes.windows)
    monkeypatch.setattr("slipstream.trace.reader.chunk_rows", lambda pieces: 2)
    monkeypatch.setattr("slipstream.dataflow.panes._MOST_WINDOWS", 3)
    assert shown(contents, tmp_path, 1) == expected
    assert contents.count(tmp_path, 1) == expected.total()
    cut = by_pane(accumulate("pieces"), sliding, 64)
    assert run(cut, tmp_path, 1, batches(INPUT, in_panes(sliding, updates), 64)) == expected


def test_a_pane_is_hashed_as_it_always_was() -> None:
    """Traces are sorted by it, and lie in shards by what it has above the pane's bits: another is another trace."""
    windows = Windows(Sliding(10, 5, 0), 0)
    assert LOWER == (1 << 33) - 1
    key = np.array([7 << 33 | 12345, -(3 << 33)], dtype=np.int64)
    h = windows.h(key, np.array([-1, 6], dtype=np.int64))
    assert h.tolist() == [(7 << 33) + LOWER, -(3 << 33) + 6]
    assert place_of(int(h[0])) == place_of(7 << 33), "all panes of a key lie in one place"
