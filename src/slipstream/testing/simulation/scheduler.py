"""Virtual time, and the processes that run in it: one seeded scheduler, no threads.

Each thread of a simulated process is a *greenlet*, so that code that blocks runs unmodified: a call on the simulated
disk, object store or clock ends in `Scheduler.point`, which lets virtual time pass and hands over to whoever is due
first. How long an operation takes is drawn from the seed, so every seed is another interleaving, and the same seed is
the same one.

Every point is counted. An *interruption* is due at a count: the scheduler carries it out between two operations of
whatever is running, as a signal or a power cut would come.

**Death is final.** A process that is killed has `Killed` thrown into its threads. It is no Exception, and whatever
cleanup it meets on its way out cannot touch the world: every further point of a dead process raises it again.

**Freezing** is a SIGSTOP: the threads of a process are passed over until it is thawed, and wake up in the middle of
what they were doing.
"""

from __future__ import annotations

import heapq
import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from greenlet import getcurrent, greenlet

_MOST_AFTER_DEATH = 200


class Killed(BaseException):
    """Ends the threads of a process that was killed."""


class Immortal(Exception):
    """A process that was killed goes on and on: code under test catches what nothing may catch."""


class Stalled(Exception):
    """A history takes more points than any should: something runs in circles."""


@dataclass(eq=False)
class Process:
    """A simulated process. exit: None while it runs, else 0, 1, or minus the signal that ended it. incarnation: that of
    the store that it works on, once it is known; since: when that was claimed. stranger: it is of another app.
    """

    name: str
    number: int
    threads: list[_Thread] = field(default_factory=list)
    exit: int | None = None
    error: BaseException | None = None
    frozen: bool = False
    parked: list[tuple[float, _Thread]] = field(default_factory=list)
    last_words: int = 0
    at_exit: list[Callable[[], None]] = field(default_factory=list)
    incarnation: int = 0
    since: float = 0.0
    stranger: bool = False

    @property
    def alive(self) -> bool:
        return self.exit is None


class _Thread(greenlet):  # type: ignore[misc]
    """One thread of a process. turn: which of its places in the queue counts."""

    process: Process
    turn: int


