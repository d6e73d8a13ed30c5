"""Time, from one place.

Whatever asks for the time takes a `Clock`, so that a test can hold it still. `now` is wall time, in seconds
since 1970, for what is shown and recorded; `monotonic` only ever grows and is for measuring how long something
took. Waiting goes through it too: `sleep`, and `wait` for an event that another thread sets.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """What tells the time."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Let time pass, or less if the event is set before; whether it is set."""
        ...


@dataclass(frozen=True)
class SystemClock:
    """The clock of the machine; there is one."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._elapsed = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if not event.is_set():
            self.advance(seconds)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back: {seconds}")
        self._now += seconds
        self._elapsed += seconds

    def set(self, now: float) -> None:
        """Set the wall time, as an administrator might; monotonic time does not change."""
        self._now = now
