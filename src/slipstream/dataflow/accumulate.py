"""Accumulate: aggregates that are sums.

Rule: for a key k, with totals T(k) and a change d of the input,  T'(k) = T(k) + sum over d's rows of k of
diff * contribution(row). The output changes by  -row(T(k)) + row(T'(k))  where these differ, and a key whose
last row is gone loses its row.

A row may be taken away before it comes. Then a key has fewer rows than none, or none but totals all the same: it has
no row in the output, but its totals are kept until they add up to nothing.

State is a keyed trace: key -> totals, absolute, newest wins. (The design had deltas that are summed when
looked up. With absolute totals a lookup stops at the first layer that has the key, merging layers is no
arithmetic, and a floating point total has one value only, whichever layers it is read from, so that what was
emitted can be retracted to the bit.)

An epoch costs one sort of the change and one lookup for each of its keys. The change may come already added up in
part (`Combine`): as totals, not rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slipstream.dataflow.accumulators import Argument, Buffer, Totals
from slipstream.dataflow.combine import receive
from slipstream.dataflow.eventtime import Timed, on_time, write_state
from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import STATS_SCHEMA, Task, emit, prefixed, report
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import OWING, integers

Longs = npt.NDArray[np.int64]
_PLACE_OF_ZERO = 1 << 30  # where h = 0 lies, the one key of an aggregate without keys


@dataclass(frozen=True)
class Accumulate(Operator):
    """One aggregation. Input columns: h, k0.., x0.. (one for each argument, or its totals where the input is
    combined), diff unless all are 1.
    """

    name: str
    trace: str
    input: pa.Schema
    arguments: tuple[Argument, ...]
    buffers: tuple[Buffer, ...]
    emits: bool
    everything: bool = False  # no grouping keys: one row, even over no input
    combined: bool = False
    timed: tuple[Timed, ...] = ()
    summed: bool = False  # the input is added up, as whole numbers (`Argument.from_sums`)

    @property
    def known_by(self) -> str:
        return self.trace

    def output(self) -> pa.Schema:
        """h, keys, buffers, diff; statistics where the change goes nowhere."""
        if not self.emits:
            return STATS_SCHEMA
        return self.updates_schema()

    def updates_schema(self) -> pa.Schema:
        keys = [field for field in self.input if field.name.startswith("k")]
        shown = [pa.field(f"b{i}", buffer.type) for i, buffer in enumerate(self.buffers)]
        return pa.schema([self.input.field("h"), *keys, *shown, pa.field("diff", pa.int64())])

    def layer_schema(self) -> pa.Schema:
        """h, keys, v0 (rows of the group), v1.. (totals), epoch, diff."""
        keys = [field for field in self.input if field.name.startswith("k")]
        kinds = [pa.int64(), *(kind for argument in self.arguments for _, kind in argument.fields())]
        values = [pa.field(f"v{i}", kind) for i, kind in enumerate(kinds)]
        whole = [pa.field(name, pa.int64()) for name in ("h", "epoch", "diff")]
        return pa.schema([whole[0], *keys, *values, *whole[1:]])

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        table = on_time(task, self.timed, table)
        groups, layer = self._applied(task, table)
        written = write_state(task, self.timed, self.trace, layer)
        if self.emits:
            yield from emit(self._updates(groups))
        else:
            yield report(task, self.name, rows_in=table.num_rows, keys=layer.num_rows, bytes=written)

    def layer(self, task: Task, table: pa.Table) -> pa.Table:
        """The new versions of the groups that a change touches."""
        return self._applied(task, table)[1]

    def _applied(self, task: Task, table: pa.Table) -> tuple[Groups, pa.Table]:
        h, keys, change = self.change(task, table)
        found, stored = task.before(self.trace, self.layer_schema()).newest(h, keys)
        groups = self.advance(h, keys, found, stored, change)
        arrays = [pa.array(h), *keys, *self.values(groups.new), *groups.stamps(task, self.some(groups.new))]
        return groups, pa.Table.from_arrays(arrays, schema=self.layer_schema())

    def advance(
        self,
        h: npt.NDArray[np.int64],
        keys: list[pa.Array],
        found: npt.NDArray[np.bool_],
        stored: pa.Table,
        change: Group,
    ) -> Groups:
        """The groups that a change touches, before and after it."""
        old = self._load(stored)
        new = self._combine(old, change)
        for buffer in self.buffers:
            if buffer.show == "sum":
                buffer.check(new.totals[buffer.argument])
        was, lives = (
            np.ones(len(h), dtype=bool) if self.everything else group.rows > 0 for group in (old, new)
        )
        return Groups(h, keys, found & was, old, lives, new)

    def change(self, task: Task, table: pa.Table) -> tuple[npt.NDArray[np.int64], list[pa.Array], Group]:
        """The change's keys, sorted, each once, and its totals by key."""
        keys = prefixed(table, "k")
        if (
            self.everything
            and table.num_rows == 0
            and task.epoch == 1
            and task.span.start <= _PLACE_OF_ZERO < task.span.stop
        ):
            nothing = [argument.load(_nulls(argument)) for argument in self.arguments]
            return np.zeros(1, dtype=np.int64), keys, Group(np.zeros(1, dtype=np.int64), nothing)
        groups = trace_rows.group_rows([integers(table, "h")], keys)
        order, starts = groups.order, groups.starts
        first = order[starts]
        h = integers(table, "h")[first]
        if len(h) == 0:
            empty = [argument.load(_nulls(argument, 0)) for argument in self.arguments]
            return h, keys, Group(h, empty)
        diff = (
            integers(table, "diff")[order]
            if "diff" in table.column_names
            else np.ones(len(order), dtype=np.int64)
        )
        values = [each.take(pa.array(order)) for each in prefixed(table, "x")]
        if self.summed:
            sums = iter(values)
            totals = [each.from_sums(_folded(sums, each.sums, starts)) for each in self.arguments]
        elif self.combined:
            sent = zip(self.arguments, receive(self.arguments, values), strict=True)
            totals = [argument.fold(each, starts) for argument, each in sent]
        else:
            given = zip(self.arguments, values, strict=True)
            totals = [argument.totals(each, diff, starts) for argument, each in given]
        picked = pa.array(first)
        return h, [key.take(picked) for key in keys], Group(np.add.reduceat(diff, starts), totals)

    def _load(self, stored: pa.Table) -> Group:
        values = prefixed(stored, "v")
        rows = values[0].fill_null(0).to_numpy(zero_copy_only=False)
        return Group(rows, load_totals(self.arguments, values))

    def _combine(self, old: Group, change: Group) -> Group:
        combined = [
            argument.combine(before, delta)
            for argument, before, delta in zip(self.arguments, old.totals, change.totals, strict=True)
        ]
        return Group(old.rows + change.rows, combined)

    def some(self, groups: Group) -> npt.NDArray[np.bool_]:
        """Which groups have anything to be kept."""
        there: npt.NDArray[np.bool_] = groups.rows != 0
        for argument, totals in zip(self.arguments, groups.totals, strict=True):
            there |= argument.some(totals)
        return there

    def values(self, groups: Group) -> list[pa.Array]:
        """The state columns v0, v1, ... of some groups."""
        values = [pa.array(groups.rows)]
        for argument, totals in zip(self.arguments, groups.totals, strict=True):
            values += argument.store(totals)
        return values

    def shown(self, groups: Group) -> list[pa.Array]:
        """The buffers of some groups."""
        return show(self.arguments, self.buffers, groups.rows, groups.totals)

    def _updates(self, groups: Groups) -> pa.Table:
        return groups.updates(self.shown(groups.old), self.shown(groups.new), self.updates_schema())


