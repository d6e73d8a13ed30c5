"""One layer: an immutable file of Arrow record batches with a seal at its end, written once under its name and
memory-mapped by whoever reads it. `sealing` writes it.

A layer is any number of *parts* (record batches), each sorted by `h`, one after the other in `h`, and no run
of equal `h` reaches over two parts. The seal (`seal`) says where each part is, which hashes it holds and the digest of
its bytes. Opening a layer checks the seal and the schema; a part is checked when its rows are first used, and then
no more for as long as the layer is open. A lookup chooses parts by what the seal says of their hashes and works on
NumPy views of the map, so parts that cannot hold what is asked for are neither read nor checked.

Whatever is wrong with a file is a `DamagedLayer`; a file that is not there is a FileNotFoundError. Running out of file
handles or memory is neither, and passes as it is: it says nothing about the file.

Open layers are kept for the life of the process, because Python workers are reused from epoch to epoch. A
map holds no file descriptor. An entry counts only while the file it came from still stands under its name:
a removed layer is not found, even if it is still mapped. A layer that is elsewhere is brought when it is first
opened (`away`).
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from slipstream.core.errors import DamagedLayer
from slipstream.trace.away import bring, is_away, problem_of_note
from slipstream.trace.naming import Fence, Ints, LayerName, Span, damaged, place_of, trace_of
from slipstream.trace.seal import (
    MAGIC_BYTES,
    TAIL,
    BrokenSeal,
    SealedPart,
    body_length,
    check_identity,
    checked_body,
    digest_of,
    read_seal,
)

OPEN_LAYERS = 2048

_USUAL_END = 2048  # bytes at the end of a file that hold the seal of most layers
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a layer, sorted by hash, never none: how many, their first and last hash, and how to get at them.

    The rows are views of the map. They are loaded, and checked, when `batch` or `h` is first used.
    """

    rows: int
    first: int
    last: int
    load: Callable[[], pa.RecordBatch]

    @cached_property
    def batch(self) -> pa.RecordBatch:
        return self.load()

    @cached_property
    def h(self) -> Ints:
        hashes: Ints = self.batch.column("h").to_numpy()
        return hashes

    def slice(self, start: int, stop: int) -> Part:
        """The rows from `start` up to `stop`, of which there must be some."""
        rows = stop - start
        batch = self.batch.slice(start, rows)
        return Part(rows, int(self.h[start]), int(self.h[stop - 1]), lambda: batch)

    def integers(self, name: str) -> Ints:
        result: Ints = self.batch.column(name).to_numpy()
        return result


@dataclass(frozen=True, eq=False)
class Layer:
    """An open layer. bytes: the size of its file. digest: that of its seal, which stands for all of its bytes."""

    name: LayerName
    schema: pa.Schema
    parts: tuple[Part, ...]
    bytes: int
    digest: str

    @cached_property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def within(self, span: Span) -> tuple[Part, ...]:
        """The parts of this layer that fall into `span`, cut to it, without copying. Only those that lie across its
        borders are read.
        """
        if span.contains(self.name.span):
            return self.parts
        least, beyond = span.bounds(self._lasts)[0], span.bounds(self._firsts)[1]
        return tuple(cut for part in self.parts[least:beyond] if (cut := _cut(part, span)) is not None)

    @cached_property
    def _firsts(self) -> Ints:
        return np.array([part.first for part in self.parts], dtype=np.int64)

    @cached_property
    def _lasts(self) -> Ints:
        return np.array([part.last for part in self.parts], dtype=np.int64)


def _cut(part: Part, span: Span) -> Part | None:
    if span.start <= place_of(part.first) and place_of(part.last) < span.stop:
        return part
    start, stop = span.bounds(part.h)
    return part.slice(start, stop) if start < stop else None


def list_layers(directory: Path) -> list[LayerName]:
    """The names of the layers in a directory. What is not a layer, or is behind a fence, is passed over; no
    directory means no layers.
    """
    names, fences = list_all(directory)
    if fences:
        names = [name for name in names if not any(fence.bars(name) for fence in fences)]
    return sorted(names)


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
    except (FileNotFoundError, NotADirectoryError):
        pass
    return names, fences


