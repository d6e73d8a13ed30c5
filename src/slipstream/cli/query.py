"""SQL over the views of a store, all as of one epoch, answered by a Spark of its own.

The engine is not asked and not disturbed: views are read from the store's files with
`spark.read.format("slipstream")`, each fixed to the epoch that was resolved once, before any of them. A
view whose query sorts comes sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import NumericType

from slipstream.app import ordered
from slipstream.datasource import SlipstreamSource
from slipstream.durability.store import Store
from slipstream.durability.timetravel import resolve_epoch
from slipstream.errors import QueryFailed, UnknownView
from slipstream.session import start_session

_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


@dataclass(frozen=True)
class Answer:
    """A query's result. more: there are rows beyond the limit."""

    epoch: int
    columns: tuple[str, ...]
    numeric: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


def ask(path: Path, text: str, as_of: str | None, limit: int) -> Answer:
    """Answer SQL over a store. What can be refused without a Spark is refused before one starts."""
    store = Store.existing(path)
    epoch = resolve_epoch(store.root, as_of)
    spark = start_session("slipstream query", None, 2)
    try:
        return answer(spark, store, text, epoch, limit)
    finally:
        spark.stop()


def answer(spark: SparkSession, store: Store, text: str, epoch: int, limit: int) -> Answer:
    """Answer SQL in a session."""
    views = store.catalog()["views"]
    spark.dataSource.register(SlipstreamSource)
    for name, entry in views.items():
        reader = spark.read.format("slipstream").option("view", name).option("asOf", epoch)
        ordered(reader.load(str(store.root)), entry["order"]).createOrReplaceTempView(name)
    try:
        frame = spark.sql(text)
        taken = frame.limit(limit + 1).collect()
    except AnalysisException as error:
        missing = _not_found(error)
        if missing is not None:
            raise UnknownView(missing, views) from None
        raise QueryFailed(_first_lines(error)) from None
    except PySparkException as error:
        raise QueryFailed(_first_lines(error)) from None
    numeric = tuple(field.name for field in frame.schema if isinstance(field.dataType, NumericType))
    rows = tuple(tuple(row) for row in taken[:limit])
    return Answer(epoch, tuple(frame.columns), numeric, rows, len(taken) > limit)


def _not_found(error: AnalysisException) -> str | None:
    """The name that a query mentions and nothing has."""
    if error.getCondition() != _NOT_FOUND:
        return None
    return (error.getMessageParameters() or {}).get("relationName", "").replace("`", "") or None


def _first_lines(error: PySparkException) -> str:
    """Spark's message without the plan or the JVM's stack that follows it."""
    kept = []
    for line in str(error).splitlines():
        if line.startswith(("'", "+- ", "JVM stacktrace", "\tat ")):
            break
        kept.append(line)
    return "\n".join(kept).strip()
