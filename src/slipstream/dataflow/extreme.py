"""Extreme: min and max, alone or beside sums, kept so that a deletion does not re-read its group.

Rule: a group's maximum after a change is the larger of what it was and what was added, unless what it was has been
taken away: then it is the largest value that is left.

State is a keyed trace as Accumulate's, the extremes of each group beside its totals, and for each extreme a bag
trace of the group's values whose `r` is not a hash but an order-preserving 64-bit prefix of the value, best first.
An insertion costs one lookup of its key. Only where a group loses its extreme are the first of its values looked up
(`TraceReader.heads`), and the cost follows how many of those are gone. NULLs are not values.

A value may be taken away before it comes. Of such values only those are of any concern that would be better than the
extreme: when one of them comes, it is not there. So beside each extreme there is a mark, whether such values are owed.
While it is set, the extreme is looked up whenever its group is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slipstream.dataflow.accumulate import Accumulate, Group, Groups
from slipstream.dataflow.eventtime import on_time, write_state
from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import STATS_SCHEMA, Task, emit, prefixed, report
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import column, integers

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Extreme(Operator):
    """One aggregation. Input columns: those of `sums`, and for each extreme p0.. (its order) and e0.. (its value).

    largest: for each extreme whether it is a maximum. traces: of the values of each. shown: what is emitted of a
    group, in turn: a buffer of `sums`, or an extreme, by number.
    """

    sums: Accumulate
    traces: tuple[str, ...]
    input: pa.Schema
    largest: tuple[bool, ...]
    shown: tuple[tuple[Literal["sum", "extreme"], int], ...]

    @property
    def known_by(self) -> str:
        return self.sums.trace

    def output(self) -> pa.Schema:
        """h, keys, what is shown, diff; statistics where the change goes nowhere."""
        if not self.sums.emits:
            return STATS_SCHEMA
        kinds = [
            self.sums.buffers[at].type if which == "sum" else self.input.field(f"e{at}").type
            for which, at in self.shown
        ]
        shown = [pa.field(f"b{i}", kind) for i, kind in enumerate(kinds)]
        return pa.schema([*self._keys(), *shown, pa.field("diff", pa.int64())])

    def layer_schema(self) -> pa.Schema:
        """As Accumulate's, with the extremes and then their marks as the last values."""
        *sums, epoch, diff = self.sums.layer_schema()
        first = self.first_extreme
        kinds = [self.input.field(f"e{i}").type for i in range(len(self.traces))]
        kinds += [pa.bool_() for _ in self.traces]
        extremes = [pa.field(f"v{first + i}", kind) for i, kind in enumerate(kinds)]
        return pa.schema([*sums, *extremes, epoch, diff])

    @property
    def first_extreme(self) -> int:
        """The number of the state column of the first extreme."""
        return len(trace_rows.value_columns(self.sums.layer_schema()))

    def _keys(self) -> list[pa.Field]:
        return [field for field in self.input if field.name == "h" or field.name.startswith("k")]

    def _values_schema(self, at: int) -> pa.Schema:
        h, *keys = self._keys()
        r, epoch, diff = (pa.field(name, pa.int64()) for name in ("r", "epoch", "diff"))
        return pa.schema([h, r, *keys, pa.field("v0", self.input.field(f"e{at}").type), epoch, diff])

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        table = on_time(task, self.sums.timed, table)
        groups, layer, old, new = self._applied(task, table)
        written = write_state(task, self.sums.timed, self.sums.trace, layer)
        if self.sums.emits:
            before, after = self.show(groups.old, old), self.show(groups.new, new)
            yield from emit(groups.updates(before, after, self.output()))
        else:
            yield report(task, self.sums.name, rows_in=table.num_rows, keys=layer.num_rows, bytes=written)

    def layer(self, task: Task, table: pa.Table) -> pa.Table:
        """The new versions of the groups that a change touches. The change of their values is written."""
        return self._applied(task, table)[1]

    def _applied(
        self, task: Task, table: pa.Table
    ) -> tuple[Groups, pa.Table, list[pa.Array], list[pa.Array]]:
        """The groups that a change touches, their new versions, and the extremes before and after."""
        h, keys, change = self.sums.change(task, table)
        found, stored = task.before(self.sums.trace, self.layer_schema()).newest(h, keys)
        groups = self.sums.advance(h, keys, found, stored, change)
        kept = prefixed(stored, "v")[self.first_extreme :]
        old, marks = kept[: len(self.traces)], kept[len(self.traces) :]
        new, owed, some = [], [], self.sums.some(groups.new)
        for at, given in enumerate(zip(old, marks, strict=True)):
            extreme, mark = self._advance(task, at, table, h, keys, *given)
            some |= np.asarray(extreme.is_valid()) | mark
            new.append(extreme)
            owed.append(pa.array(mark))
        values = [*self.sums.values(groups.new), *new, *owed]
        arrays = [pa.array(h), *keys, *values, *groups.stamps(task, some)]
        return groups, pa.Table.from_arrays(arrays, schema=self.layer_schema()), old, new

    def show(self, groups: Group, extremes: list[pa.Array]) -> list[pa.Array]:
        """What is emitted of some groups."""
        buffers = self.sums.shown(groups)
        return [
            buffers[at] if which == "sum" else seen(extremes[at], groups.rows) for which, at in self.shown
        ]

    def _advance(
        self,
        task: Task,
        at: int,
        table: pa.Table,
        h: Longs,
        keys: list[pa.Array],
        old: pa.Array,
        mark: pa.Array,
    ) -> tuple[pa.Array, Bools]:
        """One extreme of each touched group after the change, and its mark."""
        change = self._consolidated(task, at, table)
        write_state(task, self.sums.timed, self.traces[at], change)
        group = _places(h, keys, change)
        diff, values = integers(change, "diff"), column(change, "v0")
        owed = np.asarray(mark.fill_null(False))
        gone = np.flatnonzero(diff < 0)
        taken = (group[gone], values.take(pa.array(gone)))
        known = np.flatnonzero(np.asarray(old.is_valid()))
        reached = _best([(known, old.take(pa.array(known))), taken], len(h), self.largest[at])
        unsure = (
            owed.copy()
        )  # where a value was taken away that is not worse than the extreme, or may come that is owed
        unsure[taken[0][trace_rows.equal(taken[1], reached.take(pa.array(taken[0])))]] = True
        kept, added = known[~unsure[known]], np.flatnonzero((diff > 0) & ~unsure[group])
        candidates = [
            (kept, old.take(pa.array(kept))),
            (group[added], values.take(pa.array(added))),
        ]
        again = np.flatnonzero(unsure)
        if len(again):
            reader = task.at(self.traces[at], self._values_schema(at), task.epoch)
            asked, rows, owed[again] = reader.heads(h[again], [key.take(pa.array(again)) for key in keys])
            candidates.append((again[asked], column(rows, "v0")))
        return _best(candidates, len(h), self.largest[at]), owed

    def _consolidated(self, task: Task, at: int, table: pa.Table) -> pa.Table:
        """The change of one extreme's values, added up."""
        value = column(table, f"e{at}")
        rows = table.filter(value.is_valid()).combine_chunks() if value.null_count else table
        schema = self._values_schema(at)
        columns = {
            "h": column(rows, "h"),
            "r": column(rows, f"p{at}"),
            "v0": column(rows, f"e{at}"),
            "epoch": pa.array(np.full(rows.num_rows, task.epoch)),
            "diff": column(rows, "diff")
            if "diff" in rows.column_names
            else pa.array(np.ones(rows.num_rows, np.int64)),
        }
        columns |= {f"k{i}": key for i, key in enumerate(prefixed(rows, "k"))}
        return trace_rows.consolidate(
            pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        )


