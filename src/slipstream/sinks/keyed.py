"""What became of the keys of a view's changed rows: which came, which became another row, which went.

A view whose sink keeps one row for each key must have no two rows of one key, and no key without a value. Both are
looked for here, in the rows that changed. That the key of a row that came was not there before is for the target to
find, which has them all: so the two are told apart, what came and what became another.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from slipstream.core.errors import KeyNotUnique, NoKey
from slipstream.sinks.base import Upsert

_NEW, _OLD = "new", "old"


def by_key(changes: pa.Table, key: Sequence[str], *, sink: str, view: str) -> Upsert:
    """Changes that were added up, the last column how often, as what is to be done by key."""
    width = changes.num_columns - 1
    rows, diff = changes.select(list(range(width))), changes.column(width)
    new, old = rows.filter(pc.greater(diff, 0)), rows.filter(pc.less(diff, 0))
    check_keys(new, key, sink=sink, view=view, times=pc.filter(diff, pc.greater(diff, 0)))
    gone = _keys(old, key).group_by(_names(key)).aggregate([])
    both = _numbered(_keys(new, key), _NEW).join(_numbered(gone, _OLD), _names(key), join_type="full outer")
    came, was = both.column(_NEW), both.column(_OLD)
    deleted = both.filter(pc.is_null(came)).select(_names(key))
    return Upsert(
        inserted=new.take(_ascending(came.filter(pc.is_null(was)))),
        updated=new.take(_ascending(came.filter(pc.and_(pc.is_valid(came), pc.is_valid(was))))),
        deleted=deleted.rename_columns(list(key)),
    )


def check_keys(
    rows: pa.Table, key: Sequence[str], *, sink: str, view: str, times: pa.ChunkedArray | None = None
) -> None:
    """Raise if a key has no value, or more than one row. times: how often each row is there; once unless given."""
    keys = _keys(rows, key)
    for name, column in zip(key, keys.columns, strict=True):
        if column.null_count:
            raise NoKey(sink, view, name)
    if times is None:
        times = pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)])
    counted = keys.append_column("n", times).group_by(_names(key)).aggregate([("n", "sum")])
    twice = counted.filter(pc.greater(counted.column("n_sum"), 1))
    if twice.num_rows:
        first = twice.select(_names(key)).slice(0, 1).to_pylist()[0]
        raise KeyNotUnique(sink, view, ", ".join(repr(value) for value in first.values()))


def _names(key: Sequence[str]) -> list[str]:
    return [f"k{i}" for i in range(len(key))]


def _keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    return rows.select(list(key)).rename_columns(_names(key))


def _numbered(keys: pa.Table, name: str) -> pa.Table:
    return keys.append_column(name, pa.array(range(keys.num_rows), pa.int64()))


def _ascending(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return numbers.take(pc.sort_indices(numbers))
