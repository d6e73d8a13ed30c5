"""Join: an inner equi-join, bilinear in its two inputs.

Rule: with A, B before the epoch and changes dA, dB,  d(A x B) = dA x B + A x dB + dA x dB,  diffs multiplied.
A residual condition and everything else about the result is Catalyst's, above. NULL keys never match: they
are filtered out below, in Catalyst.

State is one bag trace for each side, by join key. An epoch costs the changes and their matches. Matches need
not be consolidated: an update and its retraction in two layers both match, and their products cancel. Where an
aggregation follows at once, pairs are added up here (`Combine`): what leaves the task is a row for each group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slipstream.dataflow.combine import Combine
from slipstream.dataflow.eventtime import Timed, on_time, write_state
from slipstream.dataflow.task import Task, emit, gather, prefixed
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import column, integers

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Join:
    """One inner join. Input columns: side (0 left, 1 right), h, r, k0.., a0.. (left values), b0.. (right
    values), diff.
    """

    name: str
    traces: tuple[str, str]
    input: pa.Schema
    combine: Combine | None = None
    timed: tuple[Timed, ...] = ()

    @property
    def __name__(self) -> str:
        """Its name in Spark's plan, by which its metrics are found: the trace that is its own."""
        return self.traces[0]

    def output(self) -> pa.Schema:
        """h, keys, left values, right values, diff; or what `combine` makes of them."""
        return self._pair_schema() if self.combine is None else self.combine.output(self._pair_schema())

    def _pair_schema(self) -> pa.Schema:
        used = None if self.combine is None else {*self.combine.reads(), "diff"}
        fields = [field for field in self.input if field.name not in ("side", "r")]
        return pa.schema([field for field in fields if used is None or field.name in used])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Task.current()
        table = on_time(task, self.timed, gather(batches, self.input))
        left, right = split_sides(table, task.epoch)
        pairs = self._pairs(task, left, right)
        if self.combine is None:
            for made in pairs:
                yield from emit(made)
        elif all_pairs := list(pairs):
            yield from emit(self.combine(pa.concat_tables(all_pairs).combine_chunks()))
        write_state(task, self.timed, self.traces[0], left)
        write_state(task, self.timed, self.traces[1], right)

    def _pairs(self, task: Task, left: pa.Table, right: pa.Table) -> Iterator[pa.Table]:
        """The change of the product, part by part."""
        if left.num_rows:
            at, stored = task.before(self.traces[1], right.schema).matches(*_probe(left))
            yield from self._product(left, at, stored, flipped=False)
        if right.num_rows:
            at, stored = task.before(self.traces[0], left.schema).matches(*_probe(right))
            yield from self._product(right, at, stored, flipped=True)
        if left.num_rows and right.num_rows:
            at_left, at_right = match(left, right)
            yield from self._product(left, at_left, right.take(pa.array(at_right)), flipped=False)

    def _product(self, changed: pa.Table, at: Longs, matched: pa.Table, flipped: bool) -> Iterator[pa.Table]:
        """Rows of the product: changed[at[i]] with matched[i]."""
        if len(at) == 0:
            return
        schema = self._pair_schema()
        own, other = ("b", "a") if flipped else ("a", "b")
        picked = pa.array(at)
        arrays = []
        for name in schema.names:
            if name == "diff":
                arrays.append(pc.multiply(column(changed, name).take(picked), column(matched, name)))
            elif name[0] == other:
                arrays.append(column(matched, f"v{name[1:]}"))
            else:
                mine = f"v{name[1:]}" if name[0] == own else name
                arrays.append(column(changed, mine).take(picked))
        yield pa.Table.from_arrays(arrays, schema=schema)


def split_sides(table: pa.Table, epoch: int) -> tuple[pa.Table, pa.Table]:
    """The two inputs' changes, each as consolidated rows of a bag trace."""
    side = column(table, "side").to_numpy(zero_copy_only=False)
    return _one_side(table, side == 0, "a", epoch), _one_side(table, side == 1, "b", epoch)


def _one_side(table: pa.Table, mine: npt.NDArray[np.bool_], prefix: str, epoch: int) -> pa.Table:
    picked = table.filter(pa.array(mine)).combine_chunks()
    columns = {"h": column(picked, "h"), "r": column(picked, "r")}
    columns |= {f"k{i}": key for i, key in enumerate(prefixed(picked, "k"))}
    columns |= {f"v{i}": value for i, value in enumerate(prefixed(picked, prefix))}
    columns["epoch"] = pa.array(np.full(picked.num_rows, epoch))
    columns["diff"] = column(picked, "diff")
    return trace_rows.consolidate(pa.table(columns))


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


def _probe(table: pa.Table) -> tuple[Longs, list[pa.Array]]:
    return integers(table, "h"), prefixed(table, "k")