class Scheduler:
    """Runs processes in virtual time, in the order in which they are due."""

    def __init__(self, seed: int, most_points: int = 200_000) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.points = 0
        self.failure: BaseException | None = None
        self.quiet = 0
        self._most_points = most_points
        self._deadline = 0.0
        self._next_interruption = most_points
        self._interruptions: list[tuple[int, int, Callable[[], None]]] = []
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self._queue: list[tuple[float, int, _Thread]] = []
        self._order = count()
        self._numbers = count(1)
        self._hub = getcurrent()
        self.processes: list[Process] = []

    @property
    def process(self) -> Process | None:
        """The process that is running; None for the world itself."""
        return getattr(getcurrent(), "process", None)

    def start(self, name: str, body: Callable[[], None]) -> Process:
        """Start a process; `body` is its main thread, and the process ends when that does."""
        process = Process(name, next(self._numbers))
        self.processes.append(process)
        self._thread(process, body, main=True)
        return process

    def thread(self, body: Callable[[], None]) -> None:
        """Start another thread of the process that is running. An error in it ends the process."""
        process = self.process
        assert process is not None
        self._thread(process, body, main=False)

    def _thread(self, process: Process, body: Callable[[], None], *, main: bool) -> None:
        def run() -> None:
            code, error = 0, None
            try:
                body()
            except Killed:
                return
            except BaseException as raised:
                code, error = 1, raised
            if (main or code) and process.alive:
                self._ended(process, code, error)

        thread = _Thread(run, self._hub)
        thread.process, thread.turn = process, 0
        process.threads.append(thread)
        self._push(self.now, thread)

    def _push(self, when: float, thread: _Thread) -> None:
        thread.turn = next(self._order)
        heapq.heappush(self._queue, (when, thread.turn, thread))

    def wake(self, thread: _Thread) -> None:
        """Let a thread that lets time pass go on now."""
        if not thread.dead and thread.process.alive:
            self._push(self.now, thread)

    def kill(self, process: Process, code: int = -9) -> None:
        """End a process at once."""
        if process.alive:
            self._ended(process, code, None)

    def exit(self, code: int) -> None:
        """End the process that is running, from inside."""
        process = self.process
        assert process is not None
        self._ended(process, code, None)
        raise Killed

    def freeze(self, process: Process, seconds: float) -> None:
        """Stop a process for a while, in the middle of whatever it does."""
        process.frozen = True
        self.alarm(self.now + seconds, lambda: self._thaw(process))

    def _thaw(self, process: Process) -> None:
        if process.frozen and process.alive:
            process.frozen = False
            for when, thread in process.parked:
                self._push(max(self.now, when), thread)
            process.parked.clear()

    def _ended(self, process: Process, code: int, error: BaseException | None) -> None:
        process.exit, process.error = code, error
        current = getcurrent()
        for thread in process.threads:
            if thread is not current and thread:
                thread.parent = current
                thread.throw(Killed)
            elif thread is not current and not thread.dead:
                thread.turn = -1
        for done in process.at_exit:
            done()

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Look at the world from outside: no time passes, and nothing happens."""
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    def interrupt(self, at: int, what: Callable[[], None]) -> None:
        """Have something done when so many points have been passed."""
        heapq.heappush(self._interruptions, (at, next(self._order), what))
        self._next_interruption = min(self._next_interruption, at)

    def alarm(self, when: float, what: Callable[[], None]) -> None:
        """Have something done at a time."""
        heapq.heappush(self._alarms, (when, next(self._order), what))

    def point(self, seconds: float) -> None:
        """An operation of the process that is running, which takes so long. Nothing else happens to it meanwhile, or
        everything does.
        """
        if self.quiet:
            return
        current = getcurrent()
        process: Process | None = getattr(current, "process", None)
        self.points += 1
        if process is None:
            return
        if process.exit is not None:
            process.last_words += 1
            if process.last_words > _MOST_AFTER_DEATH:
                self.failure = self.failure or Immortal(process.name)
                raise Immortal(process.name)
            raise Killed
        when = self.now + seconds
        if (
            self.points < self._next_interruption
            and when <= self._deadline
            and not (self._queue and self._queue[0][0] <= when)
            and not (self._alarms and self._alarms[0][0] <= when)
        ):
            self.now = when
            return
        self._push(when, current)
        self._hub.switch()
        if process.exit is not None:
            raise Killed

    def run(self, until: Callable[[], bool], deadline: float) -> bool:
        """Let time pass until something holds (looked at between turns), or up to a time; whether it holds."""
        self._deadline = deadline
        queue, alarms = self._queue, self._alarms
        while not until():
            if self.failure is not None:
                return False
            if self.points >= self._next_interruption:
                self._interrupted()
                continue
            due = queue[0][0] if queue else math.inf
            if alarms and alarms[0][0] <= due:
                if alarms[0][0] > deadline:
                    break
                self.now = max(self.now, alarms[0][0])
                heapq.heappop(alarms)[2]()
                continue
            if due > deadline:
                break
            when, turn, thread = heapq.heappop(queue)
            process = thread.process
            if turn != thread.turn or process.exit is not None or thread.dead:
                continue
            if process.frozen:
                process.parked.append((when, thread))
                continue
            if when > self.now:
                self.now = when
            thread.parent = self._hub
            thread.switch()
        done = until()
        self.now = self.now if done else max(self.now, deadline)
        return done

    def _interrupted(self) -> None:
        if self.points >= self._most_points:
            self.failure = Stalled(f"{self.points} operations in {self.now:.1f} s")
            return
        while self._interruptions and self._interruptions[0][0] <= self.points:
            heapq.heappop(self._interruptions)[2]()
        due = self._interruptions[0][0] if self._interruptions else self._most_points
        self._next_interruption = min(due, self._most_points)

    def close(self) -> None:
        """End every process."""
        for process in self.processes:
            self.kill(process)


class SimulatedClock:
    """The clock of the simulated world. The wall may be set; monotonic time only ever grows."""

    START = 1_700_000_000.0

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.offset = self.START

    def now(self) -> float:
        return self.offset + self._scheduler.now

    def monotonic(self) -> float:
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.point(max(0.0, seconds))

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Whoever sets the event wakes the one who waits: it is asked to say so for as long as that lasts."""
        if not event.is_set() and seconds > 0.0:
            thread = getcurrent()

            def set_and_wake() -> None:
                threading.Event.set(event)
                self._scheduler.wake(thread)

            event.set = set_and_wake  # type: ignore[method-assign]
            try:
                self._scheduler.point(seconds)
            finally:
                vars(event).pop("set", None)
        return event.is_set()
