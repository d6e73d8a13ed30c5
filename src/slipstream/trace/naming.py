"""What a layer's name says, and the ranges of hashes that shards own.

A row belongs to the place `u = (h >> 33) + 2**30`, a number from 0 up to 2**31, where `h` is the row's
signed 64-bit hash. `u` grows with `h`, so a `Span` of places is a contiguous range of hashes, and a layer
sorted by `h` gives any span as a slice. Shard `i` of `n` owns the places with `(u * n) >> 31 == i`. That is
the Spark expression `cast(shiftright((shiftright(h, 33) + 1073741824) * n, 31) as int)`, so rows are routed
and layers are sliced alike.

A layer is known by its name alone: which incarnation wrote it, which epochs it covers (`lo` to `hi`, both
included), which places (`start` up to `stop`), and its kind. A `log` keeps every update and serves any
epoch in its range by filtering. A `flat` layer is collapsed as of `hi` and serves only epochs from `hi` on.
A layer of one epoch is called `log` and is both. Whatever does not parse as a layer's name, such as a
temporary file that a dead task left, is not a layer.

A `Fence` is an empty file beside the layers: incarnation `i` began after epoch `e`. Layers of earlier
incarnations that reach past `e` were written by a process that did not know that it had been succeeded, and a
listing passes over them. So fencing costs a reader nothing: the names that it lists anyway say it all.

A trace's name is `traces/VIEW/TRACE`, a folder of its store. Where one is read from a file, such as a manifest, it is
checked (`checked_trace`), so that nothing in a file leads out of the store.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from slipstream.core.errors import BadTraceName, DamagedLayer

PLACES = 1 << 31
_HALF = 1 << 30
_SHIFT = 33

Kind = Literal["log", "flat"]
Ints = npt.NDArray[np.int64]

_FENCE = re.compile(r"(\d{6,18})-(\d{10,18})\.fence", re.ASCII)
_PATTERN = re.compile(
    r"(\d{6,18})-(\d{10,18})-(\d{10,18})-([0-9a-f]{8})-([0-9a-f]{8})\.(log|flat)\.arrow", re.ASCII
)
_TRACE = re.compile(r"traces/[\w@-][\w.@-]*/[\w@-][\w.@-]*")


@dataclass(frozen=True, order=True)
class Span:
    """A half-open range of places."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop <= PLACES:
            raise ValueError(f"a span needs 0 <= start < stop <= 2**31, got {self.start}..{self.stop}")

    @staticmethod
    @cache
    def whole() -> Span:
        return Span(0, PLACES)

    @property
    def width(self) -> int:
        return self.stop - self.start

    def contains(self, other: Span) -> bool:
        return self.start <= other.start and other.stop <= self.stop

    def touches(self, other: Span) -> bool:
        """Whether there is a place that both hold."""
        return self.start < other.stop and other.start < self.stop

    def overlap(self, other: Span) -> Span | None:
        """The places that both hold, or None."""
        start, stop = max(self.start, other.start), min(self.stop, other.stop)
        return Span(start, stop) if start < stop else None

    def bounds(self, hashes: Ints) -> tuple[int, int]:
        """Where in sorted `hashes` this span begins and ends."""
        first = 0 if self.start == 0 else int(np.searchsorted(hashes, _least_hash(self.start)))
        last = len(hashes) if self.stop == PLACES else int(np.searchsorted(hashes, _least_hash(self.stop)))
        return first, last


def _least_hash(place: int) -> np.int64:
    return np.int64((place - _HALF) << _SHIFT)


def places(hashes: Ints) -> Ints:
    """The place of each hash."""
    return (hashes >> _SHIFT) + _HALF


def place_of(h: int) -> int:
    """The place of one hash."""
    return (h >> _SHIFT) + _HALF


