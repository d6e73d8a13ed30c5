"""Whole: all rows of an input, after its change.

Rule: A' = A + dA. What comes out is not a change but the contents, for a query that can only be computed from all of
it (`plan/recompute.py`). State is a bag trace by row. An epoch costs the whole input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task, emit
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import integers


@dataclass(frozen=True)
class Whole(Operator):
    """One input. Input columns: h, r, v0.., diff."""

    name: str
    trace: str
    input: pa.Schema

    @property
    def known_by(self) -> str:
        return self.trace

    def output(self) -> pa.Schema:
        """h, values; a row as often as it is there."""
        return pa.schema([field for field in self.input if field.name not in ("r", "diff")])

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        change = trace_rows.consolidate(as_updates(task, table))
        task.write(self.trace, change)
        names = self.output().names
        for rows in task.at(self.trace, change.schema, task.epoch).snapshot([*names, "diff"]):
            times = np.maximum(integers(rows, "diff"), 0)
            repeated = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), times)))
            yield from emit(repeated.select(names).cast(self.output()))


def as_updates(task: Task, rows: pa.Table) -> pa.Table:
    """Rows handed to a task, as updates of its epoch."""
    return rows.add_column(rows.num_columns - 1, "epoch", pa.array(np.full(rows.num_rows, task.epoch)))
