"""Combine: adding rows up where they are made, before they are sent to the aggregation that wants their sums.

Rule: an Accumulate adds up contributions by key, and adding is associative. So a task that makes many rows for
few keys may add up its own and send one row for each key: the key, the sum of the diffs, and the totals so far.
The Accumulate folds totals as it would fold rows.

It runs at the end of another operator (Join), so that rows that are added up never leave the process; or as a stage
of its own (`Partial`) between a plan of Spark's and the shuffle, which pays where rows are many and keys are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slipstream.dataflow.accumulators import Argument, Totals
from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task, emit, with_diffs
from slipstream.trace.rows import column, integers

Longs = npt.NDArray[np.int64]
_MOST_CODES = 1 << 62
PARTIAL = "+partial"


@dataclass(frozen=True)
class Combine:
    """What to add up. `keys` and `values` name columns of the rows. There is a value for each argument or, if `kept`,
    one for each of its sums.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    arguments: tuple[Argument, ...]
    kept: bool = False

    def reads(self) -> list[str]:
        """The columns that it needs, beside diff."""
        return list(dict.fromkeys([*self.keys, *self.values]))

    def output(self, rows: pa.Schema) -> pa.Schema:
        """c0.. the keys, x0.. the totals, diff the sum of the diffs."""
        keys = [pa.field(f"c{i}", rows.field(name).type) for i, name in enumerate(self.keys)]
        kinds = [kind for argument in self.arguments for _, kind in argument.sent()]
        return pa.schema(
            [*keys, *(pa.field(f"x{i}", kind) for i, kind in enumerate(kinds)), pa.field("diff", pa.int64())]
        )

    def __call__(self, table: pa.Table) -> pa.Table:
        diff = integers(table, "diff")
        order, starts = _grouped([column(table, name) for name in self.keys], table.num_rows)
        first = pa.array(order[starts])
        arrays = [column(table, name).take(first) for name in self.keys]
        for argument, totals in zip(self.arguments, self._totals(table, diff, order, starts), strict=True):
            arrays += argument.send(totals)
        arrays.append(pa.array(np.add.reduceat(diff[order], starts)))
        return pa.Table.from_arrays(arrays, schema=self.output(table.schema))

    def _totals(self, table: pa.Table, diff: Longs, order: Longs, starts: Longs) -> Iterator[Totals]:
        """The totals of each argument by group."""
        names = iter(self.values)
        for argument in self.arguments:
            if self.kept:
                own = [integers(table, next(names))[order] for _ in range(argument.sums)]
                yield argument.from_sums([np.add.reduceat(each, starts) for each in own])
            else:
                values = column(table, next(names)).take(pa.array(order))
                yield argument.totals(values, diff[order], starts)


@dataclass(frozen=True)
class Partial(Operator):
    """A stage that adds up what one task has. Input columns: c0.. the keys, y0.. the arguments, diff unless all are 1.

    It keeps nothing, so any partition will do.
    """

    trace: str  # of the aggregation that it works for
    input: pa.Schema
    combine: Combine

    @property
    def known_by(self) -> str:
        return f"{self.trace}{PARTIAL}"

    def output(self) -> pa.Schema:
        return self.combine.output(self.input)

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        if table.num_rows == 0:
            return
        yield from emit(self.combine(with_diffs(table)))


def receive(
    arguments: tuple[Argument, ...], columns: list[pa.Array]
) -> list[dict[str, npt.NDArray[np.generic]]]:
    """The totals of each argument in the columns x0, x1, ... of combined rows."""
    rest = iter(columns)
    return [argument.receive({name: next(rest) for name, _ in argument.sent()}) for argument in arguments]


def _grouped(keys: list[pa.Array], rows: int) -> tuple[Longs, Longs]:
    """An order of the rows in which equal keys are neighbours, and where each key begins."""
    code = np.zeros(rows, dtype=np.int64)
    distinct = 1
    for key in keys:
        encoded = key.dictionary_encode(null_encoding="encode")
        if distinct * len(encoded.dictionary) > _MOST_CODES:
            known, code = np.unique(code, return_inverse=True)
            distinct = len(known)
        distinct *= max(1, len(encoded.dictionary))
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    narrow = code.astype(np.min_scalar_type(distinct))  # NumPy sorts small integers by radix
    order = np.argsort(narrow, kind="stable")
    ordered = narrow[order]
    return order, np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
