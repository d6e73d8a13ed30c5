"""Panes: an aggregation over sliding windows that keeps no windows, only the panes that they consist of.

Rule: the rows of a window are those of its panes, and totals are linear. So with T(p, k) the totals of pane p and key
k, those of window w are the sum of T(p, k) over the panes p of w, and a change of T(p, k) changes just the windows that
p is in. The extreme of a window is that of its panes' extremes.

State is the keyed trace of an Accumulate or an Extreme by (pane, other keys). An epoch costs one lookup for each
changed pane and key, however many windows there are. Windows are made when they are wanted: by whoever reads the view
(`Windows.now`, `Windows.changes`), or in the epoch, for operators above that take its change (`Panes`). That looks up
the panes of all windows that changed, and makes each as it was and as it is.

All panes of a key lie together: the upper bits of `h`, which decide on the shard, are those of the hash of the other
keys, and the lower bits are the pane's number. So any shard, and any span that a reader takes, has all or none of the
panes of a window, and they are neighbours.

A window with fewer rows than none is not shown, as any group. Debts count in their pane: an extreme is that of the
values whose multiplicity *within their pane* is above zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slipstream.dataflow.accumulate import Accumulate, Group, Groups, load_totals
from slipstream.dataflow.accumulators import Argument, Buffer, Totals
from slipstream.dataflow.exact import Pair
from slipstream.dataflow.extreme import Extreme
from slipstream.dataflow.operator import Operator
from slipstream.dataflow.sliding import Around, Slices, Sliding
from slipstream.dataflow.task import STATS_SCHEMA, Task, emit, prefixed, report
from slipstream.trace import TraceReader
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import column, integers

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LOWER = (1 << 33) - 1
"""The bits of `h` that have no part in where a row lies (`trace.placing`): the pane's number is there."""

_MOST_WINDOWS = 1 << 18
_PAIRS = (("hi", "lo"), ("hi2", "lo2"))
_HALF = np.int64((1 << 32) - 1)


@dataclass(frozen=True)
class State:
    """What some groups hold: totals, and extremes."""

    sums: Group
    extremes: list[pa.Array]


@dataclass(frozen=True, eq=False)
class Touched:
    """Windows before and after an epoch. h: of each window's panes, without the pane."""

    epoch: int
    h: Longs
    others: list[pa.Array]
    window: Longs
    old: State
    new: State


