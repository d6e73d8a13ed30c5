"""Names of columns beside the user's, and types that have no place in a row."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from slipstream.core.columns import INSTEAD, beside, field_twice, repeated, type_in


@pytest.mark.parametrize(
    ("columns", "name"),
    [([], "_diff"), (["diff"], "_diff"), (["_diff"], "__diff"), (["_DIFF", "__diff"], "___diff")],
)
def test_a_column_beside_others_is_none_of_them(columns: list[str], name: str) -> None:
    assert beside(columns, "_diff") == name


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (IntegerType(), None),
        (VariantType(), VariantType),
        (ArrayType(YearMonthIntervalType()), YearMonthIntervalType),
        (MapType(StringType(), CalendarIntervalType()), CalendarIntervalType),
        (StructType().add("x", ArrayType(VariantType())), VariantType),
    ],
)
def test_types_are_found_at_any_depth(kind: DataType, expected: type[DataType] | None) -> None:
    assert type_in(kind, INSTEAD) is expected


def test_a_field_that_is_twice_in_a_struct_is_found_at_any_depth() -> None:
    inner = StructType().add("x", StringType()).add("x", IntegerType())
    assert field_twice(inner) == "x"
    assert field_twice(StructType().add("a", ArrayType(MapType(StringType(), inner)))) == "x"
    assert field_twice(StructType().add("x", StructType().add("x", StringType()))) is None


def test_a_name_that_several_columns_have() -> None:
    assert repeated(["a", "b", "a"]) == "a"
    assert repeated(["a", "b", "A"]) is None
