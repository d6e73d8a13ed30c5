"""Running an app from the command: the engine in a thread of its own, signals and progress in the main
one.

A signal only raises a count; the main thread sees it within `TICK` seconds and acts. So a stop arrives
between two of the engine's steps, never inside one: the first asks for the epoch in hand to be
finished, the second ends the process at once, which loses nothing either (the epoch is run again from
its lineage record). Spark installs a handler of its own for SIGINT that cancels all jobs; ours takes
its place once the app is loaded.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from slipstream.app import App
from slipstream.observe import Backlog, EpochReport, Progress, Summary

TICK = 0.1
BACKLOG_EVERY = 0.5  # seconds: looking at input is cheap, and still not part of an epoch
FORCED = 130

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
    """How often the user has asked to stop."""

    def __init__(self) -> None:
        self.count = 0

    def caught(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """While a file is loaded there is no epoch to finish: SIGTERM ends it as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_app(app: App, until: str | int | None, display: Display) -> Summary:
    """Run an app until it is done or the user stops it; a failure of the engine is raised here."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    app.on_epoch(_reporter(app, events.put))
    signals = Signals()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signals.caught)
    engine = _Engine(app, until)
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
        display.tick(progress, time.time())
        if not alive:
            break
        if signals.count > 1:
            display.say("stopped at once; the epoch in hand will be run again at the next start")
            os._exit(FORCED)
        if signals.count == 1:
            if not stopping:
                display.say("finishing the epoch in hand, then stopping (once more to stop at once)")
            stopping = True
            app.stop()  # again and again: a stop that comes before the engine has begun is forgotten by it
    return engine.result()


class _Engine(threading.Thread):
    """Runs the app and keeps what came of it."""

    def __init__(self, app: App, until: str | int | None) -> None:
        super().__init__(name="slipstream-run", daemon=True)
        self._app, self._until = app, until
        self._summary = Summary()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._summary = self._app.run(self._until)
        except BaseException as error:  # handed over to the main thread
            self._failure = error

    def result(self) -> Summary:
        if self._failure is not None:
            raise self._failure
        return self._summary


def _reporter(app: App, put: Callable[[Event], None]) -> Callable[[EpochReport], None]:
    """Hand on each epoch's report, with the backlog where the last one known is old."""
    asked = 0.0

    def report(epoch: EpochReport) -> None:
        nonlocal asked
        backlog = None
        if time.monotonic() - asked >= BACKLOG_EVERY:
            backlog = app.backlog()
            asked = time.monotonic()
        put((epoch, backlog))

    return report
