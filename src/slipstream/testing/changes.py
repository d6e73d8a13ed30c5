"""A table that changes: rows that arrive in shuffled batches, among updates and deletes of those that are there.

A `Changing` holds some of the rows that it was given and keeps the rest waiting. A batch inserts waiting rows,
deletes held ones, and updates others: the row as it was is taken away, and added with one column, not of its key,
taken over from another row of the table. So every value is one that the table's own generator made, and joins and
filters go on finding matches. A deleted row waits again.

What a batch is depends on the seed alone. Batches are Arrow tables with a column `diff`, ready for a source
`sl.files(..., diff="diff")`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


class Changing:
    """See the module's docstring. `share` of the rows is held to begin with."""

    def __init__(self, rows: pa.Table, key: Collection[str], seed: int, share: float = 1.0) -> None:
        self._random = np.random.default_rng(seed)
        shuffled = rows.take(pa.array(self._random.permutation(rows.num_rows)))
        first = round(rows.num_rows * share)
        self.rows: pa.Table = shuffled.slice(0, first).combine_chunks()
        """What the table holds now."""
        self._waiting: pa.Table = shuffled.slice(first).combine_chunks()
        self._free = [name for name in rows.column_names if name not in key]

    def load(self) -> pa.Table:
        """All that is held, as a batch."""
        return with_diff(self.rows, 1)

    def batch(self, inserts: int, updates: int, deletes: int) -> pa.Table:
        """So many changes, or as many as there are rows for; applied to `rows`."""
        picked = self._random.permutation(self.rows.num_rows)[: updates + deletes]
        old, gone = (self.rows.take(pa.array(part)) for part in (picked[:updates], picked[updates:]))
        new, arriving = self._updated(old), self._waiting.slice(0, inserts)
        stay = np.ones(self.rows.num_rows, dtype=bool)
        stay[picked] = False
        self.rows = pa.concat_tables([self.rows.filter(pa.array(stay)), new, arriving]).combine_chunks()
        self._waiting = pa.concat_tables([self._waiting.slice(inserts), gone]).combine_chunks()
        parts = [with_diff(old, -1), with_diff(new, 1), with_diff(gone, -1), with_diff(arriving, 1)]
        changes = pa.concat_tables(parts)
        return changes.take(pa.array(self._random.permutation(changes.num_rows))).combine_chunks()

    def _updated(self, old: pa.Table) -> pa.Table:
        """The rows with one column each taken over from another row."""
        which = self._random.integers(len(self._free), size=old.num_rows)
        donors = self._random.integers(max(1, self.rows.num_rows), size=old.num_rows)
        new = old
        for number, name in enumerate(self._free):
            place = old.schema.get_field_index(name)
            given = self.rows.column(name).take(pa.array(donors))
            new = new.set_column(
                place, name, pa.compute.if_else(pa.array(which == number), given, old.column(name))
            )
        return new


def with_diff(rows: pa.Table, diff: int) -> pa.Table:
    """Rows with a column `diff`."""
    return rows.append_column("diff", pa.array(np.full(rows.num_rows, diff)))


def drop(batch: pa.Table, folder: Path, number: int) -> None:
    """Put a batch into a folder that a source watches, as one Parquet file that appears whole."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{number}.tmp"
    pq.write_table(batch, temporary)
    temporary.rename(folder / f"{number:06}.parquet")
