"""Watermarks in queries: how a column is marked as event time, and how its latest value is measured.

A column is marked the way Spark marks it, in its metadata (`spark.watermarkDelayMs`), and beside that with the name of
its watermark. Spark's analyser carries metadata along: a window over the column has it, a renamed column, a view's
column. So where a stateful operator is keyed by event time is read from its keys, as in Structured Streaming.

Over relations that are not streams, Spark drops `withWatermark` as it analyses, and as streams our placeholders could
not be used in subqueries or joined with themselves. So while a view's query is being written, `withWatermark` of a
frame that is not a stream marks the column instead of vanishing (`kept`). That is all it does, so it harms nobody who
calls it meanwhile in another thread.

The latest event time is measured by `observe` where the watermark stands, in the epoch's one job.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from slipstream.core.errors import BadWatermark
from slipstream.plan.catalyst import WATERMARK, WATERMARK_DELAY, Catalyst, Node

_OBSERVED = "watermark "
_writing = threading.RLock()


def marked_schema(
    catalyst: Catalyst, source: str, schema: StructType, watermark: tuple[str, str]
) -> StructType:
    """A source's schema with a column marked as its event time."""
    wanted, delay = watermark
    known = [field.name for field in schema if field.name.lower() == wanted.lower()]
    if not known:
        raise BadWatermark(f"source '{source}'", f"it has no column '{wanted}'", schema.names)
    marks = {WATERMARK: f"{source}.{known[0]}", WATERMARK_DELAY: catalyst.delay(delay)}
    return StructType(
        [_marked(field, marks, source) if field.name == known[0] else field for field in schema]
    )


def _marked(field: StructField, marks: dict[str, Any], source: str) -> StructField:
    _check_type(f"source '{source}'", field)
    return StructField(field.name, field.dataType, field.nullable, {**field.metadata, **marks})


def mark_of(field: StructField) -> str:
    """A column's watermark with its delay, as text; empty for a column that has none."""
    marks = [field.metadata.get(mark) for mark in (WATERMARK, WATERMARK_DELAY)]
    return "" if marks[0] is None else f"{marks[0]} - {marks[1]} ms"


def measured(catalyst: Catalyst, frame: DataFrame, column: str, watermark: str) -> DataFrame:
    """A frame whose run tells the latest time in a column, under the name of its watermark."""
    latest = F.max(catalyst.microseconds(frame, column))
    return frame.observe(f"{_OBSERVED}{watermark}", latest.alias("latest"))


def measured_watermark(catalyst: Catalyst, node: Node) -> str | None:
    """The watermark whose latest time a node measures; None if it is any other node."""
    return (
        observed_watermark(catalyst.metrics_name(node)) if catalyst.kind(node) == "CollectMetrics" else None
    )


def observed_watermark(observation: str) -> str | None:
    """The watermark whose latest time goes by this name among a run's observations; None for others."""
    return observation.removeprefix(_OBSERVED) if observation.startswith(_OBSERVED) else None


@contextmanager
def kept(catalyst: Catalyst, view: str) -> Iterator[None]:
    """While this is open, `withWatermark` of frames that are no streams marks and measures: a view's query is
    written.
    """
    taken: Counter[str] = Counter()
    with _writing:
        original = ClassicDataFrame.withWatermark

        def with_watermark(frame: ClassicDataFrame, eventTime: str, delayThreshold: str) -> DataFrame:  # noqa: N803
            checked = original(frame, eventTime, delayThreshold)
            if frame.isStreaming:
                return checked
            field = checked.select(eventTime).schema[0]
            _check_type(f"view '{view}'", field)
            taken[field.name] += 1
            name = f"{view}.{field.name}" + (f".{taken[field.name]}" if taken[field.name] > 1 else "")
            marks = {WATERMARK: name, WATERMARK_DELAY: catalyst.delay(delayThreshold)}
            marked = frame.withMetadata(field.name, {**field.metadata, **marks})
            return measured(catalyst, marked, field.name, name)

        setattr(ClassicDataFrame, "withWatermark", with_watermark)  # noqa: B010
        try:
            yield
        finally:
            setattr(ClassicDataFrame, "withWatermark", original)  # noqa: B010


def _check_type(where: str, field: StructField) -> None:
    if not isinstance(field.dataType, TimestampType | TimestampNTZType):
        raise BadWatermark(
            where, f"'{field.name}' is of type {field.dataType.simpleString()}, not TIMESTAMP", ()
        )
