"""SQL over the views of a store, all as of one epoch, answered by a Spark of its own.

The engine is not asked and not disturbed: views are read from the store's files with
`spark.read.format("slipstream")`, each fixed to the epoch that was resolved once, before any of them. A
view whose query sorts comes sorted.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import NumericType

from slipstream.app import ordered
from slipstream.cli.tables import Answer
from slipstream.core.errors import QueryFailed, UnknownView
from slipstream.durability.timetravel import resolve_epoch
from slipstream.observe.datasource import SlipstreamSource
from slipstream.spark.session import start_session
from slipstream.store.store import Store

_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


def ask(path: Path, text: str, as_of: str | None, limit: int) -> Answer:
    """Answer SQL over a store. What can be refused without a Spark is refused before one starts."""
    store = Store.existing(path)
    epoch = resolve_epoch(store, as_of)
    with TemporaryDirectory() as warehouse:  # Spark makes one where it runs, unless told
        spark = start_session("slipstream query", None, 2, settings={"spark.sql.warehouse.dir": warehouse})
        try:
            return answer(spark, store, text, epoch, limit)
        finally:
            spark.stop()


def answer(spark: SparkSession, store: Store, text: str, epoch: int, limit: int) -> Answer:
    """Answer SQL in a session."""
    spark.dataSource.register(SlipstreamSource)
    try:
        frame = _analysed(spark, store, text, epoch)
        taken = frame.limit(limit + 1).collect()
    except PySparkException as error:
        raise QueryFailed(_first_lines(error)) from None
    numeric = tuple(field.name for field in frame.schema if isinstance(field.dataType, NumericType))
    rows = tuple(tuple(row) for row in taken[:limit])
    return Answer(epoch, tuple(frame.columns), numeric, rows, len(taken) > limit)


def _analysed(spark: SparkSession, store: Store, text: str, epoch: int) -> DataFrame:
    """The query as a DataFrame: each view that Spark does not find is loaded, so only those that are read are."""
    views = store.catalog().readable
    left = {name.lower(): name for name in views}
    while True:
        try:
            return spark.sql(text)
        except AnalysisException as error:
            missing = _not_found(error)
            if missing is None:
                raise
            view = left.pop(missing.lower(), None)
            if view is None:
                store.view(missing)  # says so if it is a source
                raise UnknownView(missing, views) from None
        reader = spark.read.format("slipstream").option("view", view).option("asOf", epoch)
        frame = ordered(reader.load(str(store.root)), views[view].order)
        frame.createOrReplaceTempView(view)


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
