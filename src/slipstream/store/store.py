"""The store: who may write to it, and what it says of itself.

Readers need no lock and no engine: the lineage says how far the store is computed, and layers are immutable.

**Only the owner writes or deletes.** Each start takes the lock and claims the next incarnation with a create-if-absent.
A process that was succeeded finds out when it asks (`Claim.superseded`), and it asks immediately before everything that
cannot be taken back: nothing is removed or replaced but through `owned`, which asks. What it does between asking and
acting harms nobody either: it appends to a log of its own, past the line that its successor follows; it writes layers
of its own incarnation, past the fence that its successor put up; and it removes layers of its own incarnation only, or
such as it made superfluous by a merge. What a successor brings back from a replica has the successor's incarnation in
its name, so that no predecessor can mean it.

A second engine may *stand by*: it watches the store, writes nothing, and claims it the moment the lock falls.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from slipstream.core.clock import Clock
from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.errors import (
    DamagedDocument,
    NewerFormat,
    NotAStore,
    OlderFormat,
    OtherApp,
    SlipstreamError,
    StoreInUse,
    StoreVanished,
    Superseded,
)
from slipstream.store import documents, layout
from slipstream.store.catalog import Catalog, ViewEntry, read_catalog, write_catalog
from slipstream.store.disk import Disk, LocalDisk, Lock, WritableDisk
from slipstream.store.documents import read_decoded, write_document
from slipstream.store.layers import LayerFiles, LocalLayers, remove_layer, valid
from slipstream.store.lineage import Lineage, LineageWriter, read_lineage
from slipstream.store.links import refuse_links
from slipstream.store.owned import Owned
from slipstream.store.records import Began
from slipstream.trace import Fence, LayerName

crash_points(
    store__before_claim="the store is locked, and no incarnation is claimed",
    store__after_claim="an incarnation is claimed, and nothing is done with it",
    store__in_discard="one layer of an epoch that was never computed is removed, and others are not yet",
    store__before_takeover="a successor is about to take the lock away from the engine that holds it",
    store__before_begin="a start has claimed its incarnation, and nobody knows where it goes on",
    store__after_begin="the lineage says where the new incarnation goes on, and no fence is up",
)

FORMAT = 2
FENCES = 16  # incarnations after which a process that was succeeded is taken to be gone
_ATTEMPTS_EVERY = 0.01  # seconds between two attempts to claim a store that is in use


@dataclass(frozen=True)
class Identity:
    """Whose store it is: the app's name, and an identity that no other app has, whatever its name."""

    app: str
    id: str

    @staticmethod
    def new(app: str) -> Identity:
        return Identity(app, uuid.uuid4().hex)


@lru_cache(maxsize=1 << 6)
def _said(raw: bytes, name: str) -> tuple[int, Identity | None] | str:
    """The format and the identity that a store's bytes say; a text if they say nothing. It is asked before every write
    whose the store is, and is the same nearly always: so it is remembered.
    """
    match documents.decode(raw, name):
        case str(problem):
            return problem
        case {"format": int(found), "app": str(app), "id": str(id)}:
            return found, Identity(app, id)
        case {"format": int(found)}:
            return found, None
    return 0, None


