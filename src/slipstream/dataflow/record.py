"""Record: a view's change, written to the view's own trace.

Rule: the identity. The trace is both the view's contents (its layers merged) and its history (its layers by
epoch). It is a terminal operator: it yields statistics only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import STATS_SCHEMA, Task, report


@dataclass(frozen=True)
class Record(Operator):
    """One view's trace. Input columns: h, r, v0.., diff."""

    name: str
    trace: str
    input: pa.Schema

    @property
    def known_by(self) -> str:
        return self.trace

    def output(self) -> pa.Schema:
        return STATS_SCHEMA

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        written = task.write(self.trace, table, is_sorted=False)
        yield report(task, self.name, rows_in=table.num_rows, bytes=written)
