"""A hash of each row over its values: the same for rows that are equal (`trace.equality`), in any process and at any
time.

NULL equals NULL, NaN equals NaN, -0.0 equals 0.0, and a map's entries have no order, at any depth. All of it is
vectorised. A text is taken eight bytes at a time, all texts of a column side by side, and long ones one by one.

It is part of what stores and replicas keep (`checksum`), so it never changes; a test pins it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
import xxhash

from slipstream.trace.rows import column

Words = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]

ODD = 0x9E3779B97F4A7C15
_MIX = np.uint64(ODD)
_NULL = np.uint64(0xA24BAED4963EE407)
_LONG = 512  # bytes from which on a text is hashed by itself
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [(1 << 64) - 1], dtype=np.uint64)


def row_hashes(table: pa.Table) -> Words:
    """A hash of each row, over all columns in order."""
    hashes = np.full(table.num_rows, _MIX, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in table.column_names:
            hashes = _joined(hashes, _words(column(table, name)))
    return hashes


def _joined(hashes: Words, words: Words) -> Words:
    hashes = (hashes ^ _mixed(words)) * _MIX
    hashes ^= hashes >> np.uint64(29)
    return hashes


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _words(array: pa.Array) -> Words:
    """Each value as 64 bits."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _words(array.storage)
    if pt.is_dictionary(kind):
        return _words(array.dictionary_decode())
    words = _valid_words(array)
    if array.null_count:
        words = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, words)
    return words.astype(np.uint64, copy=False)


def _valid_words(array: pa.Array) -> Words:
    """Each value as 64 bits, and anything at all for NULL."""
    kind = array.type
    if pt.is_null(kind):
        return np.full(len(array), _NULL, dtype=np.uint64)
    if pt.is_floating(kind):
        values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)
    if pt.is_integer(kind) or pt.is_boolean(kind):
        return _as_words(array.cast(pa.uint64() if pt.is_unsigned_integer(kind) else pa.int64()).fill_null(0))
    if pt.is_decimal(kind) or pt.is_fixed_size_binary(kind) or pt.is_interval(kind):
        return _fixed(array, kind.bit_width // 8)
    if pt.is_temporal(kind):
        return _as_words(array.view(pa.int64() if kind.bit_width == 64 else pa.int32()).fill_null(0))
    if pt.is_struct(kind):
        words = np.full(len(array), _MIX, dtype=np.uint64)
        for field in array.flatten():
            words = _joined(words, _words(field))
        return words
    if pt.is_map(kind):
        offsets, entries = _offsets(array), np.full(len(array.keys), _MIX, dtype=np.uint64)
        entries = _mixed(_joined(_joined(entries, _words(array.keys)), _words(array.items)))
        return _lengths(offsets) ^ _added(entries, offsets)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _list_words(_words(array.values), _offsets(array))
    if pt.is_fixed_size_list(kind):
        size = kind.list_size
        offsets = (array.offset + np.arange(len(array) + 1)) * size
        return _list_words(_words(array.values), offsets)
    if pt.is_string_view(kind) or pt.is_binary_view(kind):
        array = array.cast(pa.large_binary() if pt.is_binary_view(kind) else pa.large_string())
    return _texts(array)


def _as_words(array: pa.Array) -> Words:
    values = array.to_numpy(zero_copy_only=False)
    words: Words = (
        values if values.dtype == np.uint64 else values.astype(np.int64, copy=False).view(np.uint64)
    )
    return words


def _offsets(array: pa.Array) -> Longs:
    """Where each value of an array of variable width begins, and where the last ends."""
    wide = pt.is_large_list(array.type) or pt.is_large_string(array.type) or pt.is_large_binary(array.type)
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64)
    found = np.frombuffer(array.buffers()[1], dtype=np.int64 if wide else np.int32)
    return found[array.offset : array.offset + len(array) + 1].astype(np.int64, copy=False)


def _lengths(offsets: Longs) -> Words:
    return _mixed(np.diff(offsets).view(np.uint64) + _MIX)


def _list_words(elements: Words, offsets: Longs) -> Words:
    """A hash of each list: of its length, and of each element with its place."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    place = np.arange(offsets[0], offsets[-1]) - np.repeat(starts, lengths)
    placed = np.zeros_like(elements)
    inside = slice(offsets[0], offsets[-1])
    placed[inside] = _mixed(elements[inside] ^ (place.view(np.uint64) * _MIX))
    return _lengths(offsets) ^ _added(placed, offsets)


def _added(words: Words, offsets: Longs) -> Words:
    """The sums of stretches of words."""
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(words, dtype=np.uint64)])
    sums: Words = total[offsets[1:]] - total[offsets[:-1]]
    return _mixed(sums)


def _fixed(array: pa.Array, width: int) -> Words:
    """Values of one width in bytes."""
    raw = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    raw = raw[array.offset * width : (array.offset + len(array)) * width]
    offsets = np.arange(len(array) + 1) * width
    return _blocks(raw, offsets[:-1], np.full(len(array), width))


def _texts(array: pa.Array) -> Words:
    """Strings and bytes."""
    offsets = _offsets(array)
    data = array.buffers()[2]
    if data is None or len(array) == 0:
        return _lengths(offsets)
    raw = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    long = np.flatnonzero(lengths > _LONG)
    words = _blocks(raw, starts, np.where(lengths > _LONG, 0, lengths) if len(long) else lengths)
    view = raw.data
    for row in long.tolist():
        start = int(starts[row])
        words[row] = xxhash.xxh3_64_intdigest(view[start : start + int(lengths[row])])
    return words


def _blocks(raw: npt.NDArray[np.uint8], starts: Longs, lengths: Longs) -> Words:
    """A hash of each stretch of bytes, taken eight at a time, all stretches side by side."""
    padded = np.concatenate([raw, np.zeros(8, dtype=np.uint8)])
    eights: Any = np.ndarray(shape=(len(raw) + 1,), dtype="<u8", buffer=padded, strides=(1,))
    words = _mixed(lengths.astype(np.uint64) + _MIX)
    rows = np.flatnonzero(lengths > 0)
    at, left = starts[rows], lengths[rows]
    while len(rows):
        block = eights[at] & _MASKS[np.minimum(left, 8)]
        words[rows] = _mixed(words[rows] ^ block) * _MIX
        more = left > 8
        rows, at, left = rows[more], at[more] + 8, left[more] - 8
    return words