@dataclass(frozen=True)
class Store:
    """A store to read, whoever writes to it. owner: the identity of the app that works on it, where one does."""

    disk: Disk
    layers: LayerFiles
    owner: str | None = None

    @staticmethod
    def at(path: str | Path, *, shared: bool = False) -> Store:
        """Whatever is at a path, be it a store or not. shared: others than its owner may read what is written there."""
        root = Path(path).absolute()
        return Store(LocalDisk(root, shared=shared), LocalLayers(root))

    @staticmethod
    def in_folder(path: str | Path) -> Store:
        """What is left of a store in a folder; an error that says what is there where there is nothing of one."""
        store = Store.at(path)
        if store.root.is_symlink() and not store.root.exists():
            raise NotAStore(str(path), f"it is a link to '{store.root.readlink()}', which is not there")
        if not store.root.exists():
            raise NotAStore(str(path), "there is no such folder")
        if not store.root.is_dir():
            raise NotAStore(str(path), "it is a file")
        if not layout.OWN & {each.name for each in store.root.iterdir()}:
            raise NotAStore(str(path))
        return store

    @staticmethod
    def existing(path: str | Path) -> Store:
        """A store to read; an error where there is none."""
        store = Store.in_folder(path)
        refuse_links(store.root)
        if store.identity() is None:
            raise NotAStore(str(path))
        return store

    @property
    def root(self) -> Path:
        return self.disk.root

    def identity(self) -> Identity | None:
        """Whose store it is; None where none was ever made, an error where it cannot be told."""
        try:
            said = read_decoded(self.disk, layout.FORMAT, _said)
        except DamagedDocument:
            self._refuse_first_format()
            raise
        if said is None:
            return None
        found, identity = said
        if found > FORMAT:
            raise NewerFormat(str(self.root), found, FORMAT)
        if identity is None:
            raise DamagedDocument(str(self.root), layout.FORMAT, f"{layout.FORMAT}: it says no app")
        return identity

    @property
    def name(self) -> str:
        known = self.identity()
        if known is None:
            raise NotAStore(str(self.root))
        return known.app

    def catalog(self) -> Catalog:
        """Sources and views, as the last engine knew them; an empty one where none ever ran."""
        return read_catalog(self.disk) or Catalog()

    def view(self, name: str) -> ViewEntry:
        return self.catalog().view(name)

    def traces(self) -> list[str]:
        return self.layers.traces()

    def valid_layers(self, trace: str) -> list[LayerName]:
        return valid(*self.layers.listed(trace))

    def running(self) -> bool:
        """Whether an engine holds the store."""
        return self.disk.is_locked(layout.LOCK)

    def superseded(self, incarnation: int) -> bool:
        """Whether the store is no longer an incarnation's: a later one was claimed, or the store was lost and made
        anew, where numbers begin with 1 again, or is being made anew: nothing says yet whose it is, although this
        process has read it.
        """
        if self.last_incarnation() > incarnation:
            return True
        if self.owner is None:
            return False
        try:
            known = self.identity()
        except SlipstreamError:  # whose it is cannot be told
            return False
        return known is None or known.id != self.owner

    def owned_by(self, incarnation: int) -> Owned:
        """The disk, for a process that works for an incarnation: for as long as that owns the store."""

        def check() -> None:
            if self.superseded(incarnation):
                raise Superseded(str(self.root), incarnation)

        return Owned(self.disk, check)

    def last_incarnation(self) -> int:
        """The highest incarnation that was claimed."""
        return max(self._claims(), default=0)

    def had_begun(self) -> bool:
        """Whether claims show that an incarnation began here, whatever is left of it.

        A claim comes before all else, and says that its incarnation has begun before that computes anything. So one
        that does not say it is of a start that was cut short or refused, and so is an empty one, which was never
        written. One that cannot be read may have said it.
        """
        for number in self._claims():
            try:
                raw = self.disk.read(layout.claim_of(number))
                said = json.loads(raw) if raw else {}
            except FileNotFoundError:
                continue
            except (ValueError, RecursionError, IsADirectoryError):
                return True
            if not isinstance(said, dict) or "began" in said:
                return True
        return False

    def _claims(self) -> list[int]:
        numbers = map(layout.number_of, self.disk.list(layout.INCARNATIONS))
        return [number for number in numbers if number is not None]

    def _refuse_first_format(self) -> None:
        """A store of format 1 had a plain JSON file in the place of the document."""
        try:
            said = json.loads(self.disk.read(layout.FORMAT))
        except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
            return
        if isinstance(said, dict) and said.get("format") == 1:
            raise OlderFormat(str(self.root), 1, FORMAT)


