"""A follower: the agent's thread that keeps one replica up to date.

In a circle: take what has gathered since the last commit, send it, commit; then do the replica's own upkeep, if any is
due. What to send and what to merge is decided in `replicate`; here it is carried out. Nobody waits for a follower, and
a follower waits for nobody but its replica: slow storage makes its increments larger and fewer.

Layers are mapped when they are chosen, so that merging and removing, in the main thread, never gets in the way. An
error leaves the replica as its last commit says; the follower reads that again and goes on, after a pause that grows.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.crashing import crash_point, crash_points
from slipstream.durability.board import Board, Progress, Word
from slipstream.durability.checksum import SumsTail
from slipstream.durability.homecoming import all_home
from slipstream.durability.identity import identities
from slipstream.durability.inbox import fetch_layers, fetch_object, newest_manifest
from slipstream.durability.lineage import LineageTail
from slipstream.durability.manifest import ClaimName, Kept, Manifest, Segment, Stored
from slipstream.durability.outbox import Outbox
from slipstream.durability.pack import Held, encode_schema
from slipstream.durability.persist import flush_lineage
from slipstream.durability.replica import Replica, shown
from slipstream.durability.replicate import (
    COMMITS_KEPT,
    after_upkeep,
    joinable,
    plan_garbage,
    plan_increment,
    plan_replica_upkeep,
    superseded,
    without,
)
from slipstream.errors import SupersededOnReplica
from slipstream.trace import Merge, Pack, carry_out, list_layers, open_layer

crash_points(
    replica__before_claim="a follower is about to claim its incarnation on a replica",
    replica__after_claim="the claim is on the replica",
    replica__before_commit="everything is uploaded, and the commit is not",
    replica__after_commit="the commit is on the replica, and nobody was told",
    replica__before_discard="objects that nobody needs are about to be deleted",
    replica__after_discard="some object was deleted",
)

_ATTEMPTS = 5
_IDLE = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
FOLDERS = ("data", "lineage", "catalog")
_GARBAGE_EVERY = 8  # commits between two looks for garbage


@dataclass(frozen=True)
class Origin:
    """Who replicates: the store, its app, the incarnation, the epoch after which it began, and a token of its own."""

    root: Path
    app: str
    incarnation: int
    after: int
    token: str


class Follower(threading.Thread):
    """Keeps one replica up to date for as long as the process lives."""

    def __init__(self, origin: Origin, url: str, board: Board) -> None:
        super().__init__(name=f"replica {shown(url)}", daemon=True)
        self._origin, self._url, self._board = origin, url, board
        self._key = shown(url)
        self._spool = origin.root / ".spool" / uuid.uuid4().hex
        self._joined: _Joined | None = None

    def run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                if not self.step():
                    self._board.await_word(self._joined.manifest.epoch if self._joined else 0, _IDLE)
                pause = _FIRST_PAUSE
            except SupersededOnReplica as end:
                self._post(str(end))
                return
            except Exception as error:  # a replica may fail in any way, and never takes the agent with it
                self._post(f"{type(error).__name__}: {error}")
                self._joined = None
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def step(self) -> bool:
        """Do what is to be done next; whether there was anything."""
        if self._joined is None:
            self._joined = _Joined(self._origin, Replica(self._url), self._spool)
            self._post(None)
        word = self._board.aim(self._key, self._joined.manifest.epoch)
        if word is None or not (word.computed > self._joined.manifest.epoch or self._joined.incomplete):
            return False
        self._joined.send(word)
        self._board.aim(self._key, self._joined.manifest.epoch)
        self._post(None)
        if self._joined.upkeep(word):
            self._post(None)
        return True

    def _post(self, error: str | None) -> None:
        known = self._board.progress(self._key)
        if self._joined is None:
            self._board.post(self._key, replace(known, error=error))
            return
        manifest = self._joined.manifest
        self._board.post(
            self._key,
            Progress(
                manifest.epoch,
                manifest.clock,
                known.behind,
                len(manifest.objects),
                manifest.size,
                manifest.sequence,
                error,
            ),
        )


class _Joined:
    """A replica on which this incarnation is claimed, and what it holds."""

    def __init__(self, origin: Origin, replica: Replica, spool: Path) -> None:
        self._origin, self._replica, self._spool = origin, replica, spool
        self._outbox = Outbox(replica, origin.incarnation, spool)
        self._claim()
        found = newest_manifest(replica)
        if found is None:
            found = Manifest(origin.app, origin.incarnation, 0, 0, 0.0, "", {}, {}, {}, {}, ())
        self.manifest = found
        self._commits: deque[Manifest] = deque([found] if found.sequence else [], maxlen=COMMITS_KEPT)
        self._tail, self._sums = LineageTail(origin.root, origin.incarnation), SumsTail(origin.root)
        self._catalog: Stored | None = None
        self._until_garbage = 1
        self.incomplete = False
        self._look_through({name: size for folder in FOLDERS for name, size in replica.list(folder).items()})

    def send(self, word: Word) -> None:
        """Send what the replica lacks, and commit."""
        manifest = self.manifest
        first = manifest.epoch + 1
        logged = manifest.lineage[-1].hi if manifest.lineage else 0
        catalog = json.loads((self._origin.root / "catalog.json").read_text())
        traces = identities(catalog)
        known = [trace for trace in traces if manifest.identities.get(trace) == traces[trace]]
        layers = {trace: manifest.layers[trace] if trace in known else () for trace in traces}
        held: list[Held] = []
        for trace in traces:
            since = manifest.epoch if trace in known else None
            kept = word.keep_from if trace in word.histories else None
            chosen, whole = self._open(trace, since, word.computed, kept)
            held += chosen
            if whole:
                layers[trace] = ()
        schemas = {trace: manifest.schemas[trace] for trace in traces if trace in manifest.schemas}
        schemas |= {trace: encode_schema(layer.schema) for trace, layer in held}
        objects, placed = self._outbox.layers(held, first, word.computed)
        segments = manifest.lineage
        if word.computed > logged:
            flush_lineage(self._origin.root)  # a store never lags its replica, even after a power cut
            lines = [*self._tail.read(logged, word.computed), *self._sums.read(logged, word.computed)]
            body = "".join(lines).encode()
            objects.append(self._outbox.text("lineage", logged + 1, word.computed, "jsonl", body))
            segments = (*segments, Segment(logged + 1, word.computed, objects[-1].name))
        if self._catalog is None:
            self._catalog = self._outbox.text("catalog", 0, 0, "json", json.dumps(catalog).encode())
        self._commit(
            replace(
                manifest,
                epoch=word.computed,
                catalog=self._catalog.name,
                objects=_with(manifest.objects, [*objects, self._catalog]),
                layers={trace: (*kept, *placed.get(trace, ())) for trace, kept in layers.items()},
                schemas=schemas,
                identities=traces,
                lineage=segments,
            )
        )
        self.incomplete = False

    def upkeep(self, word: Word) -> bool:
        """Merge what is due on the replica, drop what that replaced, and now and then delete what nobody needs."""
        plans = plan_replica_upkeep(self.manifest, word.histories, word.keep_from)
        segments = joinable(self.manifest.lineage)
        if plans or segments:
            manifest = self._joined_lineage(self.manifest, segments) if segments else self.manifest
            made, objects = self._merged(
                {
                    trace: [step for step in steps if isinstance(step, Merge | Pack)]
                    for trace, steps in plans.items()
                }
            )
            manifest = after_upkeep(manifest, made, word.histories, word.keep_from)
            self._commit(replace(manifest, objects=_with(manifest.objects, objects)))
        if self._until_garbage <= 0 and all_home(self._origin.root):
            self._discard()
            self._until_garbage = _GARBAGE_EVERY
        return bool(plans or segments)

    def _claim(self) -> None:
        origin = self._origin
        mine = ClaimName(origin.incarnation, origin.after, origin.token)
        claims = self._replica.list("incarnations")
        self._check(claims)
        if mine.object not in claims:
            crash_point("replica.before_claim")
            self._replica.put(mine.object, json.dumps({"app": origin.app}).encode())
            crash_point("replica.after_claim")
            self._check(self._replica.list("incarnations"))

    def _check(self, claims: Iterable[str]) -> None:
        """Raise if a later incarnation is there, or another process has claimed this one before."""
        later = superseded(claims, self._origin.incarnation, self._origin.token)
        if later is not None:
            raise SupersededOnReplica(
                shown(self._replica.url), self._origin.incarnation, later.incarnation, later.after
            )

    def _open(
        self, trace: str, since: int | None, until: int, keep_from: int | None
    ) -> tuple[list[Held], bool]:
        """The layers of an increment, mapped; again if a merger was quicker. And whether they are all of the trace."""
        directory = self._origin.root / trace
        for attempt in range(_ATTEMPTS):
            plan = plan_increment(trace, list_layers(directory), since, until, keep_from, str(directory))
            try:
                return [(trace, open_layer(directory, name)) for name in plan.layers], plan.whole
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _merged(
        self, steps: Mapping[str, list[Merge | Pack]]
    ) -> tuple[dict[str, tuple[Kept, ...]], list[Stored]]:
        """Make merged layers, from the host's copies of their inputs or else the replica's, and send them."""
        scratch = self._spool / "merge"
        held: list[Held] = []
        lo, hi = self.manifest.epoch, 1
        try:
            for trace, merges in steps.items():
                known = {kept.layer: kept for kept in self.manifest.layers[trace]}
                for step in merges:
                    missing = []
                    (scratch / trace).mkdir(parents=True, exist_ok=True)
                    for name in step.inputs:
                        try:
                            os.link(
                                self._origin.root / trace / name.filename, scratch / trace / name.filename
                            )
                        except FileExistsError:
                            pass
                        except FileNotFoundError:
                            missing.append((trace, known[name]))
                    fetch_layers(self._replica, self.manifest, missing, scratch, self._spool)
                    carry_out(scratch / trace, step)
                    held.append((trace, open_layer(scratch / trace, step.output)))
                    lo, hi = min(lo, step.output.lo), max(hi, step.output.hi)
            objects, placed = self._outbox.layers(held, lo, hi)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return placed, objects

    def _joined_lineage(self, manifest: Manifest, segments: tuple[Segment, ...]) -> Manifest:
        """Many short segments as one."""
        self._spool.mkdir(parents=True, exist_ok=True)
        body = b""
        for segment in segments:
            file = fetch_object(self._replica, manifest, segment.object, self._spool / "segment")
            body += file.read_bytes()
            file.unlink()
        lo, hi = segments[0].lo, segments[-1].hi
        stored = self._outbox.text("lineage", lo, hi, "jsonl", body)
        rest = [segment for segment in manifest.lineage if segment not in segments]
        whole = tuple(sorted([*rest, Segment(lo, hi, stored.name)], key=lambda each: each.lo))
        return replace(manifest, lineage=whole, objects=_with(manifest.objects, [stored]))

    def _commit(self, manifest: Manifest) -> None:
        made = replace(
            manifest.tidy(),
            incarnation=self._origin.incarnation,
            sequence=self.manifest.sequence + 1,
            clock=time.time(),
        )
        name, body = made.encode()
        crash_point("replica.before_commit")
        self._replica.put(name, body)
        crash_point("replica.after_commit")
        self.manifest = made
        self._commits.append(made)
        self._until_garbage -= 1

    def _discard(self) -> None:
        """Delete what nobody needs, unless somebody else looks after the replica by now."""
        replica = self._replica
        listed = {name: size for folder in FOLDERS for name, size in replica.list(folder).items()}
        commits = replica.list("commits")
        self._check(replica.list("incarnations"))
        garbage = plan_garbage(listed, commits, tuple(self._commits), self._origin.incarnation)
        crash_point("replica.before_discard")
        for name in (*garbage.commits, *garbage.objects):
            replica.delete(name)
            crash_point("replica.after_discard")
        self._look_through(listed)

    def _look_through(self, listed: Mapping[str, int]) -> None:
        """Have whatever was lost sent again."""
        lost = {each.name for each in self.manifest.objects.values() if listed.get(each.name) != each.size}
        if lost:
            self.manifest = without(self.manifest, lost)
            self._tail = LineageTail(self._origin.root, self._origin.incarnation)
            self._sums = SumsTail(self._origin.root)
            self.incomplete = True


def _with(objects: Mapping[str, Stored], more: Iterable[Stored]) -> dict[str, Stored]:
    return {**objects, **{each.name: each for each in more}}
