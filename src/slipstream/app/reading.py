"""A view of a store as a frame of Spark's: what it holds, or its changes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from slipstream.core.errors import HeldWarning
from slipstream.dataflow.contents import Contents, Reading, places
from slipstream.durability.timetravel import check_there
from slipstream.observe.switching import Parts, changes_of
from slipstream.store.catalog import ViewEntry
from slipstream.store.store import Store


def frame_of(
    spark: SparkSession,
    store: Store,
    shards: int,
    name: str,
    view: ViewEntry,
    as_of: int,
    since: int | None = None,
    *,
    in_order: bool = False,
) -> DataFrame:
    """A view's contents, or its changes, as a frame: read by the workers that run the epochs, which are warm. Two
    columns of a view may have one name, so they are read by their places.
    """
    entry = view.at(as_of)
    fields = list(StructType.fromJson(entry.schema))
    contents = Contents.described(entry.contents)
    check_there(store, name, as_of, since, base=not contents.is_bag)
    root = str(store.root)
    reading: Reading | Parts = Reading(contents, root, shards, entry.shown(as_of))
    if since is not None:
        fields += [StructField(beside, LongType()) for beside in contents.beside]
        stretches = view.between(since, as_of)
        described = [(Contents.described(was.contents), after, upto) for was, after, upto in stretches]
        reading = changes_of(name, described, root, shards)
    names, by_place = [field.name for field in fields], places(len(fields))
    schema = StructType(
        [
            StructField(place, field.dataType, field.nullable, field.metadata)
            for place, field in zip(by_place, fields, strict=True)
        ]
    )
    frame = spark.range(0, shards, 1, shards).mapInArrow(reading, schema)
    order = [(by_place[names.index(column)], up, first) for column, up, first in entry.order]
    return ordered(frame, order if in_order else ()).toDF(*names)


def warn_if_held(view: str, entry: ViewEntry, epoch: int) -> None:
    """Say that a view is not shown as of an epoch, but as of an earlier one."""
    if entry.held is not None and entry.held.last < epoch:
        why = entry.held
        warnings.warn(HeldWarning(view, why.last, why.cause, why.row, why.because), stacklevel=3)


def ordered(frame: DataFrame, order: Sequence[tuple[str, bool, bool]]) -> DataFrame:
    """A view's rows in the order that its query asks for, if it does: (column, ascending, nulls first)."""
    return frame.orderBy(*[_sorting(*each) for each in order]) if order else frame


def _sorting(name: str, ascending: bool, nulls_first: bool) -> Column:
    column = F.col(f"`{name}`")
    if ascending:
        return column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if nulls_first else column.desc_nulls_last()