@dataclass(frozen=True)
class Claim:
    """A store that this process may write to, until released or superseded; without a lock, one that it watches."""

    store: Store
    incarnation: int
    lock: Lock | None

    @property
    def held(self) -> bool:
        return self.lock is not None

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()

    @property
    def superseded(self) -> bool:
        """Whether another process has taken the store over."""
        if self.lock is None or self.lock.taken_over:
            return True
        return self.store.superseded(self.incarnation)

    def check_ours(self) -> None:
        """Raise unless this process still owns the store: to be asked before anything that cannot be taken back."""
        if self.superseded:
            raise Superseded(str(self.store.root), self.incarnation)

    @property
    def owned(self) -> Owned:
        """The disk, for as long as this process owns the store."""
        return Owned(self.store.disk, self.check_ours)

    def begin(
        self, identity: Identity, known: Lineage, after: int, upto: int, brought: Iterable[int] = ()
    ) -> LineageWriter:
        """Go on from an epoch: whatever earlier incarnations write past it counts for nobody from now on. Cuts that
        are known up to epoch `upto` are computed again as they were. brought: see `Began`.
        """
        crash_point("store.before_begin")
        follows = (known.incarnation, known.digest) if known.incarnation else None
        disk = self.store.disk
        told = known if after >= known.history.base.epoch else read_lineage(disk, whole=True)
        lineage = LineageWriter(self.owned, self.incarnation, told)
        self.check_ours()
        if follows is not None:  # the line that this log names is on disk before the name is
            disk.flush(layout.lineage_log(known.incarnation))
        lineage.began(
            Began(
                incarnation=self.incarnation,
                after=after,
                upto=upto,
                app=identity.id,
                follows=follows,
                brought=tuple(sorted(brought)),
            )
        )
        self.owned.replace(
            layout.claim_of(self.incarnation), claim_body(identity.app, began=True), flushed=True
        )
        crash_point("store.after_begin")
        self.fence(after, self.store.traces())
        self._discard(lambda name: name.incarnation < self.incarnation and name.hi > after)
        return lineage

    def fence(self, after: int, traces: Iterable[str]) -> None:
        """Put up this incarnation's fence in traces, and take down those that are long past."""
        disk = self.store.disk
        for trace in traces:
            self.check_ours()
            disk.make_folder(trace)
            disk.create(f"{trace}/{Fence(self.incarnation, after).filename}", b"")
            for old in self.store.layers.listed(trace)[1]:
                if old.incarnation <= self.incarnation - FENCES:
                    self.owned.remove(f"{trace}/{old.filename}")

    def discard_after(self, epoch: int) -> int:
        """Remove this incarnation's layers of epochs that were begun and never computed; how many there were."""
        return self._discard(lambda name: name.incarnation == self.incarnation and name.hi > epoch)

    def write_catalog(self, catalog: Catalog) -> None:
        write_catalog(self.owned, catalog)

    def write_identity(self, identity: Identity) -> None:
        write_identity(self.owned, identity)

    def _discard(self, doomed: Callable[[LayerName], bool]) -> int:
        removed = 0
        for trace in self.store.traces():
            for name in self.store.layers.listed(trace)[0]:
                if doomed(name):
                    remove_layer(self.owned, trace, name)
                    removed += 1
                    crash_point("store.in_discard")
        return removed


def write_identity(disk: WritableDisk, identity: Identity) -> None:
    write_document(disk, layout.FORMAT, {"format": FORMAT, "app": identity.app, "id": identity.id})


def claim_store(store: Store, app: str, *, takeover: bool = False) -> Claim:
    """Lock a store against a second engine, and claim the next incarnation on it. The folder is made where there is
    none; what is in it is not looked at, except for the name of its app.
    """
    disk = store.disk
    refuse_links(store.root)
    if disk.exists(layout.FORMAT):
        _check_app(store, app)  # another's is left as it is
    disk.make_folder("")
    lock = disk.lock(layout.LOCK, f"process {os.getpid()}", takeover=takeover)
    try:
        for folder in layout.FOLDERS:
            disk.make_folder(folder)
        disk.flush_folder("")
        _check_app(store, app)
        crash_point("store.before_claim")
        known = max(store.last_incarnation(), *map(_log_number, disk.list(layout.LINEAGE)), 0)
        number = claim_number(store, app, known)
        crash_point("store.after_claim")
    except BaseException:
        lock.release()
        raise
    return Claim(store, number, lock)


def claim_number(store: Store, app: str, above: int) -> int:
    """Claim the first incarnation above a number that nobody has; the lock must be held."""
    token = claim_body(app)
    number = above
    try:
        while not store.disk.create(layout.claim_of(number := number + 1), token):
            pass
    except FileNotFoundError as error:  # the folder was made a moment ago
        raise StoreVanished(str(store.root)) from error
    return number


def claim_body(app: str, *, began: bool = False) -> bytes:
    """What a claim says: whose it is, and whether its incarnation has begun."""
    return json.dumps({"app": app, "process": os.getpid(), **({"began": True} if began else {})}).encode()


def watch_store(store: Store) -> Claim:
    """A store that another engine has or is about to make, for one that stands by. Nothing is written."""
    return Claim(store, 0, None)


def await_claim(
    store: Store,
    app: str,
    waiting: Callable[[], bool],
    clock: Clock,
    alone: Callable[[], bool] = lambda: False,
) -> Claim | None:
    """Claim a store once its engine is gone. `waiting` is asked between attempts; None if it says no.

    A store that was there and is gone for now is not made anew: its engine waits for it to be put back. If it is known
    that there is no engine (`alone`), this is a start like any other.
    """
    lived = False
    while waiting():
        there = store.disk.exists(layout.FORMAT)
        lived = lived or there
        if there or not lived or alone():
            try:
                return claim_store(store, app)
            except StoreInUse:
                pass
        clock.sleep(_ATTEMPTS_EVERY)
    return None


def _log_number(name: str) -> int:
    """A log is a claim too, should the file that claimed its number be lost."""
    return layout.log_number(name) or 0


def _check_app(store: Store, app: str) -> None:
    """Refuse another app's store, if it says that it is one. One that cannot say it is for recovery to judge."""
    try:
        known = store.identity()
    except DamagedDocument:
        return
    if known is not None and known.app != app:
        raise OtherApp(str(store.root), known.app, app)
