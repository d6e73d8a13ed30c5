"""Sums against exact arithmetic: fractions for doubles, Python's own integers for decimals."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slipstream.dataflow import exact

doubles = st.floats(min_value=-1e100, max_value=1e100, allow_nan=False).map(
    lambda value: value if abs(value) > 1e-100 else 0.0
)
decimals = st.decimals(min_value=Decimal("-1e27"), max_value=Decimal("1e27"), places=10, allow_nan=False)


def pair(*values: float) -> exact.Pair:
    numbers = np.array(values, dtype=np.float64)
    return exact.Pair(numbers, np.zeros_like(numbers))


def value_of(found: exact.Pair, at: int = 0) -> Fraction:
    return Fraction(float(found.hi[at])) + Fraction(float(found.lo[at]))


def unscaled(value: Decimal) -> int:
    return int(value.scaleb(10, Context(prec=100)))


def close(found: Fraction, wanted: Fraction, scale: Fraction, bits: int) -> bool:
    return bool(abs(found - wanted) <= scale / 2**bits)


@given(doubles, doubles)
def test_a_product_of_two_doubles_is_exact(x: float, y: float) -> None:
    assert value_of(exact.times(np.array([x]), np.array([y]))) == Fraction(x) * Fraction(y)


@given(st.lists(doubles, min_size=1, max_size=60))
def test_a_sum_is_right_to_about_100_bits_of_its_largest_term(terms: list[float]) -> None:
    found = exact.sum_segments(pair(*terms), np.array([0]))
    wanted = sum(map(Fraction, terms), Fraction(0))
    assert close(value_of(found), wanted, sum((abs(Fraction(t)) for t in terms), Fraction(0)), 98)


@given(st.lists(st.lists(doubles, min_size=1, max_size=9), min_size=1, max_size=9))
def test_each_segment_has_a_sum_of_its_own(segments: list[list[float]]) -> None:
    starts = np.cumsum([0, *map(len, segments)])[:-1]
    found = exact.sum_segments(pair(*[t for segment in segments for t in segment]), starts)
    for at, segment in enumerate(segments):
        alone = exact.sum_segments(pair(*segment), np.array([0]))
        assert (found.hi[at], found.lo[at]) == (alone.hi[0], alone.lo[0])


@given(st.floats(1e-3, 1e15), st.lists(st.floats(-1e9, 1e9), max_size=30))
def test_what_is_added_and_taken_away_again_leaves_the_shown_sum_as_it_was(
    kept: float, passing: list[float]
) -> None:
    total = pair(kept)
    for term in passing:
        total = exact.add(total, pair(term))
    for term in passing:
        total = exact.add(total, pair(-term))
    assert total.hi[0] == kept


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([-1.0, 1.0]))
def test_a_term_of_any_size_is_taken_as_it_is(x: float, times: float) -> None:
    assert value_of(exact.times(np.array([x]), np.array([times]))) == Fraction(x) * Fraction(times)


@given(doubles, st.integers(1, 10**9))
def test_a_mean_is_right_to_about_100_bits(total: float, count: int) -> None:
    found = exact.divide(pair(total), np.array([float(count)]))
    wanted = Fraction(total) / count
    assert close(value_of(found), wanted, abs(wanted), 98)


def test_a_sum_beyond_the_range_of_a_double_is_infinite_and_not_nan() -> None:
    found = exact.sum_segments(pair(1.7e308, 1.7e308), np.array([0]))
    assert found.hi[0] == np.inf


@given(st.lists(st.one_of(st.none(), decimals), max_size=20))
def test_a_decimal_survives_its_limbs(values: list[Decimal | None]) -> None:
    array = pa.array(values, type=pa.decimal128(38, 10))
    back = exact.limbs_to_decimal(exact.decimal_limbs(array), 10)
    assert back.to_pylist() == [Decimal(0) if value is None else value for value in values]


@given(st.lists(st.tuples(decimals, st.integers(-1000, 1000)), min_size=1, max_size=30))
def test_a_sum_of_decimals_is_exact_whatever_the_order(terms: list[tuple[Decimal, int]]) -> None:
    array = pa.array([value for value, _ in terms], type=pa.decimal128(38, 10))
    times = np.array([times for _, times in terms], dtype=np.int64)
    summed = (exact.decimal_limbs(array) * times[:, None]).sum(axis=0, keepdims=True)
    scaled = sum(unscaled(value) * times for value, times in terms)
    assert unscaled(exact.limbs_to_decimal(summed, 10)[0].as_py()) == scaled


def test_a_slice_of_a_decimal_column_is_read_at_its_offset() -> None:
    array = pa.array([Decimal("1.5"), None, Decimal("-2.5")], type=pa.decimal128(10, 1)).slice(1)
    assert exact.limbs_to_decimal(exact.decimal_limbs(array), 1).to_pylist() == [
        Decimal("0.0"),
        Decimal("-2.5"),
    ]


def test_a_column_of_nothing_but_nulls_counts_as_zeros() -> None:
    array = pa.nulls(3, pa.decimal128(10, 2))
    assert exact.limbs_to_decimal(exact.decimal_limbs(array), 2).to_pylist() == [Decimal("0.00")] * 3


@given(st.lists(st.integers(-(2**250), 2**250) | st.integers(-(2**66), 2**66), max_size=9))
def test_a_whole_number_becomes_the_double_that_is_nearest(numbers: list[int]) -> None:
    limbs = np.array([[(n >> 32 * i) & 0xFFFFFFFF for i in range(7)] + [n >> 224] for n in numbers], np.int64)
    assert exact.limbs_to_double(limbs.reshape(-1, 8)).tolist() == [float(n) for n in numbers]
