"""The columns of a source's frame, given the columns that it declared."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from slipstream.core.columns import BAD, DELETE, DIFF, ORDER, quoted
from slipstream.sources.base import Changes
from slipstream.sources.operations import BEFORE_IMAGES, DELETES, UPSERTS


def shaped(
    read: DataFrame,
    schema: StructType,
    changes: Changes,
    order: Sequence[Column],
    unreadable: Column | None = None,
    extra: Sequence[Column] = (),
) -> DataFrame:
    """`read`, which has the columns of `schema`, as `Source.frame` must return it.

    `unreadable` is NULL for rows that could be parsed and otherwise says why not; `extra` columns come last.
    """
    rows = (
        read
        if changes.op is None
        else read.where(~F.coalesce(_op(changes).isin(*BEFORE_IMAGES), F.lit(False)))
    )
    columns = [F.col(quoted(field.name)) for field in schema if field.name not in changes.hidden]
    if changes.mode == "diff":
        columns.append(F.col(quoted(str(changes.diff))).cast("long").alias(DIFF))
    if changes.mode == "keyed":
        gone = F.lit(False) if changes.op is None else F.coalesce(_op(changes).isin(*DELETES), F.lit(False))
        columns.append(gone.alias(DELETE))
        columns.extend(column.alias(f"{ORDER}{i}") for i, column in enumerate(order))
    reasons = [unreadable, *_misunderstood(changes)]
    known = [reason for reason in reasons if reason is not None]
    if known:
        columns.append(F.coalesce(*known).alias(BAD))
    return rows.select(*columns, *extra)


def _op(changes: Changes) -> Column:
    return F.lower(F.col(quoted(str(changes.op))))


def _misunderstood(changes: Changes) -> list[Column]:
    """Why a row that could be read cannot be applied."""
    if changes.diff is not None:
        diff = F.col(quoted(changes.diff))
        return [F.when(diff.isNull(), F.lit(f"the diff column '{changes.diff}' is NULL"))]
    if changes.op is not None:
        op = F.col(quoted(changes.op))
        unknown = F.concat(F.lit("unknown operation '"), op, F.lit("'"))
        return [
            F.when(op.isNull(), F.lit("unknown operation NULL")).when(
                ~_op(changes).isin(*UPSERTS, *DELETES), unknown
            )
        ]
    return []
