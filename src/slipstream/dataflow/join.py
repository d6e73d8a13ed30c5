"""Join: an inner equi-join, bilinear in its two inputs.

Rule: with A, B before the epoch and changes dA, dB,  d(A x B) = dA x B + A x dB + dA x dB,  diffs multiplied.
A residual condition and everything else about the result is Catalyst's, above. NULL keys never match: they
are filtered out below, in Catalyst.

State is one bag trace for each side, by join key. An epoch costs the changes and their matches. Matches need
not be consolidated: an update and its retraction in two layers both match, and their products cancel. Where an
aggregation follows at once, pairs are added up here (`Combine`): what leaves the task is a row for each group.

What such an aggregation only adds up need not be kept row by row, as  sum over pairs of a = sum(a) x count(b).  So
where it can be kept in whole numbers (`Argument.sums`), a side keeps its sums beside the multiplicity, once for each
key and each value to group by: a customer who moves to another country takes one row along, not all orders.

Pairs that never were must not leave the task, because an expression above may fail on one (a division by what became
zero). The terms have such pairs, once added and once taken away: with a row that is gone and whose retraction lies in
another layer, and, where a key changes on both sides, of an old row and a new one. The pairs of such keys are added
up before they leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slipstream.dataflow.accumulators import Argument
from slipstream.dataflow.combine import Combine
from slipstream.dataflow.eventtime import Timed, on_time, write_state
from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task, emit, prefixed
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import column, integers

Longs = npt.NDArray[np.int64]
SIDES = "ab"
"""What begins the names of columns with values of the left and of the right side."""
_ODD = np.int64(0x9E3779B97F4A7C15 - (1 << 64))  # to tell the rows of a pair apart in one hash


@dataclass(frozen=True)
class Summed:
    """An argument of the aggregation above that a side keeps as sums."""

    side: int
    argument: Argument


@dataclass(frozen=True)
class Join(Operator):
    """One inner join. Input columns: side (0 left, 1 right), h, r, k0.., a0.. (left values), b0.. (right values), y0..
    (of either side, what it keeps as sums), diff.
    """

    name: str
    traces: tuple[str, str]
    input: pa.Schema
    combine: Combine | None = None
    timed: tuple[Timed, ...] = ()
    summed: tuple[Summed, ...] = ()

    @property
    def known_by(self) -> str:
        return self.traces[0]

    def output(self) -> pa.Schema:
        """h, keys, left values, right values, diff; or what `combine` makes of them."""
        return self._pair_schema() if self.combine is None else self.combine.output(self._pair_schema())

    def _pair_schema(self) -> pa.Schema:
        used = None if self.combine is None else {*self.combine.reads(), "diff"}
        fields = [field for field in self.input if field.name not in ("side", "r")]
        fields = [field for field in fields if used is None or field.name in used]
        return pa.schema([*fields, *(pa.field(f"s{i}", pa.int64()) for i in range(len(self._sums())))])

    def _sums(self) -> list[tuple[int, str]]:
        """The sums of a pair in the order of the arguments: the side that has it, and the column of its trace."""
        found: list[tuple[int, str]] = []
        for each in self.summed:
            before = sum(side == each.side for side, _ in found)
            found += [(each.side, f"s{before + i}") for i in range(each.argument.sums)]
        return found

    def _sides(self, table: pa.Table, epoch: int) -> tuple[pa.Table, pa.Table]:
        """The two inputs' changes, each as consolidated rows of its trace."""
        picked = [_of_side(table, side) for side in (0, 1)]
        left, right = (
            one_side(rows, SIDES[side], epoch, sums_of(rows, self.summed, side))
            for side, rows in enumerate(picked)
        )
        return left, right

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        table = on_time(task, self.timed, table)
        left, right = self._sides(table, task.epoch)
        at_left, at_right = match(left, right)
        terms = self._terms(task, (left, right), at_left, at_right)
        yield from self._emitted(terms, np.unique(integers(left, "h")[at_left]))
        for trace, layer in zip(self.traces, (left, right), strict=True):
            write_state(task, self.timed, trace, layer)

    def _emitted(self, terms: Iterable[_Pairs], of_both: Longs) -> Iterator[pa.RecordBatch]:
        """What leaves the task of the pairs of all terms. of_both: the keys that changed on both sides."""
        pairs = self._sure(terms, of_both)
        if self.combine is None:
            for made in pairs:
                yield from emit(made)
        elif all_pairs := list(pairs):
            yield from emit(self.combine(pa.concat_tables(all_pairs).combine_chunks()))

    def _sure(self, terms: Iterable[_Pairs], of_both: Longs) -> Iterator[pa.Table]:
        """The change of the product, part by part."""
        doubtful: list[_Pairs] = []
        for pairs in terms:
            unsure = pairs.may_cancel(of_both) if self.combine is None else np.zeros(len(pairs.h), dtype=bool)
            if unsure.any():
                doubtful.append(pairs.only(unsure))
                pairs = pairs.only(~unsure)
            if len(pairs.h):
                yield pairs.rows
        if doubtful:
            yield _added_up(doubtful)

    def _terms(
        self, task: Task, sides: tuple[pa.Table, pa.Table], at_left: Longs, at_right: Longs
    ) -> Iterator[_Pairs]:
        """The three terms of the rule."""
        for i, change in enumerate(sides):
            if change.num_rows:
                other = sides[1 - i]
                at, stored = task.before(self.traces[1 - i], other.schema).matches(*probe(change))
                yield from self._product(change, at, stored, flipped=i == 1)
        yield from self._product(sides[0], at_left, sides[1].take(pa.array(at_right)), flipped=False)

    def _product(self, changed: pa.Table, at: Longs, matched: pa.Table, flipped: bool) -> Iterator[_Pairs]:
        """Rows of the product: changed[at[i]] with matched[i]."""
        if len(at) == 0:
            return
        one, two = integers(changed, "r")[at], integers(matched, "r")
        mixed = two * _ODD + one if flipped else one * _ODD + two
        schema = self._pair_schema()
        own, other = ("b", "a") if flipped else ("a", "b")
        picked = pa.array(at)
        sums = self._paired_sums(changed, at, matched, flipped)
        arrays = []
        for name in schema.names:
            if name == "diff":
                arrays.append(pc.multiply(column(changed, name).take(picked), column(matched, name)))
            elif name[0] == "s":
                arrays.append(next(sums))
            elif name[0] == other:
                arrays.append(column(matched, f"v{name[1:]}"))
            else:
                mine = f"v{name[1:]}" if name[0] == own else name
                arrays.append(column(changed, mine).take(picked))
        rows = pa.Table.from_arrays(arrays, schema=schema)
        yield _Pairs(rows, integers(changed, "h")[at], mixed, integers(matched, "diff") < 0)

    def _paired_sums(
        self, changed: pa.Table, at: Longs, matched: pa.Table, flipped: bool
    ) -> Iterator[pa.Array]:
        """The sums of each pair: those of the row that has them, as often as the other is there."""
        for side, name in self._sums():
            if (side == 1) == flipped:
                yield pa.array(integers(changed, name)[at] * integers(matched, "diff"))
            else:
                yield pa.array(integers(matched, name) * integers(changed, "diff")[at])


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Some pairs, with a hash of the key, one of both rows, and whether the row that was looked up is a retraction."""

    rows: pa.Table
    h: Longs
    r: Longs
    gone: npt.NDArray[np.bool_]

    def may_cancel(self, of_both: Longs) -> npt.NDArray[np.bool_]:
        """Those whose key is among `of_both`, or has had a row that is gone."""
        keys = np.union1d(of_both, self.h[self.gone])
        return np.isin(self.h, keys) if len(keys) else np.zeros(len(self.h), dtype=bool)

    def only(self, which: npt.NDArray[np.bool_]) -> _Pairs:
        return _Pairs(self.rows.filter(pa.array(which)), self.h[which], self.r[which], self.gone[which])


def _added_up(parts: list[_Pairs]) -> pa.Table:
    """Pairs, each once, without those that cancel out."""
    pairs = pa.concat_tables([part.rows for part in parts]).combine_chunks()
    identity = [column(pairs, name) for name in pairs.column_names if name != "diff"]
    groups = trace_rows.group_rows([np.concatenate([part.r for part in parts])], [], stored=identity)
    sums = np.add.reduceat(integers(pairs, "diff")[groups.order], groups.starts)
    kept = sums != 0
    once = pairs.take(pa.array(groups.order[groups.starts][kept]))
    return once.set_column(once.schema.get_field_index("diff"), "diff", pa.array(sums[kept]))


def split_sides(table: pa.Table, epoch: int) -> tuple[pa.Table, pa.Table]:
    """The two inputs' changes, each as consolidated rows of a bag trace."""
    return one_side(_of_side(table, 0), "a", epoch), one_side(_of_side(table, 1), "b", epoch)


