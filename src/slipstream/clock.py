"""Time, from one place.

Whatever asks for the time takes a `Clock`, so that a test can hold it still. `now` is wall time, in seconds
since 1970, for what is shown and recorded; `monotonic` only ever grows and is for measuring how long something
took. Nothing here sleeps.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._elapsed = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back: {seconds}")
        self._now += seconds
        self._elapsed += seconds

    def set(self, now: float) -> None:
        """Set the wall time, as an administrator might; monotonic time does not change."""
        self._now = now
