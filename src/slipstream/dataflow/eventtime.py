"""Event time inside an operator: which rows are late, and which state no row can reach any more.

Rule: with W the watermark of the epoch, a row is late if its time is not after W. A late row, be it added or taken
away, is not applied: it goes into a trace of late rows. The time of a row is that of its event-time column, the end
of the window that the row is in, or the beginning of the session that it would make alone. A NULL is never late.

W never falls. So whatever is applied in this epoch or a later one has a time after W, and state that only rows up to
W could touch is dead: to drop it changes no result, whenever it is done. Results that were derived from it stay.

Dropping is an update like any other, in the epoch's layer: tombstones in a keyed trace, retractions in a bag. To find
what is dead is to read all the state, so it is done only in an epoch whose watermark has entered another period
(`period`: a quarter of the delay, at least a minute). Both the epoch's watermark and the one before it are in the
lineage record, so a replay drops the same rows in the same epoch.

A session is dead when its end is not after W, its rows taken together: a row that is yet to come begins after W, and
Spark merges two sessions only if one begins before or when the other ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slipstream.dataflow.task import Task, prefixed
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import column, integers

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NEVER = np.iinfo(np.int64).max

COPIES = "n"
"""The column of an operator's input that says how many rows alike each stands for, where some stand for several."""

LATE_COLUMNS = ("_epoch", "_times")
"""What a view of late rows has besides the rows: when each came, and how often it was to be added (negative: taken
away)."""


@dataclass(frozen=True)
class Timed:
    """How one input of an operator follows event time.

    column: of the operator's input; part: of the window that it holds, "" for a timestamp. states: the traces in which
    the input is kept; kept: for how many microseconds after its time a row may still be reached, None for ever. late:
    the trace of late rows; shown: which columns of the operator's input it has. side: which rows are this input's,
    where an operator has two.
    """

    column: str
    part: Literal["", "start", "end"]
    watermarks: tuple[str, ...]
    period: int
    states: tuple[str, ...]
    late: str
    shown: tuple[str, ...]
    kept: int | None = 0
    side: int | None = None

    def __post_init__(self) -> None:
        if not self.watermarks or self.period <= 0:
            raise ValueError(f"{self.states}: event time needs a watermark and a period, got {self}")

    def late_schema(self, rows: pa.Schema) -> pa.Schema:
        """The trace of late rows: h, r, the rows' columns, _epoch, _times, diff."""
        kinds = [rows.field(name).type for name in self.shown] + [pa.int64()] * len(LATE_COLUMNS)
        whole = [pa.field(name, pa.int64()) for name in ("h", "r", "diff")]
        values = [pa.field(f"v{i}", kind) for i, kind in enumerate(kinds)]
        return pa.schema([*whole[:2], *values, whole[2]])

    def sieve(self, task: Task, table: pa.Table) -> pa.Table:
        """The rows that are not late. Those that are go into their trace, which has a layer for every epoch."""
        mark = task.watermark(self.watermarks)
        if mark is None:
            late = np.zeros(table.num_rows, dtype=bool)
        else:
            late = times(column(table, self.column), self.part) <= mark
        if self.side is not None:
            late &= column(table, "side").to_numpy(zero_copy_only=False) == self.side
        task.write(self.late, self._late_rows(task, table.filter(pa.array(late))), is_sorted=False)
        return table.filter(pa.array(~late)).combine_chunks() if late.any() else table

    def dead(self, task: Task, trace: str, schema: pa.Schema) -> pa.Table:
        """State of a trace that no row can reach any more, as the updates that take it away; nothing in most epochs."""
        horizon = self._horizon(task)
        if horizon is None:
            return schema.empty_table()
        kept = self.column if self.column[0] == "k" else f"v{self.column[1:]}"
        found = []
        for chunk in task.before(trace, schema).snapshot(schema.names):
            whole = chunk.combine_chunks()
            held = column(whole, kept)
            gone = _over(whole, held, horizon) if self.part == "start" else times(held, self.part) <= horizon
            found.append(whole.filter(pa.array(gone)))
        dead = pa.concat_tables([schema.empty_table(), *found]).combine_chunks()
        again = (
            -integers(dead, "diff") if trace_rows.is_bag(schema) else np.zeros(dead.num_rows, dtype=np.int64)
        )
        return dead.set_column(dead.schema.get_field_index("diff"), "diff", pa.array(again))

    def _horizon(self, task: Task) -> int | None:
        """Up to which time state is dead, in an epoch in which it is to be dropped."""
        mark, before = task.watermark(self.watermarks), task.watermark_before(self.watermarks)
        if self.kept is None or mark is None:
            return None
        entered = before is None or mark // self.period > before // self.period
        return mark - self.kept if entered else None

    def _late_rows(self, task: Task, rows: pa.Table) -> pa.Table:
        alike = (
            integers(rows, COPIES) if COPIES in rows.column_names else np.ones(rows.num_rows, dtype=np.int64)
        )
        times = integers(rows, "diff") // alike if "diff" in rows.column_names else alike
        shown = [column(rows, name) for name in self.shown]
        shown += [pa.array(np.full(rows.num_rows, task.epoch, dtype=np.int64)), pa.array(times)]
        arrays = [column(rows, "h"), column(rows, "r"), *shown, pa.array(alike)]
        return pa.Table.from_arrays(arrays, schema=self.late_schema(rows.schema))


