"""Grouping equality over Arrow arrays: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0, at any depth.

`equal` is vectorised for every type but maps: a struct is equal where its fields are, a list where the
lengths are and the flattened elements are. Maps compare without regard to the order of their entries, one
by one; where it matters in which order a map is stored (`ordered`), with regard to it.

`texts` gives the same relation as a string for each row: two rows are equal exactly when their texts are,
so that texts also serve as a canonical order. It is slow and is meant for the few rows whose hashes
collide.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

Bools = npt.NDArray[np.bool_]


def equal(a: pa.Array, b: pa.Array, *, ordered: bool = False) -> Bools:
    """Grouping equality of two arrays of one type, element by element. ordered: maps are equal only with their entries
    in the same order.
    """
    if pt.is_dictionary(a.type) or pt.is_dictionary(b.type) or isinstance(a, pa.ExtensionArray):
        return equal(_unwrapped(a), _unwrapped(b), ordered=ordered)
    if pt.is_null(a.type):
        return np.ones(len(a), dtype=bool)
    if a.null_count == 0 and b.null_count == 0:
        return _equal_values(a, b, ordered)
    a_valid, b_valid = _bools(a.is_valid()), _bools(b.is_valid())
    result: Bools = ~(a_valid | b_valid)
    both = np.flatnonzero(a_valid & b_valid)
    if len(both):
        rows = pa.array(both)
        result[both] = _equal_values(a.take(rows), b.take(rows), ordered)
    return result


def ambiguous(array: pa.Array) -> bool:
    """Whether there may be values in it that are equal but not the same bits: negative zeros, and maps."""
    kind = array.type
    if pt.is_dictionary(kind) or isinstance(array, pa.ExtensionArray):
        return ambiguous(_unwrapped(array))
    if pt.is_floating(kind):
        values = array.to_numpy(zero_copy_only=False)
        return bool((np.signbit(values) & (values == 0)).any())
    if pt.is_struct(kind):
        return any(ambiguous(array.field(i)) for i in range(kind.num_fields))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return ambiguous(array.flatten())
    return bool(pt.is_map(kind))


def texts(
    columns: Sequence[pa.Array], rows: npt.NDArray[np.int64], *, exact: bool = False, ordered: bool = False
) -> list[str]:
    """For each of `rows` a text that is the same exactly for equal rows; if `ordered`, for those with maps in the same
    order; if `exact`, for rows of the same bits.
    """
    if not columns:
        return [""] * len(rows)
    index = pa.array(rows)
    how = _How(exact, ordered or exact)
    return [repr(row) for row in zip(*(_plain(column.take(index), how) for column in columns), strict=True)]


def _equal_values(a: pa.Array, b: pa.Array, ordered: bool) -> Bools:
    kind = a.type
    result: Bools
    if pt.is_integer(kind):
        result = a.to_numpy() == b.to_numpy()
        return result
    if pt.is_floating(kind):
        x, y = a.to_numpy(), b.to_numpy()
        result = (x == y) | ((x != x) & (y != y))
        return result
    if pt.is_struct(kind):
        result = np.ones(len(a), dtype=bool)
        for i in range(kind.num_fields):
            result &= equal(a.field(i), b.field(i), ordered=ordered)
        return result
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return _equal_lists(a, b, ordered)
    if not pt.is_nested(kind):
        try:
            return _bools(pc.equal(a, b))
        except pa.ArrowNotImplementedError:
            pass
    rows = np.arange(len(a))
    return np.fromiter(
        (
            x == y
            for x, y in zip(texts([a], rows, ordered=ordered), texts([b], rows, ordered=ordered), strict=True)
        ),
        bool,
        len(a),
    )


def _equal_lists(a: pa.Array, b: pa.Array, ordered: bool) -> Bools:
    lengths = pc.list_value_length(a).to_numpy()
    result: Bools = lengths == pc.list_value_length(b).to_numpy()
    alike = np.flatnonzero(result)
    rows = pa.array(alike)
    elements = equal(a.take(rows).flatten(), b.take(rows).flatten(), ordered=ordered)
    owners = np.repeat(alike, lengths[alike])
    result[owners[~elements]] = False
    return result


class _How(NamedTuple):
    """What tells values apart: the sign of a zero, and the order of a map."""

    exact: bool
    ordered: bool


def _plain(array: pa.Array, how: _How) -> list[Any]:
    """Python values made of None, bool, int, float, str, bytes, Decimal and tuples, whose repr tells them
    apart.
    """
    kind = array.type
    if pt.is_dictionary(kind) or isinstance(array, pa.ExtensionArray):
        return _plain(_unwrapped(array), how)
    if pt.is_floating(kind):
        return [None if value is None else value if how.exact else value + 0.0 for value in array.to_pylist()]
    if pt.is_temporal(kind) and not pt.is_interval(kind):
        return list(array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist())
    if pt.is_struct(kind):
        fields = [_plain(array.field(i), how) for i in range(kind.num_fields)]
        rows = list(zip(*fields, strict=True)) if fields else [()] * len(array)
        return _masked(array, rows)
    if pt.is_map(kind):
        entries = list(zip(_plain(array.keys, how), _plain(array.items, how), strict=True))
        return _masked(
            array, [tuple(row if how.ordered else sorted(row, key=repr)) for row in _sliced(array, entries)]
        )
    if pt.is_fixed_size_list(kind):
        return _plain(array.cast(pa.list_(kind.value_type)), how)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _masked(array, [tuple(row) for row in _sliced(array, _plain(array.values, how))])
    return list(array.to_pylist())


def _sliced(array: pa.Array, elements: list[Any]) -> list[list[Any]]:
    offsets = array.offsets.to_pylist()
    return [elements[a:b] for a, b in pairwise(offsets)]


def _masked(array: pa.Array, rows: list[Any]) -> list[Any]:
    if array.null_count == 0:
        return rows
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _unwrapped(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    return array.dictionary_decode() if pt.is_dictionary(array.type) else array


def _bools(array: pa.Array) -> Bools:
    result: Bools = array.to_numpy(zero_copy_only=False).astype(bool, copy=False)
    return result
