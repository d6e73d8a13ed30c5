"""Pairs of equal hashes in two sorted arrays: the inner step of every lookup.

The smaller array is searched for in the larger, so that a small delta in a large layer and a large delta
against a small layer both cost about the smaller one. Runs of equal hashes on either side give every pair.
"""

from __future__ import annotations

import numpy as np

from slipstream.trace.naming import Ints


def equal_pairs(probes: Ints, stored: Ints) -> tuple[Ints, Ints]:
    """Every (probe, row) with equal hashes, as two index arrays, by probe and then by row."""
    if len(probes) <= len(stored):
        return _search(probes, stored)
    rows, found = _search(stored, probes)
    if len(found) > 1 and not bool((found[1:] > found[:-1]).all()):
        order = np.lexsort((rows, found))
        rows, found = rows[order], found[order]
    return found, rows


def _search(needles: Ints, stack: Ints) -> tuple[Ints, Ints]:
    """For each needle each place in the stack where it is, in order."""
    if len(needles) == 0 or len(stack) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing
    left = np.searchsorted(stack, needles)
    hits = np.flatnonzero(stack[np.minimum(left, len(stack) - 1)] == needles)
    left = left[hits]
    after = np.minimum(left + 1, len(stack) - 1)
    longer = np.flatnonzero((after > left) & (stack[after] == needles[hits]))
    if len(longer) == 0:
        return hits, left
    counts = np.ones(len(hits), dtype=np.int64)
    counts[longer] = np.searchsorted(stack, needles[hits[longer]], side="right") - left[longer]
    firsts = np.cumsum(counts) - counts
    offsets = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    return np.repeat(hits, counts), np.repeat(left, counts) + offsets
