"""Traces of both kinds against plain dictionaries, with hashes of three bits so that collisions are everywhere."""

from __future__ import annotations

import datetime
import math
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.durability.checksum import change_sum, state_sum
from slipstream.testing.merging import upkeep
from slipstream.trace import (
    Span,
    TraceReader,
    TraceWriter,
    places,
    policy,
    reader,
    scan,
    sealing,
    shard_span,
    validate,
)
from slipstream.trace.naming import Ints

NAN = float("nan")
NESTED = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))])
DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 5, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Kit:
    """Column types, and rows to draw from."""

    types: tuple[pa.DataType, ...]
    rows: tuple[tuple[Any, ...], ...]


KEYS = {
    "none": Kit((), ((),)),
    "integers": Kit((pa.int64(),), ((None,), (0,), (1,), (-5,), (2**62,), (7,))),
    "floats": Kit((pa.float64(),), ((None,), (NAN,), (0.0,), (-0.0,), (1.5,), (-math.inf,))),
    "strings": Kit((pa.string(),), ((None,), ("",), ("a",), ("nan",), ("None",), ("é",))),
    "decimals": Kit(
        (pa.decimal128(10, 2),), ((None,), (Decimal("0.00"),), (Decimal("-1.10"),), (Decimal("1.10"),))
    ),
    "several": Kit(
        (pa.bool_(), pa.date32(), pa.binary(), pa.timestamp("us", tz="UTC")),
        (
            (None, None, None, None),
            (True, DAY, b"", MOMENT),
            (True, DAY, b"\0", MOMENT),
            (False, None, b"", None),
        ),
    ),
    "nested": Kit(
        (NESTED,),
        (
            (None,),
            ({"a": NAN, "b": None},),
            ({"a": None, "b": []},),
            ({"a": -0.0, "b": [None, "x"]},),
            ({"a": 0.0, "b": [None, "x"]},),
            ({"a": 1.0, "b": ["x"]},),
        ),
    ),
}
VALUES = {
    "float": Kit((pa.float64(),), ((None,), (NAN,), (1.25,), (0.0,))),
    "text and map": Kit(
        (pa.string(), pa.map_(pa.string(), pa.int64())),
        ((None, None), ("x", []), ("x", [("p", 1), ("q", None)]), ("x", [("q", None), ("p", 1)])),
    ),
    "nothing": Kit((), ((),)),
}


