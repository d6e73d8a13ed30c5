"""Semi: rows of the left input whose key the right one has; or, as an anti join, those whose key it has not.

Rule: with p(k) 1 where rows of key k are shown and 0 where they are not, and dA, dp the changes,
d(A p) = dA p' + A dp.  So changed rows are shown if their key is shown now, and where a key comes to be shown, or no
longer is, all its rows do. Both are added up before they leave: a row that is taken away just when its key comes to be
shown was never there.

State is a bag trace for each side, by key; the right one has keys alone. An epoch costs the change, and the rows of
keys that turn. NULL keys never match: below, Catalyst filters them out on the right, and on the left of a semi join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slipstream.dataflow.join import match, probe, split_sides, touched
from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task, emit
from slipstream.trace.rows import column, consolidate, integers


@dataclass(frozen=True)
class Semi(Operator):
    """One semi or anti join. Input columns as Join's, without values of the right side."""

    name: str
    traces: tuple[str, str]
    input: pa.Schema
    anti: bool

    @property
    def known_by(self) -> str:
        return self.traces[0]

    def output(self) -> pa.Schema:
        """h, keys, left values, diff."""
        return pa.schema([field for field in self.input if field.name not in ("side", "r")])

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        left, right = split_sides(table, task.epoch)
        if left.num_rows or right.num_rows:
            yield from emit(self._change(task, left, right))
        task.write(self.traces[0], left)
        task.write(self.traces[1], right)

    def _change(self, task: Task, left: pa.Table, right: pa.Table) -> pa.Table:
        keys = touched((left, right))
        count = np.zeros(keys.num_rows, dtype=np.int64)
        at, stored = task.before(self.traces[1], right.schema).matches(*probe(keys))
        np.add.at(count, at, integers(stored, "diff"))
        was = (count > 0) != self.anti
        of_right, at = match(right, keys)
        np.add.at(count, at, integers(right, "diff")[of_right])
        now = (count > 0) != self.anti
        of_left, at = match(left, keys)
        changed = left.take(pa.array(of_left[now[at]]))
        turned = np.flatnonzero(was != now)
        at, stored = task.before(self.traces[0], left.schema).matches(*probe(keys.take(pa.array(turned))))
        sign = np.where(now[turned], 1, -1)[at]
        place = stored.schema.get_field_index("diff")
        shown = stored.set_column(place, "diff", pa.array(integers(stored, "diff") * sign))
        return self._shaped(consolidate(pa.concat_tables([changed, shown]).combine_chunks()))

    def _shaped(self, rows: pa.Table) -> pa.Table:
        schema = self.output()
        names = [f"v{name[1:]}" if name[0] == "a" else name for name in schema.names]
        return pa.Table.from_arrays([column(rows, name) for name in names], schema=schema)