def _of_side(table: pa.Table, side: int) -> pa.Table:
    mine = column(table, "side").to_numpy(zero_copy_only=False) == side
    return table.filter(pa.array(mine)).combine_chunks()


def one_side(picked: pa.Table, prefix: str, epoch: int, sums: Sequence[Longs] = ()) -> pa.Table:
    """One input's rows as consolidated rows of a bag trace. sums: what they add to those that are kept."""
    columns = {"h": column(picked, "h"), "r": column(picked, "r")}
    columns |= {f"k{i}": key for i, key in enumerate(prefixed(picked, "k"))}
    columns |= {f"v{i}": value for i, value in enumerate(prefixed(picked, prefix))}
    columns["epoch"] = pa.array(np.full(picked.num_rows, epoch))
    columns["diff"] = column(picked, "diff")
    columns |= {f"s{i}": pa.array(each) for i, each in enumerate(sums)}
    return trace_rows.consolidate(pa.table(columns))


def sums_of(rows: pa.Table, summed: Iterable[Summed], side: int) -> list[Longs]:
    """What rows of one side add to the sums that it keeps."""
    sums: list[Longs] = []
    for i, each in enumerate(summed):
        if each.side == side:
            sums += each.argument.to_sums(column(rows, f"y{i}"), integers(rows, "diff"))
    return sums


