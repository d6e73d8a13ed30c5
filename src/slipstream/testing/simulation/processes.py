"""Who runs in the world: engines and their agents, supervisors, and a human operator.

An engine is the real one from the claim of the store to the last instruction of its loop; only the job that computes an
epoch is a model. It is started, watched and killed by a supervisor that carries out what `cli.watchover` decides. When
the supervisor has given up, the operator looks at what the engine said last: tries again, and when that does not help
accepts a loss, and in the end gives the store up. What the operator consents to is in the books.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from slipstream.cli import watchover
from slipstream.cli.heartbeat import Beat
from slipstream.core.errors import SlipstreamError, StandingBy, StoreInUse, StoreTrouble, Superseded
from slipstream.durability.frontiers import Watching
from slipstream.durability.ledger import StoreLedger, Upkeep
from slipstream.epoch.cut import Bounds, Budget
from slipstream.epoch.job import Given, Result
from slipstream.epoch.loop import Loop, Options
from slipstream.epoch.machine import Policy
from slipstream.epoch.watermarks import Watermarks
from slipstream.store.history import History
from slipstream.store.records import JSON, Cut
from slipstream.store.store import Claim, await_claim, claim_store
from slipstream.testing.simulation.books import Violation
from slipstream.testing.simulation.disk import SimulatedDisk
from slipstream.testing.simulation.durable import heal, start, start_agent
from slipstream.testing.simulation.layers import ModelLayers
from slipstream.testing.simulation.model import (
    SHOWN,
    SOURCES,
    TRACES,
    Input,
    InputFile,
    compute,
    model_catalog,
)
from slipstream.testing.simulation.scheduler import Process, SimulatedClock
from slipstream.testing.simulation.world import Site, World, named
from slipstream.trace.naming import shard_span

_MOST_FILES = 8
_LOOK_EVERY = 0.5
_NOTICES_AFTER = 10.0
_MISTAKE_LASTS = 15.0
_OPERATOR_LOOKS_EVERY = 2.0
_HARMLESS = (Superseded, StoreInUse, StandingBy, StoreTrouble)


@dataclass(frozen=True)
class Taken:
    """What a source cuts."""

    range: JSON
    amount: int


class ModelSource:
    """Files of one source, each taken once: those that the history has not."""

    forgets_each = True

    def __init__(self, world: World, site: Site, name: str, past: History) -> None:
        self._world, self._site, self._name = world, site, name
        folded = past.summary(name) or ()
        self._taken = {*folded, *(file for taken in past.taken(name) for file in taken)}

    def cut(self, budget: int | None) -> Taken | None:
        fresh = [name for name in self._site.input.listed(self._name) if name not in self._taken][:budget]
        if not fresh:
            return None
        self._taken.update(fresh)
        return Taken(fresh, len(fresh))

    def settling(self) -> frozenset[str]:
        return frozenset()

    def folded(self, before: JSON, ranges: Sequence[JSON]) -> JSON:
        return sorted({*(before or ()), *(file for taken in ranges for file in taken)})

    def forget(self, upto: JSON) -> None:
        if self._site.ours:
            self._world.forgotten(list(upto))


class ModelJob:
    """Computes epochs of the model."""

    def __init__(self, world: World, site: Site, incarnation: int) -> None:
        self._world, self._files, self._incarnation = world, site.input, incarnation
        self._layers = ModelLayers(site.disk)

    def run(self, given: Given) -> Result:
        names = [name for taken in given.cut.ranges.values() for name in taken]
        self._world.clock.sleep(sum(self._world.costs.get(name, 0.0) for name in names))
        shards = self._world.plan.shards
        compute(self._layers, self._files, given.cut.ranges, given.cut.epoch, self._incarnation, shards)
        return Result(rows=len(names))

    def explained(self, given: Given, error: Exception) -> Exception:
        return error

    def cancel(self) -> None: ...

    def learn(self, cut: Cut, rows: int) -> None:
        pass

    def measured(self) -> dict[str, dict[str, int]]:
        return {}


class _Patient(SimulatedClock):
    """A clock for somebody who looks many times a second, and need not."""

    def sleep(self, seconds: float) -> None:
        super().sleep(max(seconds, _LOOK_EVERY))


@dataclass
class Starting:
    """What whoever starts an engine wants of it."""

    takeover: bool = False
    standby: bool = False
    accept_loss: bool = False


def engine(
    world: World,
    site: Site,
    starting: Starting,
    beats: dict[int, Beat],
    number: int,
    alone: Callable[[], bool] = lambda: False,
) -> None:
    """The body of an engine's process. alone: what its supervisor tells a standby."""
    scheduler = world.scheduler
    count = 0

    def beat(state: str, epoch: int = 0) -> None:
        nonlocal count
        count += 1
        beats[number] = Beat(count, state, epoch)  # type: ignore[arg-type]

    beat("starting")
    store = site.store()
    if starting.standby:

        def waiting() -> bool:
            beat("standby")
            return True

        claim = await_claim(store, site.app, waiting, _Patient(scheduler), alone)
        assert claim is not None
    else:
        claim = claim_store(store, site.app, takeover=starting.takeover)
    try:
        _run(world, site, claim, starting, beat)
    finally:
        claim.release()


