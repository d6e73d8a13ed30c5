"""Regroup: any keyed node that Catalyst can evaluate on a whole group.

Rule: for a node f that works group by group (a window, any aggregate, an outer, semi or anti join) and the
set K of keys that the change touches,  d f(A) = - f(A restricted to K) + f(A' restricted to K).  The rows of
the touched groups, as they were and as they are, are handed to Catalyst with a column `side` of -1 or 1 that
is added to the grouping key; side is the diff of what comes out.

State is a bag trace for each input, by key. An epoch costs the touched groups, whole. Rows leave in the
canonical order of the trace, so that a function that depends on order (collect_list, a rank among ties) sees
the same order whenever it sees the same group.

An aggregate without keys has one group, the whole input, and a row even over nothing. So its group is handed
over with one row more on either side, a *ghost* that no aggregate counts, in every epoch: the group is never
empty, except before the first epoch, when there was no row to take away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slipstream.dataflow.eventtime import Timed, on_time, write_state
from slipstream.dataflow.join import probe, split_sides, touched
from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task, emit, prefixed
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import column, integers

PLACED = ("h", "place")
"""Columns of rows whose order is told."""


@dataclass(frozen=True)
class Regroup(Operator):
    """One keyed node. Input columns as Join's: side, h, r, k0.., a0.., b0.., diff; a node with one input has
    no b columns. placed: whether rows leave with the hash of their key and their place in the order.
    """

    name: str
    traces: tuple[str, ...]
    input: pa.Schema
    everything: bool = False  # an aggregate without keys
    timed: tuple[Timed, ...] = ()
    placed: bool = False

    @property
    def known_by(self) -> str:
        return self.traces[0]

    def output(self) -> pa.Schema:
        """tag (which input; of a ghost, -1), side (-1 before, 1 after), h and place where rows are placed, keys, values
        of the first input, values of the second.
        """
        values = [field for field in self.input if field.name[0] in "kab"]
        placed = [(name, pa.int64()) for name in PLACED] if self.placed else []
        return pa.schema([("tag", pa.int32()), ("side", pa.int32()), *placed, *values])

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        table = on_time(task, self.timed, table)
        changes = split_sides(table, task.epoch)[: len(self.traces)]
        keys = touched(changes)
        for tag, (trace, change) in enumerate(zip(self.traces, changes, strict=True)):
            if keys.num_rows:
                _, stored = task.before(trace, change.schema).matches(*probe(keys))
                before = trace_rows.consolidate(stored)
                after = trace_rows.consolidate(pa.concat_tables([before, change]))
                yield from self._group_rows(tag, -1, before)
                yield from self._group_rows(tag, 1, after)
            write_state(task, self.timed, trace, change)
        if self.everything and task.holds(0):
            yield from self._ghosts((1,) if task.epoch == 1 else (-1, 1))

    def _ghosts(self, sides: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
        schema = self.output()
        known = {"tag": pa.array([-1] * len(sides), pa.int32()), "side": pa.array(sides, pa.int32())}
        known |= {name: pa.array([0] * len(sides), pa.int64()) for name in PLACED}
        arrays = [known[f.name] if f.name in known else pa.nulls(len(sides), f.type) for f in schema]
        yield from emit(pa.Table.from_arrays(arrays, schema=schema))

    def _group_rows(self, tag: int, side: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        times = np.maximum(integers(rows, "diff"), 0)
        repeated = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), times)))
        length = repeated.num_rows
        own = "ab"[tag]
        known = {f"k{i}": key for i, key in enumerate(prefixed(repeated, "k"))}
        known |= {f"{own}{i}": value for i, value in enumerate(prefixed(repeated, "v"))}
        known["tag"] = pa.array(np.full(length, tag, dtype=np.int32))
        known["side"] = pa.array(np.full(length, side, dtype=np.int32))
        known |= {"h": column(repeated, "h"), "place": pa.array(np.arange(length))}
        schema = self.output()
        arrays = [known[f.name] if f.name in known else pa.nulls(length, f.type) for f in schema]
        yield from emit(pa.Table.from_arrays(arrays, schema=schema))
