"""Sums that do not depend on the order of their terms.

A maintained sum is added to and subtracted from for months, in whatever order rows arrive, and must end up
where a fresh sum would. Machine doubles do not: `(a + b) - b` is not `a`. So running totals are kept wider
than what is shown, and only the shown value is rounded.

- Doubles are kept as an unevaluated pair `hi + lo` (double-double, about 106 bits; Dekker 1971, Knuth's
  two-sum). NaN and infinities cannot be subtracted out again, so the caller counts them beside the sum and
  adds only finite terms. Terms of one group are combined pairwise, as a tree, in the order given: the same
  order gives the same bits.
- Doubles of 2**300 and more are rare, and their sum may leave the range of a double and come back. They are added up
  apart, exactly, as Python's whole numbers (`far_apart`).
- Decimals are kept as 256-bit integers and added limb by limb: exact, whatever the order.

Not promised: a double-double sum whose terms span more than 106 bits (1e80 + 1e-80) still loses the small term.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Doubles = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
Wholes = npt.NDArray[Any]
"""Python's whole numbers, of any size."""

_SPLIT = 134217729.0  # 2**27 + 1, Veltkamp's constant for splitting a 53-bit mantissa in two
_LIMB_BITS = 32
_LIMBS = 8  # of 32 bits: 256 in all
_MASK = np.int64(0xFFFFFFFF)
_FAR = 2.0**300
_UNIT = 300 - 52
"""Every double of 2**300 and more is a multiple of 2**this."""


class Pair(NamedTuple):
    """An unevaluated sum `hi + lo` with |lo| at most half a unit in the last place of hi."""

    hi: Doubles
    lo: Doubles


def add(a: Pair, b: Pair) -> Pair:
    """a + b."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = a.hi + b.hi
        carried = total - a.hi
        error = (a.hi - (total - carried)) + (b.hi - carried)
        return _renormalise(total, error + (a.lo + b.lo))


def times(x: Doubles, y: Doubles) -> Pair:
    """The exact product of two doubles (barring under- and overflow)."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = x * y
        x_high, x_low = _halves(x)
        y_high, y_low = _halves(y)
        error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
        return _renormalise(
            product, np.where(np.isfinite(error), error, 0.0)
        )  # beyond 2**996 halves overflow


def multiply(a: Pair, b: Pair) -> Pair:
    """a * b to about 104 bits."""
    product = times(a.hi, b.hi)
    return _renormalise(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi))


def divide(a: Pair, by: Doubles) -> Pair:
    """a / by to about 104 bits."""
    quotient = a.hi / by
    back = times(quotient, by)
    rest = ((a.hi - back.hi) - back.lo) + a.lo
    return _renormalise(quotient, rest / by)


def negate(a: Pair) -> Pair:
    return Pair(-a.hi, -a.lo)


