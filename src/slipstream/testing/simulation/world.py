"""The world of one history: a disk, buckets, input that arrives, and everybody who runs on it.

`World` holds what outlives processes, applies faults, and tells the story: what happened, by virtual time. Who runs and
what they do is in `processes`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from slipstream.core.errors import FileMissing, SlipstreamError
from slipstream.core.settings import Durability, Exposure
from slipstream.store.store import Store
from slipstream.testing.simulation.books import Books, Violation
from slipstream.testing.simulation.disk import Damage, SimulatedDisk
from slipstream.testing.simulation.layers import ModelLayers, ModelWork
from slipstream.testing.simulation.model import Input
from slipstream.testing.simulation.objects import Bucket, SimulatedObjects
from slipstream.testing.simulation.plan import Arrival, Fault, Plan
from slipstream.testing.simulation.scheduler import Process, Scheduler, SimulatedClock

APP = "shop"
_LOOKED_FOR = 60.0  # seconds for which a start may still remember that a replica did not answer
_FLIPS: tuple[Damage, ...] = ("flip", "digit", "cut", "zero", "hole", "delete")
_MIXUPS: tuple[Damage, ...] = ("swap", "copy")


@dataclass(frozen=True)
class Told:
    """A line of the story."""

    time: float
    text: str

    def __str__(self) -> str:
        return f"{self.time:9.3f}  {self.text}"


@dataclass(frozen=True)
class Site:
    """An app where it runs: its name, its store and its input. ours: it is the one that the history is about."""

    app: str
    disk: SimulatedDisk
    input: Input
    ours: bool = True

    def store(self) -> Store:
        return Store(self.disk, ModelLayers(self.disk))

    def work(self) -> ModelWork:
        return ModelWork(self.disk)


class World:
    """See the module's docstring."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.scheduler = Scheduler(plan.seed)
        self.clock = SimulatedClock(self.scheduler)
        self.disk = SimulatedDisk(self.scheduler)
        self.buckets = {url: Bucket(url) for url in plan.urls}
        self.input = Input()
        self.site = Site(APP, self.disk, self.input)
        self.books = Books(self.disk, self.input, tuple(self.buckets.values()), self.fail)
        self.costs = {arrival.file.name: arrival.cost for arrival in plan.arrivals}
        self.story: list[Told] = []
        self.applied: list[Fault] = []
        self.waiting = len(plan.arrivals) + len(plan.faults)
        self.crash = ""
        self.last_error: BaseException | None = None
        self._numbers: dict[str, int] = {}
        self.take_over: Callable[[], None] = lambda: None
        self.other_app: Callable[[], None] = lambda: None
        for bucket in self.buckets.values():
            bucket.watch = self._touched
        for arrival in plan.arrivals:
            self.scheduler.alarm(arrival.at, lambda arrival=arrival: self._arrive(arrival))  # type: ignore[misc]
        for fault in plan.faults:
            self.scheduler.alarm(fault.after, lambda fault=fault: self._due(fault))  # type: ignore[misc]

    # What processes use

    @property
    def durability(self) -> Durability:
        limit = Exposure(seconds=self.plan.unsafe_seconds)
        return Durability(self.plan.urls, self.plan.safe_on if self.plan.urls else 1, limit)

    def objects(self, url: str) -> SimulatedObjects:
        return SimulatedObjects(self.scheduler, self.buckets[url])

    def numbers(self, role: str) -> int:
        """The next number of a process of some role."""
        self._numbers[role] = self._numbers.get(role, 0) + 1
        return self._numbers[role]

    def unjustified(self, error: SlipstreamError) -> str | None:
        """Why an engine that refuses to go on has no reason to; None if it has one."""
        books = self.books
        harms = books.harms - {"trouble"}
        reachable = [b for b in self.buckets.values() if b.well_since < self.scheduler.now - _LOOKED_FOR]
        if not books.starts and len(reachable) < len(self.buckets):
            return None
        if isinstance(error, FileMissing) and books.may_miss_input:
            return None
        if not harms:
            return "nothing happened to the store"
        if harms == {"power"} and not self.plan.deletes:
            return "the power was cut, and all input is there"
        whole = len(reachable) == len(self.buckets) and not books.harmed_buckets
        whole = whole and all(any(name.startswith("commits/") for name in each.objects) for each in reachable)
        if self.buckets and whole and "damage" not in books.ever_harmed:
            return "every replica is whole and can be reached"
        return None

    def restart(self) -> None:
        """End engines, to have them started again."""
        for process in self.running("engine"):
            self.tell(f"the operator ends {process.name}")
            self.scheduler.kill(process, -15)

    def lose_everything_local(self) -> None:
        """Lose the store, where there are replicas; else cut the power."""
        self._stop_everybody()
        if self.buckets:
            self.disk.wipe()
            self.books.harm("loss")
        else:
            self.disk.power_cut(self.scheduler.random)
            self.books.harm("power")
        self.tell("PROOF " + ("the store is lost" if self.buckets else "the power is cut"))

    def _stop_everybody(self) -> None:
        for process in list(self.scheduler.processes):
            if not process.stranger and process.name != "operator":
                self.scheduler.kill(process)

    def give_up(self) -> None:
        """Remove the store and all replicas, by hand, to start anew."""
        self.tell("the operator gives everything up")
        self.disk.wipe()
        self.books.harm("loss")
        for bucket in self.buckets.values():
            bucket.objects.clear()
        self.books.harmed_buckets.clear()
        self.books.may_miss_input = False

    # The story

    def tell(self, text: str) -> None:
        self.story.append(Told(self.scheduler.now, text))

    def fail(self, violation: Violation) -> None:
        self.tell(f"VIOLATED {violation}")
        if self.scheduler.failure is None:
            self.scheduler.failure = violation

    def running(self, role: str) -> list[Process]:
        return [
            each
            for each in self.scheduler.processes
            if each.alive and each.name.startswith(role) and not each.stranger
        ]

    def _arrive(self, arrival: Arrival) -> None:
        self.input.arrive(arrival.file)
        self.waiting -= 1
        self.tell(f"{arrival.file.name} arrives: {dict(arrival.file.rows)}, as of {arrival.file.time}")

    def forgotten(self, names: list[str]) -> None:
        """Sources may forget some files."""
        self.books.forgotten(names)
        if self.plan.deletes:
            for name in names:
                self.input.present.pop(name, None)

    def _touched(self, what: str, bucket: Bucket, name: str) -> None:
        process = self.scheduler.process
        if process is not None and process.stranger:
            self.fail(Violation("ownership", f"{process.name} does {what} {name} on the replica of {APP}"))

    # Faults

    def _due(self, fault: Fault) -> None:
        if fault.points:
            self.scheduler.interrupt(self.scheduler.points + fault.points, lambda: self.apply(fault))
        else:
            self.apply(fault)

    def apply(self, fault: Fault) -> None:
        """Let a fault happen."""
        self.waiting -= 1
        chance = random.Random(fault.seed)
        done = self._happen(fault, chance)
        if done is not None:
            self.tell(f"FAULT {fault.kind}{done and ': '}{done}")
            self.applied.append(fault)

    def _happen(self, fault: Fault, chance: random.Random) -> str | None:
        """What happened; None if there is nothing that it could happen to."""
        seconds = chance.choice((1.0, 5.0, 30.0))
        match fault.kind:
            case "kill engine" | "kill agent" | "kill supervisor":
                return self._kill(fault.kind.partition(" ")[2], chance)
            case "freeze engine" | "freeze agent":
                return self._freeze(fault.kind.partition(" ")[2], chance)
            case "take over":
                self.take_over()
                return ""
            case "stop engine":
                for process in self.running("engine"):
                    self.scheduler.kill(process, -15)
                return ""
            case "power cut":
                self._stop_everybody()
                self.disk.power_cut(chance)
                self.books.harm("power")
                self.disk.full = self.disk.read_only = False
                return ""
            case "disk full" | "disk read-only":
                name = "full" if fault.kind == "disk full" else "read_only"
                setattr(self.disk, name, True)
                self.books.harm("trouble")
                self.later(
                    seconds, lambda: setattr(self.disk, name, False), f"the disk is not {name} any more"
                )
                return f"for {seconds:g} s"
            case "clock jump":
                self.clock.offset += (jump := chance.choice((-3600.0, -2.0, 3600.0)))
                return f"by {jump:g} s"
            case "lose store":
                self.disk.wipe()
                self.books.harm("loss")
                return ""
            case "lose folder":
                return self._lose_folder(chance)
            case "damage layer" | "damage lineage" | "damage document" | "damage other file":
                return self._damage(fault.kind, chance)
        return self._remote(fault, seconds, chance)

    def _remote(self, fault: Fault, seconds: float, chance: random.Random) -> str | None:
        url = chance.choice(self.plan.urls) if self.plan.urls else ""
        bucket = self.buckets.get(url)
        if bucket is None:
            return None
        match fault.kind:
            case "replica down":
                bucket.down, bucket.well_since = True, math.inf
                self.later(seconds, lambda: bucket.recover(self.scheduler.now), f"{url} is back")
                return f"{url} for {seconds:g} s"
            case "replica flaky":
                bucket.flaky, bucket.well_since = chance.choice((0.1, 0.3, 0.6)), math.inf
                self.later(seconds, lambda: bucket.recover(self.scheduler.now), f"{url} is well")
                return f"{url}, {bucket.flaky:.0%} of calls for {seconds:g} s"
            case "replica slow":
                bucket.slow = chance.choice((5.0, 50.0))
                self.later(seconds, lambda: setattr(bucket, "slow", 1.0), f"{url} is quick")
                return f"{url}, {bucket.slow:g} times for {seconds:g} s"
            case "lose replica":
                for process in self.scheduler.processes:
                    if process.stranger:  # an empty replica is for whoever comes first
                        self.scheduler.kill(process)
                bucket.objects.clear()
                self.books.lost(url)
                return url
            case "damage object" | "damage commit":
                folder = "commits/" if fault.kind == "damage commit" else ""
                names = sorted(name for name in bucket.objects if name.startswith(folder))
                if not names:
                    return None
                name = names[-1] if folder else chance.choice(names)
                kind = chance.choice(_FLIPS)
                bucket.damage(kind, name, chance)
                self.books.harmed_buckets.add(url)
                self.books.commit_deleted |= kind == "delete" and name.startswith("commits/")
                return f"{kind} {name} on {url}"
            case "other app":
                if any("owner.json" not in each.objects for each in self.buckets.values()):
                    return None
                self.other_app()
                return url
        return None

    def later(self, seconds: float, what: Callable[[], None], told: str) -> None:
        """Have something over after a while."""

        def over() -> None:
            what()
            self.waiting -= 1
            self.tell(told)

        self.waiting += 1
        self.scheduler.alarm(self.scheduler.now + seconds, over)

    def _kill(self, role: str, chance: random.Random) -> str | None:
        running = self.running(role)
        if not running:
            return None
        process = chance.choice(running)
        self.scheduler.kill(process)
        return process.name

    def _freeze(self, role: str, chance: random.Random) -> str | None:
        running = [each for each in self.running(role) if not each.frozen]
        if not running:
            return None
        process = chance.choice(running)
        seconds = chance.choice((2.0, 15.0, 100.0))
        frozen = [process]
        if role == "engine":
            frozen += [each for each in self.running("agent") if each.incarnation == process.incarnation]
        for each in frozen:
            self.scheduler.freeze(each, seconds)
        self.later(seconds, lambda: None, f"{process.name} wakes up")
        if role == "engine" and chance.random() < 0.5:
            self.scheduler.alarm(self.scheduler.now + 1.0, self.take_over)
        return f"{', '.join(each.name for each in frozen)} for {seconds:g} s"

    def _lose_folder(self, chance: random.Random) -> str | None:
        folders = sorted({name.rpartition("/")[0] for name in self.disk.files()} - {""})
        if not folders:
            return None
        folder = chance.choice(folders)
        self.disk.lose_folder(folder)
        self.books.harm("damage")
        return folder

    def _damage(self, kind: str, chance: random.Random) -> str | None:
        files = self.disk.files()
        layers = [name for name in files if name.endswith(".arrow")]
        lineage = [name for name in files if name.startswith("lineage/")]
        documents = [name for name in files if name.endswith(".json") and not name.startswith("lineage/")]
        rest = sorted({*files} - {*layers, *lineage, *documents} - {"lock"})
        among = {
            "damage layer": layers,
            "damage lineage": lineage,
            "damage document": documents,
            "damage other file": rest,
        }[kind]
        if not among:
            return None
        name = chance.choice(among)
        how = chance.choice((*_FLIPS, *_MIXUPS) if len(among) > 1 else _FLIPS)
        other = chance.choice([each for each in among if each != name] or [name])
        self.disk.damage(how, name, other, chance)
        self.books.harm("damage")
        return f"{how} {name}{f', {other}' if how in _MIXUPS else ''}"


def named(error: BaseException | None) -> str:
    """An error in a few words."""
    if error is None:
        return ""
    return f"{type(error).__name__}: {error}" if isinstance(error, SlipstreamError) else repr(error)
