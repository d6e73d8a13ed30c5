"""Rows with a diff, added up; two contents of a table, compared.

Rows are compared exactly: 0.0 is not -0.0, strings that a collation holds for equal differ, and so do maps whose
entries are in another order. One NaN is another.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from slipstream.core.columns import DIFF, quoted


def difference(before: DataFrame, now: DataFrame) -> DataFrame:
    """The rows of a table with a diff each: what takes one with diffs to one without."""
    return netted(now.withColumn(DIFF, F.lit(1).cast("long")).unionAll(before.withColumn(DIFF, -F.col(DIFF))))


def netted(rows: DataFrame) -> DataFrame:
    """Rows with a diff, each row once, and none that is there no times.

    Values are grouped as they are where that tells them apart, and got back from what they are grouped by where they
    can be: then Spark adds up in a hash table. Else one of the group is carried along, and it sorts.
    """
    columns = [_Compared.column(field) for field in rows.schema if field.name != DIFF]
    keys = [each.key.alias(f"k{i}") for i, each in enumerate(columns)]
    carried = [each.value.alias(f"c{i}") for i, each in enumerate(columns)]
    shown = [F.first(f"c{i}").alias(f"c{i}") for i, each in enumerate(columns) if each.back is None]
    summed_up = (
        rows.select(*keys, *carried, F.col(DIFF))
        .groupBy(*[f"k{i}" for i in range(len(columns))])
        .agg(F.sum(DIFF).alias(DIFF), *shown)
        .where(F.col(DIFF) != 0)
    )
    values = [
        (F.col(f"c{i}") if each.back is None else F.col(f"k{i}").cast(each.back)).alias(each.name)
        for i, each in enumerate(columns)
    ]
    return summed_up.select(*values, F.col(DIFF))


@dataclass(frozen=True)
class _Compared:
    """A column, and by what its values are told apart. back: the type that gives a value back from its key, if one
    does.
    """

    name: str
    value: Column
    key: Column
    back: DataType | None

    @staticmethod
    def column(field: StructField) -> _Compared:
        value, kind = F.col(quoted(field.name)), field.dataType
        back = isinstance(kind, FloatType | DoubleType) or is_plain(kind)
        return _Compared(field.name, value, exact(value, kind), kind if back else None)


def is_plain(kind: DataType) -> bool:
    """Whether Spark groups values of a type only if they are the same, bit for bit."""
    if isinstance(kind, StringType):
        return bool(kind.collation == "UTF8_BINARY")
    if isinstance(kind, ArrayType):
        return is_plain(kind.elementType)
    if isinstance(kind, StructType):
        return all(is_plain(field.dataType) for field in kind)
    return not isinstance(kind, FloatType | DoubleType | MapType)


def exact(column: Column, kind: DataType) -> Column:
    """A value by which Spark groups rows only if they are the same, bit for bit but for NaN."""
    if is_plain(kind):
        return column
    if isinstance(kind, FloatType | DoubleType):
        return column.cast("string")
    if isinstance(kind, StringType):
        return column.cast("binary")
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(column, lambda each: exact(each, element))
    if isinstance(kind, MapType):
        entries = StructType([StructField("key", kind.keyType), StructField("value", kind.valueType)])
        told = F.map_entries(column)
        return told if is_plain(entries) else F.transform(told, lambda each: exact(each, entries))
    assert isinstance(kind, StructType), kind
    fields = [
        exact(column.getField(field.name), field.dataType).alias(f"f{i}") for i, field in enumerate(kind)
    ]
    return F.when(column.isNotNull(), F.struct(*fields))
