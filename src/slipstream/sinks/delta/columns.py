"""The columns of a view as those of a Delta table: which types Delta has, and what becomes of the others.

What has no exact counterpart takes the next larger type that holds every value of it; what has none is refused in words
that a user can act on. No column is NOT NULL in the table: a column that is added later has no values in rows that are
there already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

_FORBIDDEN = set(" ,;{}()\n\t=`")
"""Spark makes no Delta table with these in the name of a column, and the library cannot merge with the last."""

_AS: Sequence[tuple[Callable[[pa.DataType], bool], pa.DataType]] = (
    (pt.is_uint8, pa.int16()),
    (pt.is_uint16, pa.int32()),
    (pt.is_uint32, pa.int64()),
    (pt.is_uint64, pa.decimal128(20, 0)),
    (pt.is_float16, pa.float32()),
    (pt.is_date, pa.date32()),
    (pt.is_large_string, pa.string()),
    (pt.is_string_view, pa.string()),
    (pt.is_large_binary, pa.binary()),
    (pt.is_binary_view, pa.binary()),
    (pt.is_fixed_size_binary, pa.binary()),
)
_SAME = (pt.is_boolean, pt.is_signed_integer, pt.is_floating, pt.is_string, pt.is_binary)
_LONGEST = 38  # digits of a decimal


class NoSuchColumn(Exception):
    """A Delta table cannot have a column like this. Its text says which, and why."""


@dataclass(frozen=True)
class Columns:
    """The columns that rows are written with: those of the table in its order, then those that are `added`."""

    schema: pa.Schema
    added: tuple[str, ...] = ()


def landed(schema: pa.Schema) -> pa.Schema:
    """The schema of a Delta table for rows of a schema."""
    _check_names(schema.names)
    return pa.schema([pa.field(each.name, _landed(each.type, each.name)) for each in schema])


def fitted(rows: pa.Schema, table: pa.Schema) -> Columns:
    """How rows go into a table, adding the columns that it lacks. Both were `landed`."""
    theirs = {name.lower(): name for name in table.names}
    for field in rows:
        same = theirs.get(field.name.lower())
        if same is not None and same != field.name:
            raise NoSuchColumn(
                f"column '{field.name}' is '{same}' there, and case makes no difference for Delta"
            )
        if same is not None and table.field(same).type != field.type:
            raise NoSuchColumn(
                f"column '{same}' is {table.field(same).type} there and {field.type} in the view"
            )
    gone = [name for name in table.names if name not in rows.names]
    if gone:
        raise NoSuchColumn(f"the view has no column '{gone[0]}'")
    added = tuple(name for name in rows.names if name not in table.names)
    return Columns(pa.schema([rows.field(name) for name in (*table.names, *added)]), added)


def has_local_time(kind: pa.DataType) -> bool:
    """Whether there are timestamps without a time zone in a type that was `landed`."""
    if pt.is_timestamp(kind):
        return kind.tz is None
    return any(has_local_time(kind.field(i).type) for i in range(kind.num_fields))


def _check_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not name or _FORBIDDEN & set(name):
            raise NoSuchColumn(
                f"column '{name}' has a name that Delta tables do not allow (none of the characters ' ,;{{}}()=`' "
                f"may be in it; give it another with AS)"
            )
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise NoSuchColumn(
                f"columns '{other}' and '{name}' are told apart by case, which Delta does not do"
            )
    if len(seen) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise NoSuchColumn(f"there are two columns '{twice}' (give one another name with AS)")


def _landed(kind: pa.DataType, column: str) -> pa.DataType:
    """A type of Delta's that holds every value of a type."""
    for is_it, instead in _AS:
        if is_it(kind):
            return instead
    if any(is_it(kind) for is_it in _SAME):
        return kind
    if pt.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pt.is_decimal(kind) and kind.precision <= _LONGEST and kind.scale >= 0:
        return pa.decimal128(kind.precision, kind.scale)
    if pt.is_dictionary(kind):
        return _landed(kind.value_type, column)
    if pt.is_map(kind):
        return pa.map_(_landed(kind.key_type, column), _landed(kind.item_type, column))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", _landed(kind.value_type, column)))
    if pt.is_struct(kind) and kind.num_fields:
        _check_names([each.name for each in kind])
        return pa.struct([pa.field(each.name, _landed(each.type, column)) for each in kind])
    raise NoSuchColumn(
        f"column '{column}' is {kind}, a type that Delta tables do not have (cast it to another)"
    )
