"""Running a history from its seed to its end.

First input arrives and faults happen. Then nothing goes wrong any more, and everything must be well within some minutes
of virtual time. The books are looked at all the while.
"""

from __future__ import annotations

import builtins
import logging
import os
import traceback
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from slipstream.store import base
from slipstream.store import history as histories
from slipstream.testing.simulation.books import Violation
from slipstream.testing.simulation.plan import SPAN, Fault, Plan
from slipstream.testing.simulation.processes import Operator
from slipstream.testing.simulation.world import Told, World, named

_READ_EVERY = 1.0
_SETTLES_WITHIN = 1800.0
_SHOWN_FOR = 75.0  # seconds after which somebody does something about an error; the agent looks every 30 s


@dataclass(frozen=True)
class Outcome:
    """What came of a history. failure: what was violated, None if nothing was."""

    plan: Plan
    failure: BaseException | None
    story: tuple[Told, ...]
    faults: tuple[Fault, ...]
    epochs: int
    starts: int
    reads: int
    points: int
    seconds: float

    @property
    def rule(self) -> str | None:
        """What kind of failure it is."""
        if self.failure is None:
            return None
        return self.failure.rule if isinstance(self.failure, Violation) else type(self.failure).__name__


def run(plan: Plan) -> Outcome:
    """Run a history. It is the same each time."""
    world = World(plan)
    with _changed(plan.seed), _told(world):
        try:
            _live(world)
        finally:
            world.scheduler.close()
    books = world.books
    return Outcome(
        plan=plan,
        failure=world.scheduler.failure,
        story=tuple(world.story),
        faults=tuple(world.applied),
        epochs=books.timeline.frontier,
        starts=books.starts,
        reads=books.reads,
        points=world.scheduler.points,
        seconds=world.scheduler.now,
    )


def _live(world: World) -> None:
    scheduler, books = world.scheduler, world.books
    scheduler.start("operator", Operator(world).run)
    while world.waiting or scheduler.now < SPAN:
        scheduler.run(lambda: False, scheduler.now + _READ_EVERY)
        if scheduler.failure is not None:
            return
        books.read(strictly=not books.harms and not books.ever_harmed)
    if _settle(world) and world.plan.proof and not books.harmed_buckets:
        world.lose_everything_local()
        if _settle(world):  # without a replica, what was damaged before stays so
            books.read(strictly=bool(world.plan.urls) or "damage" not in books.ever_harmed)


def _settle(world: World) -> bool:
    """Nothing goes wrong any more: all must be well before long. Whether it is."""
    scheduler, books = world.scheduler, world.books
    end, patience = scheduler.now + _SETTLES_WITHIN, scheduler.now + _SHOWN_FOR
    restarted = False
    while (lacking := books.behind(world.plan.urls)) is not None:
        if scheduler.failure is None and scheduler.now > end:
            world.fail(
                Violation("liveness", f"{_SETTLES_WITHIN / 60:.0f} minutes after the last fault {lacking}")
            )
        if scheduler.failure is not None:
            return False
        if "damage" in books.ever_harmed and scheduler.now > patience:
            if restarted and books.errors and not _raw(books.errors):
                return False  # nobody has a copy, and whoever looks is told
            if not restarted:
                world.restart()
            restarted = True
            patience = scheduler.now + _SHOWN_FOR
        scheduler.run(lambda: False, scheduler.now + _READ_EVERY)
    if scheduler.failure is None:
        books.read(strictly=not books.ever_harmed)
    return scheduler.failure is None


def _raw(shown: Mapping[str, str]) -> bool:
    """Whether an error is shown that is a mistake in a program."""
    names = {error.partition(":")[0] for error in shown.values()}
    return any(
        isinstance(kind := getattr(builtins, name, None), type) and issubclass(kind, Exception)
        for name in names
    )


@contextmanager
def _changed(seed: int) -> Iterator[None]:
    """Have tokens come from the seed, and a store soon old enough for a base. What is written is the same in every
    process, to the byte.
    """
    chance = Random(seed)

    def token() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    with ExitStack() as stack:
        for where, name, value in (
            (uuid, "uuid4", token),
            (os, "getpid", lambda: 1),
            (histories, "EVERY", 3),
            (base, "BEHIND", 2),
        ):
            stack.callback(setattr, where, name, getattr(where, name))
            setattr(where, name, value)
        yield


class _Story(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = self._world.scheduler.process
        said = getattr(record, "fields", {})
        cause = ", ".join(str(said[name]) for name in ("part", "trace", "layer", "cause") if said.get(name))
        if record.exc_info is not None and record.exc_info[1] is not None:
            self._world.crash = f"{named(record.exc_info[1])} at {_where(record.exc_info[1])}"
            cause = self._world.crash
        text = f"{record.getMessage()}{f' ({cause})' if cause else ''}"
        self._world.tell(f"{process.name if process else 'world'} logs: {text}")


def _where(error: BaseException) -> str:
    """The last few places that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))


@contextmanager
def _told(world: World) -> Iterator[None]:
    """Have what is logged told in the story, and nowhere else."""
    log = logging.getLogger("slipstream")
    handler, propagate = _Story(world), log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
