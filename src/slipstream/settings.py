"""Settings that few users touch, and how long history is kept."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.durations import seconds


@dataclass(frozen=True)
class Limits:
    """What an epoch may take of one source, in the source's unit (bytes of files, else rows)."""

    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class Settings:
    """limits: bounds on the adaptive cut, by source. hash_bits: tests shorten hashes so that they collide."""

    limits: dict[str, Limits] = field(default_factory=dict)
    hash_bits: int = 64


@dataclass(frozen=True)
class History:
    """How far back time travel reaches: some epochs, some seconds, or everything (both None)."""

    epochs: int | None = None
    seconds: float | None = None

    @staticmethod
    def parse(said: str | int | None) -> History:
        """A number of epochs ("100 epochs" or 100), a duration ("7 days"), or None for everything."""
        if said is None:
            return History()
        if isinstance(said, int):
            return History(epochs=said)
        number, _, unit = said.partition(" ")
        if unit.strip() in ("epoch", "epochs"):
            return History(epochs=int(number))
        return History(seconds=seconds(said))

    def keep_from(self, computed: int, now: float, clocks: Sequence[tuple[float, int]]) -> int:
        """The oldest epoch to keep, given when epochs were computed (time, epoch), oldest first."""
        if self.epochs is not None:
            return max(0, computed - self.epochs)
        if self.seconds is None:
            return 0
        at = bisect_left(clocks, (now - self.seconds, 0))
        return clocks[at][1] - 1 if at < len(clocks) else computed
