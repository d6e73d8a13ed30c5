"""Writing a layer: Arrow's bytes and a seal behind them, in one pass.

Digests are taken of what Arrow writes as it goes by, so nothing is read again. A layer is written under a temporary
name in its own directory and renamed (`placing`). What an epoch writes is not flushed to disk: durability follows
behind. What replaces other layers is flushed, because those are then removed.

Names say everything and bytes are a function of the rows, so it does not matter which of two attempts wins the rename.
Parts are cut to about `PART_BYTES`, so that a small lookup in a large layer checks little, and where they are cut
depends on the rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64

from slipstream.core.errors import BadLayer
from slipstream.trace.naming import LayerName, trace_of
from slipstream.trace.placing import placed
from slipstream.trace.seal import MAGIC_BYTES, Seal, SealedPart, closed

PART_BYTES = 1 << 24

_CONTINUES = b"\xff\xff\xff\xff"  # how every message in an Arrow file begins
_SMALL = 1 << 16  # bytes that are copied together in less time than it takes to pass them on one by one


def write_layer(
    directory: Path,
    name: LayerName,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    flushed: bool = False,
) -> int:
    """Write a layer under its name, each batch as a part, and return its size in bytes. Empty batches are left out.

    Flushed: file and name are on disk on return.
    """
    with placed(directory / name.filename, flushed=flushed) as file:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        sink = _Sink(file, MAGIC_BYTES + schema.serialize().size)
        stream = pa.PythonFile(sink, mode="w")
        if first is None or first.get_total_buffer_size() < _SMALL:
            stream = pa.BufferedOutputStream(stream, _SMALL)
        parts: list[SealedPart] = []
        with stream, pa.ipc.new_file(stream, schema) as writer:
            for batch in filled if first is None else chain([first], filled):
                offset = sink.begin_part()
                writer.write_batch(batch)
                stream.flush()
                parts.append(_sealed(batch, offset, sink.at - offset, sink.end_part()))
        if not _ascending(parts):
            problem = "its batches do not follow one another in the order of hashes"
            remedy = "Sort rows by hash, and let no batch end inside a run of equal hashes."
            raise BadLayer(name.filename, problem, remedy)
        if parts and not sink.in_step:
            problem = "Arrow did not write its schema as announced"
            remedy = "Use the version of pyarrow that Slipstream was tested with."
            raise BadLayer(name.filename, problem, remedy)
        seal = Seal(
            layer=name.filename,
            trace=trace_of(directory),
            length=sink.at,
            outside=sink.outside.intdigest(),
            parts=tuple(parts),
        )
        end = closed(seal.encode())
        file.write(end)
    return sink.at + len(end)


def _sealed(batch: pa.RecordBatch, offset: int, length: int, digest: int) -> SealedPart:
    h = batch.column("h")
    return SealedPart(
        offset=offset,
        length=length,
        rows=batch.num_rows,
        first=h[0].as_py(),
        last=h[-1].as_py(),
        digest=digest,
    )


def _ascending(parts: list[SealedPart]) -> bool:
    inside = all(part.first <= part.last for part in parts)
    return inside and all(a.last < b.first for a, b in pairwise(parts))


def table_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """A table as about equal batches of a bounded size, cut between runs of equal `h`. The rows alone decide where they
    are cut, not how Arrow happens to hold them.
    """
    table = table.combine_chunks()
    if table.get_total_buffer_size() < PART_BYTES // 2:  # quickly told, and more than enough room for padding
        yield from table.to_batches()
        return
    pieces = -(-written_bytes(table) // PART_BYTES)
    h = table.column("h").to_numpy()
    near = h[np.arange(1, pieces) * table.num_rows // pieces]
    cuts = np.unique([0, *np.searchsorted(h, near), table.num_rows])
    for start, stop in pairwise(cuts.tolist()):
        yield from table.slice(start, stop - start).combine_chunks().to_batches()


def joined_tables(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together until they are enough for a part."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += written_bytes(table)
        if size >= PART_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def written_bytes(table: pa.Table) -> int:
    """What a table takes up in a file."""
    return sum(pa.ipc.get_record_batch_size(batch) for batch in table.to_batches())


class _Sink:
    """Passes on what Arrow writes, and takes digests of it: one of each part, and one of what is in none.

    Arrow writes its schema only with the first batch, so the first part begins after so many bytes (`head`). in_step: a
    message did begin there.
    """

    closed = False

    def __init__(self, file: BinaryIO, head: int) -> None:
        self._file, self.head = file, head
        self.at = 0
        self.in_step = False
        self.outside, self._part = xxh3_64(), xxh3_64()
        self._in_part = False

    def begin_part(self) -> int:
        """Where a part begins."""
        self._in_part = True
        return max(self.at, self.head)

    def end_part(self) -> int:
        """The digest of the part that ends here."""
        self._in_part = False
        digest = self._part.intdigest()
        self._part.reset()
        return digest

    def write(self, piece: Any) -> None:
        size = len(piece)
        before = (
            min(max(self.head - self.at, 0), size) if self._in_part else size
        )  # bytes that are in no part
        if before == size:
            self.outside.update(piece)
        elif self.at > self.head:
            self._part.update(piece)
        else:
            view = memoryview(piece)
            self.outside.update(view[:before])
            self._part.update(view[before:])
            self.in_step = view[before : before + len(_CONTINUES)] == _CONTINUES
        self.at += size
        self._file.write(piece)

    def tell(self) -> int:
        return self.at

    def flush(self) -> None:
        """Arrow asks for it. The file is flushed when it is complete."""

    def close(self) -> None:
        """Arrow asks for it. The file is closed by who opened it."""
