"""Rows as people hold them in Python, as one Arrow table of a declared schema.

Taken are a list of tuples, dicts or Rows; a Spark DataFrame; an Arrow table or record batch; a pandas DataFrame.
Columns go by name wherever there are names; a dict may leave some out, which makes them NULL. The rules for time are
PySpark's: a timestamp without a zone is in the session's zone if it comes from Arrow or pandas, and in this process's
zone if it is a Python `datetime`. NaN in a pandas column is NULL; anywhere else it is NaN.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.pandas.types import _check_arrow_table_timestamps_localize, to_arrow_schema
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    StructType,
    _make_type_verifier,
)

from slipstream.core.errors import BadRow, listed
from slipstream.sources.base import type_name

Objects: TypeAlias = "Iterable[tuple[Any, ...] | Mapping[str, Any] | Row]"
Rows: TypeAlias = "DataFrame | pa.Table | pa.RecordBatch | pd.DataFrame | Objects"


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow columns that Spark takes for a schema: timestamps in UTC, small offsets."""
    return to_arrow_schema(schema, timezone="UTC", prefers_large_types=False)


def table(rows: Rows, schema: StructType, zone: str, source: str) -> pa.Table:
    """The rows as a table of exactly `schema`, or `BadRow`."""
    if isinstance(rows, pd.DataFrame):
        try:
            rows = pa.Table.from_pandas(rows, preserve_index=False)
        except pa.ArrowException as cause:
            raise BadRow(source, "the pandas DataFrame", str(cause), _ddl(schema)) from None
    if isinstance(rows, DataFrame):
        rows = rows.toArrow()
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return _from_arrow(rows, schema, zone, source)
    return _from_objects(rows, schema, source)


def _from_arrow(given: pa.Table, schema: StructType, zone: str, source: str) -> pa.Table:
    names = schema.fieldNames()
    _check_names(given.column_names, names, source, "the table", schema, may_lack=False)
    chosen = given.select(names)
    try:
        local = _check_arrow_table_timestamps_localize(chosen, schema, True, zone)
        fitted = local.cast(arrow_schema(schema))
    except (pa.ArrowException, PySparkException, ValueError) as cause:
        raise BadRow(source, "the table", str(cause), _ddl(schema)) from None
    for field in schema:
        if not field.nullable and fitted.column(field.name).null_count:
            raise BadRow(source, "the table", f"{field.name}: NULL in a NOT NULL column", _ddl(schema))
    return fitted


def _from_objects(given: Iterable[Any], schema: StructType, source: str) -> pa.Table:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        wrong = f"it is of type {type(given).__name__}, not a list of rows"
        raise BadRow(source, "what was given", wrong, _ddl(schema))
    checks = [_make_type_verifier(field.dataType, field.nullable) for field in schema]
    rows = []
    for number, item in enumerate(given):
        values = _values(item, number, schema, source)
        for i, (field, check) in enumerate(zip(schema, checks, strict=True)):
            values[i] = _coerced(values[i], field.dataType)
            try:
                check(values[i])
            except PySparkException:
                shown = f"{field.name}: {values[i]!r} is no {type_name(field.dataType)}"
                null = f"{field.name}: NULL in a NOT NULL column"
                wrong = null if values[i] is None else shown
                raise BadRow(source, f"row {number}", wrong, _ddl(schema)) from None
        rows.append(tuple(values))
    if not rows:
        return arrow_schema(schema).empty_table()
    try:
        return LocalDataToArrowConversion.convert(rows, schema, False)
    except (pa.ArrowException, PySparkException, ValueError, TypeError) as cause:
        raise BadRow(source, "a row", str(cause), _ddl(schema)) from None


def _values(item: Any, number: int, schema: StructType, source: str) -> list[Any]:
    """The row's values in the order of the schema."""
    names = schema.fieldNames()
    where = f"row {number}"
    if isinstance(item, Row) and hasattr(item, "__fields__"):
        item = dict(zip(item.__fields__, item, strict=True))
    if isinstance(item, Mapping):
        _check_names([str(name) for name in item], names, source, where, schema, may_lack=True)
        return [item.get(name) for name in names]
    if not isinstance(item, (tuple, list)):
        wrong = f"it is of type {type(item).__name__}, not a tuple, a dict or a Row"
        raise BadRow(source, where, wrong, _ddl(schema))
    if len(item) != len(names):
        raise BadRow(source, where, f"it has {len(item)} values for {len(names)} columns", _ddl(schema))
    return list(item)


def _check_names(
    given: Sequence[str], names: Sequence[str], source: str, where: str, schema: StructType, *, may_lack: bool
) -> None:
    unknown = set(given) - set(names)
    if unknown:
        raise BadRow(source, where, f"it has the unknown column {listed(unknown)}", _ddl(schema))
    missing = set(names) - set(given)
    if missing and not may_lack:
        raise BadRow(source, where, f"it lacks the column {listed(missing)}", _ddl(schema))


def _coerced(value: Any, data_type: DataType) -> Any:
    """What Python programmers expect to work: a whole number where a fraction is declared, a date as a date."""
    if type(value) is int and isinstance(data_type, (FloatType, DoubleType)):
        return float(value)
    if type(value) is int and isinstance(data_type, DecimalType):
        return decimal.Decimal(value)
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime(warn=False)
    return value


def _ddl(schema: StructType) -> str:
    return ", ".join(f"{field.name} {type_name(field.dataType)}" for field in schema)