def match(left: pa.Table, right: pa.Table) -> tuple[Longs, Longs]:
    """Positions of every pair of rows with equal keys, out of two tables sorted by h."""
    left_h, right_h = integers(left, "h"), integers(right, "h")
    first = np.searchsorted(right_h, left_h, side="left")
    counts = np.searchsorted(right_h, left_h, side="right") - first
    at_left = np.repeat(np.arange(len(left_h)), counts)
    within = np.arange(len(at_left)) - np.repeat(np.cumsum(counts) - counts, counts)
    at_right = np.repeat(first, counts) + within
    same = np.ones(len(at_left), dtype=bool)
    for one, other in zip(prefixed(left, "k"), prefixed(right, "k"), strict=True):
        same &= trace_rows.equal(one.take(pa.array(at_left)), other.take(pa.array(at_right)))
    return at_left[same], at_right[same]


def touched(changes: Iterable[pa.Table]) -> pa.Table:
    """Every key in some changes, once, by hash."""
    parts = [t.select([n for n in t.column_names if n == "h" or n[0] == "k"]) for t in changes]
    both = pa.concat_tables(parts).combine_chunks()
    groups = trace_rows.group_rows([integers(both, "h")], prefixed(both, "k"))
    return both.take(pa.array(groups.order[groups.starts]))


def probe(table: pa.Table) -> tuple[Longs, list[pa.Array]]:
    """What to look a side's rows up by in the other side's trace."""
    return integers(table, "h"), prefixed(table, "k")
