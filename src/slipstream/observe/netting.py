"""What a view's changes over some epochs come to: each row once, with how much more often it is there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from slipstream.durability.hashing import row_hashes
from slipstream.trace import consolidate

DIFF = "diff"


def netted(schema: pa.Schema, updates: Iterable[pa.Table]) -> pa.Table:
    """A view's updates, added up. updates: tables of the view's columns, in their order, and last how often. The result
    has the columns of the view and `diff`, none of it zero.
    """
    width = len(schema)
    named = [f"v{i}" for i in range(width)]
    parts = []
    for table in updates:
        if not table.num_rows:
            continue
        rows = table.select(list(range(width))) if table.num_columns > width else table
        rows = pa.Table.from_arrays([*rows.columns], names=named).combine_chunks()
        hashes = pa.array(row_hashes(rows).view(np.int64))
        epochs = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
        diffs = table.column(table.num_columns - 1).combine_chunks().cast(pa.int64())
        columns = [hashes, hashes, *rows.columns, epochs, diffs]
        parts.append(pa.Table.from_arrays(columns, names=["h", "r", *named, "epoch", "diff"]))
    if not parts:
        return schema.empty_table().append_column(DIFF, pa.array([], pa.int64()))
    changed = consolidate(pa.concat_tables(parts).combine_chunks())
    columns = [changed.column(name) for name in named]
    diffs = changed.column("diff")
    return pa.Table.from_arrays([*columns, diffs], schema=schema.append(pa.field(DIFF, pa.int64())))
