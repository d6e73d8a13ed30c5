"""TopK: the first rows in an order, kept ordered.

Rule: top-k of a union is the top-k of the parts' top-k. Each shard hands Catalyst the first k of its rows
before and after the change, and Catalyst ranks the few candidates; what it emits before with -1 and after
with +1 is the change of the result.

State is a bag trace whose `h` is not a hash but an order-preserving 64-bit prefix of the sort key, so that
the first rows of each layer are its smallest and one change reads k rows, not the group. Prefixes may tie:
all that ties with the k-th goes along.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task, emit, prefixed
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import integers


@dataclass(frozen=True)
class TopK(Operator):
    """One ORDER BY with LIMIT. Input columns: h (order prefix), r, v0.., diff."""

    name: str
    trace: str
    input: pa.Schema
    first: int  # limit + offset

    @property
    def known_by(self) -> str:
        return self.trace

    def output(self) -> pa.Schema:
        """side (-1 before, 1 after), values."""
        return pa.schema([("side", pa.int32()), *(f for f in self.input if f.name.startswith("v"))])

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        change = trace_rows.consolidate(
            table.add_column(table.num_columns - 1, "epoch", pa.array(np.full(table.num_rows, task.epoch)))
        )
        task.write(self.trace, change)
        for side, as_of in ((-1, task.epoch - 1), (1, task.epoch)):
            head = task.at(self.trace, change.schema, as_of).head(self.first)
            times = (
                np.clip(integers(head, "diff"), 0, self.first)
                if head.num_rows
                else np.empty(0, dtype=np.int64)
            )
            rows = head.take(pa.array(np.repeat(np.arange(head.num_rows), times)))
            arrays = [pa.array(np.full(rows.num_rows, side, dtype=np.int32)), *prefixed(rows, "v")]
            if rows.num_rows:
                yield from emit(pa.Table.from_arrays(arrays, schema=self.output()))
