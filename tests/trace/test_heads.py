"""The first rows of keys against a plain dictionary: layers, merging, collisions of hashes, rows taken away."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.testing.merging import upkeep
from slipstream.trace import Span, TraceReader, TraceWriter

Update = tuple[int, int, bool]
"""A key, a value, and whether it is added (or else taken away, if it is there)."""

updates = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 60), st.sampled_from([True, True, False])), max_size=40
)


def hashed(key: int) -> int:
    return (key % 2) << 40  # five keys, two hashes


def prefix(value: int) -> int:
    return value // 2  # a prefix of the order: neighbours tie


def change(rows: list[tuple[int, int, int]], epoch: int) -> pa.Table:
    columns = {
        "h": [hashed(key) for key, _, _ in rows],
        "r": [prefix(value) for _, value, _ in rows],
        "k0": [key for key, _, _ in rows],
        "v0": [value for _, value, _ in rows],
        "epoch": [epoch] * len(rows),
        "diff": [diff for _, _, diff in rows],
    }
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


@settings(max_examples=60)
@given(st.lists(updates, min_size=1, max_size=6), st.booleans())
def test_the_first_rows_of_each_key_are_those_with_the_least_prefix(
    epochs: list[list[Update]], merging: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        held: Counter[tuple[int, int]] = Counter()
        for epoch, drawn in enumerate(epochs, 1):
            rows = []
            for key, value, adds in drawn:
                if adds or held[key, value] > 0:
                    rows.append((key, value, 1 if adds else -1))
                    held[key, value] += 1 if adds else -1
            TraceWriter(Path(folder), 1).write(epoch, Span.whole(), change(rows, epoch), is_sorted=False)
            if merging:
                upkeep(Path(folder), epoch, None)
        probes = sorted(range(6), key=hashed)
        reader = TraceReader(Path(folder), len(epochs), Span.whole())
        asked, found, owed = reader.heads(np.array([hashed(k) for k in probes]), [pa.array(probes)])
        assert not owed.any()
        got = [(probes[i], value) for i, value in zip(asked.tolist(), found["v0"].to_pylist(), strict=True)]
    wanted = []
    for key in probes:
        values = [value for (k, value), count in held.items() if k == key and count > 0]
        wanted += [(key, value) for value in values if prefix(value) == min(map(prefix, values))]
    assert sorted(got) == sorted(wanted)


def test_rows_that_were_all_taken_away_again_are_passed_over(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, 1)
    writer.write(1, Span.whole(), change([(0, 2 * i, 1) for i in range(1000)], 1), is_sorted=False)
    writer.write(2, Span.whole(), change([(0, 2 * i, -1) for i in range(700)], 2), is_sorted=False)
    for as_of, least in ((1, 0), (2, 1400)):
        asked, found, owed = TraceReader(tmp_path, as_of, Span.whole()).heads(np.array([0]), [pa.array([0])])
        assert (asked.tolist(), found["v0"].to_pylist(), owed.tolist()) == ([0], [least], [False])


def test_rows_that_are_owed_are_passed_over_and_told(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, 1)
    writer.write(1, Span.whole(), change([(0, 8, -1), (0, 20, 1), (0, 30, -1)], 1), is_sorted=False)
    writer.write(2, Span.whole(), change([(0, 8, 1)], 2), is_sorted=False)
    writer.write(3, Span.whole(), change([(0, 20, -1)], 3), is_sorted=False)
    for as_of, values, owes in ((1, [20], True), (2, [20], False), (3, [], True)):
        _, found, owed = TraceReader(tmp_path, as_of, Span.whole()).heads(np.array([0]), [pa.array([0])])
        assert (found["v0"].to_pylist(), owed.tolist()) == (values, [owes])
