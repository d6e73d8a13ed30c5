"""The arithmetic of panes, against windows that are worked out one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.dataflow import exact
from slipstream.dataflow.sliding import Sliding

Panes = list[tuple[int, int]]


@st.composite
def slidings(draw: st.DrawFn) -> Sliding:
    length = draw(st.integers(1, 40))
    return Sliding(length, draw(st.integers(1, length)), draw(st.integers(-50, 50)))


panes_of_keys = st.lists(st.tuples(st.integers(0, 3), st.integers(-60, 60)), unique=True).map(sorted)


def arrays(panes: Panes) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(panes, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def expected(sliding: Sliding, panes: Panes) -> dict[tuple[int, int], list[int]]:
    """Each window with the places of its panes: those whose beginning is in it."""
    found = defaultdict(list)
    for at, (key, pane) in enumerate(panes):
        begins = pane * sliding.pane + sliding.offset
        for window in range(-120, 120):
            start = window * sliding.slide + sliding.offset
            if start <= begins < start + sliding.length:
                found[key, window].append(at)
    return dict(found)


@given(slidings(), st.integers(-(10**6), 10**6))
def test_all_moments_of_a_pane_are_in_the_windows_of_that_pane(sliding: Sliding, moment: int) -> None:
    pane = np.array([(moment - sliding.offset) // sliding.pane])
    windows = range(int(sliding.first(pane)[0]), int(sliding.last(pane)[0]) + 1)
    near = (moment - sliding.offset) // sliding.slide
    around = range(near - 60, near + 60)
    bounds = {j: [int(each) for each in sliding.bounds(np.int64(j))] for j in around}  # type: ignore[arg-type]
    assert [j for j, (start, end) in bounds.items() if start <= moment < end] == list(windows)


@given(slidings(), panes_of_keys, st.integers(1, 50))
def test_windows_of_panes_are_found_once_with_all_their_panes(
    sliding: Sliding, panes: Panes, most: int
) -> None:
    found = {}
    for piece in sliding.windows(*arrays(panes), most):
        for key, window, first, end in zip(piece.key, piece.window, piece.first, piece.end, strict=True):
            assert (key, window) not in found
            found[int(key), int(window)] = list(range(first, end))
    assert found == expected(sliding, panes)


@given(slidings(), panes_of_keys)
def test_the_panes_around_some_are_those_of_their_windows(sliding: Sliding, panes: Panes) -> None:
    around = sliding.around(*arrays(panes))
    members = list(zip(*(each.tolist() for each in around.panes), strict=True))
    assert members == sorted(set(members))
    assert [members[at] for at in around.given] == panes
    windows = around.windows
    named = list(zip(windows.key.tolist(), windows.window.tolist(), strict=True))
    assert sorted(named) == sorted(expected(sliding, panes))
    for (key, window), first, end in zip(named, windows.first, windows.end, strict=True):
        start = window * sliding.step
        assert members[first:end] == [(key, pane) for pane in range(start, start + sliding.reach)]
    there = np.isin(np.arange(len(members)), around.given)
    few = windows.among(there)
    for name, first, end in zip(named, few.first, few.end, strict=True):
        assert list(range(first, end)) == expected(sliding, panes)[name]


@given(slidings(), panes_of_keys, st.data())
def test_ranges_are_added_up_exactly(sliding: Sliding, panes: Panes, data: st.DataObject) -> None:
    count = len(panes)
    whole = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count))
    parts = data.draw(st.lists(st.integers(-(2**40), 2**40), min_size=count, max_size=count))
    doubles = np.array(parts, dtype=np.float64) / 8
    values = data.draw(st.lists(st.none() | st.floats(allow_infinity=True), min_size=count, max_size=count))
    for piece in sliding.windows(*arrays(panes), 1000):
        sums = piece.whole(np.array(whole, dtype=np.int64))
        twice = piece.whole(np.array([[each, 1] for each in parts], dtype=np.int64).reshape(-1, 2))
        pairs = piece.pairs(exact.Pair(doubles, np.zeros(count)))
        best = {
            largest: piece.best(pa.array(values, pa.float64(), from_pandas=False), largest)
            for largest in (False, True)
        }
        for at, (first, end) in enumerate(zip(piece.first, piece.end, strict=True)):
            wrapped = (sum(whole[first:end]) + 2**63) % 2**64 - 2**63
            assert sums[at] == wrapped
            assert twice[at].tolist() == [sum(parts[first:end]), end - first]
            assert Fraction(pairs.hi[at]) + Fraction(pairs.lo[at]) == Fraction(sum(parts[first:end]), 8)
            known = [each for each in values[first:end] if each is not None]
            ordered = sorted(known, key=lambda each: (math.isnan(each), each))
            for largest, found in best.items():
                wanted = ordered[-1 if largest else 0] if ordered else None
                assert repr(found[at].as_py() or 0) == repr(wanted or 0)


def test_a_window_has_the_same_bits_whatever_is_read_with_it() -> None:
    sliding = Sliding(7, 1)
    chance = np.random.default_rng(1)
    pane = np.flatnonzero(chance.random(400) < 0.6)
    values = chance.standard_normal(len(pane)) * 10.0 ** chance.integers(-20, 20, len(pane))
    (every,) = sliding.windows(np.zeros(len(pane), dtype=np.int64), pane, 10**6)
    (few,) = sliding.windows(np.zeros(40, dtype=np.int64), pane[100:140], 10**6)
    alone = few.pairs(exact.Pair(values[100:140], np.zeros(40)))
    together = every.pairs(exact.Pair(values, np.zeros(len(pane))))
    same = {int(w): (h, x) for w, h, x in zip(every.window, together.hi, together.lo, strict=True)}
    inner = [at for at, w in enumerate(few.window) if pane[100] <= w and w + 7 <= pane[139]]
    assert len(inner) > 20
    assert [(alone.hi[at], alone.lo[at]) for at in inner] == [same[int(few.window[at])] for at in inner]


@pytest.mark.parametrize(("length", "slide"), [(5, 0), (5, 6), (0, 0)])
def test_windows_that_spark_does_not_have_are_refused(length: int, slide: int) -> None:
    with pytest.raises(ValueError, match="slide"):
        Sliding(length, slide)
