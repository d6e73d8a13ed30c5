"""Lineage, sent to a replica ahead of everything else: a part of the agent for each replica.

What an epoch was made of is a few hundred bytes; its layers may be gigabytes. So lineage does not wait for them:
about once a second whatever the logs have grown by goes out, as an object that is named by the log and the bytes of
it that it holds (`manifest.Segment`). A store that is restored then knows the cuts of epochs whose layers never
arrived, and computes them again as they were.

It goes out twice, as two objects: with the store gone, one of them that rots or is lost would otherwise take all that
came after it along. A replica that has only one of some lines gets both anew.

A log only grows, and only its own incarnation appends to it, so bytes START to STOP of log N are the same wherever
they are. Two that send at once, or twice, do no harm, and neither does one that was succeeded and does not know it:
nobody reads its log past the line that its successor follows. Lines are sent only as far as the chain holds, and are
flushed before: a store never lags its replica, even after a power cut. Commits name the objects that they need
(`follower`), and look through the replica's listing for them: the two parts need nothing else of each other.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from slipstream.core.clock import Clock
from slipstream.core.crashing import crash_point, crash_points
from slipstream.durability.board import Board, Progress
from slipstream.durability.joining import Held, Origin, held, join
from slipstream.durability.manifest import Segment, Stored, segment_name
from slipstream.durability.replica import Objects, shown
from slipstream.store import chain
from slipstream.store.events import fields
from slipstream.store.layout import LINEAGE, lineage_log, log_number

crash_points(
    replica__before_lineage="lines of lineage are about to be sent ahead",
    replica__after_lineage="lines of lineage were sent ahead, and no commit names them",
)

COPIES = 2
_EVERY = 1.0
_LOOK_EVERY = 30.0
_LOG = logging.getLogger("slipstream.agent")


class Ahead:
    """Sends lineage to one replica for as long as the process lives."""

    def __init__(self, origin: Origin, objects: Objects, *, board: Board, clock: Clock) -> None:
        self.name = f"lineage to {shown(objects.url)}"
        self._origin, self._objects, self._board, self._clock = origin, objects, board, clock
        self._shipping: Shipping | None = None
        self._next = self._look = clock.monotonic()

    def step(self) -> float:
        now = self._clock.monotonic()
        if now < self._next:
            return self._next - now
        self._next = now + _EVERY
        try:
            if self._shipping is None or now >= self._look:
                join(self._objects, self._origin)
                self._shipping = Shipping(self._origin, self._objects, self._objects.list(LINEAGE))
                self._look = now + _LOOK_EVERY
            self._shipping.send()
        except Exception:
            self._shipping = None
            raise
        self._board.post(self._objects.url, partial(_told, self._shipping.computed))
        self._board.works(self.name)
        return _EVERY


def _told(epoch: int, known: Progress) -> Progress:
    return replace(known, lineage=max(known.lineage, epoch))


class Shipping:
    """What a replica has of the logs of a store, and what it lacks."""

    def __init__(self, origin: Origin, objects: Objects, listed: Mapping[str, int]) -> None:
        self._origin, self._objects = origin, objects
        self._disk = origin.store.disk
        twice = covers(segments_of(listed)).items()
        self._reached = {log: min(_stop(tile) for tile in tiles) for log, tiles in twice}
        self._known: dict[int, tuple[int, str]] = {}
        self._seen: dict[int, int] = {}
        self._computed: dict[int, int] = {}

    @property
    def computed(self) -> int:
        """The newest epoch that the log of this incarnation tells of, as far as its chain holds."""
        return self._computed.get(self._origin.incarnation, 0)

    def send(self) -> list[Stored]:
        """Send every whole line that the replica lacks; the objects that were made."""
        made: list[Stored] = []
        replica: Held | None = None
        for log in self._logs():
            stretch = self._lacking(log)
            if stretch is None:
                continue
            start, body, digest = stretch
            replica = replica or held(self._objects, self._origin)
            self._disk.flush(lineage_log(log))
            for _ in range(COPIES):
                name = segment_name(log, start, start + len(body), uuid.uuid4().hex[:12])
                crash_point("replica.before_lineage")
                replica.put(name, body)
                crash_point("replica.after_lineage")
                made.append(Stored(name, len(body), hashlib.sha256(body).hexdigest()))
            self._reached[log] = start + len(body)
            self._known[log] = (start + len(body), digest)
        return made

    def _logs(self) -> Iterator[int]:
        for name in self._disk.list(LINEAGE):
            number = log_number(name)
            if number is not None and number <= self._origin.incarnation:
                yield number

    def _lacking(self, log: int) -> tuple[int, bytes, str] | None:
        """The lines of a log that the replica lacks: where they begin, they, and the digest of the last."""
        try:
            size = self._disk.size(lineage_log(log))
            if self._seen.get(log) == size:
                return None
            at, digest = self._known.get(log, (0, chain.START))
            raw = self._disk.read(lineage_log(log), at)
        except FileNotFoundError:
            return None
        found = chain.scan(raw, digest, at)
        if found.end == "hole":
            _LOG.error("a log is damaged", extra=fields(part="lineage", log=log, cause=found.problem))
        for line in found.lines:
            self._computed[log] = line.body.get(
                "computed", line.body.get("after", self._computed.get(log, 0))
            )
        start, end = self._reached.get(log, 0), found.lines[-1].end if found.lines else at
        if end <= start:
            self._seen[log] = size
            return None
        return start, raw[start - at : end - at], found.digest


def segments_of(listed: Mapping[str, int]) -> list[Segment]:
    """The stretches of logs that a listing tells of; an object that has not as many bytes as its name says is none."""
    found = ((Segment.parse(name), size) for name, size in listed.items())
    return [
        segment for segment, size in found if segment is not None and segment.stop - segment.start == size
    ]


def covers(segments: Iterable[Segment]) -> dict[int, tuple[tuple[Segment, ...], ...]]:
    """For each log the fewest segments that have all of its bytes from the first on, as far as there are any, and of
    those that are left the fewest that do so again.
    """
    by_log: dict[int, list[Segment]] = {}
    for segment in segments:
        by_log.setdefault(segment.log, []).append(segment)
    return {log: _tiles(each) for log, each in by_log.items()}


def _tiles(segments: Iterable[Segment]) -> tuple[tuple[Segment, ...], ...]:
    left, found = set(segments), []
    for _ in range(COPIES):
        tile = _tile(sorted(left, key=lambda one: (one.start, -one.stop, one.object)))
        left -= set(tile)
        found.append(tile)
    return tuple(found)


def _stop(tile: tuple[Segment, ...]) -> int:
    return tile[-1].stop if tile else 0


def _tile(ordered: list[Segment]) -> tuple[Segment, ...]:
    chosen: list[Segment] = []
    at, i = 0, 0
    while True:
        best: Segment | None = None
        while i < len(ordered) and ordered[i].start <= at:
            if ordered[i].stop > at and (best is None or ordered[i].stop > best.stop):
                best = ordered[i]
            i += 1
        if best is None:
            return tuple(chosen)
        chosen.append(best)
        at = best.stop
