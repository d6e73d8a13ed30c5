"""What the agent's parts tell each other, and what they tell the world.

Each part posts how far it is: each replica's follower, the persister, and what went wrong last in any of them. From
that come the barriers that merging respects, and the document `progress.json` in the store that the engine and
`slipstream status` read. It is replaced as a whole. When what was promised has moved (persisted, safe) it is flushed,
and so is a copy: what is written in between may be lost in a power cut, and the copy promises the same. So a start
after a power cut knows how much must be there. Where both are damaged they say nothing, and are written again.

What is posted counts at once for the other parts; writing it comes after and never holds anybody up. One part at a
time writes, with no lock held, until nothing newer is there to be written. A write that fails is made up for by the
next. Where a later incarnation has the store, nothing is written: what is said there is its own.

A start writes it too, before there is an agent: of a new store, that nothing was ever called safe; and which objects of
a replica were found not to be what was written (`spoiled`). Nothing is durable there until these are sent again. Of
two copies of which a power cut left one, it puts the other back.

`safe` only grows within an incarnation, whatever happens to a replica: it is what users were told. What was known
before counts up to the epoch at which this incarnation began.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from slipstream.core.clock import Clock, SystemClock
from slipstream.core.errors import StoreTrouble, Superseded
from slipstream.store import documents
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.events import fields
from slipstream.store.layout import PROGRESS, copy_of
from slipstream.store.shapes import checked
from slipstream.store.store import Store

PLACES = (PROGRESS, copy_of(PROGRESS))
_LOOK_EVERY = 30.0  # seconds between two looks at what stands in `progress.json`
_LOG = logging.getLogger("slipstream.agent")


@dataclass(frozen=True)
class Word:
    """What the engine tells the agent."""

    computed: int
    keep_from: int
    histories: tuple[str, ...]  # traces whose history is kept; of the others only the present is


@dataclass(frozen=True)
class Told:
    """A word whose epochs are summed up. totals: the checksum of each view's contents, by the keys of
    `Catalog.summed`.
    """

    word: Word
    totals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """How far a replica is. lineage: the newest epoch of which it has at least the lineage. behind: bytes of layers
    that it lacks. error: why it is stuck, if it is. spoiled: objects that are not what was written, although their
    size is right, and were not sent again yet.
    """

    durable: int = 0
    clock: float = 0.0
    behind: int = 0
    objects: int = 0
    bytes: int = 0
    commits: int = 0
    error: str | None = None
    spoiled: tuple[str, ...] = ()
    lineage: int = 0

    @staticmethod
    def decode(body: Mapping[str, Any]) -> Progress:
        return Progress(**{**body, "spoiled": tuple(body.get("spoiled", ()))})


@dataclass(frozen=True)
class Trouble:
    """What went wrong last in a part of the agent. over: when the part worked again, None while it does not."""

    time: float
    error: str
    over: float | None = None


@dataclass(frozen=True)
class Replication:
    """All of it: the epoch flushed to the local disk, each replica by its URL, without secrets, how many of them make
    an epoch safe, the newest epoch that ever was, the trouble of each part, and the layers (TRACE/LAYER) that were
    found damaged and not replaced yet.
    """

    persisted: int = 0
    replicas: Mapping[str, Progress] = field(default_factory=dict)
    incarnation: int = 0
    safe_on: int = 1
    safe: int = 0
    errors: Mapping[str, Trouble] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()

    @property
    def damage(self) -> str | None:
        """The damage that is there, in a sentence."""
        if not self.damaged:
            return None
        return f"damaged layers, of which no replica has a copy: {', '.join(self.damaged)}"

    def encode(self) -> documents.Body:
        return {
            **vars(self),
            "replicas": {url: vars(each) for url, each in self.replicas.items()},
            "errors": {part: vars(each) for part, each in self.errors.items()},
        }

    @staticmethod
    def decode(body: Mapping[str, Any]) -> Replication:
        return checked(
            Replication(
                persisted=body["persisted"],
                replicas={url: Progress.decode(each) for url, each in body["replicas"].items()},
                incarnation=body["incarnation"],
                safe_on=body["safe_on"],
                safe=body["safe"],
                errors={part: Trouble(**each) for part, each in body["errors"].items()},
                damaged=tuple(body["damaged"]),
            )
        )


def safe_epoch(durable: list[int], safe_on: int) -> int:
    """The epoch up to which `safe_on` of the replicas hold everything."""
    if not durable or safe_on < 1 or safe_on > len(durable):
        return 0
    return sorted(durable, reverse=True)[safe_on - 1]


def read_replication(disk: Disk) -> Replication:
    """What the agent said last; nothing where there never was one, or where that cannot be read."""
    return next((found for name in PLACES if (found := _said(disk, name)) is not None), Replication())


def damaged_place(disk: Disk) -> bool:
    """Whether one copy of what the agent said last cannot be read, and the other can."""
    said = [_said(disk, name) is not None for name in PLACES if disk.exists(name)]
    return any(said) and not all(said)


def _said(disk: Disk, name: str) -> Replication | None:
    try:
        return decode_replication(disk.read(name))
    except (FileNotFoundError, IsADirectoryError):
        return None


def decode_replication(raw: bytes) -> Replication | None:
    """What `progress.json` says, if it is whole."""
    try:
        found = documents.decode(raw)
        return None if isinstance(found, str) else Replication.decode(found)
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def write_replication(disk: WritableDisk, said: Replication) -> None:
    """What is known before there is an agent."""
    for name in PLACES:
        disk.replace(name, documents.encode(said.encode()), flushed=True)


class Board:
    """Shared by the agent's parts."""

    def __init__(
        self,
        store: Store,
        incarnation: int,
        urls: tuple[str, ...],
        safe_on: int = 1,
        *,
        after: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self._store, self._incarnation, self._clock = store, incarnation, clock or SystemClock()
        self._owned = store.owned_by(incarnation)
        self._lock = threading.Lock()
        self._wakes: list[threading.Event] = []
        self._heard: Word | None = None
        self._told: Told | None = None
        self._said = _carried_over(read_replication(store.disk), incarnation, urls, safe_on, after)
        self._barriers = {url: frozenset({each.durable}) for url, each in self._said.replicas.items()}
        self._unwritten = self._writing = self._failing = False
        self._flushed: tuple[int, int] | None = None
        self._look = self._clock.monotonic() + _LOOK_EVERY

    def waker(self) -> threading.Event:
        """An event that is set whenever there is something new to do."""
        wake = threading.Event()
        with self._lock:
            self._wakes.append(wake)
        return wake

    def hear(self, word: Word) -> None:
        """The engine's newest word; it is told on once its epochs are summed up."""
        with self._lock:
            self._heard = word
            self._wake()

    @property
    def heard(self) -> Word | None:
        with self._lock:
            return self._heard

    def tell(self, word: Word, totals: Mapping[str, int] | None = None) -> None:
        with self._lock:
            self._told = Told(word, totals or {})
            self._wake()

    @property
    def told(self) -> Told | None:
        with self._lock:
            return self._told

    def barriers(self) -> frozenset[int]:
        """Epochs that followers stand at, or are about to, and the one up to which all is on the disk itself: a start
        after a power cut may have to go back there.
        """
        with self._lock:
            return frozenset({self._said.persisted}).union(*self._barriers.values())

    def aim(self, url: str, durable: int) -> Told | None:
        """The newest word, for a follower that has everything up to `durable` and sets out to go as far as it says.

        From now on nothing is merged across either epoch.
        """
        with self._lock:
            ends = {durable} if self._told is None else {durable, self._told.word.computed}
            self._barriers[url] = frozenset(ends)
            return self._told

    def post(self, url: str, change: Callable[[Progress], Progress]) -> None:
        """Change what is known of a replica."""

        def changed(said: Replication) -> Replication:
            replicas = {**said.replicas, url: change(said.replicas.get(url, Progress()))}
            safe = safe_epoch([each.durable for each in replicas.values()], said.safe_on)
            return replace(said, replicas=replicas, safe=max(said.safe, safe))

        self._change(changed)

    def progress(self, url: str) -> Progress:
        with self._lock:
            return self._said.replicas.get(url, Progress())

    @property
    def safe(self) -> int:
        with self._lock:
            return self._said.safe

    def persisted(self, epoch: int) -> None:
        self._change(lambda said: replace(said, persisted=epoch))

    def trouble(self, part: str, error: str) -> None:
        """A part cannot do its work, for now."""
        found = Trouble(self._clock.now(), error)
        self._change(lambda said: replace(said, errors={**said.errors, part: found}))

    def troubled(self, part: str) -> bool:
        """Whether a part has not done its work since something was wrong with it."""
        with self._lock:
            known = self._said.errors.get(part)
            return known is not None and known.over is None

    def works(self, part: str) -> None:
        """A part has done its work: whatever was wrong with it is over."""
        now = self._clock.now()

        def changed(said: Replication) -> Replication:
            known = said.errors.get(part)
            if known is None or known.over is not None:
                return said
            return replace(said, errors={**said.errors, part: replace(known, over=now)})

        self._change(changed)

    def damaged(self, layers: tuple[str, ...]) -> None:
        """The layers that are damaged now."""
        self._change(lambda said: replace(said, damaged=layers))

    def settle(self) -> None:
        """Write what is posted and not written yet, unless somebody is about it. Now and then see that it still stands:
        a predecessor that did not know that it was succeeded may have written last.
        """
        now = self._clock.monotonic()
        if now >= self._look:
            self._look = now + _LOOK_EVERY
            with suppress(OSError, StoreTrouble):
                stands = read_replication(self._store.disk).incarnation == self._incarnation
                with self._lock:
                    self._unwritten = self._unwritten or not stands
        while True:
            with self._lock:
                if self._writing or not self._unwritten:
                    return
                self._writing, self._unwritten = True, False
                said = self._said
            problem = self._write(said)
            with self._lock:
                self._writing = False
                failed_before, self._failing = self._failing, problem is not None
                self._unwritten = self._unwritten or problem is not None
            if problem is not None:
                if not failed_before:
                    _LOG.warning("progress cannot be written", extra=fields(part="board", cause=problem))
                return

    def _change(self, change: Callable[[Replication], Replication]) -> None:
        with self._lock:
            changed = change(self._said)
            self._unwritten = self._unwritten or changed != self._said
            self._said = changed
        self.settle()

    def _write(self, said: Replication) -> str | None:
        try:
            promised = (said.persisted, said.safe)
            if promised != self._flushed:
                write_replication(self._owned, said)
                self._flushed = promised
            else:
                self._owned.replace(PROGRESS, documents.encode(said.encode()), flushed=False)
        except Superseded:
            return None
        except (OSError, StoreTrouble) as error:
            return str(error)
        return None

    def _wake(self) -> None:
        for wake in self._wakes:
            wake.set()


def _carried_over(
    known: Replication, incarnation: int, urls: tuple[str, ...], safe_on: int, after: int
) -> Replication:
    """What an earlier agent said, as far as it still counts: an incarnation that began after an epoch knows nothing of
    what an earlier one did past it.
    """
    last = None if known.incarnation == incarnation else after

    def upto(epoch: int) -> int:
        return epoch if last is None else min(epoch, last)

    replicas = {url: known.replicas.get(url, Progress()) for url in urls}
    return Replication(
        persisted=upto(known.persisted),
        replicas={
            url: replace(each, durable=upto(each.durable), lineage=upto(each.lineage), error=None)
            for url, each in replicas.items()
        },
        incarnation=incarnation,
        safe_on=safe_on,
        safe=upto(known.safe),
        errors=known.errors,
        damaged=known.damaged,
    )
