"""Rows put aside: those of a join's large input, kept where they lie while the small input is broadcast.

A join keeps both inputs by its key, and for that it shuffles them. While one of them does not change, the key of the
other is of no use to anyone: its rows may as well be kept by the task that made them. They have a hash that lies
among those of the task's own shard, so that to everything else theirs is a trace like any other, and the hash of the
join's key as one more value, last, for the day on which they are needed by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from slipstream.trace import Span, hashes_within
from slipstream.trace.rows import column, consolidate, integers, layer_schema, value_columns

MOVED = 2
"""The side of rows that are moved back: no change of the join's input, but long known."""


@dataclass(frozen=True)
class Aside:
    """large: the input whose rows may be put aside, 0 the left one and 1 the right. moving: in this plan what was
    put aside is moved back (`broadcast.Move`).
    """

    trace: str
    large: int
    moving: bool = False

    @property
    def small(self) -> int:
        return 1 - self.large


def put_aside(rows: pa.Table, span: Span) -> pa.Table:
    """Rows of an input, as they are put aside by the task that owns a span."""
    placed = pa.array(hashes_within(span, integers(rows, "r")))
    values = {name: column(rows, name) for name in rows.column_names if name not in ("h", "epoch", "diff")}
    values[f"v{len(value_columns(rows.schema))}"] = column(rows, "h")
    table = pa.table({"h": placed, **values, "epoch": column(rows, "epoch"), "diff": column(rows, "diff")})
    schema = layer_schema(table.schema)
    return consolidate(table.select(schema.names).cast(schema))


def key_hash(schema: pa.Schema) -> str:
    """The column of rows put aside that has the hash of the join's key."""
    return value_columns(schema)[-1]