def on_time(task: Task, timed: Iterable[Timed], table: pa.Table) -> pa.Table:
    """An operator's input without what is late in it."""
    for each in timed:
        table = each.sieve(task, table)
    return table


def write_state(task: Task, timed: Iterable[Timed], trace: str, layer: pa.Table) -> int:
    """Write an operator's layer, in canonical order already, and with it what drops dead state."""
    for each in timed:
        if trace in each.states:
            dead = each.dead(task, trace, layer.schema)
            if dead.num_rows:
                layer = _joined(layer, dead)
    return task.write(trace, layer)


def _joined(layer: pa.Table, dead: pa.Table) -> pa.Table:
    """A layer and what drops dead state; a key that has a new version is not dropped."""
    both = pa.concat_tables([layer, dead]).combine_chunks()
    if trace_rows.is_bag(both.schema):
        return trace_rows.consolidate(both)
    groups = trace_rows.group_rows([integers(both, "h")], prefixed(both, "k"))
    return both.take(pa.array(groups.order[groups.starts]))


def times(values: pa.Array, part: str) -> Longs:
    """Event times in microseconds since 1970; where there is none, the end of time."""
    moments = pc.struct_field(values, part) if part else values
    found: Longs = moments.cast(pa.int64()).fill_null(NEVER).to_numpy(zero_copy_only=False)
    return found


def _over(rows: pa.Table, sessions: pa.Array, horizon: int) -> Bools:
    """Which rows belong to sessions that have ended by a time: all rows of a key are in the table."""
    groups = trace_rows.group_rows([integers(rows, "h")], prefixed(rows, "k"))
    key = np.empty(rows.num_rows, dtype=np.int64)
    key[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.ends - groups.starts)
    begins, ends = times(sessions, "start"), times(sessions, "end")
    order = np.lexsort((begins, key))
    key, begins, ends = key[order], begins[order], ends[order]
    ranks = np.unique(ends, return_inverse=True)
    reach = np.maximum.accumulate(key * (len(ends) + 1) + ranks[1]) - key * (len(ends) + 1)
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (key[1:] != key[:-1]) | (begins[1:] > ranks[0][reach[:-1]])
    last = np.maximum.reduceat(ends, np.flatnonzero(fresh)) if len(order) else ends
    over = np.empty(len(order), dtype=bool)
    over[order] = (last <= horizon)[np.cumsum(fresh) - 1]
    return over
