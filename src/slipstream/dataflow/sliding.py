"""Sliding windows as runs of panes: the arithmetic, without rows or state.

A window of length `l` that slides by `s` begins at every multiple of `s` and ends `l` later. All of these bounds are
multiples of g = gcd(l, s). So event time falls into *panes* of length g, such that all rows of a pane are in the same
windows: a window is a run of l / g panes, and what is added up by pane need not be added up again by row.

Panes and windows are numbered by their beginnings: pane p begins at offset + p * g, window j at offset + j * s. Panes
of several keys are given as two arrays, a number for the key and the pane, in the order of both and each pair once. The
windows that some panes are in are found from one pane to the next: each pane opens those that the one before it was not
in. So finding them costs the panes and the windows, not the panes times the windows of each.

Ranges of panes are added up without adding up any of them twice. Whole numbers are taken from running totals, as
differences: exact, even where a running total wraps around. Sums of doubles can not be taken apart again, so they are
put together from runs of 1, 2, 4, ... panes. Which runs depends on nothing but the panes of the window itself, so that
a window that is read again, from whatever else was read with it, has the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slipstream.dataflow import exact

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Sliding:
    """Windows of one length, in microseconds. Window 0 begins at the offset, counted from 1970."""

    length: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.slide <= self.length:
            raise ValueError(f"a window must slide by something, and not further than its length: {self}")

    @cached_property
    def pane(self) -> int:
        """The length of a pane."""
        return gcd(self.length, self.slide)

    @cached_property
    def reach(self) -> int:
        """The panes of a window."""
        return self.length // self.pane

    @cached_property
    def step(self) -> int:
        """The panes from the beginning of a window to that of the next."""
        return self.slide // self.pane

    @cached_property
    def most(self) -> int:
        """The windows that a pane is in, at most."""
        return -(-self.length // self.slide)

    def first(self, pane: Longs) -> Longs:
        """The first window that each pane is in."""
        return -((self.reach - 1 - pane) // self.step)

    def last(self, pane: Longs) -> Longs:
        """The last window that each pane is in."""
        return pane // self.step

    def bounds(self, window: Longs) -> tuple[Longs, Longs]:
        """When each window begins and ends, in microseconds since 1970."""
        begins = window * self.slide + self.offset
        return begins, begins + self.length

    def opened(self, key: Longs, pane: Longs) -> tuple[Longs, Longs]:
        """The windows that each pane is the first one in, of those given: the first of them, and how many."""
        begin, end = _unseen(key, self.first(pane), self.last(pane))
        return begin, end - begin + 1

    def windows(self, key: Longs, pane: Longs, most: int) -> Iterator[Slices]:
        """All windows that panes are in, with the panes of each, about `most` at a time."""
        begin, counts = self.opened(key, pane)
        before = np.cumsum(counts) - counts
        place = self._places(key, pane)
        for rows in _pieces(before, counts, most):
            opener, window = spread(begin[rows], counts[rows])
            first = opener + rows.start
            end = place[first] + (window * self.step + self.reach - pane[first])
            yield Slices(key[first], window, first, np.searchsorted(place, end))

    def around(self, key: Longs, pane: Longs) -> Around:
        """The windows that some panes are in, and all panes that those consist of."""
        first, last = self.first(pane), self.last(pane)
        begin, end = _unseen(key, first, last)
        opener, window = spread(begin, end - begin + 1)
        near, far = _unseen(key, first * self.step, last * self.step + self.reach - 1)
        counts = far - near + 1
        owner, member = spread(near, counts)
        before = np.cumsum(counts) - counts
        at = before[opener] + (window * self.step - near[opener])
        return Around(
            panes=(key[owner], member),
            owner=owner,
            given=before + (pane - near),
            windows=Slices(key[opener], window, at, at + self.reach),
        )

    def _places(self, key: Longs, pane: Longs) -> Longs:
        """A number for each pane that grows from one to the next by their distance, as far as a window reaches."""
        apart = np.full(len(pane), self.reach + 1)
        same = key[1:] == key[:-1]
        apart[1:][same] = np.minimum(pane[1:][same] - pane[:-1][same], self.reach + 1)
        return np.cumsum(apart)


@dataclass(frozen=True, eq=False)
class Slices:
    """Windows, each with the places of its panes in a list of panes: from `first`, and before `end`."""

    key: Longs
    window: Longs
    first: Longs
    end: Longs

    def among(self, there: Bools) -> Slices:
        """The same in a list without those of its panes that are not there."""
        before = np.append(0, np.cumsum(there))
        return Slices(self.key, self.window, before[self.first], before[self.end])

    def whole(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The sums of whole numbers over each window; of numbers of several limbs, limb by limb."""
        running = np.zeros((len(values) + 1, *values.shape[1:]), dtype=values.dtype)
        with np.errstate(over="ignore"):
            np.cumsum(values, axis=0, out=running[1:])
            totals: npt.NDArray[Any] = running[self.end] - running[self.first]
        return totals

    def pairs(self, values: exact.Pair) -> exact.Pair:
        """The sums of doubles over each window."""
        panes, at, runs, length = self.end - self.first, self.first.copy(), values, 1
        hi, lo = (np.zeros(len(panes)) for _ in range(2))
        while length <= panes.max(initial=0):
            due = np.flatnonzero(panes & length)
            term = exact.Pair(runs.hi[at[due]], runs.lo[at[due]])
            hi[due], lo[due] = exact.add(exact.Pair(hi[due], lo[due]), term)
            at[due] += length
            left, right = (exact.Pair(*(_half(part, length, i) for part in runs)) for i in range(2))
            runs, length = exact.add(left, right), 2 * length
        return exact.Pair(hi, lo)

    def best(self, values: pa.Array, largest: bool) -> pa.Array:
        """The smallest or the largest value of each window, NULL where it has none."""
        known = len(values) - values.null_count
        order = np.asarray(pc.sort_indices(values)).astype(np.int64)
        if largest:
            order = np.append(order[:known][::-1], order[known:])
        runs = np.empty(len(order), dtype=np.int64)
        runs[order] = np.arange(len(order))
        panes, length = self.end - self.first, 1
        found = np.full(len(panes), known, dtype=np.int64)
        while length <= panes.max(initial=0):
            due = np.flatnonzero((panes >= length) & (panes < 2 * length))
            found[due] = np.minimum(runs[self.first[due]], runs[self.end[due] - length])
            runs, length = np.minimum(_half(runs, length, 0), _half(runs, length, 1)), 2 * length
        picked = np.append(order, 0)[np.where(found < known, found, len(order))]
        return values.take(pa.array(picked, mask=found >= known))


