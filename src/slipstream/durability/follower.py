"""A follower: the part of the agent that keeps one replica up to date.

In a circle: take what has gathered since the last commit, send it, commit; then do the replica's own upkeep, if any is
due. What to send and what to merge is decided in `replicate`; here it is carried out. Nobody waits for a follower, and
a follower waits for nobody but its replica: slow storage makes its increments larger and fewer.

A follower begins by joining: whose replica is it (`joining`), which commit is its newest, and is all there that the
commit names? A newest commit that is damaged or gone is said to be, and the one before counts; whatever a replica
lacks is sent again, and so is what a start, or the follower itself when it merges, found not to be what was written.
Until then nothing is durable there. Now and then it looks again, even if there is nothing to send. After an error it
joins anew, so what it knows of a replica is what the replica says.

A commit comes after everything that it names, and removing comes after a commit. Right before each removal the claims
are read again: what a later incarnation may need is not this one's to delete.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

from slipstream.core.clock import Clock
from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.errors import DamagedLayer, DamagedLineage, DamagedObject, SlipstreamError
from slipstream.durability.ahead import Shipping, covers, segments_of
from slipstream.durability.board import Board, Progress, Told, Word
from slipstream.durability.checksum import encode_totals
from slipstream.durability.healing import Healing
from slipstream.durability.joining import Held, Origin, check_claims, check_owner, held, join, swept
from slipstream.durability.manifest import CommitName, Kept, Manifest, Segment, Stored, valid_commits
from slipstream.durability.outbox import Outbox
from slipstream.durability.replica import Objects, checked_body, shown
from slipstream.durability.replicate import (
    COMMITS_KEPT,
    after_upkeep,
    joinable,
    plan_garbage,
    plan_increment,
    plan_replica_upkeep,
    without,
)
from slipstream.durability.work import LayerWork, ScratchWork
from slipstream.store import documents
from slipstream.store.events import fields
from slipstream.store.layout import AWAY, LINEAGE, SPOOL, lineage_log
from slipstream.trace import LayerName, Merge, Pack

crash_points(
    replica__before_commit="everything is uploaded, and the commit is not",
    replica__after_commit="the commit is on the replica, and nobody was told",
    replica__before_discard="objects that nobody needs are about to be deleted",
    replica__after_discard="some object was deleted",
)

_ATTEMPTS = 5
_CATALOGS = 2
_IDLE = 1.0
_LOOK_EVERY = 30.0
FOLDERS = ("data", LINEAGE, "sums", "catalog")
_GARBAGE_EVERY = 8  # commits between two looks for garbage
_LOG = logging.getLogger("slipstream.agent")


class Follower:
    """Keeps one replica up to date for as long as the process lives."""

    def __init__(
        self,
        origin: Origin,
        objects: Objects,
        *,
        board: Board,
        work: LayerWork,
        healing: Healing,
        clock: Clock,
    ) -> None:
        self._key = shown(objects.url)
        self.name = f"replica {self._key}"
        self._origin, self._objects, self._board, self._work = origin, objects, board, work
        self._healing, self._clock = healing, clock
        self._joined: _Joined | None = None
        self._look = 0.0

    def step(self) -> float:
        try:
            return self._step()
        except DamagedLayer as damage:
            if self._healing.found(self.name, damage):
                return 0.0
            self._stuck(str(damage))
            raise
        except DamagedObject as damage:
            if not self._spoil(damage):
                raise
            return 0.0
        except SlipstreamError as error:
            self._joined = None
            self._stuck(str(error))
            raise

    def _spoil(self, damage: DamagedObject) -> bool:
        """Have a damaged object sent again; False if it was to be already."""
        self._joined = None
        if damage.name in self._board.progress(self._key).spoiled:
            self._stuck(str(damage))
            return False
        self._say(f"the object {damage.name} is damaged: {damage.problem}; it is sent again")
        self._board.post(
            self._key, lambda known: replace(known, durable=0, spoiled=(*known.spoiled, damage.name))
        )
        return True

    def _stuck(self, why: str) -> None:
        self._board.post(self._key, lambda known: replace(known, error=why))

    def _step(self) -> float:
        joined = self._joined or self._join()
        told = self._board.aim(self._key, joined.manifest.epoch)
        if told is not None and (told.word.computed > joined.manifest.epoch or joined.due):
            joined.send(told, self._board.safe)
            self._board.aim(self._key, joined.manifest.epoch)
            self._post(joined)
            if joined.upkeep(told.word):
                self._post(joined)
            self._look = self._clock.monotonic() + _LOOK_EVERY
            self._board.works(self.name)
            return 0.0
        if self._clock.monotonic() >= self._look:
            self._look = self._clock.monotonic() + _LOOK_EVERY
            lost = joined.look()
            if lost is not None:
                self._say(lost)
                self._joined = None
                return 0.0
        if joined.notice is None:
            self._board.works(self.name)
        return _IDLE

    def _join(self) -> _Joined:
        known = self._board.progress(self._key)
        joined = _Joined(self._origin, self._objects, self._work, self._clock, known.spoiled)
        if joined.notice is None and known.durable > joined.manifest.epoch:
            joined.notice = (
                f"it was said to hold epoch {known.durable}, and its newest commit is of epoch "
                f"{joined.manifest.epoch}; what it lacks is sent again"
            )
        if joined.notice is not None:
            self._say(joined.notice)
        self._joined = joined
        self._look = self._clock.monotonic() + _LOOK_EVERY
        self._post(joined)
        return joined

    def _say(self, problem: str) -> None:
        """Something is wrong with the replica, and is about to be put right."""
        _LOG.error("a replica lost something", extra=fields(part=self.name, cause=problem))
        self._board.trouble(self.name, f"replica '{self._key}': {problem}")

    def _post(self, joined: _Joined) -> None:
        manifest = joined.manifest

        def changed(known: Progress) -> Progress:
            return Progress(
                durable=0 if joined.lacking else manifest.epoch,
                clock=manifest.clock,
                behind=known.behind,
                objects=len(manifest.objects),
                bytes=manifest.size,
                commits=manifest.sequence,
                error=joined.notice,
                spoiled=joined.spoiled,
            )

        self._board.post(self._key, changed)


class _Joined:
    """A replica on which this incarnation is claimed, and what it holds. notice: what was wrong with it, until the
    next commit. due: there must be another commit, whether there is a new epoch or not. lacking: something that its
    newest commit names is not there, or is `spoiled`: not what was written.
    """

    def __init__(
        self,
        origin: Origin,
        objects: Objects,
        work: LayerWork,
        clock: Clock,
        spoiled: tuple[str, ...] = (),
    ) -> None:
        self.spoiled = spoiled
        self._origin, self._objects, self._work, self._clock = origin, objects, work, clock
        self.notice: str | None = None
        self.due = self.lacking = False
        join(objects, origin)
        listed = self._listed()
        commits = objects.list("commits")
        found = self._newest(commits)
        self.manifest = found or _empty(origin)
        numbers = [commit.sequence for name in commits if (commit := CommitName.parse(name)) is not None]
        self._sequence = max(numbers, default=0)
        self._commits: deque[Manifest] = deque([found] if found is not None else [], maxlen=COMMITS_KEPT)
        self._shipping = Shipping(origin, objects, listed)
        self._sent: dict[str, Stored] = {}
        self._catalog: tuple[bytes, tuple[Stored, ...]] | None = None
        self._until_garbage = 1
        self._look_through(listed)

    def send(self, told: Told, safe: int) -> None:
        """Send what the replica lacks, and commit."""
        manifest, word = self.manifest, told.word
        replica = held(self._objects, self._origin)
        outbox = Outbox(replica, self._origin.incarnation)
        store = self._origin.store
        catalog = store.catalog()
        traces = catalog.identities()
        known = {trace for trace in traces if manifest.identities.get(trace) == traces[trace]}
        objects, placed, whole, schemas = self._send_layers(outbox, traces, known, word)
        layers = {
            trace: manifest.layers.get(trace, ()) if trace in known and trace not in whole else ()
            for trace in traces
        }
        segments, named = self._send_lineage(word.computed)
        totals = {"epoch": word.computed, "totals": encode_totals(told.totals)}
        sums = outbox.text("sums", "log", documents.encode(totals))
        described = self._send_catalog(outbox, documents.encode(catalog.encode()))
        self._commit(
            replica,
            replace(
                manifest,
                app=self._origin.identity.app,
                id=self._origin.identity.id,
                epoch=word.computed,
                catalog=tuple(each.name for each in described),
                objects=_with(manifest.objects, [*objects, *named, sums, *described]),
                layers={trace: (*kept, *placed.get(trace, ())) for trace, kept in layers.items()},
                schemas={
                    trace: each for trace, each in {**manifest.schemas, **schemas}.items() if trace in traces
                },
                identities=traces,
                lineage=segments,
                sums=sums.name,
                safe=safe,
            ),
        )
        self.due = self.lacking = False
        self.notice = None

    def upkeep(self, word: Word) -> bool:
        """Merge what is due on the replica, drop what that replaced, and now and then delete what nobody needs."""
        plans = plan_replica_upkeep(self.manifest, word.histories, word.keep_from)
        copies = (tile for each in covers(self.manifest.lineage).values() for tile in each)
        segments = next((group for tile in copies if (group := joinable(tile))), ())
        if plans or segments:
            replica = held(self._objects, self._origin)
            outbox = Outbox(replica, self._origin.incarnation)
            manifest = self._joined_lineage(outbox, self.manifest, segments) if segments else self.manifest
            steps = {
                trace: [step for step in plan if isinstance(step, Merge | Pack)]
                for trace, plan in plans.items()
            }
            made, objects = self._merged(outbox, steps)
            manifest = after_upkeep(manifest, plans, made, word.histories, word.keep_from)
            self._commit(replica, replace(manifest, objects=_with(manifest.objects, objects)))
        if self._until_garbage <= 0 and not self._origin.store.disk.exists(AWAY):
            self._discard()
            self._until_garbage = _GARBAGE_EVERY
        return bool(plans or segments)

    def look(self) -> str | None:
        """What is wrong with the replica, if anything is: it may have been emptied or taken since the last look."""
        check_owner(self._objects, self._origin)
        check_claims(self._objects, self._origin)
        if not self.manifest.sequence:
            return None
        if self.manifest.object not in self._objects.list("commits"):
            return f"its newest commit, of epoch {self.manifest.epoch}, is gone"
        lost = _lost(self.manifest, self._listed())
        return f"{len(lost)} object(s) are gone or damaged, {min(lost)} among them" if lost else None

    def _newest(self, commits: Iterable[str]) -> Manifest | None:
        """What the newest valid commit that can be read says. That a newer one cannot is said."""
        where = shown(self._objects.url)
        problems = []
        found = None
        for name in valid_commits(commits, self._objects.list("incarnations")):
            try:
                if name.object in self.spoiled:
                    raise DamagedObject(where, name.object, "it does not hold what was computed")
                found = Manifest.decode(name, self._objects.get(name.object), where)
                break
            except DamagedObject as damage:
                problems.append(f"the commit {name.object} is damaged: {damage.problem}")
            except FileNotFoundError:
                problems.append(f"the commit {name.object} is gone")
        if problems:
            instead = f"epoch {found.epoch} counts" if found is not None else "everything is sent again"
            self.notice, self.due = f"{'; '.join(problems)}; {instead}", True
        return found

    def _send_layers(
        self, outbox: Outbox, traces: Mapping[str, str], known: set[str], word: Word
    ) -> tuple[list[Stored], dict[str, tuple[Kept, ...]], set[str], dict[str, str]]:
        """Send the layers of an increment; again if a merger was quicker. The objects, where the layers are in them,
        the traces that were sent whole, and the schemas of those that the replica has none of.
        """
        for attempt in range(_ATTEMPTS):
            chosen: list[tuple[str, LayerName]] = []
            whole: set[str] = set()
            schemas: dict[str, str] = {}
            try:
                for trace in traces:
                    increment = plan_increment(
                        trace,
                        self._origin.store.valid_layers(trace),
                        self.manifest.epoch if trace in known else None,
                        word.computed,
                        word.keep_from if trace in word.histories else None,
                        str(self._origin.store.root / trace),
                    )
                    if increment.whole:
                        whole.add(trace)
                    chosen += [(trace, name) for name in increment.layers]
                    if increment.layers and (trace not in known or trace not in self.manifest.schemas):
                        schemas[trace] = self._work.schema(trace, increment.layers[0])
                return *outbox.layers(self._work, chosen), whole, schemas
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _send_lineage(self, epoch: int) -> tuple[tuple[Segment, ...], list[Stored]]:
        """Have all lineage on the replica; the segments that hold it, and the objects that no commit has named yet. An
        epoch whose lineage cannot be read is not durable, whatever layers there are.
        """
        self._sent |= {each.name: each for each in self._shipping.send()}
        if self._shipping.computed < epoch:
            own = lineage_log(self._origin.incarnation)
            raise DamagedLineage(
                f"{own} of the store '{self._origin.store.root}' was damaged while it was written: it tells of epoch "
                f"{self._shipping.computed}, and epoch {epoch} is computed. Start the engine again: what is missing is "
                "computed again from its input."
            )
        listed = self._listed(LINEAGE)
        segments: list[Segment] = []
        fresh: list[Stored] = []
        found = covers(segments_of(listed))
        for tile in (tile for log in sorted(found) if log <= self._origin.incarnation for tile in found[log]):
            for segment in tile:
                if segment.object not in self.manifest.objects:
                    stored = self._sent.get(segment.object) or self._as_stored(segment)
                    if stored is None:
                        break
                    self._sent[segment.object] = stored
                    fresh.append(stored)
                segments.append(segment)
        return tuple(segments), fresh

    def _as_stored(self, segment: Segment) -> Stored | None:
        """A segment that somebody else sent, as it must be: like the store's bytes. None if the store lacks them."""
        try:
            body = self._origin.store.disk.read(lineage_log(segment.log), segment.start)
        except FileNotFoundError:
            return None
        body = body[: segment.stop - segment.start]
        if len(body) < segment.stop - segment.start:
            return None
        return Stored(segment.object, len(body), hashlib.sha256(body).hexdigest())

    def _send_catalog(self, outbox: Outbox, body: bytes) -> tuple[Stored, ...]:
        """The catalog twice: without it nobody can say what the layers are."""
        if self._catalog is None or self._catalog[0] != body or len(self.manifest.catalog) < _CATALOGS:
            sent = tuple(outbox.text("catalog", "json", body) for _ in range(_CATALOGS))
            self._catalog = (body, sent)
        return self._catalog[1]

    def _merged(
        self, outbox: Outbox, steps: Mapping[str, list[Merge | Pack]]
    ) -> tuple[dict[str, tuple[Kept, ...]], list[Stored]]:
        """Make merged layers, from the host's copies of their inputs or else the replica's, and send them."""
        made: list[tuple[str, LayerName]] = []
        with self._work.apart() as apart:
            for trace, merges in steps.items():
                known = {kept.layer: kept for kept in self.manifest.layers[trace]}
                for step in merges:
                    for name in step.inputs:
                        if not apart.borrow(trace, name):
                            self._fetch(apart, trace, known[name])
                    apart.merge(trace, step)
                    made.append((trace, step.output))
            objects, placed = outbox.layers(apart, made)
        return placed, objects

    def _fetch(self, to: ScratchWork, trace: str, kept: Kept) -> None:
        """Bring a layer from the replica."""
        spool = self._origin.store.root / SPOOL
        body = checked_body(self._objects, self.manifest.objects[kept.object], spool) if kept.object else None
        try:
            to.unpack(body, kept, self.manifest.schemas[trace], trace, kept.layer)
        finally:
            if body is not None and not isinstance(body, bytes):
                body.unlink(missing_ok=True)

    def _joined_lineage(self, outbox: Outbox, manifest: Manifest, segments: tuple[Segment, ...]) -> Manifest:
        """Many short segments as one."""
        log, start = segments[0].log, segments[0].start
        body = b""
        for segment in segments:
            part = checked_body(
                self._objects, manifest.objects[segment.object], self._origin.store.root / SPOOL
            )
            whole = part if isinstance(part, bytes) else part.read_bytes()
            body += whole[start + len(body) - segment.start :]
        stored = outbox.lineage(log, start, body)
        joined = Segment(log, start, start + len(body), stored.name)
        rest = [segment for segment in manifest.lineage if segment not in segments]
        lineage = tuple(sorted([*rest, joined], key=lambda each: (each.log, each.start)))
        return replace(manifest, lineage=lineage, objects=_with(manifest.objects, [stored]))

    def _commit(self, replica: Held, manifest: Manifest) -> None:
        self._sequence += 1
        made = replace(
            manifest.tidy(),
            incarnation=self._origin.incarnation,
            sequence=self._sequence,
            clock=self._clock.now(),
        )
        name, body = made.encode()
        crash_point("replica.before_commit")
        replica.put(name, body)
        crash_point("replica.after_commit")
        check_claims(self._objects, self._origin)  # past a successor's claim a commit counts for nobody
        self.manifest = made
        self._commits.append(made)
        self._sent = {}
        self._until_garbage -= 1

    def _discard(self) -> None:
        """Delete what nobody needs, unless somebody else looks after the replica by now."""
        listed, commits = self._listed(), self._objects.list("commits")
        replica = swept(self._objects, self._origin)
        spoiled = [each for each in self.spoiled if not each.startswith("commits/")]
        garbage = plan_garbage([*listed, *spoiled], commits, tuple(self._commits), self._origin.incarnation)
        crash_point("replica.before_discard")
        for name in (*garbage.commits, *garbage.objects):
            replica.delete(name)
            crash_point("replica.after_discard")
        gone = {*garbage.commits, *garbage.objects}
        self.spoiled = tuple(each for each in self.spoiled if each not in gone)
        self._look_through(listed)

    def _listed(self, *folders: str) -> dict[str, int]:
        """The objects that are there, without those that are not what was written."""
        found = {name: size for each in folders or FOLDERS for name, size in self._objects.list(each).items()}
        return {name: size for name, size in found.items() if name not in self.spoiled}

    def _look_through(self, listed: Mapping[str, int]) -> None:
        """Have whatever was lost sent again."""
        lost = _lost(self.manifest, listed)
        if lost:
            told = f"{len(lost)} object(s) are gone or damaged, {min(lost)} among them; they are sent again"
            self.notice = told if self.notice is None else f"{self.notice}; {told}"
            self.manifest = without(self.manifest, lost)
            self.due = self.lacking = True


def _lost(manifest: Manifest, listed: Mapping[str, int]) -> set[str]:
    return {each.name for each in manifest.objects.values() if listed.get(each.name) != each.size}


def _empty(origin: Origin) -> Manifest:
    return Manifest(
        app=origin.identity.app,
        id=origin.identity.id,
        incarnation=origin.incarnation,
        sequence=0,
        epoch=0,
        clock=0.0,
        catalog=(),
        objects={},
        layers={},
        schemas={},
        identities={},
        lineage=(),
    )


def _with(objects: Mapping[str, Stored], more: Iterable[Stored]) -> dict[str, Stored]:
    return {**objects, **{each.name: each for each in more}}