def canonical(value: Any) -> Any:
    """Hashable, and equal where grouping says so. A list of pairs is a map, whose order does not count."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(canonical(v) for v in value.values())
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return tuple(sorted((canonical(v) for v in value), key=repr))
    if isinstance(value, list | tuple):
        return tuple(canonical(v) for v in value)
    return value


def short_hash(value: Any) -> int:
    return (zlib.crc32(repr(canonical(value)).encode()) % 8 - 4) << 61


def as_table(keys: Kit, values: Kit, rows: list[tuple[Any, Any, int]], *, bag: bool) -> pa.Table:
    columns: dict[str, pa.Array] = {"h": pa.array([short_hash(k) for k, _, _ in rows], pa.int64())}
    if bag:
        columns["r"] = pa.array([short_hash((k, v)) >> 60 for k, v, _ in rows], pa.int64())
    for i, kind in enumerate(keys.types):
        columns[f"k{i}"] = pa.array([k[i] for k, _, _ in rows], kind)
    for i, kind in enumerate(values.types):
        columns[f"v{i}"] = pa.array([v[i] for _, v, _ in rows], kind)
    columns["diff"] = pa.array([d for _, _, d in rows], pa.int64())
    return pa.table(columns)


def parts_of(table: pa.Table, keys: Kit, values: Kit) -> Iterator[tuple[Any, Any]]:
    """The (key, value) of each row of a table, canonical."""
    columns = [table.column(f"k{i}").to_pylist() for i in range(len(keys.types))]
    shown = [table.column(f"v{i}").to_pylist() for i in range(len(values.types))]
    for row in range(table.num_rows):
        yield canonical(tuple(c[row] for c in columns)), canonical(tuple(c[row] for c in shown))


def counted(tables: list[pa.Table], keys: Kit, values: Kit, *, weighed: bool) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for table in tables:
        diffs = table.column("diff").to_pylist() if weighed else [1] * table.num_rows
        for row, diff in zip(parts_of(table, keys, values), diffs, strict=True):
            total[row] += diff
    return Counter({row: n for row, n in total.items() if n})


def write_epoch(directory: Path, epoch: int, shards: int, table: pa.Table) -> None:
    """Each shard's rows, twice and in another order the second time, which must give the same bytes."""
    at = places(table.column("h").combine_chunks().to_numpy())
    for shard in range(shards):
        span = shard_span(shard, shards)
        rows = np.flatnonzero((at >= span.start) & (at < span.stop))
        mine = table.take(pa.array(rows, pa.int64()))
        size = TraceWriter(directory, 1).write(epoch, span, mine)
        path = directory / f"000001-{epoch:010d}-{epoch:010d}-{span.start:08x}-{span.stop:08x}.log.arrow"
        first = path.read_bytes()
        assert len(first) == size
        TraceWriter(directory, 1).write(epoch, span, mine.take(pa.array(np.arange(len(rows))[::-1])))
        assert path.read_bytes() == first


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "FAN_IN", 2)
    monkeypatch.setattr(policy, "PACK_FAN_IN", 3)
    monkeypatch.setattr(policy, "SMALLEST_TIER", 900)
    monkeypatch.setattr(scan, "CHUNK_ROWS", 3)
    monkeypatch.setattr(reader, "_HEAD_ROWS", 1)
    monkeypatch.setattr(sealing, "PART_BYTES", 400)


many = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Script:
    """A random course of events: for each epoch the updates, the number of shards, and what upkeep follows."""

    keys: Kit
    values: Kit
    epochs: list[tuple[list[tuple[int, int, bool]], int, bool]]
    history: int | None


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    keys = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    update = st.tuples(
        st.integers(0, len(keys.rows) - 1), st.integers(0, len(values.rows) - 1), st.booleans()
    )
    steady = draw(st.booleans())
    shards = st.just(draw(st.integers(1, 4))) if steady else st.integers(1, 5)
    epoch = st.tuples(st.lists(update, max_size=6), shards, st.booleans())
    return Script(
        keys, values, draw(st.lists(epoch, min_size=1, max_size=12)), draw(st.none() | st.integers(0, 6))
    )


def probes(keys: Kit) -> tuple[Ints, list[pa.Array], list[Any]]:
    ordered = sorted(keys.rows, key=short_hash)
    arrays = [pa.array([row[i] for row in ordered], kind) for i, kind in enumerate(keys.types)]
    return (
        np.array([short_hash(row) for row in ordered], dtype=np.int64),
        arrays,
        [canonical(row) for row in ordered],
    )


@many
@given(scripts())
def test_keyed_trace_equals_model(script: Script) -> None:
    keys, values = script.keys, script.values
    states: list[dict[Any, Any]] = [{}]
    with tempfile.TemporaryDirectory() as name:
        directory, earliest = Path(name), 0
        for epoch, (updates, shards, tidy) in enumerate(script.epochs, 1):
            versions = {
                canonical(keys.rows[k]): (keys.rows[k], values.rows[v], alive) for k, v, alive in updates
            }
            rows = [(k, v if alive else values.rows[0], int(alive)) for k, v, alive in versions.values()]
            write_epoch(directory, epoch, shards, as_table(keys, values, rows, bag=False))
            state = dict(states[-1])
            for key, (_, value, alive) in versions.items():
                state.pop(key, None)
                if alive:
                    state[key] = canonical(value)
            states.append(state)
            if tidy:
                earliest = epoch if script.history is None else max(earliest, epoch - script.history)
                keep_from = None if script.history is None else earliest
                upkeep(directory, epoch, keep_from)
            for t in range(max(earliest, 1), epoch + 1):
                check_keyed(directory, t, shards, keys, values, states[t])
        last = len(script.epochs)
        validate(directory, last, keep_from=earliest)
        check_keyed_changes(directory, earliest, last, keys, values, states)


