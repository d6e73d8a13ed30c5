"""What became of keys: against a plain model, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.errors import KeyNotUnique, NoKey
from slipstream.sinks import by_key, check_keys

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.list_(pa.int64()))])
CONTENTS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.sampled_from(["x", "y"])), st.lists(st.integers(0, 2), max_size=2)
)


def changes(rows: list[tuple[object, ...]], times: list[int]) -> pa.Table:
    named = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(named, schema=SCHEMA).append_column("diff", pa.array(times, pa.int64()))


@given(CONTENTS, CONTENTS)
def test_from_one_contents_to_another(
    before: dict[tuple[int, str], list[int]], after: dict[tuple[int, str], list[int]]
) -> None:
    gone = [(*key, value) for key, value in before.items() if after.get(key) != value]
    come = [(*key, value) for key, value in after.items() if before.get(key) != value]
    found = by_key(
        changes([*gone, *come], [-1] * len(gone) + [1] * len(come)), ["a", "b"], sink="sink", view="view"
    )
    now = dict(before)
    for row in found.deleted.to_pylist():
        del now[row["a"], row["b"]]
    for row in found.updated.to_pylist():
        assert (row["a"], row["b"]) in now
        now[row["a"], row["b"]] = row["v"]
    for row in found.inserted.to_pylist():
        assert (row["a"], row["b"]) not in now
        now[row["a"], row["b"]] = row["v"]
    assert now == after


@pytest.mark.parametrize(
    ("rows", "times"), [([(1, "x", [1]), (1, "x", [2])], [1, 1]), ([(1, "x", [1])], [2])]
)
def test_two_rows_of_a_key_are_refused(rows: list[tuple[object, ...]], times: list[int]) -> None:
    with pytest.raises(KeyNotUnique, match=r"view 'view' has several rows with the key 1, 'x'"):
        by_key(changes(rows, times), ["a", "b"], sink="sink", view="view")


def test_a_key_without_a_value_is_refused() -> None:
    with pytest.raises(NoKey, match=r"whose key column 'b' is NULL"):
        by_key(changes([(1, None, [])], [1]), ["a", "b"], sink="sink", view="view")


def test_rows_that_went_may_be_many_of_a_key() -> None:
    found = by_key(changes([(1, "x", [1]), (1, "x", [2])], [-1, -2]), ["a", "b"], sink="sink", view="view")
    assert found.deleted.to_pylist() == [{"a": 1, "b": "x"}]


def test_all_rows_of_a_view_are_looked_at() -> None:
    rows = changes([(1, "x", []), (2, "x", [])], [1, 1]).drop_columns(["diff"])
    check_keys(rows, ["a"], sink="sink", view="view")
    with pytest.raises(KeyNotUnique):
        check_keys(rows, ["b"], sink="sink", view="view")
