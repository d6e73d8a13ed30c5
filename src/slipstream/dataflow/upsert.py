"""Upsert: rows that replace each other by key, as a collection of inserts and deletes.

Rule: for a key k with row R(k), a change that sets it to S gives  - R(k) + S,  a delete gives  - R(k).  Of
several changes of one key in an epoch the last one counts, in the order that the source gives. A delete of
what is not there is nothing.

State is a keyed trace: key -> row. An epoch costs one lookup for each key in the change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task, emit, prefixed
from slipstream.trace import layer_schema
from slipstream.trace import rows as trace_rows
from slipstream.trace.rows import column, integers


@dataclass(frozen=True)
class Upsert(Operator):
    """One keyed input. Input columns: h, k0.., v0.., delete (boolean), o0.. (the order within the epoch)."""

    name: str
    trace: str
    input: pa.Schema

    @property
    def known_by(self) -> str:
        return self.trace

    def output(self) -> pa.Schema:
        """h, keys, values, diff."""
        rows = [field for field in self.input if field.name[0] in "hkv"]
        return pa.schema([*rows, pa.field("diff", pa.int64())])

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        last = self._last_by_key(table)
        h, keys, values = integers(last, "h"), prefixed(last, "k"), prefixed(last, "v")
        lives = ~column(last, "delete").to_numpy(zero_copy_only=False).astype(bool)
        found, stored = task.before(self.trace, layer_schema(last.schema)).newest(h, keys)
        old = prefixed(stored, "v")
        same = found & lives
        for before, after in zip(old, values, strict=True):
            same &= trace_rows.equal(before, after, ordered=True)
        changed = ~same & (found | lives)
        layer = {"h": pa.array(h)}
        layer |= {f"k{i}": key for i, key in enumerate(keys)}
        layer |= {f"v{i}": value for i, value in enumerate(values)}
        layer["epoch"] = pa.array(np.full(len(h), task.epoch))
        layer["diff"] = pa.array(lives.astype(np.int64))
        task.write(self.trace, pa.table(layer).filter(pa.array(changed)))
        yield from self._rows(h, keys, old, found & changed, -1)
        yield from self._rows(h, keys, values, lives & changed, 1)

    def _last_by_key(self, table: pa.Table) -> pa.Table:
        """For each key the row that comes last, sorted by hash."""
        order_columns = [name for name in table.column_names if name.startswith("o")]
        ordered = table.sort_by([(name, "ascending") for name in order_columns]).combine_chunks()
        groups = trace_rows.group_rows([integers(ordered, "h")], prefixed(ordered, "k"))
        latest = np.maximum.reduceat(groups.order, groups.starts) if len(groups.starts) else groups.starts
        return ordered.take(pa.array(latest)).combine_chunks()

    def _rows(
        self,
        h: npt.NDArray[np.int64],
        keys: list[pa.Array],
        values: list[pa.Array],
        present: npt.NDArray[np.bool_],
        diff: int,
    ) -> Iterator[pa.RecordBatch]:
        picked = pa.array(np.flatnonzero(present))
        arrays = [values.take(picked) for values in (pa.array(h), *keys, *values)]
        arrays.append(pa.array(np.full(len(picked), diff)))
        yield from emit(pa.Table.from_arrays(arrays, schema=self.output()))