def check_keyed(directory: Path, t: int, shards: int, keys: Kit, values: Kit, state: dict[Any, Any]) -> None:
    whole = TraceReader(directory, t, Span.whole())
    expected = Counter(state.items())
    assert counted(list(whole.snapshot()), keys, values, weighed=False) == expected
    by_shard = [TraceReader(directory, t, shard_span(i, shards)) for i in range(shards)]
    assert counted([c for r in by_shard for c in r.snapshot()], keys, values, weighed=False) == expected
    h, arrays, asked = probes(keys)
    found, table = whole.newest(h, arrays)
    assert found.tolist() == [key in state for key in asked]
    columns = [table.column(f"v{i}").to_pylist() for i in range(len(values.types))]
    for row, key in enumerate(asked):
        got = canonical(tuple(column[row] for column in columns))
        assert got == state.get(key, (None,) * len(values.types))


def check_keyed_changes(
    directory: Path, earliest: int, last: int, keys: Kit, values: Kit, states: list[dict[Any, Any]]
) -> None:
    for since in range(earliest, last):
        expected: Counter[Any] = Counter()
        for t in range(since + 1, last + 1):
            old, new = states[t - 1], states[t]
            for key in old.keys() | new.keys():
                if old.get(key) != new.get(key):
                    expected.update({(t, -1, (key, old[key])): 1} if key in old else {})
                    expected.update({(t, 1, (key, new[key])): 1} if key in new else {})
        table = TraceReader(directory, last, Span.whole()).changes(since, last)
        times, diffs = table.column("epoch").to_pylist(), table.column("diff").to_pylist()
        assert times == sorted(times)
        got = zip(times, diffs, parts_of(table, keys, values), strict=True)
        assert Counter(got) == expected


@many
@given(scripts())
def test_bag_equals_model(script: Script) -> None:
    keys, values = script.keys, script.values
    states: list[Counter[Any]] = [Counter()]
    deltas: list[Counter[Any]] = [Counter()]
    with tempfile.TemporaryDirectory() as name:
        directory, earliest = Path(name), 0
        for epoch, (updates, shards, tidy) in enumerate(script.epochs, 1):
            state, rows = Counter(states[-1]), []
            for k, v, add in updates:
                row = canonical((keys.rows[k], values.rows[v]))
                if add or state[row] > 0:
                    rows.append((keys.rows[k], values.rows[v], 1 if add else -1))
                    state[row] += rows[-1][2]
            write_epoch(directory, epoch, shards, as_table(keys, values, rows, bag=True))
            state = Counter({row: n for row, n in state.items() if n})
            delta = Counter(state)
            delta.subtract(states[-1])
            states.append(state)
            deltas.append(Counter({row: n for row, n in delta.items() if n}))
            if tidy:
                earliest = epoch if script.history is None else max(earliest, epoch - script.history)
                upkeep(directory, epoch, None if script.history is None else earliest)
            for t in range(max(earliest, 1), epoch + 1):
                check_bag(directory, t, shards, keys, values, states[t])
        last = len(script.epochs)
        validate(directory, last, keep_from=earliest)
        for since in range(earliest, last):
            table = TraceReader(directory, last, Span.whole()).changes(since, last)
            got: Counter[Any] = Counter()
            stamps = zip(table.column("epoch").to_pylist(), parts_of(table, keys, values), strict=True)
            for stamp, diff in zip(stamps, table.column("diff").to_pylist(), strict=True):
                got[stamp] += diff
            assert got == Counter(
                {(t, row): n for t in range(since + 1, last + 1) for row, n in deltas[t].items()}
            )