@dataclass(frozen=True)
class Group:
    """Totals of some groups: how many rows each has, and of each argument."""

    rows: npt.NDArray[np.int64]
    totals: list[Totals]


@dataclass(frozen=True)
class Groups:
    """The groups that an epoch touches: as they were, where they had a row, and as they are, where they have one."""

    h: npt.NDArray[np.int64]
    keys: list[pa.Array]
    was: npt.NDArray[np.bool_]
    old: Group
    lives: npt.NDArray[np.bool_]
    new: Group

    def updates(self, before: list[pa.Array], after: list[pa.Array], schema: pa.Schema) -> pa.Table:
        """Old rows taken away and new rows added, where they differ. `before`, `after`: what is shown of each group."""
        same = self.was & self.lives
        for left, right in zip(before, after, strict=True):
            same &= trace_rows.equal(left, right)
        parts = []
        for diff, present, shown in ((-1, self.was, before), (1, self.lives, after)):
            picked = pa.array(np.flatnonzero(present & ~same))
            arrays = [column.take(picked) for column in (pa.array(self.h), *self.keys, *shown)]
            arrays.append(pa.array(np.full(len(picked), diff)))
            parts.append(pa.Table.from_arrays(arrays, schema=schema))
        return pa.concat_tables(parts)

    def stamps(self, task: Task, some: npt.NDArray[np.bool_]) -> list[pa.Array]:
        """The columns epoch and diff of a keyed layer. some: which groups have anything to be kept."""
        standing = np.where(self.lives, 1, np.where(some, OWING, 0))
        return [pa.array(np.full(len(standing), task.epoch)), pa.array(standing)]


def _folded(columns: Iterator[pa.Array], count: int, starts: npt.NDArray[np.int64]) -> list[Longs]:
    """The next few columns, added up by segment."""
    return [np.add.reduceat(next(columns).to_numpy(zero_copy_only=False), starts) for _ in range(count)]


def load_totals(arguments: Iterable[Argument], values: list[pa.Array]) -> list[Totals]:
    """The totals behind the state columns v1, v2, ... (v0 counts the group's rows)."""
    rest = iter(values[1:])
    return [argument.load({name: next(rest) for name, _ in argument.fields()}) for argument in arguments]


def show(
    arguments: tuple[Argument, ...],
    buffers: tuple[Buffer, ...],
    rows: npt.NDArray[np.int64],
    totals: list[Totals],
) -> list[pa.Array]:
    """The aggregates' buffers for some groups."""
    return [
        buffer.column(None, {}, rows)
        if buffer.show == "rows"
        else buffer.column(arguments[buffer.argument], totals[buffer.argument], rows)
        for buffer in buffers
    ]


def _nulls(argument: Argument, length: int = 1) -> dict[str, pa.Array]:
    return {name: pa.nulls(length, kind) for name, kind in argument.fields()}