def shard_span(shard: int, shards: int) -> Span:
    """The span that shard number `shard` of `shards` owns."""
    if not 0 <= shard < shards <= PLACES:
        raise ValueError(f"shard {shard} of {shards} does not exist")
    return Span(-(-shard * PLACES // shards), -(-(shard + 1) * PLACES // shards))


def checked_trace(text: str) -> str:
    """A trace's name that came from outside, if it is one."""
    if _TRACE.fullmatch(text) is None:
        raise BadTraceName(text)
    return text


def trace_of(directory: Path) -> str:
    """What a layer's seal calls the trace in a directory, wherever its store is: VIEW/TRACE."""
    return "/".join(os.fspath(directory).rsplit("/", 2)[-2:])


def store_of(directory: Path) -> Path:
    """The folder of the store that a trace's folder (`traces/VIEW/TRACE`) is in."""
    return directory.parents[min(2, len(directory.parents) - 1)]


def damaged(path: Path, problem: str) -> DamagedLayer:
    """The error of a layer's file that is not what was written."""
    name = LayerName.parse(path.name)
    assert name is not None, path
    return DamagedLayer("/".join(path.parent.parts[-3:]), name, problem)


@dataclass(frozen=True, order=True)
class LayerName:
    """Everything known about a layer without opening it."""

    incarnation: int
    lo: int
    hi: int
    start: int
    stop: int
    kind: Kind = "log"

    def __post_init__(self) -> None:
        if not 1 <= self.lo <= self.hi:
            raise ValueError(f"a layer covers epochs from 1 on, got {self.lo}..{self.hi}")
        if self.kind not in ("log", "flat"):
            raise ValueError(f"a layer is 'log' or 'flat', got '{self.kind}'")
        if self.incarnation < 0:
            raise ValueError(f"incarnations count from 0, got {self.incarnation}")
        _ = self.span

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Of numbers alone, so that it is the same in every process."""
        return hash((self.incarnation, self.lo, self.hi, self.start, self.stop))

    @cached_property
    def span(self) -> Span:
        return Span(self.start, self.stop)

    @cached_property
    def single(self) -> bool:
        return self.lo == self.hi

    @cached_property
    def is_flat(self) -> bool:
        """Can stand for its whole range of epochs unfiltered and without history."""
        return self.kind == "flat" or self.single

    @cached_property
    def is_log(self) -> bool:
        """Holds every update of its range of epochs."""
        return self.kind == "log" or self.single

    @cached_property
    def filename(self) -> str:
        return (
            f"{self.incarnation:06d}-{self.lo:010d}-{self.hi:010d}-{self.start:08x}-{self.stop:08x}"
            f".{self.kind}.arrow"
        )

    @staticmethod
    def parse(filename: str) -> LayerName | None:
        """The name that a file carries, or None if the file is not a layer."""
        return _parse(filename)


by_order = attrgetter("incarnation", "lo", "hi", "start", "stop", "kind")
"""The key that sorts layers as comparing them does, and much faster."""


@dataclass(frozen=True, order=True)
class Fence:
    """An incarnation, and the epoch after which it took over."""

    incarnation: int
    after: int

    @property
    def filename(self) -> str:
        return f"{self.incarnation:06d}-{self.after:010d}.fence"

    @staticmethod
    def parse(filename: str) -> Fence | None:
        """The fence that a file is, or None if it is something else."""
        return _parse_fence(filename)

    def bars(self, name: LayerName) -> bool:
        """Whether a layer was written past this fence by somebody who had been succeeded."""
        return name.incarnation < self.incarnation and name.hi > self.after


@lru_cache(maxsize=1 << 16)
def _parse_fence(filename: str) -> Fence | None:
    found = _FENCE.fullmatch(filename)
    return None if found is None else Fence(int(found[1]), int(found[2]))


@lru_cache(maxsize=1 << 16)
def _parse(filename: str) -> LayerName | None:
    found = _PATTERN.fullmatch(filename)
    if found is None:
        return None
    incarnation, lo, hi, start, stop, kind = found.groups()
    try:
        name = LayerName(
            int(incarnation),
            int(lo),
            int(hi),
            int(start, 16),
            int(stop, 16),
            "log" if kind == "log" else "flat",
        )
    except ValueError:
        return None
    return name if name.filename == filename else None
