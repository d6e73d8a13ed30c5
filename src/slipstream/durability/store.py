"""The store: one folder that holds everything an app keeps.

    format.json           the version of the layout, and the app's name
    lock                  held by the running engine (flock: it falls with the process, however that ends)
    incarnations/N        created once, by the start that claimed number N
    lineage/N.jsonl       the lineage log of incarnation N
    catalog.json          sources and views: what readers need to read a view's trace
    sources/NAME/         whatever a source keeps
    traces/...            layers, and the fences that say which of them count
    replication.json      how far replicas are; checksums.jsonl and sums.jsonl: what files and rows must add up to

Readers need no lock and no engine: the lineage log says how far the store is computed, and layers are
immutable.

A second engine may *stand by*: it watches the store, writes nothing, and claims it the moment the lock falls.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from slipstream.crashing import crash_point, crash_points
from slipstream.durability.lineage import LineageWriter
from slipstream.errors import NewerFormat, NotAStore, OtherApp, StoreInUse, UnknownView
from slipstream.trace import Fence, LayerName, list_all

crash_points(
    store__before_claim="the store is locked, and no incarnation is claimed",
    store__after_claim="an incarnation is claimed, and nothing is done with it",
    store__in_discard="one layer of an epoch that was never computed is removed, and others are not yet",
    store__before_takeover="a successor is about to take the lock away from the engine that holds it",
    store__before_begin="a start has claimed its incarnation, and nobody knows where it goes on",
    store__after_begin="the lineage says where the new incarnation goes on, and no fence is up",
)

FORMAT = 1
FENCES = 16  # incarnations after which a process that was succeeded is taken to be gone
_ATTEMPTS_EVERY = 0.01  # seconds between two attempts to claim a store that is in use


@dataclass(frozen=True)
class Claim:
    """A store that this process may write to, until it is released; without a lock, one that it only watches."""

    store: Store
    incarnation: int
    lock: IO[str] | None

    @property
    def held(self) -> bool:
        return self.lock is not None

    def release(self) -> None:
        if self.lock is not None:
            self.lock.close()

    def begin(self, after: int, *, anew: bool = False) -> None:
        """Go on from an epoch: whatever earlier incarnations write past it counts for nobody from now on."""
        crash_point("store.before_begin")
        lineage = LineageWriter(self.store.root, self.incarnation)
        lineage.began(self.incarnation, after, anew=anew)
        lineage.close()
        crash_point("store.after_begin")
        self.fence(after, self.store.traces())

    def fence(self, after: int, traces: Iterable[Path]) -> None:
        """Put up this incarnation's fence in traces, and take down those that are long past."""
        for trace in traces:
            trace.mkdir(parents=True, exist_ok=True)
            (trace / Fence(self.incarnation, after).filename).touch()
            for old in list_all(trace)[1]:
                if old.incarnation <= self.incarnation - FENCES:
                    (trace / old.filename).unlink(missing_ok=True)

    @property
    def superseded(self) -> bool:
        """Whether another process has taken the store over."""
        if self.lock is None:
            return True
        try:
            return (self.store.root / "lock").stat().st_ino != os.fstat(self.lock.fileno()).st_ino
        except FileNotFoundError:
            return True


@dataclass(frozen=True)
class Store:
    """Paths of a store and what is written in them."""

    root: Path

    @staticmethod
    def existing(path: str | Path) -> Store:
        """A store to read; an error where there is none."""
        store = Store(Path(path).absolute())
        if not (store.root / "format.json").exists():
            raise NotAStore(str(path))
        store._check_format()
        return store

    @staticmethod
    def claim(
        path: str | Path,
        app: str,
        *,
        prepare: Callable[[Path], None] | None = None,
        takeover: bool = False,
    ) -> Claim:
        """A store to write: made where there is none, locked against a second engine, under a new
        incarnation. `prepare` may mend it once it is locked. A takeover leaves the engine that holds it, if
        one does, with a lock that nobody heeds any more.
        """
        store = Store(Path(path).absolute())
        for folder in ("incarnations", "lineage", "sources", "traces"):
            (store.root / folder).mkdir(parents=True, exist_ok=True)
        if takeover:
            fresh = store.root / f".lock.{os.getpid()}"
            fresh.touch()
            crash_point("store.before_takeover")
            fresh.rename(store.root / "lock")
        lock = (store.root / "lock").open("a+")  # held until the claim is released
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            raise StoreInUse(str(path), holder) from None
        try:
            if prepare is not None:
                prepare(store.root)
            if not (store.root / "format.json").exists():
                store._write("format.json", {"format": FORMAT, "app": app})
            store._check_format()
            known = store._read("format.json")["app"]
            if known != app:
                raise OtherApp(str(path), known, app)
        except BaseException:
            lock.close()
            raise
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        crash_point("store.before_claim")
        incarnation = store._next_incarnation()
        crash_point("store.after_claim")
        return Claim(store, incarnation, lock)

    @staticmethod
    def watched(path: str | Path) -> Claim:
        """A store that another engine has or is about to make, for one that stands by. Nothing is written."""
        return Claim(Store(Path(path).absolute()), 0, None)

    @staticmethod
    def await_claim(
        path: str | Path,
        app: str,
        waiting: Callable[[], bool],
        prepare: Callable[[Path], None] | None = None,
    ) -> Claim | None:
        """Claim a store once its engine is gone. `waiting` is asked between attempts; None if it says no."""
        while waiting():
            try:
                return Store.claim(path, app, prepare=prepare)
            except StoreInUse:
                time.sleep(_ATTEMPTS_EVERY)
        return None

    @property
    def name(self) -> str:
        app: str = self._read("format.json")["app"]
        return app

    def catalog(self) -> dict[str, Any]:
        """Sources and views, as the last engine knew them."""
        if not (self.root / "catalog.json").exists():
            return {"sources": {}, "views": {}}
        return self._read("catalog.json")

    def view(self, name: str) -> dict[str, Any]:
        """A view's entry in the catalog; an error that lists the others where there is none."""
        views = self.catalog()["views"]
        if name not in views:
            raise UnknownView(name, views)
        entry: dict[str, Any] = views[name]
        return entry

    def write_catalog(self, catalog: dict[str, Any]) -> None:
        self._write("catalog.json", catalog)

    def traces(self) -> Iterator[Path]:
        """Every trace's directory."""
        yield from sorted(path for path in (self.root / "traces").glob("*/*") if path.is_dir())

    def discard_after(self, epoch: int) -> int:
        """Remove the layers of epochs that were begun and never computed; how many there were."""
        removed = 0
        for trace in self.traces():
            for path in list(trace.iterdir()):
                name = LayerName.parse(path.name)
                if name is not None and name.hi > epoch:
                    path.unlink()
                    removed += 1
                    crash_point("store.in_discard")
        return removed

    def running(self) -> bool:
        """Whether an engine holds the store."""
        try:
            with (self.root / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def last_incarnation(self) -> int:
        """The highest incarnation that was claimed."""
        folder = self.root / "incarnations"
        return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=0)

    def _next_incarnation(self) -> int:
        folder = self.root / "incarnations"
        number = self.last_incarnation()
        while True:
            number += 1
            try:
                (folder / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            return number

    def _check_format(self) -> None:
        found = self._read("format.json")["format"]
        if found > FORMAT:
            raise NewerFormat(str(self.root), found, FORMAT)

    def _read(self, name: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.root / name).read_text())
        return read

    def _write(self, name: str, content: dict[str, Any]) -> None:
        temporary = self.root / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(content, indent=1))
        temporary.rename(self.root / name)
