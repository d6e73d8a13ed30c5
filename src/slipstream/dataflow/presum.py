"""Presum: adding up what a side of a join keeps as sums where its rows are made, before they are sent to the join.

Rule: the join would add up the rows of one key and one value to group by, and adding is associative. So a task may add
up its own and send one row for each, with its multiplicity and its sums, which the join takes as it takes those of its
trace. It pays where an epoch has many rows for each key that it touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from slipstream.dataflow.combine import PARTIAL
from slipstream.dataflow.join import SIDES, SUMS, Summed, brought_columns, one_side, sums_of
from slipstream.dataflow.task import emit, gather, with_diffs


@dataclass(frozen=True)
class Presum:
    """Input columns: h, r, k0.., the values of the side, y0.. of the side, diff unless all are 1. It keeps nothing, so
    any partition will do.
    """

    trace: str  # of the side
    side: int
    summed: tuple[Summed, ...]
    input: pa.Schema

    @property
    def __name__(self) -> str:
        """Its name in Spark's plan, by which its metrics are found."""
        return f"{self.trace}{PARTIAL}"

    def output(self) -> pa.Schema:
        """The columns of the join that this side has: those of the input, but its sums for what is added up."""
        own = [field for field in self.input if field.name != "diff" and field.name[0] != "y"]
        added = [*brought_columns(self.summed, self.side), "diff"]
        return pa.schema([*own, *(pa.field(name, pa.int64()) for name in added)])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = with_diffs(gather(batches, self.input))
        sums = sums_of(table, self.summed, self.side)
        rows = one_side(table, SIDES[self.side], 0, sums).drop_columns("epoch")
        names = {"v": SIDES[self.side], "s": SUMS[self.side]}
        renamed = [f"{names.get(name[0], name[0])}{name[1:]}" for name in rows.column_names]
        schema = self.output()
        yield from emit(rows.rename_columns(renamed).select(schema.names).cast(schema))
