"""Layers that are a few bytes, for everything that durability asks of layers.

A model layer is a bag of rows, each `[row, epoch, diff]` with a row of the text `KEY=VALUE`, and a seal:

    [[..], ..]\\n{"layer": NAME, "trace": TRACE, "rows": DIGEST, "length": N}\\nDIGEST OF THE SEAL

So it can be damaged in the ways in which a real one can: a shallow look finds a broken seal, another layer's file or
another size; only a deep one finds a flipped bit in the rows. Whoever reads rows looks deep, as `trace` does. Names,
covers and tilings are those of `trace` itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache

import pyarrow as pa
import xxhash

from slipstream.core.errors import DamagedLayer, HistoryForgotten, MissingLayer
from slipstream.durability.manifest import Kept, Stored
from slipstream.durability.work import Body, Packed
from slipstream.store.layers import valid
from slipstream.store.layout import TRACES
from slipstream.testing.simulation.disk import SimulatedDisk
from slipstream.trace import Fence, LayerName, LayerStat, Merge, Pack, Piece, Span, cover, tile
from slipstream.trace.cover import history_reach

SCHEMA = "model"
_MODULUS = 1 << 64
_ATTEMPTS = 5
_DIGEST = 16

Row = tuple[str, int, int]
"""A row, the epoch of an update to it, and the update's diff."""


@lru_cache(maxsize=1 << 14)
def place_of(key: str) -> int:
    """The place of a key among all places; see `trace.naming`."""
    return xxhash.xxh32_intdigest(key.encode()) >> 1


def key_of(row: str) -> str:
    return row.partition("=")[0]


@lru_cache(maxsize=1 << 14)
def hash_of(row: str) -> int:
    return xxhash.xxh3_64_intdigest(row.encode())


def sealed(trace: str, name: LayerName, rows: Iterable[Row]) -> bytes:
    """A layer's bytes."""
    body = json.dumps(sorted(rows), separators=(",", ":")).encode()
    said = {
        "layer": name.filename,
        "trace": trace,
        "rows": xxhash.xxh3_64_hexdigest(body),
        "length": len(body),
    }
    seal = json.dumps(said).encode()
    return body + b"\n" + seal + b"\n" + xxhash.xxh3_64_hexdigest(seal).encode()


@lru_cache(maxsize=1 << 12)
def _opened(raw: bytes) -> tuple[str, str, str, tuple[Row, ...], str | None]:
    """Layer, trace, digest, rows, and what is wrong with the rows; a ValueError where the seal is broken."""
    rest, _, digest = raw.rpartition(b"\n")
    body, _, seal = rest.rpartition(b"\n")
    if len(digest) != _DIGEST or xxhash.xxh3_64_hexdigest(seal).encode() != digest:
        raise ValueError("it does not end with a seal")
    said = json.loads(seal)
    if len(body) != said["length"]:
        raise ValueError(f"it has {len(body)} bytes before its seal, and was written with {said['length']}")
    if xxhash.xxh3_64_hexdigest(body) != said["rows"]:
        return said["layer"], said["trace"], digest.decode(), (), "its rows are not those that were written"
    rows = tuple((row, epoch, diff) for row, epoch, diff in json.loads(body))
    return said["layer"], said["trace"], digest.decode(), rows, None


@lru_cache(maxsize=1 << 12)
def _sorted_out(entries: tuple[str, ...]) -> tuple[tuple[LayerName, ...], tuple[Fence, ...]]:
    """The layers and the fences among the names in a folder."""
    names = (LayerName.parse(entry) for entry in entries)
    fences = (Fence.parse(entry) for entry in entries)
    return tuple(name for name in names if name is not None), tuple(
        fence for fence in fences if fence is not None
    )


def look(raw: bytes, trace: str, name: LayerName, *, deep: bool) -> tuple[str, tuple[Row, ...], str | None]:
    """A layer's digest, its rows, and what is wrong with it."""
    try:
        layer, home, digest, rows, problem = _opened(raw)
    except ValueError as error:
        return "", (), str(error)
    if (layer, home) != (name.filename, trace):
        return digest, rows, f"it was written as the layer {layer} of {home}"
    return digest, rows, problem if deep else None


