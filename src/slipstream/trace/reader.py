"""A trace as of an epoch, for reading only.

A reader picks its cover once and maps the cover's layers at once; from then on nothing that a merger does
can disturb it. If a layer vanishes between listing and mapping, the merged layer that replaced it is
already there, so listing again finds it.

What a trace holds as of `t`: a *bag* (its layers have a column `r`) holds each row as often as the updates
of epochs up to `t` add up to; a *keyed* trace holds for each key its version of the greatest epoch up to
`t`, unless that is a tombstone (`diff` 0). Of what it holds, changes have only what is shown (`diff` 1).

The cost of `newest`, `matches`, `heads` and `head` follows what is asked for and the number of layers, not the size
of the trace. `snapshot` reads everything, a bounded amount at a time. `owed` reads two columns of everything, and the
others where rows were taken away. `changes` needs the log and reads the stretch asked for at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slipstream.core.errors import HistoryForgotten, MissingLayer, UnknownSchema
from slipstream.trace import rows as _rows
from slipstream.trace.cover import Piece, cover, history_reach, tile
from slipstream.trace.equality import Bools, equal
from slipstream.trace.heads import heads
from slipstream.trace.layer import Part, list_layers, open_layer
from slipstream.trace.lookup import equal_pairs
from slipstream.trace.naming import Ints, LayerName, Span
from slipstream.trace.scan import OpenPiece, chunk_rows, chunks, gather

_ATTEMPTS = 5
_HEAD_ROWS = 256


@dataclass(frozen=True)
class TraceStats:
    """What a reader reads from: the layers of its cover, their size as files, and their rows within the
    span.
    """

    layers: int
    bytes: int
    rows: int


class TraceReader:
    """The contents of the trace in `directory`, as of an epoch, within a span.

    `schema` says what the columns are while there is no layer.
    """

    def __init__(
        self,
        directory: Path,
        as_of: int,
        span: Span,
        *,
        schema: pa.Schema | None = None,
    ) -> None:
        self.directory, self.as_of, self.span = Path(directory), as_of, span
        self._given = schema
        self._pieces = self._open(lambda names: cover(names, as_of, span, directory=str(directory)))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the trace's layers."""
        for piece in self._pieces:
            return piece.layer.schema
        if self._given is not None:
            return _rows.layer_schema(self._given)
        for name in list_layers(self.directory):
            return open_layer(self.directory, name).schema
        raise UnknownSchema(str(self.directory))

    def newest(self, h: Ints, keys: Sequence[pa.Array]) -> tuple[Bools, pa.Table]:
        """Whether each probe's key is present in a keyed trace, and its values, NULL where it is not.

        `h` is sorted, and `keys` are in its order.
        """
        return self._newest(h, keys, _rows.value_columns(self.schema))

    def _newest(self, h: Ints, keys: Sequence[pa.Array], values: list[str]) -> tuple[Bools, pa.Table]:
        found = np.zeros(len(h), dtype=bool)
        source = np.zeros(len(h), dtype=np.int64)
        taken: list[pa.RecordBatch] = []
        count = 0
        waiting = np.ones(len(h), dtype=bool)
        left: Ints | None = None  # the probes not answered yet; None while that is all of them
        for piece in reversed(self._pieces):
            asked = h if left is None else h[left]
            before = count
            for part, start, stop in piece.touched(asked):
                probes, stored = _matching(piece, part, asked, start, stop, left, keys)
                if len(probes) == 0:
                    continue
                last = np.append(probes[1:] != probes[:-1], True)
                probes, stored = probes[last], stored[last]
                waiting[probes] = False
                present = part.integers("diff")[stored] != 0
                found[probes] = present
                source[probes] = np.arange(count, count + len(probes))
                count += len(probes)
                taken.append(part.batch.select(values).take(pa.array(stored)))
            if count > before:
                left = np.flatnonzero(waiting)
                if len(left) == 0:
                    break
        schema = pa.schema([self.schema.field(name) for name in values])
        table = pa.Table.from_batches(taken, schema).combine_chunks()
        return found, table.take(pa.array(source, mask=~found)) if values else table

    def matches(self, h: Ints, keys: Sequence[pa.Array]) -> tuple[Ints, pa.Table]:
        """Every update of a bag whose key equals a probe's, all columns, with the index of the probe.

        `h` is sorted, and `keys` are in its order. Updates of one row in several layers are not added up.
        """
        indexes: list[Ints] = []
        taken: list[pa.RecordBatch] = []
        for piece in self._pieces:
            for part, start, stop in piece.touched(h):
                probes, stored = _matching(piece, part, h, start, stop, None, keys)
                if len(probes):
                    indexes.append(probes)
                    taken.append(part.batch.take(pa.array(stored)))
        table = pa.Table.from_batches(taken, self.schema).combine_chunks()
        return np.concatenate(indexes) if indexes else np.empty(0, dtype=np.int64), table

    def head(self, n: int) -> pa.Table:
        """The rows of a bag with the smallest `h`: `n` of them if there are, and all that tie with the last."""
        if n <= 0:
            return self.schema.empty_table()
        size = max(_HEAD_ROWS, 2 * n)
        while True:
            taken, complete = self._prefix(size)
            if not taken and complete:
                return self.schema.empty_table()
            if not taken:  # so far all tie
                size *= 2
                continue
            table = _rows.consolidate(gather(taken, self.schema.names))
            hashes, diffs = _rows.integers(table, "h"), _rows.integers(table, "diff")
            total = np.cumsum(np.maximum(diffs, 0))
            enough = int(np.searchsorted(total, n))
            if enough < len(total):
                return table.slice(0, int(np.searchsorted(hashes, hashes[enough], side="right")))
            if complete:
                return table
            size *= 2

    def heads(self, h: Ints, keys: Sequence[pa.Array]) -> tuple[Ints, pa.Table, Bools]:
        """For each probe the rows of its key that come first in the order of `r`, and all that tie with them,
        with the probe's index; and of which probes rows before those, or tied with them, are owed. `h` is sorted, and
        `keys` are in its order.
        """
        return heads(self._pieces, self.schema, h, keys)

    def snapshot(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The contents, consolidated, in the order of `h`, some rows at a time.

        By default the key and value columns, and for a bag `diff`, the row's multiplicity.
        """
        schema = self.schema
        bag = _rows.is_bag(schema)
        everything = _rows.key_columns(schema) + _rows.value_columns(schema) + (["diff"] if bag else [])
        shown = everything if columns is None else list(columns)
        added = _rows.added_columns(schema)
        needed = {"h", "r", "epoch", *_rows.identity_columns(schema), *added, *shown}
        read = [name for name in schema.names if name in needed]
        for taken in chunks(self._pieces, chunk_rows(self._pieces)):
            table = gather(taken, read)
            table = _rows.consolidate(table) if bag else _rows.collapse_keyed(table, keep_tombstones=False)
            if table.num_rows:
                yield table.select(shown)

    def owed(self) -> int:
        """How many rows were taken away from a bag that it has not had yet; of a keyed trace, how many keys owe."""
        total = 0
        for taken in chunks(self._pieces, chunk_rows(self._pieces)):
            signs = gather(taken, ["h", "epoch", "diff"])
            hashes = _rows.integers(signs, "h")
            negative = np.unique(hashes[_rows.integers(signs, "diff") < 0])
            if len(negative) == 0:
                continue
            touched = np.flatnonzero(np.isin(hashes, negative))
            table = gather(taken, self.schema.names).take(pa.array(touched)).combine_chunks()
            bag = _rows.is_bag(self.schema)
            held = _rows.consolidate(table) if bag else _rows.collapse_keyed(table, keep_tombstones=False)
            total -= int(np.minimum(_rows.integers(held, "diff"), 0).sum())
        return total

    def changes(self, since: int, until: int) -> pa.Table:
        """The updates of the epochs after `since` up to `until`, in the order of epochs.

        The columns are those of keys and values, `epoch` and `diff`. In a keyed trace a new version of a key
        shows as the old version taken away and the new one added, if they differ.
        """
        schema = self.schema
        shown = [*_rows.key_columns(schema), *_rows.value_columns(schema), "epoch", "diff"]
        pieces = self._open(lambda names: self._log(names, since, until))
        tables = [gather(taken, schema.names) for taken in chunks(pieces, chunk_rows(pieces))]
        table = pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()
        table = _rows.ordered_log(table)
        if not _rows.is_bag(schema):
            table = self._differences(table, since, until)
        epochs = _rows.integers(table, "epoch")
        return table.select(shown).take(pa.array(np.argsort(epochs, kind="stable")))

    def versions(self, since: int, until: int) -> tuple[TraceReader, pa.Table]:
        """A keyed trace as it was before the epochs after `since` up to `until`, and every version of theirs."""
        return self._base(since, until), self.log(since, until, self.schema.names)

    def log(self, since: int, until: int, columns: Sequence[str]) -> pa.Table:
        """Some columns of every stored update of the epochs after `since` up to `until`, in no particular order."""
        pieces = self._open(lambda names: self._log(names, since, until))
        tables = [gather(taken, list(columns)) for taken in chunks(pieces, chunk_rows(pieces))]
        if tables:
            return pa.concat_tables(tables).combine_chunks()
        return self.schema.empty_table().select(list(columns))

    def stats(self) -> TraceStats:
        """How much there is to read."""
        layers = {piece.piece.layer: piece.layer.bytes for piece in self._pieces}
        rows = sum(part.rows for piece in self._pieces for part in piece.parts)
        return TraceStats(len(layers), sum(layers.values()), rows)

    def _prefix(self, size: int) -> tuple[list[tuple[OpenPiece, Part]], bool]:
        """Up to `size` rows of each piece, cut to where all of them are known, and whether that is everything."""
        cut: list[tuple[OpenPiece, Part]] = []
        bounds: list[int] = []
        for piece in self._pieces:
            room = size
            for part in piece.parts:
                if part.rows > room:
                    bounds.append(int(part.h[room]))
                    if room:
                        cut.append((piece, part.slice(0, room)))
                    break
                cut.append((piece, part))
                room -= part.rows
        if not bounds:
            return cut, True
        below = np.int64(min(bounds))
        ends = [int(np.searchsorted(part.h, below)) for _, part in cut]
        known = [(piece, part.slice(0, end)) for (piece, part), end in zip(cut, ends, strict=True) if end]
        return known, False

    def _differences(self, table: pa.Table, since: int, until: int) -> pa.Table:
        """Versions, ordered by key and epoch, as updates: what each took away and what it added."""
        names = _rows.key_columns(table.schema)
        keys = [_rows.column(table, name) for name in names]
        groups = _rows.group_rows([_rows.integers(table, "h")], keys)
        firsts = groups.starts
        base = self._base(since, until)
        probes = table.take(pa.array(firsts))
        shown = _rows.value_columns(table.schema)
        asked = (_rows.integers(probes, "h"), [_rows.column(probes, name) for name in names])
        known, values = base._newest(*asked, [*shown, "diff"])
        known &= np.asarray(pc.equal(_rows.column(values, "diff"), 1).fill_null(False))
        values = values.select(shown)
        before = table.slice(0, max(table.num_rows - 1, 0))
        had = np.zeros(table.num_rows, dtype=bool)
        had[1:] = _rows.integers(before, "diff") > 0
        had[firsts] = known
        earlier = np.arange(-1, table.num_rows - 1)
        earlier[firsts] = table.num_rows + np.arange(len(firsts))
        both = pa.concat_tables([table.select(shown), values]).combine_chunks() if shown else None
        has = _rows.integers(table, "diff") > 0
        same = had & has
        if both is not None:
            here, there = pa.array(np.arange(table.num_rows)), pa.array(np.maximum(earlier, 0))
            for name in shown:
                array = _rows.column(both, name)
                same &= equal(array.take(here), array.take(there))
        gone, come = np.flatnonzero(had & ~same), np.flatnonzero(has & ~same)
        removed = table.take(pa.array(gone))
        for name in shown:
            assert both is not None
            old = _rows.column(both, name).take(pa.array(earlier[gone]))
            removed = removed.set_column(
                removed.schema.get_field_index(name), removed.schema.field(name), old
            )
        diffs = pa.array(np.full(len(gone), -1, dtype=np.int64))
        removed = removed.set_column(removed.schema.get_field_index("diff"), "diff", diffs)
        result = pa.concat_tables([removed, table.take(pa.array(come))]).combine_chunks()
        return result.take(pa.array(np.argsort(np.concatenate([gone, come]), kind="stable")))

    def _base(self, since: int, until: int) -> TraceReader:
        """The trace as it was before a stretch of changes."""
        for epoch in range(since, until + 1):
            try:
                base = TraceReader(self.directory, epoch, self.span, schema=self.schema)
            except MissingLayer:
                continue
            if epoch == since:
                return base
            raise HistoryForgotten(str(self.directory), since, until, epoch)
        raise HistoryForgotten(str(self.directory), since, until, until)

    def _log(self, names: list[LayerName], since: int, until: int) -> list[Piece]:
        try:
            return tile(names, since + 1, until, self.span, whole=False, directory=str(self.directory))
        except MissingLayer:
            reach = history_reach(names, until, self.span)
            raise HistoryForgotten(str(self.directory), since, until, reach) from None

    def _open(self, choose: Callable[[list[LayerName]], list[Piece]]) -> tuple[OpenPiece, ...]:
        """List, choose and map; again if a merger was quicker."""
        for attempt in range(_ATTEMPTS):
            names = list_layers(self.directory)
            try:
                return tuple(OpenPiece.open(self.directory, piece) for piece in choose(names))
            except (MissingLayer, HistoryForgotten):
                if attempt == _ATTEMPTS - 1:
                    raise
            except FileNotFoundError as gone:
                if attempt == _ATTEMPTS - 1:
                    span = self.span
                    raise MissingLayer(str(self.directory), 1, self.as_of, span.start, span.stop) from gone
        raise AssertionError("unreachable")


def _matching(
    piece: OpenPiece,
    part: Part,
    h: Ints,
    start: int,
    stop: int,
    left: Ints | None,
    keys: Sequence[pa.Array],
) -> tuple[Ints, Ints]:
    """The (probe, stored row) pairs with equal keys, by probe and then by row, of the hashes from `start` to `stop`."""
    probes, stored = equal_pairs(h[start:stop], part.h)
    probes = probes + start if left is None else left[probes + start]
    same = np.ones(len(probes), dtype=bool)
    if len(probes) and not piece.piece.exact:
        epochs = part.integers("epoch")[stored]
        same &= (epochs >= piece.piece.first) & (epochs <= piece.piece.last)
    if len(probes):
        here, there = pa.array(probes), pa.array(stored)
        for i, key in enumerate(keys):
            kept = part.batch.column(f"k{i}")
            asked = key.take(here)
            same &= equal(asked if asked.type == kept.type else asked.cast(kept.type), kept.take(there))
    return (probes, stored) if same.all() else (probes[same], stored[same])
