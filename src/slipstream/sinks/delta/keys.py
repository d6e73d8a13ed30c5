"""Which keys of rows are in a Delta table already: what has to be known before rows are merged by key.

Of the table only the key columns are read, of no more files than may have such a key: bounds of each key column are
compared with the statistics in the table's log. A few keys are named one by one, so a key here and one there cost two
files and not all between.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEW = 20  # keys; of more, statistics are not compared with each
_TABLE = "target"


def first_there(table: DeltaTable, rows: pa.Table, key: Sequence[str]) -> tuple[Any, ...] | None:
    """A key of the rows that the table has, if there is one."""
    from deltalake import QueryBuilder

    keys = rows.select(list(key)).rename_columns(_names(key))
    if not keys.num_rows:
        return None
    columns = ", ".join(f"{quoted(each)} AS {name}" for each, name in zip(key, _names(key), strict=True))
    bounds = [each for i, name in enumerate(key) if (each := _bounds(quoted(name), keys.column(i)))]
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    found = QueryBuilder().register(_TABLE, table).execute(f"SELECT {columns} FROM {_TABLE}{where}")
    for batch in pa.RecordBatchReader.from_stream(found):
        theirs = pa.Table.from_batches([batch]).cast(keys.schema)
        both = theirs.join(keys, _names(key), join_type="left semi")
        if both.num_rows:
            return tuple(both.slice(0, 1).to_pylist()[0].values())
    return None


def quoted(name: str) -> str:
    """A column's name in SQL, as it is."""
    return '"' + name.replace('"', '""') + '"'


def _names(key: Sequence[str]) -> list[str]:
    return [f"k{i}" for i in range(len(key))]


def _bounds(name: str, values: pa.ChunkedArray) -> str | None:
    """What is true of a column's values, in SQL; None where nothing is said of their type."""
    if not _comparable(values.type):
        return None
    if len(values) <= _FEW:
        return f"{name} IN ({', '.join(_literal(each, values.type) for each in values.unique().to_pylist())})"
    ends = pc.min_max(values).as_py()
    least, most = (_literal(ends[each], values.type) for each in ("min", "max"))
    return f"{name} >= {least} AND {name} <= {most}"


def _comparable(kind: pa.DataType) -> bool:
    """Whether Arrow and the table's engine order a type alike, and it has literals."""
    return any(
        is_it(kind) for is_it in (pt.is_integer, pt.is_string, pt.is_date, pt.is_timestamp, pt.is_decimal)
    )


def _literal(value: Any, kind: pa.DataType) -> str:
    match value:
        case int():
            return str(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            zone = "None" if kind.tz is None else 'Some("UTC")'
            text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
            return f"arrow_cast('{text}', 'Timestamp(Microsecond, {zone})')"
        case date():
            return f"DATE '{value.isoformat()}'"
        case Decimal():
            return f"arrow_cast('{value:f}', 'Decimal128({kind.precision}, {kind.scale})')"
    raise AssertionError(f"a key has no literal: {value!r}")
