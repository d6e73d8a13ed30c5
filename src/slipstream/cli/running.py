"""Running an app from the command: the engine in a thread of its own, signals and progress in the main
one.

A signal only raises a count; the main thread sees it within `TICK` seconds and acts. So a stop arrives
between two of the engine's steps, never inside one: the first asks for the epoch in hand to be
finished, the second ends the process at once, which loses nothing either (the epoch is run again from
its lineage record).

Whatever starts Spark runs in a thread as well (`aside`): a PySpark that is interrupted as it starts its
JVM leaves the JVM behind for ever, and one that starts in the main thread takes SIGINT for itself. A
stop that comes while the file is loaded is made before the first epoch.

Ctrl-C goes to every process of the terminal's foreground group. Spark's JVM is started with SIGINT
ignored, its Python workers have a process group of their own, and so has the agent: only this process
acts on it.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Generic, NoReturn, Protocol, TypeVar

from slipstream.app import App
from slipstream.observe import Backlog, EpochReport, Progress, Summary

TICK = 0.1
BACKLOG_SHARE = 0.05  # of the time at most is spent on looking how much input is left
FORCED = 130
_SHOW_CURSOR = b"\x1b[?25h\n"

T = TypeVar("T")
Event = tuple[EpochReport, Mapping[str, Backlog] | None]


class Display(Protocol):
    """Who shows a run."""

    def epoch(self, report: EpochReport, progress: Progress) -> None:
        """An epoch was computed."""

    def tick(self, progress: Progress, now: float) -> None:
        """Some time has passed."""

    def say(self, text: str) -> None:
        """Something the user should know."""


class Signals:
    """How often the user has asked to stop. While nobody watches the count, the last that is borne ends the process."""

    def __init__(self, borne: int = 2) -> None:
        self.count = 0
        self.watched = False
        self._borne = borne
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._caught)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self.watched and self.count >= self._borne:
            leave()


def leave() -> NoReturn:
    """End the process at once, with the terminal as it was."""
    if os.isatty(1):
        os.write(1, _SHOW_CURSOR)
    os._exit(FORCED)


def aside(work: Callable[[], T]) -> T:
    """What a function returns or raises, run in a thread, so that signals are taken meanwhile."""
    worker = _Worker(work)
    worker.start()
    while worker.is_alive():
        worker.join(TICK)
    return worker.result()


def run_app(app: App, until: str | int | None, display: Display, signals: Signals) -> Summary:
    """Run an app until it is done or the user stops it; a failure of the engine is raised here."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    notices: queue.SimpleQueue[str] = queue.SimpleQueue()
    app.on_epoch(_reporter(app, events.put))
    app.on_notice(notices.put)
    signals.watched = True
    engine = _Worker(lambda: app.run(until, progress=False))
    engine.start()
    progress = Progress(started=time.time())
    stopping = False
    while True:
        engine.join(TICK)
        alive = engine.is_alive()  # asked before the queue is emptied, so that no event is left in it
        while not events.empty():
            report, backlog = events.get()
            progress = progress.after(report, backlog)
            display.epoch(report, progress)
        while not notices.empty():
            display.say(notices.get())
        display.tick(progress, time.time())
        if not alive:
            signals.watched = False
            return engine.result()
        if signals.count > 1:
            display.say("stopped at once; the epoch in hand will be run again at the next start")
            leave()
        if signals.count == 1:
            if not stopping:
                display.say("finishing the epoch in hand, then stopping (once more to stop at once)")
            stopping = True
            app.stop()  # again and again: a stop that comes before the engine has begun is forgotten by it


class _Worker(threading.Thread, Generic[T]):
    """Runs a function and keeps what came of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(name="slipstream-work", daemon=True)
        self._work = work
        self._results: list[T] = []
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # handed over to the main thread
            self._failure = error

    def result(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._results[0]


def _reporter(app: App, put: Callable[[Event], None]) -> Callable[[EpochReport], None]:
    """Hand on each epoch's report, with the backlog, which is asked for no oftener than its cost allows."""
    free = 0.0

    def report(epoch: EpochReport) -> None:
        nonlocal free
        began = time.monotonic()
        backlog = None
        if began >= free:
            backlog = app.backlog()
            ended = time.monotonic()
            free = ended + (ended - began) / BACKLOG_SHARE
        put((epoch, backlog))

    return report