def _run(
    world: World, site: Site, claim: Claim, starting: Starting, beat: Callable[[str, int], None]
) -> None:
    """From the claim to the end of the loop."""
    store, clock, plan = claim.store, world.clock, world.plan
    started = start(world, site, claim, starting.accept_loss)
    process = world.scheduler.process
    assert process is not None
    claim, past = started.claim, started.lineage.history
    world.last_error = None
    world.tell(
        f"{process.name} goes on from epoch {past.frontier}" + (f": {started.said}" if started.said else "")
    )
    if store.catalog() != model_catalog():
        claim.write_catalog(model_catalog())
    claim.fence(past.frontier, TRACES)
    agent = start_agent(world, site, started.identity, claim.incarnation, past.frontier)
    spans = [shard_span(shard, plan.shards) for shard in range(plan.shards)]
    inputs = {name: ModelSource(world, site, name, past) for name in SOURCES}
    ledger = StoreLedger(
        claim=claim,
        lineage=started.writer,
        past=past,
        durability=world.durability,
        agent=agent,
        watching=Watching(store.disk),
        traces=dict.fromkeys(TRACES, (spans,)),
        upkeep=Upkeep(tuple(SHOWN.values()), lambda epoch, clock: max(0, epoch - (plan.history or epoch))),
        sources=inputs,
        heal=lambda: heal(world, site, claim),
    )
    loop = Loop(
        ModelJob(world, site, claim.incarnation),
        inputs,
        ledger,
        past,
        Options(
            budgets={name: Budget(_MOST_FILES, Bounds(1, _MOST_FILES), 1.0) for name in SOURCES},
            watermarks=Watermarks({}, {}, {}),
            policy=Policy(limit=world.durability.max_unsafe, first_pause=0.1, longest_pause=1.0),
            computed_before=started.plan.frontier,
            forgetting=bool(plan.urls),
        ),
        clock,
    )
    loop.turns.append(lambda epoch: beat("running", epoch))
    loop.run(None)


