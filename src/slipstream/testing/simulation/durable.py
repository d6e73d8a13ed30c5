"""Durability in the world: the agent's process, and what a start and healing need of the simulated store.

The agent is the real one on both ends: `Agent`, which starts it, talks to it and starts it again, and its parts with
the `Turn` that decides what their errors mean. Only the pipe between the two and the threads are simulated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

from slipstream.durability.agent.parts import CRASHED, Turn, _run
from slipstream.durability.agent.process import Agent, Charge, _listen, assemble, board_of
from slipstream.durability.agent.sums import rest_within
from slipstream.durability.restore import heal_layer, heal_store
from slipstream.durability.start import Started
from slipstream.durability.start import start as start_on
from slipstream.store.store import Claim, Identity
from slipstream.testing.simulation.books import Violation
from slipstream.testing.simulation.scheduler import Process
from slipstream.testing.simulation.world import Site, World
from slipstream.trace import LayerName

_LISTENS_EVERY = 60.0


class Pipe:
    """Lines from one process to another."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._data = b""
        self._news = threading.Event()
        self._closed = False

    def write(self, data: bytes) -> int:
        self._data += data
        self._news.set()
        return len(data)

    def close(self) -> None:
        self._closed = True
        self._news.set()

    def lines(self) -> Iterator[str]:
        """The lines that come, until there are no more."""
        while True:
            while b"\n" in self._data:
                line, _, self._data = self._data.partition(b"\n")
                yield line.decode()
            if self._closed:
                return
            self._news.clear()
            self._world.clock.wait(self._news, _LISTENS_EVERY)


class AgentProcess:
    """An agent's process as its engine sees it; see `agent.process.Process`."""

    def __init__(self, world: World, site: Site) -> None:
        self._pipe = Pipe(world)
        engine = world.scheduler.process
        name = f"agent {world.numbers('agent')}"
        self._process = world.scheduler.start(name, lambda: agent(world, site, self._pipe))
        self._process.stranger = not site.ours
        assert engine is not None
        self._process.incarnation = engine.incarnation
        engine.at_exit.append(self._pipe.close)

    @property
    def pid(self) -> int:
        return self._process.number

    def code(self) -> int | None:
        return self._process.exit

    def write(self, data: bytes) -> int:
        if not self._process.alive:
            raise BrokenPipeError
        return self._pipe.write(data)

    def end(self) -> None:
        self._pipe.close()


def agent(world: World, site: Site, pipe: Pipe) -> None:
    """The body of an agent's process: what `agent.process.main` does."""
    scheduler, clock = world.scheduler, world.clock
    process = scheduler.process
    assert process is not None
    lines = pipe.lines()
    first = next(lines, None)
    if first is None:
        return
    charge = Charge.decode(first)
    store = replace(site.store(), owner=charge.id or None)

    def heal_one(trace: str, name: LayerName) -> bool:
        return heal_layer(
            store,
            charge.incarnation,
            trace,
            name,
            charge.replicas,
            site.work(),
            opener=world.objects,
            clock=clock,
            parallel=1,
        )

    board = board_of(charge, store, clock)
    parts = assemble(
        charge,
        store,
        board,
        clock=clock,
        work=site.work(),
        heal=heal_one,
        objects=world.objects,
        cpu=lambda: 0.0,
    )

    def end(code: int) -> None:
        _end(world, process, code)

    for part in parts:
        turn = Turn(part, board, store, charge.incarnation)
        scheduler.thread(lambda turn=turn: _run(turn, board, clock, end))  # type: ignore[misc]
    _listen(lines, board)


def _end(world: World, process: Process, code: int) -> None:
    if process.alive:
        world.tell(f"{process.name} ends itself ({code})")
        vanished = world.crash.startswith("FileNotFoundError") and world.books.ever_harmed & {
            "damage",
            "loss",
        }
        if code == CRASHED and not vanished:  # a file that is taken away meanwhile is nobody's mistake
            world.fail(Violation("raw error", f"{process.name} crashed: {world.crash}"))
        world.scheduler.exit(code)


def start_agent(world: World, site: Site, identity: Identity, incarnation: int, after: int) -> Agent:
    """The agent of an engine."""
    durability = world.durability
    charge = Charge(
        root=str(site.disk.root),
        app=identity.app,
        id=identity.id,
        incarnation=incarnation,
        after=after,
        replicas=durability.replicas,
        safe_on=durability.safe_on,
        rest=rest_within(durability.max_unsafe),
    )
    return Agent(charge, world.clock, lambda: AgentProcess(world, site))


def start(world: World, site: Site, claim: Claim, accept_loss: bool) -> Started:
    """Bring the store into a state that an engine can go on from."""
    return start_on(
        claim,
        site.app,
        world.durability,
        accept_loss=accept_loss,
        clock=world.clock,
        work=site.work(),
        objects=world.objects,
        lazily=False,
        parallel=1,
    )


def heal(world: World, site: Site, claim: Claim) -> tuple[str, ...]:
    """Replace damaged layers, for an engine that found one."""
    urls = world.durability.replicas
    return heal_store(claim, urls, site.work(), opener=world.objects, clock=world.clock, parallel=1)