amounts = st.lists(
    st.tuples(st.integers(0, 5), st.integers(-2, 2), st.integers(-(2**40), 2**40), st.integers(-1, 1)),
    max_size=6,
)


@many
@given(st.lists(st.tuples(amounts, st.integers(1, 3), st.booleans()), min_size=1, max_size=10))
def test_sums_that_rows_carry_equal_model(epochs: list[tuple[list[tuple[int, ...]], int, bool]]) -> None:
    keys = KEYS["integers"]
    states: list[dict[Any, tuple[int, ...]]] = [{}]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for epoch, (updates, shards, tidy) in enumerate(epochs, 1):
            table = as_table(
                keys, VALUES["nothing"], [(keys.rows[k], (), n) for k, n, *_ in updates], bag=True
            )
            state = dict(states[-1])
            for i in (0, 1):
                table = table.append_column(f"s{i}", pa.array([each[2 + i] for each in updates], pa.int64()))
            for k, *added in updates:
                before = state.pop(keys.rows[k], (0, 0, 0))
                now = tuple(a + b for a, b in zip(before, added, strict=True))
                state |= {keys.rows[k]: now} if any(now) else {}
            states.append(state)
            write_epoch(directory, epoch, shards, table)
            if tidy:
                upkeep(directory, epoch, 0)
            for t in range(1, epoch + 1):
                check_sums(TraceReader(directory, t, Span.whole()), keys, states[t])
            assert change_sum(directory, 0, epoch) == state_sum(directory, epoch)
        validate(directory, len(epochs), keep_from=1)


def check_sums(whole: TraceReader, keys: Kit, state: dict[Any, tuple[int, ...]]) -> None:
    names = ["k0", "diff", "s0", "s1"]
    shown = [
        row
        for part in whole.snapshot(names)
        for row in zip(*(part[n].to_pylist() for n in names), strict=True)
    ]
    assert {(key,): tuple(sums) for key, *sums in shown} == state
    assert len(shown) == len(state)
    h, arrays, asked = probes(keys)
    index, found = whole.matches(h, arrays)
    got: dict[Any, list[int]] = {}
    for probe, *sums in zip(index.tolist(), *(found[n].to_pylist() for n in names[1:]), strict=True):
        got[asked[probe]] = [a + b for a, b in zip(got.get(asked[probe], (0, 0, 0)), sums, strict=True)]
    assert {key: tuple(sums) for key, sums in got.items() if any(sums)} == state


def check_bag(directory: Path, t: int, shards: int, keys: Kit, values: Kit, state: Counter[Any]) -> None:
    whole = TraceReader(directory, t, Span.whole())
    assert counted(list(whole.snapshot()), keys, values, weighed=True) == state
    by_shard = [TraceReader(directory, t, shard_span(i, shards)) for i in range(shards)]
    assert counted([c for r in by_shard for c in r.snapshot()], keys, values, weighed=True) == state
    h, arrays, asked = probes(keys)
    index, table = whole.matches(h, arrays)
    got: Counter[Any] = Counter()
    for probe, row, diff in zip(
        index.tolist(), parts_of(table, keys, values), table.column("diff").to_pylist(), strict=True
    ):
        assert row[0] == asked[probe]
        got[probe, row] += diff
    expected = {(i, row): n for i, key in enumerate(asked) for row, n in state.items() if row[0] == key}
    assert Counter({row: n for row, n in got.items() if n}) == Counter(expected)
    check_head(whole, keys, values, state)


def check_head(whole: TraceReader, keys: Kit, values: Kit, state: Counter[Any]) -> None:
    for n in (0, 1, 3, 100):
        prefix: Counter[Any] = Counter()
        for h in sorted({short_hash(key) for key, _ in state}):
            if prefix.total() >= n:
                break
            prefix.update({row: m for row, m in state.items() if short_hash(row[0]) == h})
        assert counted([whole.head(n)], keys, values, weighed=True) == prefix
