"""Columns: the names that Slipstream adds to those of a user, and the types that rows can be kept in.

A column of the user's may have any name but those that begin with `INTERNAL`. What users are shown beside a view's
columns is named so that it is none of them (`beside`).

Rows travel and are kept as Arrow, by hash. A type that has no place there is refused when a source or a view is
declared, and never at the first epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    CharType,
    DataType,
    MapType,
    NullType,
    StructType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

INTERNAL = "_slipstream_"
DIFF, DELETE, BAD, ORDER = (f"{INTERNAL}{each}" for each in ("diff", "delete", "bad", "order"))

INSTEAD: dict[type[DataType], str] = {
    YearMonthIntervalType: "keep the number of months: cast(cast({0} AS INTERVAL MONTH) AS INT)",
    CalendarIntervalType: "use an interval of days and shorter units (make_dt_interval), or keep its parts as numbers",
    VariantType: "keep its text, to_json({0}), or what is needed of it, variant_get({0}, '$.name', 'string')",
}
"""Types that rows cannot be kept in, and what to do with a column of such a type."""

UNREAD: dict[type[DataType], str] = dict.fromkeys((CharType, VarcharType), "declare it as STRING")
"""Types of tables that no reader of Spark's takes."""


def type_in(kind: DataType, among: Collection[type[DataType]]) -> type[DataType] | None:
    """The first of some types that is in another one."""
    return next((type(each) for each in _types_in(kind) if type(each) in among), None)


def field_twice(kind: DataType) -> str | None:
    """A name that two fields of one struct have, anywhere in a type."""
    structs = (each.fieldNames() for each in _types_in(kind) if isinstance(each, StructType))
    return next((name for name in map(repeated, structs) if name is not None), None)


def has_untyped_keys(kind: DataType) -> bool:
    """Whether there is a map anywhere in a type whose keys have no type, as that of `map()`."""
    return any(isinstance(each, MapType) and isinstance(each.keyType, NullType) for each in _types_in(kind))


def _types_in(kind: DataType) -> Iterator[DataType]:
    """A type, and those that it is made of."""
    yield kind
    if isinstance(kind, ArrayType):
        yield from _types_in(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _types_in(kind.keyType)
        yield from _types_in(kind.valueType)
    elif isinstance(kind, StructType):
        for field in kind:
            yield from _types_in(field.dataType)


def beside(columns: Collection[str], name: str) -> str:
    """A name for a column beside others: its own, with as many underscores before it as it takes."""
    taken = {each.lower() for each in columns}
    while name.lower() in taken:
        name = f"_{name}"
    return name


def repeated(columns: Collection[str]) -> str | None:
    """A name that several columns have."""
    return next((name for name in columns if list(columns).count(name) > 1), None)


def quoted(name: str) -> str:
    """A column's name as a reference to it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
