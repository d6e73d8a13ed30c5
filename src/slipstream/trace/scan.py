"""Reading several layers side by side, in the order of `h`, a bounded number of rows at a time.

A chunk is a range of `h`, taken from every piece at once, so whatever is equal is in one chunk and each
chunk can be consolidated by itself. Chunks end between runs of equal `h`: memory is bounded by `budget`
rows plus the longest run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from slipstream.trace.cover import Piece
from slipstream.trace.layer import Layer, Part, open_layer
from slipstream.trace.naming import Ints

CHUNK_ROWS = 1 << 19
CHUNK_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class OpenPiece:
    """A piece of a cover with its layer mapped. It stays readable after the file is removed."""

    piece: Piece
    layer: Layer
    parts: tuple[Part, ...]

    @staticmethod
    def open(directory: Path, piece: Piece) -> OpenPiece:
        layer = open_layer(directory, piece.layer)
        return OpenPiece(piece, layer, layer.within(piece.span))

    def touched(self, h: Ints) -> list[tuple[Part, int, int]]:
        """The parts that may hold some of the sorted hashes `h`, each with where those begin and end in `h`."""
        if len(self.parts) == 1:
            (part,) = self.parts
            start, stop = int(h.searchsorted(part.first)), int(h.searchsorted(part.last, side="right"))
            return [(part, start, stop)] if start < stop else []
        starts, stops = h.searchsorted(self._firsts), h.searchsorted(self._lasts, side="right")
        return [
            (self.parts[i], int(starts[i]), int(stops[i])) for i in np.flatnonzero(starts < stops).tolist()
        ]

    @cached_property
    def _firsts(self) -> Ints:
        return np.array([part.first for part in self.parts], dtype=np.int64)

    @cached_property
    def _lasts(self) -> Ints:
        return np.array([part.last for part in self.parts], dtype=np.int64)

    def wanted(self, epochs: Ints) -> Ints | None:
        """Which of these rows fall into the piece's epochs, or None for all."""
        if self.piece.exact:
            return None
        return np.flatnonzero((epochs >= self.piece.first) & (epochs <= self.piece.last))


def chunk_rows(pieces: Sequence[OpenPiece]) -> int:
    """How many rows a chunk may hold, so that wide rows do not take more memory than narrow ones."""
    rows = sum(piece.layer.rows for piece in pieces)
    size = sum(piece.layer.bytes for piece in pieces)
    return min(CHUNK_ROWS, max(1024, CHUNK_BYTES * rows // max(size, 1)))


def chunks(pieces: Sequence[OpenPiece], budget: int) -> Iterator[list[tuple[OpenPiece, Part]]]:
    """Ranges of `h`, each as the slice that every piece holds of it. Pieces are in the order given."""
    cursors = [_Cursor(piece, sum(p.rows for p in piece.parts)) for piece in pieces if piece.parts]
    while cursors:
        total = sum(cursor.left for cursor in cursors)
        bounds = [b for c in cursors if (b := c.bound(max(1, budget * c.left // total))) is not None]
        bound = min(bounds) if bounds else None
        taken = [(cursor.piece, part) for cursor in cursors if (part := cursor.take(bound)) is not None]
        yield taken
        cursors = [cursor for cursor in cursors if not cursor.done]


def gather(taken: Sequence[tuple[OpenPiece, Part]], columns: list[str]) -> pa.Table:
    """The rows of a chunk that fall into their pieces' epochs, as one table."""
    batches = []
    for piece, part in taken:
        batch = part.batch.select(columns)
        rows = piece.wanted(part.integers("epoch")) if not piece.piece.exact else None
        batches.append(batch if rows is None else batch.take(pa.array(rows)))
    return pa.Table.from_batches(batches).combine_chunks()


@dataclass
class _Cursor:
    """How far a piece has been read."""

    piece: OpenPiece
    left: int
    part: int = 0
    offset: int = 0

    @property
    def done(self) -> bool:
        return self.part == len(self.piece.parts)

    def bound(self, quota: int) -> int | None:
        """The `h` to stop before, so as to take about `quota` rows in whole runs; None to take the rest."""
        part = self.piece.parts[self.part]
        stop = self.offset + quota
        if stop < part.rows and part.h[stop] == part.h[self.offset]:
            stop = int(np.searchsorted(part.h, part.h[self.offset], side="right"))
        if stop < part.rows:
            return int(part.h[stop])
        return self.piece.parts[self.part + 1].first if self.part + 1 < len(self.piece.parts) else None

    def take(self, bound: int | None) -> Part | None:
        """Move on to `bound`. It never lies beyond the next part's beginning."""
        part = self.piece.parts[self.part]
        start, stop = self.offset, part.rows
        if bound is not None and bound <= part.last:
            stop = int(np.searchsorted(part.h, np.int64(bound)))
        self.offset = stop
        self.left -= stop - start
        if stop == part.rows:
            self.part, self.offset = self.part + 1, 0
        if stop - start == part.rows:
            return part
        return part.slice(start, stop) if start < stop else None
