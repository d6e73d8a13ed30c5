"""Running an app from the command: the engine in a thread of its own, signals and progress in the main
one.

A signal only raises a count; the main thread sees it within `TICK` seconds and acts. So a stop arrives
between two of the engine's steps, never inside one: the first asks for the epoch in hand to be
finished, the second ends the process at once, which loses nothing either (the epoch is run again from
its lineage record).

While the file is loaded nothing may be interrupted at first: a PySpark that is interrupted as it starts
its JVM leaves the JVM behind for ever. The stop is then made before the first epoch. Spark's context
installs a handler of its own for SIGINT, which interrupts the load, by now without harm; ours takes its
place again once the app is loaded.

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
from typing import Protocol

from slipstream.app import App
from slipstream.observe import Backlog, EpochReport, Progress, Summary

TICK = 0.1
BACKLOG_SHARE = 0.05  # of the time at most is spent on looking how much input is left
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
    """How often the user has asked to stop. While nobody watches the count, the second time ends the process."""

    def __init__(self) -> None:
        self.count = 0
        self.watched = False

    def listen(self) -> None:
        """Take the signals that ask for a stop, from here on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._caught)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self.watched and self.count > 1:
            os._exit(FORCED)


def run_app(app: App, until: str | int | None, display: Display, signals: Signals) -> Summary:
    """Run an app until it is done or the user stops it; a failure of the engine is raised here."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    app.on_epoch(_reporter(app, events.put))
    signals.listen()
    signals.watched = True
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
            signals.watched = False
            return engine.result()
        if signals.count > 1:
            display.say("stopped at once; the epoch in hand will be run again at the next start")
            os._exit(FORCED)
        if signals.count == 1:
            if not stopping:
                display.say("finishing the epoch in hand, then stopping (once more to stop at once)")
            stopping = True
            app.stop()  # again and again: a stop that comes before the engine has begun is forgotten by it


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
