"""FirstSeen: the first row of each key, for as long as duplicates of it may come (dropDuplicatesWithinWatermark).

Rule: for a key k, S(k) is the row that is shown for it. A row that comes while there is none is shown (of several in
one epoch the one with the earliest time), and others of the key are not, until the watermark is as far past the time
of the shown row as the delay of the watermark. From then on the key is as good as new. Taking away the shown row takes
it out of the result and frees its key; taking away a row that was not shown is nothing.

So the result depends on the order of arrival, epoch by epoch, as that of Spark's own operator does. State is a keyed
trace: key -> shown row. An epoch costs one lookup for each key in the change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slipstream.dataflow.eventtime import NEVER, Bools, Longs, Timed, on_time, times, write_state
from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task, emit, prefixed
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import column, integers


@dataclass(frozen=True)
class FirstSeen(Operator):
    """One input. Input columns: h, r, k0.., v0.., diff; `timed` says which of k and v holds the event time."""

    name: str
    trace: str
    input: pa.Schema
    timed: tuple[Timed]

    @property
    def known_by(self) -> str:
        return self.trace

    def output(self) -> pa.Schema:
        """h, keys, values, diff."""
        return pa.schema([field for field in self.input if field.name != "r"])

    def layer_schema(self) -> pa.Schema:
        return trace_rows.layer_schema(self.output())

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        table = on_time(task, self.timed, table)
        epochs = pa.array(np.full(table.num_rows, task.epoch, dtype=np.int64))
        change = trace_rows.consolidate(table.add_column(table.num_columns - 1, "epoch", epochs))
        groups = trace_rows.group_rows([integers(change, "h")], prefixed(change, "k"))
        key = np.empty(change.num_rows, dtype=np.int64)
        key[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.ends - groups.starts)
        first = change.take(pa.array(groups.order[groups.starts])).combine_chunks()
        probe = integers(first, "h"), prefixed(first, "k")
        found, stored = task.before(self.trace, self.layer_schema()).newest(*probe)
        shown = first.select(["h", *(f"k{i}" for i in range(len(probe[1])))])
        for i, value in enumerate(prefixed(stored, "v")):
            shown = shown.append_column(f"v{i}", value)
        lives = found & ~self._past(task, shown)
        taken = lives & self._taken(change, key, shown)
        at = self._candidates(change, key, len(groups.starts))
        comes = (at >= 0) & (~lives | taken)
        gone = self._rows(shown, np.flatnonzero(taken), -1)
        come = self._rows(change, at[comes], 1)
        freed = self._rows(shown, np.flatnonzero(taken & ~comes), 0)
        layer = pa.concat_tables([come, freed]).combine_chunks()
        epochs = pa.array(np.full(layer.num_rows, task.epoch, dtype=np.int64))
        layer = layer.add_column(layer.num_columns - 1, "epoch", epochs).cast(self.layer_schema())
        ordered = trace_rows.collapse_keyed(layer, keep_tombstones=True)
        write_state(task, self.timed, self.trace, ordered)
        yield from emit(pa.concat_tables([gone, come]))

    def _past(self, task: Task, shown: pa.Table) -> Bools:
        """Which of the shown rows hold their key no longer."""
        (timed,) = self.timed
        mark = task.watermark(timed.watermarks)
        if mark is None or timed.kept is None:
            return np.zeros(shown.num_rows, dtype=bool)
        held = times(column(shown, timed.column), timed.part)
        past: Bools = (held <= mark - timed.kept) & (held != NEVER)
        return past

    def _taken(self, change: pa.Table, key: Longs, shown: pa.Table) -> Bools:
        """For which keys the change takes away the very row that is shown."""
        rows = np.flatnonzero(integers(change, "diff") < 0)
        same = np.ones(len(rows), dtype=bool)
        mine, theirs = (
            change.take(pa.array(rows)).combine_chunks(),
            shown.take(pa.array(key[rows])).combine_chunks(),
        )
        for one, other in zip(prefixed(mine, "v"), prefixed(theirs, "v"), strict=True):
            same &= trace_rows.equal(one, other)
        taken = np.zeros(shown.num_rows, dtype=bool)
        taken[key[rows[same]]] = True
        return taken

    def _candidates(self, change: pa.Table, key: Longs, keys: int) -> Longs:
        """For each key the row that comes first, by time and then in the change's canonical order; -1 if none comes."""
        (timed,) = self.timed
        rows = np.flatnonzero(integers(change, "diff") > 0)
        when = times(column(change, timed.column), timed.part)
        ordered = rows[np.lexsort((rows, when[rows], key[rows]))]
        at = np.full(keys, -1, dtype=np.int64)
        at[key[ordered[::-1]]] = ordered[::-1]
        return at

    def _rows(self, table: pa.Table, picked: Longs, diff: int) -> pa.Table:
        schema = self.output()
        taken = table.take(pa.array(picked)).combine_chunks()
        diffs = pa.array(np.full(len(picked), diff, dtype=np.int64))
        arrays = [diffs if name == "diff" else column(taken, name) for name in schema.names]
        return pa.Table.from_arrays(arrays, schema=schema)
