"""Arrow columns as the CSV that PostgreSQL's COPY reads, exactly.

pyarrow writes the lines: what may hold anything is quoted, so that `""` is an empty text and nothing at all is NULL.
Numbers are written as short as they can be read back the same. What CSV has no word for becomes text before: bytes as
hexadecimal digits, lists as array literals, years before Christ with their letters, and whatever is nested as JSON,
value by value in Python, which is slower than the rest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from slipstream.sinks.postgres.types import is_binary, is_list, is_nested, is_text

_PIECE = 8 << 20  # bytes of Arrow that are text at once
_ROWS = 1 << 16
_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="needed", batch_size=1 << 14)
_DIGITS = np.array([f"{byte:02x}".encode() for byte in range(256)], dtype="S2")
_CHRIST = {"s": -62135596800, "ms": -62135596800 * 10**3, "us": -62135596800 * 10**6}
_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}


def as_csv(table: pa.Table) -> Iterator[pa.Buffer]:
    """The rows of a table, in pieces of a size that a connection takes well."""
    rows = max(1, min(_ROWS, table.num_rows * _PIECE // max(1, table.nbytes)))
    for start in range(0, table.num_rows, rows):
        piece = table.slice(start, rows)
        columns = [written(column.combine_chunks()) for column in piece.columns]
        sink = pa.BufferOutputStream()
        names = [str(number) for number in range(len(columns))]
        csv.write_csv(pa.table(columns, names), sink, _OPTIONS)
        yield sink.getvalue()


def written(values: Any) -> Any:
    """A column as one that pyarrow's CSV writes as PostgreSQL reads it."""
    if isinstance(values, pa.ChunkedArray):  # what is too long for one array
        return pa.chunked_array([written(each) for each in values.chunks])
    kind = values.type
    if pa.types.is_dictionary(kind):
        return written(values.cast(kind.value_type))
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_float16(kind):
        return values.cast(pa.float32())
    if pa.types.is_string_view(kind):
        return values.cast(pa.large_string())
    if is_binary(kind):
        return _hexadecimal(values)
    if pa.types.is_date(kind):
        values = values.cast(pa.date32())
        return _before_christ(values, -719162, values.cast(pa.int32()))
    if pa.types.is_timestamp(kind):
        return _timestamp(values)
    if pa.types.is_duration(kind):
        return _interval(values)
    if is_list(kind) and not is_nested(kind.value_type):
        return _array(values)
    if is_nested(kind):
        encode = _json(kind)
        return pa.array([None if each is None else encode(each) for each in values.to_pylist()], pa.string())
    return values


def _timestamp(values: Any) -> Any:
    """In UTC where there is a time zone: offsets of old had seconds, which are not written."""
    kind = values.type
    unit = "us" if kind.unit == "ns" else kind.unit
    if kind.unit == "ns":  # what is finer than a microsecond has no place there
        values = pc.floor_temporal(values, 1, "microsecond").cast(pa.timestamp("us", kind.tz))
    values = values.cast(pa.timestamp(unit, None if kind.tz is None else "UTC"))
    return _before_christ(values, _CHRIST[unit], values.cast(pa.int64()))


def _before_christ(values: Any, begin: int, numbers: Any) -> Any:
    """The year 0 of Arrow is PostgreSQL's 1 BC."""
    first = pc.min(numbers).as_py()
    if first is None or first >= begin:
        return values

    def told(text: str | None) -> str | None:
        if text is None or not text.startswith(("-", "0000-")):
            return text
        year, rest = text[:5] if text[0] == "-" else text[:4], text[5 if text[0] == "-" else 4 :]
        return f"{1 - int(year):04d}{rest} BC" if year.lstrip("-").isdecimal() else text

    return pa.array([told(text) for text in values.cast(pa.string()).to_pylist()], pa.string())