class Supervisor:
    """Carries out what `cli.watchover` decides."""

    def __init__(self, world: World, starting: Starting) -> None:
        self._world, self._starting = world, starting
        self._engines: dict[int, Process] = {}
        self._beats: dict[int, Beat] = {}
        self._watch, self._first = watchover.began(watchover.Policy(standby=world.plan.standby))
        self._promoted: set[int] = set()
        self._left = False

    def run(self) -> None:
        world = self._world
        process = world.scheduler.process
        assert process is not None
        process.at_exit.append(self._end)
        self._do(self._first)
        last = world.scheduler.now
        while True:
            world.clock.sleep(_LOOK_EVERY)
            for number, engine in sorted(self._engines.items()):
                if engine.exit is not None:
                    del self._engines[number]
                    self._watch, todo = watchover.ended(self._watch, number, engine.exit)
                    self._do(todo)
            if self._left:
                return
            now = world.scheduler.now
            self._watch, todo = watchover.looked(self._watch, now - last, self._beats)
            last = now
            self._do(todo)

    def _do(self, instructions: Sequence[watchover.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case watchover.Start(number=number, standby=standby, first=first):
                    asked = self._starting
                    starting = Starting(asked.takeover and first, standby, asked.accept_loss and first)
                    alone = partial(self._promoted.__contains__, number)
                    self._engines[number] = start_engine(self._world, starting, self._beats, number, alone)
                case watchover.Kill(number=number):
                    self._world.scheduler.kill(self._engines[number])
                case watchover.Promote(number=number):
                    self._promoted.add(number)
                case watchover.Say(text=text):
                    self._world.tell(f"supervisor: {text}")
                case watchover.Leave():
                    self._left = True
                case _:
                    raise AssertionError(instruction)

    def _end(self) -> None:
        """Engines end with their supervisor."""
        for engine in self._engines.values():
            self._world.scheduler.kill(engine, -15)


def start_engine(
    world: World, starting: Starting, beats: dict[int, Beat], number: int, alone: Callable[[], bool]
) -> Process:
    process = world.scheduler.start(
        f"engine {world.numbers('engine')}", lambda: engine(world, world.site, starting, beats, number, alone)
    )
    how = [name for name in ("takeover", "standby", "accept_loss") if getattr(starting, name)]
    world.tell(f"{process.name} starts{' with ' + ', '.join(how) if how else ''}")
    process.at_exit.append(lambda: _ended(world, process))
    return process


def _ended(world: World, process: Process) -> None:
    """An engine has ended: what it says must be an error that is allowed to be."""
    if process.error is None:
        world.tell(f"{process.name} ended ({process.exit})")
        return
    world.tell(f"{process.name} ended: {named(process.error)}")
    world.last_error = process.error
    if not isinstance(process.error, SlipstreamError):
        world.fail(Violation("raw error", f"{process.name} ended with {named(process.error)}"))
    elif not isinstance(process.error, _HARMLESS) and (why := world.unjustified(process.error)):
        world.fail(Violation("refusal", f"{why}, and {process.name} says: {named(process.error)}"))


def mistake(world: World) -> None:
    """Somebody points another app at the replica, for a while."""
    name = "other"
    files = Input()
    files.arrive(InputFile("orders", "orders-of-another", 1, (("x", 1),)))
    site = Site(name, SimulatedDisk(world.scheduler, "/simulated/other"), files, ours=False)

    def body() -> None:
        process = world.scheduler.process
        assert process is not None
        process.stranger = True
        engine(world, site, Starting(), {}, 0)

    process = world.scheduler.start(f"engine of another app ({name})", body)

    def done() -> None:
        world.tell(f"{process.name} ended{': ' if process.error else ''}{named(process.error)}")
        if process.error is not None and not isinstance(process.error, SlipstreamError):
            world.fail(Violation("raw error", f"{process.name} ended with {named(process.error)}"))

    process.at_exit.append(done)
    world.later(_MISTAKE_LASTS, lambda: world.scheduler.kill(process), "the other app is stopped")


class Operator:
    """A human who sees that an engine runs, and knows the commands."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._supervisors: list[Process] = []
        self._tries = 0
        self._epoch = -1
        self._noticed = False
        world.take_over = self.take_over
        world.other_app = lambda: mistake(world)

    def run(self) -> None:
        world = self._world
        while True:
            if not any(each.alive for each in self._supervisors):
                self._start(self._choose())
            if world.disk.gone and world.books.starts and not self._noticed:
                self._notice()
            if world.books.timeline.frontier > self._epoch:
                self._epoch, self._tries = world.books.timeline.frontier, 0
            world.clock.sleep(_OPERATOR_LOOKS_EVERY)

    def _notice(self) -> None:
        """The store is gone: an engine that waits for it is started again before long."""

        def restart() -> None:
            self._noticed = False
            if self._world.disk.gone:
                self._world.restart()

        self._noticed = True
        self._world.later(_NOTICES_AFTER, restart, "the operator has seen to it")

    def take_over(self) -> None:
        """Start an engine that takes the store from whoever has it."""
        self._start(Starting(takeover=True))

    def _start(self, starting: Starting) -> None:
        world = self._world
        body = Supervisor(world, starting).run
        self._supervisors.append(world.scheduler.start(f"supervisor {world.numbers('supervisor')}", body))

    def _choose(self) -> Starting:
        """What to try after all that was tried before."""
        world, error = self._world, self._world.last_error
        if error is None or isinstance(error, Superseded | StoreTrouble):
            return Starting()
        if isinstance(error, StoreInUse):
            return Starting(takeover=True)
        self._tries += 1
        if self._tries <= 2 or any(bucket.down or bucket.flaky for bucket in world.buckets.values()):
            return Starting()
        if self._tries > 4:
            world.give_up()
            self._epoch, self._tries = -1, 0
        world.books.consent = True
        world.tell("the operator accepts a loss")
        return Starting(takeover=True, accept_loss=True)
