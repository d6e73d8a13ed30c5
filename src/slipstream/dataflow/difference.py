"""Difference: what changed between a view as it was recorded and its contents computed anew.

Rule: dV = V' - V. V is read from the view's own trace, as of the epoch before; the operator keeps nothing itself, as
Record writes what it emits. An epoch costs the whole view.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task, emit
from slipstream.dataflow.whole import as_updates
from slipstream.trace import rows as trace_rows


@dataclass(frozen=True)
class Difference(Operator):
    """One view, computed anew. Input columns: h, r, v0.., diff, which is 1."""

    name: str
    recorded: str
    input: pa.Schema

    @property
    def known_by(self) -> str:
        return f"{self.recorded} anew"

    def output(self) -> pa.Schema:
        """h, values, diff."""
        return pa.schema([field for field in self.input if field.name != "r"])

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        now = as_updates(task, table)
        parts = [now]
        names = self.input.names
        for rows in task.before(self.recorded, now.schema).snapshot(names):
            gone = rows.set_column(names.index("diff"), "diff", pc.negate(rows["diff"]))
            parts.append(as_updates(task, gone).cast(now.schema))
        changed = trace_rows.consolidate(pa.concat_tables(parts).combine_chunks())
        yield from emit(changed.select(self.output().names))