def _interval(values: Any) -> Any:
    unit = values.type.unit
    if unit == "ns":
        count = pc.divide(values.cast(pa.int64()), 1000)
    else:
        count = pc.multiply_checked(values.cast(pa.int64()), _MICROSECONDS[unit])
    return pc.binary_join_element_wise(count.cast(pa.string()), " microseconds", "")


def _hexadecimal(values: Any) -> Any:
    bytes_ = values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values
    bytes_ = pc.fill_null(bytes_.cast(pa.large_binary()), b"")
    _, places, data = bytes_.buffers()
    offsets = np.frombuffer(places, np.int64)[bytes_.offset : bytes_.offset + len(bytes_) + 1]
    raw = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    digits = pa.py_buffer(_DIGITS[raw].tobytes())
    ends = pa.py_buffer(np.ascontiguousarray((offsets - offsets[0]) * 2))
    text = pa.LargeStringArray.from_buffers(len(bytes_), ends, digits)
    prefix = pa.scalar("\\x", pa.large_string())
    told = pc.binary_join_element_wise(prefix, text, pa.scalar("", pa.large_string()))
    return pc.if_else(pc.is_valid(values), told, pa.scalar(None, pa.large_string()))


def _array(values: Any) -> Any:
    """Lists as array literals: each element in quotes, and NULL without."""
    counts = pc.fill_null(pc.list_value_length(values).cast(pa.int64()), 0).to_numpy()
    elements = written(pc.list_flatten(values)).cast(pa.large_string())
    if is_text(values.type.value_type) or is_binary(values.type.value_type):
        elements = pc.replace_substring(elements, "\\", "\\\\")
        elements = pc.replace_substring(elements, '"', '\\"')
    quote, nothing = pa.scalar('"', pa.large_string()), pa.scalar("", pa.large_string())
    quoted = pc.fill_null(pc.binary_join_element_wise(quote, elements, quote, nothing), "NULL")
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int64())
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, quoted), pa.scalar(",", pa.large_string()))
    braces = [pa.scalar(brace, pa.large_string()) for brace in "{}"]
    told = pc.binary_join_element_wise(braces[0], joined, braces[1], nothing)
    return pc.if_else(pc.is_valid(values), told, pa.scalar(None, pa.large_string()))


def _json(kind: pa.DataType) -> Callable[[Any], str]:
    """What writes a value, which is not None, as JSON. Numbers are exact; what JSON has no word for is text."""
    if pa.types.is_dictionary(kind):
        return _json(kind.value_type)
    if pa.types.is_map(kind):
        key, value = _json(kind.key_type), _nullable(kind.item_type)
        return lambda pairs: "{" + ",".join(f"{_name(key(k))}:{value(v)}" for k, v in pairs) + "}"
    if pa.types.is_struct(kind):
        fields = [(each.name, _quoted(each.name), _nullable(each.type)) for each in kind]
        return lambda row: "{" + ",".join(f"{name}:{tell(row[of])}" for of, name, tell in fields) + "}"
    if is_list(kind):
        element = _nullable(kind.value_type)
        return lambda values: f"[{','.join(map(element, values))}]"
    if pa.types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if pa.types.is_integer(kind):
        return str
    if pa.types.is_floating(kind):
        return _floating
    if pa.types.is_decimal(kind):
        return lambda value: format(value, "f")
    if is_text(kind):
        return _quoted
    if is_binary(kind):
        return lambda value: f'"{value.hex()}"'
    if pa.types.is_duration(kind):
        return lambda value: f'"{value // _MICROSECOND} microseconds"'
    if pa.types.is_timestamp(kind):
        return lambda value: f'"{_instant(value).isoformat()}"'
    return lambda value: f'"{value.isoformat()}"'


def _nullable(kind: pa.DataType) -> Callable[[Any], str]:
    tell = _json(kind)
    return lambda value: "null" if value is None else tell(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _name(told: str) -> str:
    """The key of a map, which is JSON already, as the name that JSON wants: a text."""
    return told if told.startswith('"') else _quoted(told)


def _floating(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else f'"{"-" if value < 0 else ""}Infinity"'


def _instant(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(UTC)
