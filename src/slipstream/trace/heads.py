"""The first rows of some keys in a bag whose `r` is an order and not a hash.

A layer is sorted by `h` and then by `r`, so the first rows of a key are the first of its run in every layer. They
are taken a few at a time from each layer at once. What is known is complete up to the least `r` that some layer
has not shown yet: below that bound the updates of a row are all there, and the first row that is left of them is
the answer. Only where the first rows have all been taken away again are more fetched, twice as many each time. So
the cost of a key follows how many of its first rows are gone in newer layers, not how many rows it has.

Rows that were taken away and have not come (*owed* ones) are passed over, and that there are such is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slipstream.trace import rows as _rows
from slipstream.trace.equality import Bools, equal
from slipstream.trace.layer import Part
from slipstream.trace.naming import Ints
from slipstream.trace.scan import OpenPiece

_FIRST_ROWS = 4
_NO_BOUND = np.iinfo(np.int64).max


def heads(
    pieces: Sequence[OpenPiece], schema: pa.Schema, h: Ints, keys: Sequence[pa.Array]
) -> tuple[Ints, pa.Table, Bools]:
    """For each probe the rows of its key with the least `r`, all that tie with the least, with the probe's index; and
    of which probes such rows are owed as would come before those or tie with them.

    `h` is sorted, and `keys` are in its order. A key that holds no rows has none.
    """
    owed = np.zeros(len(h), dtype=bool)
    indexes: list[Ints] = []
    tables: list[pa.Table] = []
    waiting = np.arange(len(h))
    size = _FIRST_ROWS
    while len(waiting):
        probes, found, bound = _fronts(pieces, schema, h, keys, waiting, size)
        kept, at, left = _consolidated(probes, found)
        place = np.searchsorted(waiting, at)
        known = _rows.integers(kept, "r") < bound[place]
        known |= bound[place] == _NO_BOUND
        there = known & (left > 0)
        least = bound.copy()
        np.minimum.at(least, place[there], _rows.integers(kept, "r")[there])
        owing = known & (left < 0) & (_rows.integers(kept, "r") <= least[place])
        owed[at[owing]] = True
        kept, at, place = kept.filter(pa.array(there)), at[there], place[there]
        r = _rows.integers(kept, "r")
        tied = r == least[place]
        indexes.append(at[tied])
        tables.append(kept.filter(pa.array(tied)))
        answered = np.zeros(len(waiting), dtype=bool)
        answered[place] = True
        waiting = waiting[~answered & (bound != _NO_BOUND)]
        size *= 2
    table = pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()
    return np.concatenate(indexes) if indexes else np.empty(0, dtype=np.int64), table, owed


def _fronts(
    pieces: Sequence[OpenPiece],
    schema: pa.Schema,
    h: Ints,
    keys: Sequence[pa.Array],
    waiting: Ints,
    size: int,
) -> tuple[Ints, pa.Table, Ints]:
    """Up to `size` rows of each waiting probe's run in each layer, with the probe's index; and for each of the
    waiting the `r` from which on not everything is known.
    """
    bound = np.full(len(waiting), _NO_BOUND)
    indexes: list[Ints] = []
    batches: list[pa.RecordBatch] = []
    asked = h[waiting]
    for piece in pieces:
        for part, least, beyond in piece.touched(asked):
            start = np.searchsorted(part.h, asked[least:beyond])
            stop = np.searchsorted(part.h, asked[least:beyond], side="right")
            more = stop - start > size
            if more.any():
                unseen = part.integers("r")[start[more] + size]
                far = least + np.flatnonzero(more)
                bound[far] = np.minimum(bound[far], unseen)
            counts = np.minimum(stop - start, size)
            rows = np.repeat(start - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
            if len(rows):
                probes = np.repeat(waiting[least:beyond], counts)
                same = _belongs(piece, part, rows, probes, keys)
                indexes.append(probes[same])
                batches.append(part.batch.take(pa.array(rows[same])))
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    return np.concatenate(indexes) if indexes else np.empty(0, dtype=np.int64), table, bound


def _belongs(
    piece: OpenPiece, part: Part, rows: Ints, probes: Ints, keys: Sequence[pa.Array]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    same = np.ones(len(rows), dtype=bool)
    if not piece.piece.exact:
        epochs = part.integers("epoch")[rows]
        same &= (epochs >= piece.piece.first) & (epochs <= piece.piece.last)
    for i, key in enumerate(keys):
        kept = part.batch.column(f"k{i}")
        asked = key.take(pa.array(probes))
        same &= equal(asked if asked.type == kept.type else asked.cast(kept.type), kept.take(pa.array(rows)))
    return same


def _consolidated(probes: Ints, table: pa.Table) -> tuple[pa.Table, Ints, Ints]:
    """Updates added up by probe and row, those that do not cancel out, by probe and then by `r`; their probes, and how
    often they are there.
    """
    values = [_rows.column(table, name) for name in _rows.value_columns(table.schema)]
    groups = _rows.group_rows([probes, _rows.integers(table, "r")], values)
    if len(groups.starts) == 0:
        return table, probes, probes
    times = np.add.reduceat(_rows.integers(table, "diff")[groups.order], groups.starts)
    rows = groups.order[groups.starts[times != 0]]
    return table.take(pa.array(rows)).combine_chunks(), probes[rows], times[times != 0]