def seen(extreme: pa.Array, rows: Longs) -> pa.Array:
    """An extreme as it is shown: none where the group has no rows, or fewer."""
    return pc.if_else(pa.array(rows > 0), extreme, pa.scalar(None, extreme.type))


def _places(h: Longs, keys: list[pa.Array], change: pa.Table) -> Longs:
    """For each row of the change the position of its key among `keys`, which are sorted by `h`."""
    own_h, own = integers(change, "h"), prefixed(change, "k")
    place = np.searchsorted(h, own_h)
    while True:  # keys whose hashes collide are neighbours
        same = np.ones(len(place), dtype=bool)
        for key, mine in zip(keys, own, strict=True):
            same &= trace_rows.equal(key.take(pa.array(place)), mine)
        if same.all():
            return place
        place = place + ~same


def _best(candidates: Sequence[tuple[Longs, pa.Array]], groups: int, largest: bool) -> pa.Array:
    """The smallest or the largest candidate of each group, NULL where it has none. Of doubles NaN is the largest."""
    kind = candidates[0][1].type
    group = np.concatenate([at for at, _ in candidates])
    values = pa.concat_arrays([values.cast(kind) for _, values in candidates])
    rows = pa.table({"group": pa.array(group), "value": values})
    ordered = rows.sort_by([("group", "ascending"), ("value", "ascending")]).combine_chunks()
    at = integers(ordered, "group")
    turns = np.flatnonzero(at[1:] != at[:-1])
    ends = np.append(turns, len(at) - 1) if largest else np.append(0, turns + 1)
    picked = np.full(groups, -1)
    if len(at):
        picked[at[ends]] = ends
    return column(ordered, "value").take(pa.array(picked, mask=picked < 0))
