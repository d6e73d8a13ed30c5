"""A bar, while an app catches up: in a terminal or a notebook, if any input waits.

It listens to the epochs, in the thread that runs them, and asks how much input is left no oftener than that is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slipstream.app.screens import Screen
from slipstream.core.clock import Clock
from slipstream.observe import Backlog, EpochReport, Progress

EVERY = 0.1
"""Seconds between two drawings."""

SHARE = 0.05
"""Of the time at most is spent on looking how much input is left."""


class CatchingUp:
    """Draws a run from the reports of its epochs."""

    def __init__(
        self, name: str, screen: Screen, clock: Clock, backlog: Callable[[], Mapping[str, Backlog]]
    ) -> None:
        self._name, self._screen, self._clock, self._backlog = name, screen, clock, backlog
        self._free = 0.0
        self._drawn: float | None = None
        self._progress = Progress(started=clock.now()).waiting(self._asked())
        if self._progress.behind:
            self._draw()

    def epoch(self, report: EpochReport) -> None:
        """An epoch was computed."""
        left = self._asked() if self._clock.monotonic() >= self._free else None
        self._progress = self._progress.after(report, left)
        if self._drawn is None or self._clock.monotonic() - self._drawn >= EVERY:
            self._draw()

    def end(self) -> None:
        """The run is over: a bar that was drawn is full, or says what is left."""
        if self._drawn is not None:
            self._progress = self._progress.waiting(self._asked())
            self._draw()

    def _draw(self) -> None:
        self._drawn = self._clock.monotonic()
        self._screen.progress(self._name, self._progress, self._clock.now())

    def _asked(self) -> Mapping[str, Backlog]:
        began = self._clock.monotonic()
        left = self._backlog()
        ended = self._clock.monotonic()
        self._free = ended + (ended - began) / SHARE
        return left
