"""One layer: an immutable Arrow IPC file, written once under its name and memory-mapped by whoever reads
it.

A layer is one or more *parts* (record batches), each sorted by `h`, one after the other in `h`, and no run
of equal `h` reaches over two parts. So a lookup finds the parts that its hashes fall into by their first
and last `h`, and then works on plain NumPy views of the map: opening a layer reads its footer, and looking
something up touches the pages it needs.

Writing takes a temporary name in the same directory and renames. There is no flush to disk: durability is
the replicas' matter. Names say everything and bytes are a function of the rows, so it does not matter which
of two attempts wins the rename.

Open layers are kept for the life of the process, because Python workers are reused from epoch to epoch. A
map holds no file descriptor. An entry counts only while the file it came from still stands under its name:
a removed layer is not found, even if it is still mapped. A layer that is elsewhere is brought when it is first
opened (`away`).
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from slipstream.crashing import crash_point, crash_points
from slipstream.errors import BadLayer
from slipstream.trace.away import bring, is_away
from slipstream.trace.naming import Fence, Ints, LayerName, Span

OPEN_LAYERS = 2048

crash_points(
    layer__before_rename="a layer is written under a temporary name",
    layer__after_rename="a layer stands under its name",
)

Accept = Callable[[LayerName], bool]


@dataclass(frozen=True, eq=False)
class Part:
    """A record batch and its sorted hashes, as views of the map. Never empty."""

    batch: pa.RecordBatch
    h: Ints

    def slice(self, start: int, stop: int) -> Part:
        return Part(self.batch.slice(start, stop - start), self.h[start:stop])

    def integers(self, name: str) -> Ints:
        result: Ints = self.batch.column(name).to_numpy()
        return result


@dataclass(frozen=True, eq=False)
class Layer:
    """An open layer."""

    name: LayerName
    schema: pa.Schema
    parts: tuple[Part, ...]
    bytes: int

    @property
    def rows(self) -> int:
        return sum(len(part.h) for part in self.parts)

    def within(self, span: Span) -> list[Part]:
        """The parts of this layer that fall into `span`, cut to it, without copying."""
        if span.contains(self.name.span):
            return list(self.parts)
        cut = []
        for part in self.parts:
            start, stop = span.bounds(part.h)
            if start < stop:
                cut.append(part.slice(start, stop))
        return cut


def list_layers(directory: Path, accept: Accept | None = None) -> list[LayerName]:
    """The names of the layers in a directory. What is not a layer, or is behind a fence, is passed over; no
    directory means no layers.
    """
    names, fences = list_all(directory)
    if fences:
        names = [name for name in names if not any(fence.bars(name) for fence in fences)]
    return sorted(name for name in names if accept is None or accept(name))


def list_all(directory: Path) -> tuple[list[LayerName], list[Fence]]:
    """Every layer in a directory, be it valid or not, and every fence."""
    names: list[LayerName] = []
    fences: list[Fence] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = LayerName.parse(entry.name)
                if name is not None:
                    names.append(name)
                elif (fence := Fence.parse(entry.name)) is not None:
                    fences.append(fence)
    except FileNotFoundError:
        pass
    return names, fences


def write_layer(
    directory: Path, name: LayerName, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> int:
    """Write a layer under its name and return its size in bytes. Empty batches are left out."""
    temporary = directory / f".{name.filename}.{uuid.uuid4().hex}.tmp"
    try:
        with pa.OSFile(os.fspath(temporary), "wb") as sink:
            with pa.ipc.new_file(sink, schema) as writer:
                for batch in batches:
                    if batch.num_rows:
                        writer.write_batch(batch)
            size = sink.tell()
        crash_point("layer.before_rename")
        temporary.replace(directory / name.filename)
        crash_point("layer.after_rename")
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    return int(size)


def table_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """A table as one record batch, if Arrow can hold it in one."""
    yield from table.combine_chunks().to_batches()


def open_layer(directory: Path, name: LayerName) -> Layer:
    """A layer by its name, from the process's cache if it is open. Raises FileNotFoundError if it is gone."""
    return _OPEN.get(directory / name.filename, name)


def epoch_layers(directory: Path, epoch: int) -> list[Layer]:
    """The layers that one epoch wrote to a trace. Raises FileNotFoundError if one is merged away meanwhile."""
    return [open_layer(directory, name) for name in list_layers(directory) if name.lo == name.hi == epoch]


@dataclass
class _Cache:
    """The least recently used layers are let go; their maps end when nobody uses them any more."""

    limit: int
    entries: OrderedDict[Path, tuple[tuple[int, int, int], Layer]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, path: Path, name: LayerName) -> Layer:
        status = path.stat()
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        with self.lock:
            known = self.entries.get(path)
            if known is not None and known[0] == stamp:
                self.entries.move_to_end(path)
                return known[1]
        try:
            layer = _map(path, name, status.st_size)
        except BadLayer:
            if not is_away(path):
                raise
            bring(path)
            return self.get(path, name)
        with self.lock:
            self.entries[path] = (stamp, layer)
            self.entries.move_to_end(path)
            while len(self.entries) > self.limit:
                self.entries.popitem(last=False)
        return layer


def _map(path: Path, name: LayerName, size: int) -> Layer:
    try:
        with pa.memory_map(os.fspath(path)) as source:
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            schema = reader.schema
    except (pa.ArrowInvalid, ValueError) as damage:
        raise BadLayer(path.name, f"it cannot be read ({damage})", "Restore it from a replica.") from damage
    parts = tuple(Part(batch, batch.column("h").to_numpy()) for batch in batches if batch.num_rows)
    return Layer(name, schema, parts, size)


_OPEN = _Cache(OPEN_LAYERS)
