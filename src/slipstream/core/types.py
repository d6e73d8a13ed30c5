"""Types as values of them are kept.

Anything inside may be NULL. Spark may know that a field of a struct never is, but to Arrow it is NULL where the struct
is, and that is so in rows of a join's other input.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


def kept_type(kind: DataType) -> DataType:
    """A type as values of it are kept."""
    if isinstance(kind, StructType):
        fields = [StructField(each.name, kept_type(each.dataType), True, each.metadata) for each in kind]
        return StructType(fields)
    if isinstance(kind, ArrayType):
        return ArrayType(kept_type(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kept_type(kind.keyType), kept_type(kind.valueType))
    return kind


def kept_schema(schema: StructType) -> StructType:
    """A relation's columns, as their values are kept."""
    return StructType(
        [StructField(each.name, kept_type(each.dataType), each.nullable, each.metadata) for each in schema]
    )
