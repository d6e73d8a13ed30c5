"""What durability asks of the contents of layers, in one place.

Everything else in durability deals in names, digests and bytes of objects. Merging, packing layers into objects for a
replica, unpacking them and adding up checksums need the rows; that is `LayerWork`. So the decisions and the order of
effects around it run unchanged on a model whose layers are a few bytes (`testing.simulation`).

What every implementation promises:
- A layer that is not what was written is a `DamagedLayer` that names it, raised before anything is made of it. A layer
  that is gone is a FileNotFoundError: a merger was quicker, and whoever asks lists again.
- `merge` and `unpack` return when what they made is on the disk itself, under its name.
- What is packed is held from the moment that `pack` returns: removing a layer later does not get in the way.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from slipstream.core.permissions import make_folders
from slipstream.durability import checksum
from slipstream.durability.manifest import Kept, Stored
from slipstream.durability.pack import by_schema, decode_schema, encode_schema, pack, unpack
from slipstream.store.disk import raise_named
from slipstream.store.layout import SPOOL
from slipstream.store.store import Store
from slipstream.trace import LayerName, LayerStat, Merge, Pack, carry_out, is_away, layer_stats, open_layer
from slipstream.trace.placing import clear_abandoned

Body = bytes | Path
"""An object's contents: in memory, or in a file of the spool."""


@dataclass(frozen=True)
class Packed:
    """Layers of one schema as an object, ready to be sent; stored is None where all of them are empty. The body is
    valid until the next one is asked for.
    """

    stored: Stored | None
    body: Body
    kept: Mapping[str, tuple[Kept, ...]]


class LayerWork(Protocol):
    """See the module's docstring. Traces and layers are those of one store."""

    def stats(self, trace: str) -> list[LayerStat]:
        """The valid layers of a trace with their sizes."""
        ...

    def is_away(self, trace: str, name: LayerName) -> bool:
        """Whether a note stands in the place of a layer, which is on a replica."""
        ...

    def schema(self, trace: str, name: LayerName) -> str:
        """The columns of a layer, as a manifest has them."""
        ...

    def merge(self, trace: str, step: Merge | Pack) -> None:
        """Make a merged or packed layer, and flush it."""
        ...

    def pack(self, layers: Sequence[tuple[str, LayerName]], name: Callable[[int], str]) -> Iterator[Packed]:
        """Layers as objects, the n-th of which is called `name(n)`, one after another."""
        ...

    def unpack(
        self, body: Body | pa.NativeFile | None, kept: Kept, schema: str, trace: str, name: LayerName
    ) -> None:
        """Write a layer out of its object (None for an empty layer) under a name, which may be another than it had, and
        flush it.
        """
        ...

    def apart(self) -> AbstractContextManager[ScratchWork]:
        """A place beside the store for merges on behalf of a replica; it is gone afterwards."""
        ...

    def tidy(self, trace: str, may: Callable[[], bool]) -> None:
        """Remove the temporary files of writers that died, as long as `may` says so, asked for each."""
        ...

    def release(self) -> None:
        """Give memory back that was needed for the moment."""
        ...

    def change_sum(self, trace: str, since: int, until: int) -> int:
        """The checksum of the updates of the epochs after `since` up to `until`. Raises HistoryForgotten or
        MissingLayer where these are merged with others.
        """
        ...

    def state_sum(self, trace: str, epoch: int) -> int:
        """The checksum of everything that a trace holds as of an epoch."""
        ...


class ScratchWork(LayerWork, Protocol):
    """Work beside the store."""

    def borrow(self, trace: str, name: LayerName) -> bool:
        """Have the store's copy of a layer here too; False if it has none."""
        ...


class LocalWork:
    """Layers as files of this machine."""

    _flushed = True

    def __init__(self, store: Store, spool: Path | None = None) -> None:
        self._store = store
        self._spool = spool or store.root / SPOOL

    def stats(self, trace: str) -> list[LayerStat]:
        with self._named():
            return layer_stats(self._store.root / trace)

    def is_away(self, trace: str, name: LayerName) -> bool:
        return is_away(self._store.root / trace / name.filename)

    def schema(self, trace: str, name: LayerName) -> str:
        with self._named():
            return encode_schema(open_layer(self._store.root / trace, name).schema)

    def merge(self, trace: str, step: Merge | Pack) -> None:
        with self._named():
            carry_out(self._store.root / trace, step, flushed=self._flushed)

    def pack(self, layers: Sequence[tuple[str, LayerName]], name: Callable[[int], str]) -> Iterator[Packed]:
        with self._named():
            mapped = [(trace, open_layer(self._store.root / trace, layer)) for trace, layer in layers]
            self._spool.mkdir(parents=True, exist_ok=True, mode=0o700)

        def packed() -> Iterator[Packed]:
            for number, group in enumerate(by_schema(mapped)):
                object_name = name(number)
                file = self._spool / object_name.rpartition("/")[2]
                try:
                    with self._named():
                        stored, kept = pack(group, object_name, file)
                    yield Packed(stored, file, {trace: tuple(each) for trace, each in kept.items()})
                finally:
                    file.unlink(missing_ok=True)

        return packed()

    def unpack(
        self, body: Body | pa.NativeFile | None, kept: Kept, schema: str, trace: str, name: LayerName
    ) -> None:
        source = pa.BufferReader(body) if isinstance(body, bytes) else body
        self._store.disk.make_folder(trace)
        with self._named():
            unpack(source, kept, decode_schema(schema), self._store.root / trace, name, flushed=self._flushed)

    @contextmanager
    def apart(self) -> Iterator[ScratchWork]:
        root = self._spool / f"merge-{uuid.uuid4().hex[:12]}"
        root.mkdir(parents=True, mode=0o700)
        try:
            yield LocalScratch(Store.at(root), self._store.root, self._spool)
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def tidy(self, trace: str, may: Callable[[], bool]) -> None:
        with self._named():
            clear_abandoned(self._store.root / trace, may)

    def release(self) -> None:
        pa.default_memory_pool().release_unused()

    def change_sum(self, trace: str, since: int, until: int) -> int:
        return checksum.change_sum(self._store.root / trace, since, until)

    def state_sum(self, trace: str, epoch: int) -> int:
        return checksum.state_sum(self._store.root / trace, epoch)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Failures of the store's disk as what they are."""
        try:
            yield
        except OSError as error:
            raise_named(error, self._store.root)
            raise


class LocalScratch(LocalWork):
    """A folder beside a store. Nothing in it has to survive, so nothing is flushed."""

    _flushed = False

    def __init__(self, store: Store, lender: Path, spool: Path) -> None:
        super().__init__(store, spool)
        self._lender = lender

    def borrow(self, trace: str, name: LayerName) -> bool:
        """Have the store's copy of a layer here too, by a hard link; False if it has none."""
        own = self._store.root / trace / name.filename
        make_folders(own.parent, self._store.root)
        try:
            if is_away(self._lender / trace / name.filename):
                return False
            os.link(self._lender / trace / name.filename, own)
        except FileExistsError:
            return True
        except FileNotFoundError:
            return False
        return True