def open_layer(directory: Path, name: LayerName) -> Layer:
    """A layer by its name, from the process's cache if it is open. Raises FileNotFoundError if it is gone."""
    return _OPEN.get(directory / name.filename, name)


def epoch_layers(directory: Path, epoch: int) -> list[Layer]:
    """The layers that one epoch wrote to a trace. Raises FileNotFoundError if one is merged away meanwhile."""
    return [open_layer(directory, name) for name in list_layers(directory) if name.lo == name.hi == epoch]


def layer_digest(directory: Path, name: LayerName) -> str:
    """The digest of a layer, from the end of its file alone. Raises FileNotFoundError if it is gone."""
    try:
        body = _body(f"{directory}/{name.filename}")
        check_identity(body, name.filename, trace_of(directory))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise _damaged(directory, name, error) from error
    return digest_of(body)


def _body(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.lseek(handle, 0, os.SEEK_END)
        end = os.pread(handle, _USUAL_END, max(size - _USUAL_END, 0))
        needed = body_length(end[-TAIL.size :], size) + TAIL.size
        if needed > len(end):
            end = os.pread(handle, needed, size - needed)
        return checked_body(end, size)
    finally:
        os.close(handle)


def check_layer(directory: Path, name: LayerName, *, deep: bool) -> str | None:
    """What is wrong with a layer's file, or None. Shallow: its seal, name and size, and what is in no part. Deep: every
    byte. A sound note in place of a layer has nothing wrong with it; nothing is brought.

    The file is looked at anew, whatever this process has checked before. Raises FileNotFoundError if it is gone.
    """
    path = directory / name.filename
    try:
        if is_away(path):
            return problem_of_note(path)
        layer = _map(path, name)
        for part in layer.parts if deep else ():
            part.load()
    except DamagedLayer as damage:
        return damage.problem
    return None


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
            layer = _map(path, name)
        except DamagedLayer:
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


def _map(path: Path, name: LayerName) -> Layer:
    """A layer of which all but the parts is checked."""
    directory = path.parent
    try:
        with pa.memory_map(os.fspath(path)) as source:
            file = source.read_buffer()
        seal, digest = read_seal(memoryview(file), name.filename, trace_of(directory))
        head = seal.parts[0].offset if seal.parts else seal.length
        schema = pa.ipc.read_schema(file.slice(MAGIC_BYTES, head - MAGIC_BYTES))
        for column in ("h", "epoch", "diff"):
            if schema.field(column).type != pa.int64():
                raise BrokenSeal(f"its column {column} is not one of whole numbers")
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise _damaged(directory, name, error) from error
    parts = tuple(
        Part(part.rows, part.first, part.last, partial(_load, directory, name, schema, file, part))
        for part in seal.parts
    )
    return Layer(name=name, schema=schema, parts=parts, bytes=file.size, digest=digest)


def _load(
    directory: Path, name: LayerName, schema: pa.Schema, file: pa.Buffer, part: SealedPart
) -> pa.RecordBatch:
    """The rows of a part, after its bytes are checked."""
    message = file.slice(part.offset, part.length)
    try:
        part.check(message)
        batch = pa.ipc.read_record_batch(message, schema)
        h = batch.column("h")
        if (batch.num_rows, h[0].as_py(), h[-1].as_py()) != (part.rows, part.first, part.last):
            raise BrokenSeal("its seal does not tell of its rows")
    except (OSError, pa.ArrowException, ValueError, LookupError) as error:
        raise _damaged(directory, name, error) from error
    return batch


def _damaged(directory: Path, name: LayerName, error: Exception) -> DamagedLayer:
    """An error in reading a layer, as damage to it, if that is what it tells of."""
    if isinstance(error, OSError) and error.errno in _NO_RESOURCES:
        raise error
    problem = str(error) if isinstance(error, BrokenSeal) else f"it cannot be read ({error})"
    return damaged(directory / name.filename, problem)


_OPEN = _Cache(OPEN_LAYERS)