class ModelLayers:
    """`store.layers.LayerFiles` over a simulated disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def traces(self) -> list[str]:
        views = self._disk.list(TRACES)
        return [f"{TRACES}/{view}/{trace}" for view in views for trace in self._disk.list(f"{TRACES}/{view}")]

    def listed(self, trace: str) -> tuple[list[LayerName], list[Fence]]:
        names, fences = _sorted_out(tuple(self._disk.list(trace)))
        return [*names], [*fences]

    def problem(self, trace: str, name: LayerName, *, deep: bool) -> str | None:
        return look(self._read(trace, name), trace, name, deep=deep)[2]

    def digest(self, trace: str, name: LayerName) -> str:
        digest, _, problem = look(self._read(trace, name), trace, name, deep=False)
        if problem is not None:
            raise DamagedLayer(trace, name, problem)
        return digest

    def size(self, trace: str, name: LayerName) -> int:
        return self._disk.size(f"{trace}/{name.filename}")

    def rows(self, trace: str, name: LayerName) -> tuple[Row, ...]:
        """The rows of a layer that is what it says."""
        _, rows, problem = look(self._read(trace, name), trace, name, deep=True)
        if problem is not None:
            raise DamagedLayer(trace, name, problem)
        return rows

    def write(self, trace: str, name: LayerName, rows: Iterable[Row], *, flushed: bool = False) -> None:
        """Write a layer, as a task does."""
        file, body = f"{trace}/{name.filename}", sealed(trace, name, rows)
        try:
            self._disk.replace(file, body, flushed=False)
        except FileNotFoundError:
            self._disk.make_folder(trace)
            self._disk.replace(file, body, flushed=False)
        if flushed:
            self._disk.flush(file)

    def taken(self, trace: str, pieces: Iterable[Piece]) -> list[Row]:
        """The rows of some pieces."""
        found: list[Row] = []
        for piece in pieces:
            for row, epoch, diff in self.rows(trace, piece.layer):
                inside = piece.span.start <= place_of(key_of(row)) < piece.span.stop
                if inside and (piece.exact or piece.first <= epoch <= piece.last):
                    found.append((row, epoch, diff))
        return found

    def contents(self, trace: str, epoch: int, span: Span | None = None) -> dict[str, int]:
        """What a trace holds as of an epoch. Listed again if a merger was quicker."""
        for attempt in range(_ATTEMPTS):
            try:
                names = valid(*self.listed(trace))
                pieces = cover(names, epoch, span or Span.whole(), directory=trace)
                return added_up(self.taken(trace, pieces))
            except (FileNotFoundError, MissingLayer):
                if attempt == _ATTEMPTS - 1:
                    raise MissingLayer(trace, 1, epoch, 0, 1) from None
        raise AssertionError("unreachable")

    def _read(self, trace: str, name: LayerName) -> bytes:
        return self._disk.read(f"{trace}/{name.filename}")


def added_up(rows: Iterable[Row]) -> dict[str, int]:
    """Rows and how often each is there."""
    found: dict[str, int] = {}
    for row, _, diff in rows:
        found[row] = found.get(row, 0) + diff
    return {row: diff for row, diff in found.items() if diff}


class ModelWork:
    """`durability.work.LayerWork` over model layers."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._layers = ModelLayers(disk)

    def stats(self, trace: str) -> list[LayerStat]:
        found = []
        for name in valid(*self._layers.listed(trace)):
            raw = self._disk.read(f"{trace}/{name.filename}")
            _, rows, problem = look(raw, trace, name, deep=False)
            if problem is not None:
                raise DamagedLayer(trace, name, problem)
            found.append(LayerStat(name, len(rows), len(raw)))
        return found

    def is_away(self, trace: str, name: LayerName) -> bool:
        return False

    def schema(self, trace: str, name: LayerName) -> str:
        self._layers.digest(trace, name)
        return SCHEMA

    def merge(self, trace: str, step: Merge | Pack) -> None:
        output, flat = step.output, isinstance(step, Merge)
        pieces = tile(step.inputs, output.lo, output.hi, output.span, whole=flat, directory=trace)
        rows: Iterable[Row] = self._layers.taken(trace, pieces)
        if flat:
            rows = [(row, output.hi, diff) for row, diff in added_up(rows).items()]
        self._layers.write(trace, output, rows, flushed=True)
        self._disk.flush_folder(trace)

    def pack(self, layers: Sequence[tuple[str, LayerName]], name: Callable[[int], str]) -> Iterator[Packed]:
        held: list[tuple[str, LayerName, int, str, tuple[Row, ...]]] = []
        for trace, layer in layers:
            raw = self._disk.read(f"{trace}/{layer.filename}")
            digest, rows, problem = look(raw, trace, layer, deep=True)
            if problem is not None:
                raise DamagedLayer(trace, layer, problem)
            held.append((trace, layer, len(raw), digest, rows))
        return self._packed(held, name(0)) if held else iter(())

    def _packed(
        self, held: list[tuple[str, LayerName, int, str, tuple[Row, ...]]], name: str
    ) -> Iterator[Packed]:
        groups: list[tuple[Row, ...]] = []
        kept: dict[str, tuple[Kept, ...]] = {}
        for trace, layer, size, digest, rows in held:
            place = (name, len(groups), 1) if rows else ("", 0, 0)
            if rows:
                groups.append(rows)
            each = Kept(layer, len(rows), size, *place, digest=digest)
            kept[trace] = (*kept.get(trace, ()), each)
        body = json.dumps(groups).encode()
        stored = Stored(name, len(body), hashlib.sha256(body).hexdigest()) if groups else None
        yield Packed(stored, body, kept)

    def unpack(
        self, body: Body | pa.NativeFile | None, kept: Kept, schema: str, trace: str, name: LayerName
    ) -> None:
        assert body is None or isinstance(body, bytes)
        rows = [] if body is None else [(r, e, d) for r, e, d in json.loads(body)[kept.first]]
        self._disk.make_folder(trace)
        self._layers.write(trace, name, rows, flushed=True)

    @contextmanager
    def apart(self) -> Iterator[ModelScratch]:
        disk = SimulatedDisk(self._disk.scheduler)
        disk.make_folder("")
        yield ModelScratch(disk, self._disk)

    def tidy(self, trace: str, may: Callable[[], bool]) -> None:
        for entry in self._disk.list(trace):
            if entry.endswith(".tmp") and may():
                self._disk.remove(f"{trace}/{entry}")

    def release(self) -> None:
        pass

    def change_sum(self, trace: str, since: int, until: int) -> int:
        """As `TraceReader.log` does: listed again if a merger was quicker."""
        for _ in range(_ATTEMPTS):
            names = valid(*self._layers.listed(trace))
            try:
                pieces = tile(names, since + 1, until, Span.whole(), whole=False, directory=trace)
            except MissingLayer:
                reach = history_reach(names, until, Span.whole())
                raise HistoryForgotten(trace, since, until, reach) from None
            with suppress(FileNotFoundError):
                rows = self._layers.taken(trace, pieces)
                return sum(hash_of(row) * diff for row, _, diff in rows) % _MODULUS
        raise MissingLayer(trace, since + 1, until, 0, 1)

    def state_sum(self, trace: str, epoch: int) -> int:
        contents = self._layers.contents(trace, epoch)
        return sum(hash_of(row) * diff for row, diff in contents.items()) % _MODULUS


class ModelScratch(ModelWork):
    """`durability.work.ScratchWork`: a disk of its own, which is gone afterwards."""

    def __init__(self, disk: SimulatedDisk, lender: SimulatedDisk) -> None:
        super().__init__(disk)
        self._lender = lender

    def borrow(self, trace: str, name: LayerName) -> bool:
        try:
            raw = self._lender.read(f"{trace}/{name.filename}")
        except FileNotFoundError:
            return False
        self._disk.make_folder(trace)
        self._disk.replace(f"{trace}/{name.filename}", raw, flushed=False)
        return True
