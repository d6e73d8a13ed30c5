"""Settings that few users touch, how long history is kept, and how safe the store is to be."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.core.durations import seconds
from slipstream.core.errors import BadDurability, BadDuration


@dataclass(frozen=True)
class Limits:
    """What an epoch may take of one source, in the source's unit (bytes of files, else rows)."""

    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class Settings:
    """limits: bounds on the adaptive cut, by source. hash_bits: tests shorten hashes so that they collide. partial:
    whether aggregations add rows up before they shuffle them, where they can; None leaves it to measurements. little:
    with fewer rows of input, or hundreds of bytes, an epoch is computed by a single task.
    """

    limits: dict[str, Limits] = field(default_factory=dict)
    hash_bits: int = 64
    partial: bool | None = None
    little: int = 20_000


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
        """The oldest epoch to keep, given when epochs were computed (time, epoch), oldest first. Some may be left out:
        then a little more is kept.
        """
        if self.epochs is not None:
            return max(0, computed - self.epochs)
        if self.seconds is None:
            return 0
        at = bisect_left(clocks, (now - self.seconds, 0))
        if at == 0:
            return max(0, clocks[0][1] - 1) if clocks else computed
        return clocks[at - 1][1]


_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


@dataclass(frozen=True)
class Exposure:
    """How much would have to be computed again if the local disk were lost now: of the last so many seconds, and
    layers of so many bytes. As a limit, None is no limit.
    """

    seconds: float | None = None
    bytes: int | None = None

    @staticmethod
    def parse(said: str | float | None) -> Exposure:
        """A duration ("30s", a number of seconds) or an amount ("200 MB")."""
        if said is None:
            return Exposure()
        amount = (
            re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B)\s*", said.upper())
            if isinstance(said, str)
            else None
        )
        if amount is not None:
            return Exposure(bytes=int(float(amount[1]) * _SIZES[amount[2]]))
        try:
            return Exposure(seconds=seconds(said))
        except BadDuration:
            raise BadDurability(
                f"max_unsafe={said!r} is neither a duration nor an amount", "write '30s' or '200 MB'"
            ) from None

    def within(self, limit: Exposure) -> bool:
        """Not beyond a limit."""
        seconds_fit = limit.seconds is None or (self.seconds or 0.0) <= limit.seconds
        return seconds_fit and (limit.bytes is None or (self.bytes or 0) <= limit.bytes)


@dataclass(frozen=True)
class Durability:
    """Where copies go, how many make an epoch safe, and how far the computation may run ahead of that. read_only: what
    is there is used, and nothing is written there.
    """

    replicas: tuple[str, ...] = ()
    safe_on: int = 1
    max_unsafe: Exposure = Exposure()
    read_only: bool = False

    @property
    def written(self) -> tuple[str, ...]:
        """The replicas that are kept up to date."""
        return () if self.read_only else self.replicas

    def __post_init__(self) -> None:
        if len(set(self.replicas)) < len(self.replicas):
            raise BadDurability("replicas= names one replica twice", "name each once")
        if not 0 <= self.safe_on <= max(1, len(self.replicas)):
            raise BadDurability(
                f"safe_on={self.safe_on} with {len(self.replicas)} replica(s)",
                "let an epoch be safe on at most as many replicas as there are",
            )
        if self.max_unsafe != Exposure() and not self.replicas:
            raise BadDurability("max_unsafe= was given without replicas=", "name a replica, or leave it out")


@dataclass(frozen=True)
class Declaration:
    """Which app a file declares, and where it keeps what."""

    app: str
    store: Path
    durability: Durability


@dataclass(frozen=True)
class Starting:
    """What the one who starts an app, rather than the one who wrote it, wants of this start.

    takeover: take the store from an engine that holds it and does not answer. rebuild: views to compute anew.
    replace: let every view that means something else than before take the place of what it was.
    accept_loss: go back behind what was once called safe, if there is no other way. declared: is told what an app
    declares before anything is opened, and says what to open instead.
    """

    takeover: bool = False
    rebuild: tuple[str, ...] = ()
    accept_loss: bool = False
    replace: bool = False
    declared: Callable[[Declaration], Declaration] = lambda declaration: declaration


_PLAINLY = Starting()
_STARTING: ContextVar[Starting] = ContextVar("starting", default=_PLAINLY)


def starting() -> Starting:
    """What is wanted of apps that are made here and now."""
    return _STARTING.get()


@contextmanager
def starting_with(wanted: Starting) -> Iterator[None]:
    """Apps that are made inside start like this."""
    token = _STARTING.set(wanted)
    try:
        yield
    finally:
        _STARTING.reset(token)