def sum_segments(terms: Pair, starts: Longs) -> Pair:
    """One total for each segment of `terms`; segment i runs from starts[i] up to starts[i + 1]. None is
    empty.
    """
    hi, lo = terms
    lengths = np.diff(starts, append=len(hi))
    while len(hi) > len(lengths):
        first = np.cumsum(lengths) - lengths
        position = np.arange(len(hi)) - np.repeat(first, lengths)
        left = np.flatnonzero(position % 2 == 0)
        paired = position[left] + 1 < np.repeat(lengths, (lengths + 1) // 2)
        right = left[paired] + 1
        summed = add(Pair(hi[left[paired]], lo[left[paired]]), Pair(hi[right], lo[right]))
        hi, lo = hi[left], lo[left]
        hi[paired], lo[paired] = summed
        lengths = (lengths + 1) // 2
    return Pair(hi, lo)


def in_order(terms: Pair, starts: Longs) -> Pair:
    """The terms of each segment in an order of their own, so that a replay gives the same bits."""
    segment = np.zeros(len(terms.hi), dtype=np.int64)
    segment[starts[1:]] = 1
    order = np.lexsort((terms.lo, terms.hi, np.cumsum(segment)))
    return Pair(terms.hi[order], terms.lo[order])


def far_apart(numbers: Doubles, power: int = 1) -> Wholes | None:
    """Those of finite doubles that are added up apart, in units of their own, and 0 for the others; None if there are
    none. power: 2 for their squares.
    """
    at = np.flatnonzero(np.abs(numbers) >= _FAR)
    if len(at) == 0:
        return None
    apart = np.zeros(len(numbers), dtype=object)
    apart[at] = [(int(each) >> _UNIT) ** power for each in numbers[at].tolist()]
    return apart


def near(numbers: Doubles) -> Doubles:
    """Finite doubles, with 0 for those that are added up apart."""
    return np.where(np.abs(numbers) < _FAR, numbers, 0.0)


def together(close: Pair, far: Wholes | None, at: int, power: int = 1) -> Fraction:
    """A sum, exactly: what was added up as a pair, and what was added up apart."""
    apart = 0 if far is None else int(far[at]) << (_UNIT * power)
    return Fraction(float(close.hi[at])) + Fraction(float(close.lo[at])) + apart


def rounded(value: Fraction) -> float:
    """The nearest double."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def wholes_to_binary(numbers: Wholes) -> pa.Array:
    """Whole numbers of any size as bytes; 0 is NULL."""
    encoded = [
        None if each == 0 else each.to_bytes(each.bit_length() // 8 + 1, "little", signed=True)
        for each in numbers.tolist()
    ]
    return pa.array(encoded, pa.binary())


def binary_wholes(values: pa.Array) -> Wholes | None:
    """What `wholes_to_binary` made, as numbers again; None where all are 0."""
    if values.null_count == len(values):
        return None
    numbers = np.empty(len(values), dtype=object)
    numbers[:] = [
        0 if each is None else int.from_bytes(each, "little", signed=True) for each in values.to_pylist()
    ]
    return numbers


def marks(numbers: Doubles) -> Longs:
    """A hash of each double. Multiplied by how often each is there and added up, they tell a sum of nothing, for which
    that is 0, from any other.
    """
    words = (numbers + 0.0).view(np.uint64)
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed: Longs = (words ^ (words >> np.uint64(31))).view(np.int64)
    return hashed


def _halves(x: Doubles) -> tuple[Doubles, Doubles]:
    scaled = x * _SPLIT
    high = scaled - (scaled - x)
    return high, x - high


def _renormalise(hi: Doubles, lo: Doubles) -> Pair:
    finite = np.isfinite(hi)
    total = np.where(finite, hi + lo, hi)
    return Pair(total, np.where(finite, lo - (total - hi), 0.0))


def decimal_limbs(values: pa.Array) -> Longs:
    """A decimal array's unscaled integers as rows of 32-bit limbs, low limb first, the last one signed. NULL
    is 0.
    """
    words = values.type.bit_width // _LIMB_BITS
    _, data = values.buffers()
    raw = np.frombuffer(data, dtype="<u4")[values.offset * words : (values.offset + len(values)) * words]
    limbs = np.zeros((len(values), _LIMBS), dtype=np.int64)
    limbs[:, :words] = raw.reshape(-1, words)
    limbs[:, words - 1] = raw.reshape(-1, words)[:, -1].view(np.int32)
    if words < _LIMBS:  # sign-extend
        negative = limbs[:, words - 1] < 0
        limbs[negative, words - 1] &= _MASK
        limbs[negative, words : _LIMBS - 1] = _MASK
        limbs[negative, _LIMBS - 1] = -1
    if values.null_count:
        limbs[~np.asarray(values.is_valid())] = 0
    return limbs


def small_decimals(values: pa.Array) -> Longs:
    """A decimal array's unscaled integers, none of which needs more than 64 bits. NULL is 0."""
    words = values.type.bit_width // 64
    _, data = values.buffers()
    raw = np.frombuffer(data, dtype="<i8")[values.offset * words : (values.offset + len(values)) * words]
    numbers: Longs = raw.reshape(-1, words)[:, 0]
    return np.where(np.asarray(values.is_valid()), numbers, 0) if values.null_count else numbers


def limbs_of(lower: Longs, upper: Longs) -> Longs:
    """lower + 2^32 upper as limbs, carries still unresolved."""
    limbs = np.zeros((len(lower), _LIMBS), dtype=np.int64)
    limbs[:, 0], limbs[:, 1] = lower, upper
    return limbs


def limbs_to_decimal(limbs: Longs, scale: int) -> pa.Array:
    """Limbs, carries still unresolved, as decimal256(76, scale)."""
    return pa.Array.from_buffers(pa.decimal256(76, scale), len(limbs), [None, _packed(limbs)])


def limbs_to_double(limbs: Longs) -> Doubles:
    """The double that is nearest to each number, carries still unresolved."""
    words = np.frombuffer(_packed(limbs), dtype="<i8").reshape(-1, _LIMBS // 2)
    low = words[:, 0]
    shown: Doubles = low.astype(np.float64)
    for at in np.flatnonzero((words[:, 1:] != (low >> 63)[:, None]).any(axis=1)):
        shown[at] = float(int.from_bytes(words[at].tobytes(), "little", signed=True))
    return shown


def limbs_to_binary(limbs: Longs) -> pa.Array:
    """Limbs, carries still unresolved, as 32 bytes each: what Spark can carry."""
    return pa.Array.from_buffers(pa.binary(4 * _LIMBS), len(limbs), [None, _packed(limbs)]).cast(pa.binary())


def binary_limbs(values: pa.Array) -> Longs:
    """What `limbs_to_binary` made, as limbs again."""
    fixed = values.cast(pa.binary(4 * _LIMBS))
    wide = pa.Array.from_buffers(
        pa.decimal256(76, 0), len(fixed), [None, fixed.buffers()[1]], offset=fixed.offset
    )
    return decimal_limbs(wide)


def is_zero(limbs: Longs) -> npt.NDArray[np.bool_]:
    """Which numbers are 0, carries still unresolved."""
    packed = np.frombuffer(_packed(limbs), dtype="<u4").reshape(-1, _LIMBS)
    return np.asarray(~packed.any(axis=1))


def _packed(limbs: Longs) -> pa.Buffer:
    limbs = limbs.copy()
    for i in range(_LIMBS - 1):
        limbs[:, i + 1] += limbs[:, i] >> _LIMB_BITS
        limbs[:, i] &= _MASK
    return pa.py_buffer((limbs & _MASK).astype("<u4").tobytes())
