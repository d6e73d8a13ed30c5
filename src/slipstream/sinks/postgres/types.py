"""Which type of PostgreSQL's takes a column, and which types of a table that is there do as well.

Types are written as PostgreSQL's `format_type` writes them, so that what is made and what is found compare as text.
A type of a table fits where it has every value of the view's, and gives it back as it was: a `bigint` column takes an
`integer`, an `integer` no `bigint`, and `double precision` no `real`, whose 0.1 is another number.
"""

from __future__ import annotations

import re

import pyarrow as pa

_FIXED = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_unsigned_integer, "numeric"),
    (pa.types.is_float16, "real"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time without time zone"),
    (pa.types.is_duration, "interval"),
    (pa.types.is_null, "text"),
)

_WIDER = {
    "smallint": {"integer", "bigint", "numeric"},
    "integer": {"bigint", "numeric"},
    "bigint": {"numeric"},
    "text": {"character varying"},
    "jsonb": {"json"},
}

_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")


def type_of(kind: pa.DataType) -> str | None:
    """The type for values of a column; None where there is none."""
    if pa.types.is_dictionary(kind):
        return type_of(kind.value_type)
    for are, name in _FIXED:
        if are(kind):
            return name
    if is_text(kind):
        return "text"
    if is_binary(kind):
        return "bytea"
    if pa.types.is_decimal(kind):
        return _numeric(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return f"timestamp {'without' if kind.tz is None else 'with'} time zone"
    if is_list(kind) and not is_nested(kind.value_type):
        element = type_of(kind.value_type)
        return None if element is None else f"{element}[]"
    if is_nested(kind):
        return "jsonb" if all(type_of(each) is not None for each in _inside(kind)) else None
    return None


def fits(found: str, wanted: str) -> bool:
    """Whether a column of one type, in a table that is there, has every value of another."""
    if found.endswith("[]") and wanted.endswith("[]"):
        return fits(found[:-2], wanted[:-2])
    if found == wanted or found in _WIDER.get(wanted, ()):
        return True
    there, asked = _NUMERIC.fullmatch(found), _NUMERIC.fullmatch(wanted)
    if asked is None:
        return False
    if there is None:
        return found == "numeric"
    (precision, scale), (least, digits) = map(int, there.groups()), map(int, asked.groups())
    return scale >= digits and precision - scale >= least - digits


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    large = pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or large)


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_nested(kind: pa.DataType) -> bool:
    return bool(is_list(kind) or pa.types.is_map(kind) or pa.types.is_struct(kind))


def _inside(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(number).type for number in range(kind.num_fields)]


def _numeric(precision: int, scale: int) -> str:
    if scale < 0:  # older servers know no such, and it is a whole number
        return f"numeric({precision - scale},0)"
    return f"numeric({max(precision, scale)},{scale})"