@dataclass(frozen=True, eq=False)
class Around:
    """The windows that some panes are in. panes: all of those windows' panes, as keys and panes; owner: a given one
    that has a window in common with each; given: where among these the given ones are.
    """

    panes: tuple[Longs, Longs]
    owner: Longs
    given: Longs
    windows: Slices


def spread(starts: Longs, counts: Longs) -> tuple[Longs, Longs]:
    """For each start as many numbers, from it on, as it counts: which start each is of, and the number."""
    owner = np.repeat(np.arange(len(starts)), counts)
    return owner, np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner] + starts[owner]


def _unseen(key: Longs, first: Longs, last: Longs) -> tuple[Longs, Longs]:
    """Of intervals that move on within each key, what of each is after the one before it."""
    begin = first.copy()
    same = np.flatnonzero(key[1:] == key[:-1]) + 1
    begin[same] = np.maximum(first[same], last[same - 1] + 1)
    return begin, last


def _pieces(before: Longs, counts: Longs, most: int) -> Iterator[slice]:
    """Rows in pieces that count about so many together, and at least one row each."""
    start = 0
    while start < len(counts):
        stop = int(np.searchsorted(before, before[start] + most, side="right"))
        stop = max(start + 1, min(stop, len(counts)))
        yield slice(start, stop)
        start = stop


def _half(runs: npt.NDArray[Any], length: int, which: int) -> npt.NDArray[Any]:
    """Of runs of some length, by where each begins: those that have another right after them, or those others."""
    return runs[length:] if which else runs[: max(len(runs) - length, 0)]
