"""What a view's changes come to."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slipstream.observe.netting import netted

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.string()))])
UPDATES = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.sampled_from(["a", "b"]), max_size=1), st.integers(-2, 2)),
    max_size=12,
)


def parts(updates: list[tuple[int, list[str], int]], size: int) -> list[pa.Table]:
    wide = SCHEMA.append(pa.field("_epoch", pa.int64())).append(pa.field("_diff", pa.int64()))
    rows = [{"k": k, "v": v, "_epoch": n, "_diff": diff} for n, (k, v, diff) in enumerate(updates)]
    return [pa.Table.from_pylist(rows[at : at + size], schema=wide) for at in range(0, len(rows), size)]


@given(UPDATES, st.integers(1, 4))
def test_updates_are_added_up_whatever_tables_they_come_in(
    updates: list[tuple[int, list[str], int]], size: int
) -> None:
    expected: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for k, v, diff in updates:
        expected[k, tuple(v)] += diff
    net = netted(SCHEMA, parts(updates, size))
    found = [((row["k"], tuple(row["v"])), row["diff"]) for row in net.to_pylist()]
    assert dict(found) == {row: times for row, times in expected.items() if times}
    assert len(dict(found)) == len(found)
    assert net.schema.names == ["k", "v", "diff"]
