"""Broadcast: an inner join whose small input does not change, without a shuffle of the large one.

Rule: with dB = 0,  d(A x B) = dA x B. B is small, so every task reads all of it, from its trace as it is; rows of dA
are joined by the task that made them, and put aside there (`aside`). What Spark calls a broadcast needs no sending
here: the trace is on a disk that all tasks read.

What computes B may keep state of its own, which needs its layers in every epoch. So it runs all the same, beside the
join, into a `Still`, which sees to it that B does not change.

In an epoch in which B does change, the rows put aside are moved to the tasks that have their keys (`Move`), and the
join is a `Join` again. That epoch costs what an epoch would have cost that had all their changes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slipstream.dataflow.aside import MOVED, Aside, key_hash, put_aside
from slipstream.dataflow.join import SIDES, SUMS, Join, brought_sums, one_side, probe
from slipstream.dataflow.task import STATS_SCHEMA, Task, emit, gather
from slipstream.trace.rows import added_columns, column, integers


@dataclass(frozen=True)
class Broadcast:
    """Input columns: h, r, k0.., the values of the large input, diff; each task has the rows that it made itself."""

    join: Join
    aside: Aside
    input: pa.Schema

    @property
    def __name__(self) -> str:
        """Its name in Spark's plan, by which its metrics are found: that of the join."""
        return self.join.__name__

    def output(self) -> pa.Schema:
        return self.join.output()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, large = Task.current(), self.aside.large
        change = self.join.change_of(large, gather(batches, self.input), task.epoch)
        idle = self.join.nothing(task.epoch)
        if change.num_rows:
            small = task.whole(self.join.traces[self.aside.small], idle[self.aside.small].schema)
            pairs = self.join.product(change, *small.matches(*probe(change)), flipped=large == 1)
            yield from self.join.emitted(pairs, np.empty(0, dtype=np.int64))
        task.write(self.aside.trace, put_aside(change, task.span))
        for trace, rows in zip(self.join.traces, idle, strict=True):
            task.write(trace, rows)


@dataclass(frozen=True)
class Still:
    """The change of the small input, which must be none. Input columns: h, diff."""

    trace: str
    input: pa.Schema

    @property
    def __name__(self) -> str:
        """Its name in Spark's plan."""
        return f"{self.trace}+still"

    def output(self) -> pa.Schema:
        return STATS_SCHEMA

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if gather(batches, self.input).num_rows:
            raise AssertionError(f"what is kept in {self.trace} was broadcast, and has changed")
        yield from ()


@dataclass(frozen=True)
class Move:
    """Hands on the change of the large input and, as rows of the side `MOVED`, all that was put aside, which then is
    no longer there. Input columns: those of the join.
    """

    aside: Aside
    input: pa.Schema

    @property
    def __name__(self) -> str:
        """Its name in Spark's plan."""
        return f"{self.aside.trace}+move"

    def output(self) -> pa.Schema:
        return self.input

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Task.current()
        yield from emit(gather(batches, self.input))
        nothing = self.input.empty_table()
        large = self.aside.large
        none = one_side(nothing, SIDES[large], task.epoch, brought_sums(nothing, large))
        left = put_aside(none, task.span)
        gone = [left]
        before = task.before(self.aside.trace, left.schema)
        for rows in before.snapshot([name for name in left.column_names if name != "epoch"]):
            yield from emit(self._moved(rows))
            gone.append(_taken_away(rows, task.epoch, left.schema))
        task.write(self.aside.trace, pa.concat_tables(gone).combine_chunks())

    def _moved(self, rows: pa.Table) -> pa.Table:
        """Rows that were put aside, as the join takes them."""
        large, arrays = self.aside.large, []
        for field in self.input:
            name = field.name
            if name == "side":
                arrays.append(pa.array(np.full(rows.num_rows, MOVED), type=field.type))
            elif name == "h":
                arrays.append(column(rows, key_hash(rows.schema)))
            elif name[0] == SIDES[large]:
                arrays.append(column(rows, f"v{name[1:]}"))
            elif name[0] == SUMS[large]:
                arrays.append(column(rows, f"s{name[1:]}"))
            elif name[0] in f"{SIDES}{SUMS}y":
                arrays.append(pa.nulls(rows.num_rows, field.type))
            else:
                arrays.append(column(rows, name))
        return pa.Table.from_arrays(arrays, schema=self.input)


def _taken_away(rows: pa.Table, epoch: int, schema: pa.Schema) -> pa.Table:
    columns = {name: column(rows, name) for name in rows.column_names}
    columns |= {name: pa.array(-integers(rows, name)) for name in added_columns(rows.schema)}
    columns["epoch"] = pa.array(np.full(rows.num_rows, epoch))
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)
