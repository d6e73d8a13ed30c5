"""What the world knows by itself, and what it demands of the code under test.

The books are kept by watching bytes go by: lines that are appended to the lineage of whoever owns the store, what the
agent says in `progress.json`, what sources are told to forget. None of it is asked of the code under test. They hold
the *timeline*: which input each epoch took, and how far it is computed. From that and the files that ever arrived, the
contents of every view are known (`model.expected`).

What is demanded, at the moment at which it could be violated:

- **A start** goes on where the timeline is. It may step back only behind what a power cut can take (never behind
  `persisted`), or what damage took; never behind what was called safe, unless somebody consented. The cuts that it
  keeps are the cuts that were made, and it keeps all that a replica has.
- **A reader** who is served anything is served what the timeline says as of that epoch, and that is the newest one, or
  after a power cut one that was persisted. An error is allowed while something is damaged, silence never.
- **Ownership**: nobody removes, cuts off or replaces a layer of a later incarnation; nobody but its app writes to a
  replica or deletes there.
- **Refusing** to start needs a reason: no error where nothing was harmed, or where a whole copy can be reached.
- **In the end**, once faults have ceased, every file that arrived was taken exactly once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from slipstream.core.errors import SlipstreamError
from slipstream.store.lineage import computed_frontier, read_lineage
from slipstream.testing.simulation.disk import SimulatedDisk
from slipstream.testing.simulation.layers import ModelLayers
from slipstream.testing.simulation.model import SHOWN, Input, Ranges, expected
from slipstream.testing.simulation.objects import Bucket
from slipstream.trace import LayerName

Harm = Literal["power", "damage", "loss", "trouble"]

_DIGEST = 17


@dataclass(frozen=True)
class Violation(Exception):
    """Something that must never be."""

    rule: str
    told: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.told}"


@dataclass
class Timeline:
    """cuts: what each epoch takes. frontier: the newest that is computed. log: whose lineage it is in."""

    cuts: dict[int, Ranges] = field(default_factory=dict)
    frontier: int = 0
    log: int = 0

    @property
    def last_cut(self) -> int:
        return max(self.cuts, default=0)

    def computed(self) -> list[Ranges]:
        return [self.cuts[epoch] for epoch in range(1, self.frontier + 1)]


class Books:
    """Watches one store."""

    def __init__(
        self, disk: SimulatedDisk, files: Input, buckets: Sequence[Bucket], fail: Callable[[Violation], None]
    ) -> None:
        self._disk, self._files, self._buckets, self._fail = disk, files, buckets, fail
        self.timeline = Timeline()
        self.owner = 0
        self.persisted = self.safe = 0
        self.durable: dict[str, int] = {}
        self.errors: dict[str, str] = {}
        self.given_up: set[str] = set()
        self._harmed: dict[Harm, float] = {}
        self.ever_harmed: set[Harm] = set()
        self.harmed_buckets: set[str] = set()
        self._lost_buckets: set[str] = set()
        self.commit_deleted = False
        self.may_miss_input = False
        self.consent = False
        self.ghost: Timeline | None = None
        self.starts = 0
        self.reads = 0
        self._read: tuple[int, bool] | None = None
        disk.observers.append(self._observe)

    def violated(self, rule: str, told: str) -> None:
        self._fail(Violation(rule, told))

    @property
    def harms(self) -> set[Harm]:
        """What happened to the store since an engine began that could know of it. Damage may be found much later."""
        return set(self._harmed) | (self.ever_harmed & {"damage"})

    def harm(self, harm: Harm) -> None:
        """Something happens to the store."""
        self._harmed[harm] = self._disk.scheduler.now
        self.ever_harmed |= {harm} - {"trouble"}
        self._if_all_is_lost()

    def lost(self, url: str) -> None:
        """Everything on a replica is lost."""
        self.harmed_buckets.add(url)
        self._lost_buckets.add(url)
        self._if_all_is_lost()

    def _if_all_is_lost(self) -> None:
        """Where nothing at all is left, a new app cannot be told from an old one."""
        if "loss" in self.harms and self._lost_buckets == {bucket.url for bucket in self._buckets}:
            self.consent = True

    # What is seen

    def _observe(self, what: str, name: str, body: bytes) -> None:
        folder, _, last = name.rpartition("/")
        if folder == "incarnations" and what == "create":
            self._claimed(int(last))
        elif folder == "lineage" and last.endswith(".log"):
            self._lineage(what, int(last[:-4]), body)
        elif name == "progress.json" and what != "remove":
            self._progress(body)
        elif what in ("remove", "truncate", "replace") and folder.startswith("traces/"):
            self._layer(what, name, last)

    def _claimed(self, number: int) -> None:
        """An engine claims an incarnation. One that restores a store puts the claims of others back, too; and one that
        is slow may be done with its claim after another that saw it has claimed the next.
        """
        process = self._disk.process
        assert process is not None
        if not process.incarnation:
            process.since = self._disk.scheduler.now
        process.incarnation = max(process.incarnation, number)
        with self._disk.quietly():
            there = (int(name) for name in self._disk.list("incarnations") if name.isdigit())
            self.owner = max(there, default=number)  # its own claim may be damaged already

    def _lineage(self, what: str, log: int, body: bytes) -> None:
        for line in body.splitlines():
            record = json.loads(line[_DIGEST:])
            if what == "create" and log == self.owner and record.get("began") == log:
                self._began(log, record["after"], record["upto"])
            elif what == "append":
                if log == self.timeline.log and log == self.owner:
                    _note(self.timeline, record)
                elif log == self.timeline.log:
                    self.ghost = self.ghost or _copy(self.timeline)
                    _note(self.ghost, record)

    def _progress(self, body: bytes) -> None:
        said = json.loads(body)["body"]
        if said["incarnation"] != self.owner or self.timeline.log != self.owner:
            return
        self.persisted = min(said["persisted"], self.timeline.frontier)
        self.durable = {url: each["durable"] for url, each in said["replicas"].items()}
        self.errors = {
            **{url: each["error"] for url, each in said["replicas"].items() if each["error"]},
            **{part: each["error"] for part, each in said["errors"].items() if each["over"] is None},
        }
        told = said["safe"]
        if told > self.timeline.frontier:
            self.violated("safe", f"epoch {told} is called safe, and {self.timeline.frontier} is computed")
        self.safe = max(self.safe, told)

    def _layer(self, what: str, name: str, last: str) -> None:
        layer = LayerName.parse(last)
        process = self._disk.process
        mine = getattr(process, "incarnation", 0)
        if layer is not None and process is not None and mine and layer.incarnation > mine:
            self.violated("ownership", f"incarnation {mine} does {what} {name}")

    def forgotten(self, names: Sequence[str]) -> None:
        """A source was told that it may forget some files."""
        there = {name for ranges in self.timeline.computed() for each in ranges.values() for name in each}
        for name in names:
            if name not in there:
                self.violated("forgotten", f"{name} may be forgotten, and no computed epoch has taken it")

    # What is demanded of a start

    def _began(self, log: int, after: int, upto: int) -> None:
        """The owner says where it goes on."""
        old = self.timeline
        self.starts += 1
        least, why = self._least()
        if self.commit_deleted and "loss" in self.harms and upto >= least:
            # Nothing tells of it but lineage: it is computed again as it was, or its input is missed.
            self.may_miss_input = self.may_miss_input or after < least
            least = 0
        if after < least:
            self.violated("step back", f"incarnation {log} goes on from epoch {after}, not {least}: {why}")
        known = self._known_cuts()
        if not self.consent and upto < known:
            self.violated("cuts", f"incarnation {log} forgets the cuts from {upto + 1} up to {known}")
        if after > old.frontier and (self.ghost is None or after > self.ghost.frontier):
            self.violated(
                "step ahead", f"incarnation {log} goes on from {after}, {old.frontier} was computed"
            )
        if self.ghost is not None and upto > old.last_cut:
            old = self.ghost
        self._compare_cuts(old, upto)
        if self.consent:
            kept = {epoch: cut for epoch, cut in old.cuts.items() if epoch <= upto}
            there = {name for cut in kept.values() for each in cut.values() for name in each}
            gone = set(self._files.all) - set(self._files.present) - there
            self.given_up |= gone
        self.timeline = Timeline({e: cut for e, cut in old.cuts.items() if e <= upto}, after, log)
        self.persisted = min(self.persisted, after)
        self.safe = min(self.safe, after)
        self.durable = {}
        process = self._disk.process
        since = process.since if process is not None else 0.0
        self._harmed = {harm: when for harm, when in self._harmed.items() if when > since}
        self._lost_buckets.clear()
        self.ghost = None
        self.consent = False

    def _least(self) -> tuple[int, str]:
        """The epoch behind which a start must not go."""
        safe = 0 if self.consent else self.safe
        if not self.harms - {"trouble"}:
            return max(safe, self.timeline.frontier), "nothing happened to what was computed"
        if self.harms <= {"power", "trouble"}:
            return max(safe, self.persisted), f"{self.persisted} was called persisted, {safe} safe"
        return safe, f"{safe} was called safe"

    def _known_cuts(self) -> int:
        """The newest epoch up to which all cuts are in the lineage of a replica that nothing happened to."""
        if not self.harms - {"trouble"}:
            return self.timeline.last_cut
        best = self.persisted if self.harms <= {"power", "trouble"} else 0
        for bucket in self._buckets:
            if bucket.url in self.harmed_buckets or bucket.down:
                continue
            held = {
                record["cut"]
                for name, body in bucket.objects.items()
                if name.startswith("lineage/")
                for line in body.splitlines()
                if (record := _record(line)) is not None
                and "cut" in record
                and self.timeline.cuts.get(record["cut"]) == record["ranges"]
            }
            reach = 0
            while reach + 1 in held:
                reach += 1
            best = max(best, reach)
        return best

    def _compare_cuts(self, old: Timeline, upto: int) -> None:
        with self._disk.quietly():
            found = read_lineage(self._disk)
        for cut in found.history.cuts:
            if cut.epoch <= upto and dict(cut.ranges) != dict(old.cuts.get(cut.epoch, {})):
                told = f"epoch {cut.epoch} took {old.cuts.get(cut.epoch)}, and its lineage says {dict(cut.ranges)}"
                self.violated("cuts", told)

    # What is demanded of readers

    def read(self, *, strictly: bool) -> None:
        """Read every view as of now, as anybody might. Strictly: an error is not allowed either."""
        self.reads += 1
        if self._read == (self._disk.changes, strictly):  # nothing that could be read differently
            return
        self._read = (self._disk.changes, strictly)
        with self._disk.quietly():
            try:
                epoch = computed_frontier(self._disk)
                layers = ModelLayers(self._disk)
                served = {view: layers.contents(trace, epoch) for view, trace in SHOWN.items()}
            except SlipstreamError as error:
                if strictly:
                    self.violated("reading", f"nothing is damaged, and a reader gets: {error}")
                return
            except Exception as error:
                self.violated("raw error", f"a reader gets {type(error).__name__}: {error}")
                return
        if epoch < (newest := self._newest_shown()):
            self.violated(
                "reading", f"a reader is shown epoch {epoch} as the newest, and {newest} was computed"
            )
        for line in (self.timeline, self.ghost):
            if line is not None and epoch <= line.frontier:
                cuts = [line.cuts[each] for each in range(1, epoch + 1)]
                if served == expected(self._files.all, cuts):
                    return
        wanted = expected(self._files.all, self.timeline.computed()[:epoch])
        self.violated("reading", f"as of epoch {epoch} a reader is served {served}, and it is {wanted}")

    def _newest_shown(self) -> int:
        """The epoch before which a reader must not be told that it is the newest. What was damaged or lost may say less
        until an engine has begun that knows better.
        """
        if not self.harms - {"trouble"}:
            return self.timeline.frontier
        return self.persisted if self.harms <= {"power", "trouble"} else 0

    def counted(self) -> dict[str, int]:
        """How often each file was taken."""
        taken = dict.fromkeys(self._files.all, 0)
        for ranges in self.timeline.computed():
            for names in ranges.values():
                for name in names:
                    taken[name] += 1
        return taken

    def behind(self, urls: Sequence[str]) -> str | None:
        """What is still to come, once nothing is wrong any more; None if all is well."""
        for name, times in self.counted().items():
            if times > 1:
                self.violated("exactly once", f"{name} was taken {times} times")
            if times < 1 and name not in self.given_up:
                return f"{name} was not taken"
        line = self.timeline
        if self.harms & {"power", "loss"}:
            return "no engine has begun since the store was harmed"
        if line.last_cut > line.frontier:
            return f"epoch {line.last_cut} is cut, and {line.frontier} is computed"
        if self.persisted < line.frontier:
            return f"epoch {self.persisted} is persisted, and {line.frontier} is computed"
        for url in urls:
            if self.durable.get(url, 0) < line.frontier:
                return (
                    f"epoch {self.durable.get(url, 0)} is durable on {url}, and {line.frontier} is computed"
                )
        if self.errors:
            return f"an error is still shown: {self.errors}"
        return None


def _note(timeline: Timeline, record: Mapping[str, Any]) -> None:
    match record:
        case {"cut": int(epoch), "ranges": ranges}:
            timeline.cuts[epoch] = ranges
        case {"computed": int(epoch)}:
            timeline.frontier = epoch
        case {"dropped": int(epoch)}:
            timeline.cuts = {e: cut for e, cut in timeline.cuts.items() if e < epoch}


def _copy(timeline: Timeline) -> Timeline:
    return Timeline(dict(timeline.cuts), timeline.frontier, timeline.log)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line[_DIGEST:])
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