@dataclass(frozen=True)
class Windows:
    """How windows are made of panes.

    at: the key that is the pane's number. arguments, buffers: what is added up, and shown of it. largest: of each
    extreme whether it is a maximum. hash_bits: how many bits of `h` there are.
    """

    sliding: Sliding
    at: int
    arguments: tuple[Argument, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    largest: tuple[bool, ...] = ()
    hash_bits: int = 64

    def describe(self) -> dict[str, Any]:
        """As JSON, without what is added up."""
        return {
            "sliding": asdict(self.sliding),
            "at": self.at,
            "largest": list(self.largest),
            "hash_bits": self.hash_bits,
        }

    @staticmethod
    def described(
        said: Mapping[str, Any], arguments: tuple[Argument, ...], buffers: tuple[Buffer, ...]
    ) -> Windows:
        return Windows(
            sliding=Sliding(**said["sliding"]),
            at=said["at"],
            arguments=arguments,
            buffers=buffers,
            largest=tuple(said["largest"]),
            hash_bits=said["hash_bits"],
        )

    def h(self, key: Longs, pane: Longs) -> Longs:
        """The hash of a pane, or of a window by its first pane. key: that of any pane of the same key."""
        cut = 64 - self.hash_bits
        return (((key & ~LOWER) | (pane & LOWER)) >> cut) << cut

    def now(self, reader: TraceReader) -> Iterator[pa.Table]:
        """All windows, each as a row of the trace in which the window's number takes the place of the pane's."""
        schema = reader.schema
        keys, values = trace_rows.key_columns(schema), trace_rows.value_columns(schema)
        for rows in _by_place(reader.snapshot(["h", *keys, *values])):
            key, order = self._keyed(rows)
            panes = rows.take(pa.array(order)).combine_chunks()
            for windows in self.sliding.windows(key, integers(panes, keys[self.at]), _MOST_WINDOWS):
                state = self.state(windows, prefixed(panes, "v"))
                shown = np.flatnonzero(state.sums.rows > 0)
                own = pa.array(windows.first[shown])
                arrays = [column(panes, name).take(own) for name in keys]
                arrays[self.at] = pa.array(windows.window[shown])
                arrays += [each.take(pa.array(shown)) for each in self._stored(state)]
                arrays.append(pa.array(np.ones(len(shown), dtype=np.int64)))
                yield pa.Table.from_arrays(arrays, names=[*keys, *values, "diff"])

    def count(self, reader: TraceReader) -> int:
        """How many windows there are."""
        own, found = f"k{self.at}", 0
        keys = trace_rows.key_columns(reader.schema)
        for rows in _by_place(reader.snapshot(["h", *keys, "v0"])):
            key, order = self._keyed(rows)
            pane, held = integers(rows, own)[order], integers(rows, "v0")[order]
            if (held > 0).all():
                found += int(self.sliding.opened(key, pane)[1].sum())
            else:
                pieces = self.sliding.windows(key, pane, _MOST_WINDOWS)
                found += sum(int((each.whole(held) > 0).sum()) for each in pieces)
        return found

    def changes(self, base: TraceReader, versions: pa.Table) -> pa.Table:
        """The updates of windows that new versions of panes cause, in the order of epochs. base: the trace before
        them.
        """
        names = [*trace_rows.key_columns(versions.schema), *trace_rows.value_columns(versions.schema)]
        kinds = [versions.schema.field(name) for name in names]
        schema = pa.schema([*kinds, pa.field("epoch", pa.int64()), pa.field("diff", pa.int64())])
        parts = [schema.empty_table()]
        for touched in self.touched(base, versions):
            keys = [*touched.others]
            keys.insert(self.at, pa.array(touched.window))
            was, lives = (state.sums.rows > 0 for state in (touched.old, touched.new))
            groups = Groups(touched.h, keys, was, touched.old.sums, lives, touched.new.sums)
            before, after = self._stored(touched.old), self._stored(touched.new)
            plain = pa.schema([pa.field("h", pa.int64()), *kinds, schema.field("diff")])
            updates = groups.updates(before, after, plain)
            stamps = pa.array(np.full(updates.num_rows, touched.epoch, dtype=np.int64))
            parts.append(updates.append_column("epoch", stamps).select(schema.names))
        return pa.concat_tables(parts).combine_chunks()

    def pieces(self, versions: pa.Table) -> Iterator[pa.Table]:
        """Versions of panes in pieces of whole keys that are not around too many panes each."""
        key, order = self._keyed(versions)
        rows = max(1, _MOST_WINDOWS // (2 * self.sliding.reach))
        start = 0
        while start < len(order):
            last = key[min(start + rows, len(order)) - 1]
            end = int(np.searchsorted(key, last, side="right"))
            yield versions.take(pa.array(order[start:end])).combine_chunks()
            start = end

    def touched(self, base: TraceReader, versions: pa.Table) -> Iterator[Touched]:
        """Epoch by epoch the windows that new versions of panes are in. base: the trace before them."""
        if versions.num_rows == 0:
            return
        key, order = self._keyed(versions)
        versions = versions.take(pa.array(order)).combine_chunks()
        h, epochs = integers(versions, "h"), integers(versions, "epoch")
        pane = integers(versions, f"k{self.at}")
        fresh = np.append(True, (key[1:] != key[:-1]) | (pane[1:] != pane[:-1]))
        everything = self.sliding.around(key[fresh], pane[fresh])
        place = everything.given[np.cumsum(fresh) - 1]
        known, stored = self._looked_up(base, everything, versions, np.flatnonzero(fresh))
        values = stored.column_names
        held = [
            pa.concat_arrays(
                [column(stored, each), column(versions, each).cast(stored.schema.field(each).type)]
            )
            for each in values
        ]
        current = np.where(known, np.arange(len(known)), -1)
        others = [each for i, each in enumerate(prefixed(versions, "k")) if i != self.at]
        gone = integers(versions, "diff") == 0
        for epoch in np.unique(epochs):
            rows = np.flatnonzero(epochs == epoch)
            around = self.sliding.around(key[rows], pane[rows])
            at = place[rows][around.owner] + (around.panes[1] - pane[rows][around.owner])
            old = self._state(around.windows, held, current[at])
            current[place[rows]] = np.where(gone[rows], -1, len(known) + rows)
            new = self._state(around.windows, held, current[at])
            own = rows[around.owner[around.windows.first]]
            window = around.windows.window
            yield Touched(int(epoch), h[own], [each.take(pa.array(own)) for each in others], window, old, new)

    def state(self, windows: Slices, values: list[pa.Array]) -> State:
        """What windows hold, of what their panes hold."""
        rows = values[0].to_numpy(zero_copy_only=False)
        given = zip(self.arguments, load_totals(self.arguments, values), strict=True)
        totals = [_added_up(argument, totals, windows) for argument, totals in given]
        for buffer in self.buffers:
            if buffer.show == "sum":
                buffer.check(totals[buffer.argument])
        first = len(values) - 2 * len(self.largest)
        extremes = [windows.best(values[first + i], largest) for i, largest in enumerate(self.largest)]
        return State(Group(windows.whole(rows), totals), extremes)

    def _state(self, windows: Slices, held: list[pa.Array], at: Longs) -> State:
        """The same of panes some of which are not there. at: where what each holds is found, -1 if nowhere."""
        there = at >= 0
        present = pa.array(at[there])
        return self.state(windows.among(there), [each.take(present) for each in held])

    def _stored(self, state: State) -> list[pa.Array]:
        """What groups hold as columns of a trace."""
        sums = state.sums
        values = [pa.array(sums.rows)]
        for argument, totals in zip(self.arguments, sums.totals, strict=True):
            values += argument.store(totals)
        nothing = pa.array(np.zeros(len(sums.rows), dtype=bool))
        return [*values, *state.extremes, *(nothing for _ in state.extremes)]

    def _keyed(self, rows: pa.Table) -> tuple[Longs, Longs]:
        """An order of panes by their keys and then their numbers, and in it a number for each key."""
        others = [each for i, each in enumerate(prefixed(rows, "k")) if i != self.at]
        h = integers(rows, "h") & ~LOWER
        groups = trace_rows.group_rows([h], others, within=[integers(rows, f"k{self.at}")])
        return np.repeat(np.arange(len(groups.starts)), groups.ends - groups.starts), groups.order

    def _looked_up(
        self, base: TraceReader, around: Around, versions: pa.Table, given: Longs
    ) -> tuple[Bools, pa.Table]:
        """Which of the panes around some are in a trace, and what each holds. given: the rows of the latter."""
        own = given[around.owner]
        pane = around.panes[1]
        h = self.h(integers(versions, "h")[own], pane)
        order = np.argsort(h, kind="stable")
        keys = [each.take(pa.array(own[order])) for each in prefixed(versions, "k")]
        keys[self.at] = pa.array(pane[order])
        found, stored = base.newest(h[order], keys)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return found[back], stored.take(pa.array(back)).combine_chunks()


@dataclass(frozen=True)
class Panes(Operator):
    """One aggregation over sliding windows: `inner`, by pane, and if it emits the windows that changed.

    Input columns: those of `inner`. Output columns: h, k0.. the other keys, w the window, b0.., diff. kind: the type of
    a window.
    """

    inner: Accumulate | Extreme
    windows: Windows
    kind: pa.DataType
    emits: bool

    def sent(self) -> pa.Schema:
        return self.inner.input

    @property
    def known_by(self) -> str:
        return self.inner.known_by

    @property
    def sums(self) -> Accumulate:
        return self.inner if isinstance(self.inner, Accumulate) else self.inner.sums

    def output(self) -> pa.Schema:
        if not self.emits:
            return STATS_SCHEMA
        shown = replace(self.inner, emits=True) if isinstance(self.inner, Accumulate) else self.inner
        at = f"k{self.windows.at}"
        return pa.schema([pa.field("w", self.kind) if each.name == at else each for each in shown.output()])

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        before = task.before(self.sums.trace, self.inner.layer_schema())
        layer = self.inner.layer(task, table)
        written = task.write(self.sums.trace, layer)
        if not self.emits:
            yield report(task, self.sums.name, rows_in=table.num_rows, keys=layer.num_rows, bytes=written)
            return
        for piece in self.windows.pieces(layer):
            for touched in self.windows.touched(before, piece):
                yield from emit(self._updates(touched))

    def _updates(self, touched: Touched) -> pa.Table:
        """Windows as they were taken away, and as they are added, where they differ."""
        windows = self.windows
        keys = [*touched.others]
        keys.insert(windows.at, window_array(windows.sliding, touched.window, self.kind))
        h = windows.h(touched.h, touched.window * windows.sliding.step)
        was, lives = (state.sums.rows > 0 for state in (touched.old, touched.new))
        groups = Groups(h, keys, was, touched.old.sums, lives, touched.new.sums)
        return groups.updates(self._shown(touched.old), self._shown(touched.new), self.output())

    def _shown(self, state: State) -> list[pa.Array]:
        inner = self.inner
        return (
            inner.shown(state.sums)
            if isinstance(inner, Accumulate)
            else inner.show(state.sums, state.extremes)
        )


def window_array(sliding: Sliding, window: Longs, kind: pa.DataType) -> pa.Array:
    """Windows as Spark has them: structs of when each begins and ends."""
    bounds = [pa.array(each).cast(kind.field(i).type) for i, each in enumerate(sliding.bounds(window))]
    return pa.StructArray.from_arrays(bounds, fields=[kind.field(i) for i in range(2)])


def _added_up(argument: Argument, panes: Totals, windows: Slices) -> Totals:
    """The totals of windows, of those of their panes."""
    paired = {name for pair in _PAIRS for name in pair}
    made: Totals = {name: windows.whole(values) for name, values in panes.items() if name not in paired}
    for hi, lo in (pair for pair in _PAIRS if pair[0] in panes):
        made[hi], made[lo] = windows.pairs(Pair(panes[hi], panes[lo]))
    if argument.kind == "long":  # how large a sum is that may have wrapped around
        upper, lower = windows.whole(panes["sum"] >> 32), windows.whole(panes["sum"] & _HALF)
        made["approximate"] = upper * 2.0**32 + lower
    return made


def _by_place(chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Rows in the order of `h`, cut only where the upper bits of it change."""
    waiting: list[pa.Table] = []
    for chunk in chunks:
        upper = integers(chunk.combine_chunks(), "h") & ~LOWER
        cut = int(np.searchsorted(upper, upper[-1]))
        if cut:
            yield pa.concat_tables([*waiting, chunk.slice(0, cut)]).combine_chunks()
            waiting = []
        waiting.append(chunk.slice(cut))
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()
