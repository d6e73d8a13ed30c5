"""Aggregates over the distinct values of a group's rows, as aggregates over some of its rows.

    agg(DISTINCT x) FILTER (WHERE p)   =   agg(x) FILTER (WHERE p AND row_number() OVER (PARTITION BY group, x, p) = 1)

Spark makes two aggregations of one with a DISTINCT when it plans, and the second meets groups of the first in the order
of a hash table, which is another one for the rows as they were and as they are. Then all that goes by the order of its
rows (a list, a sum of doubles), with or without a DISTINCT, is taken away with another value than it was shown with. So
there is one aggregation here, over rows in the order of the trace.

The rows of a group are sent to one partition by a hash of its key, since the window needs them together, and are then
put into that order again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.lower.builder import Builder


def marked(
    build: Builder, rows: Node, group: Sequence[Expr], route: Expr, place: Expr, aggregates: Sequence[Expr]
) -> tuple[Node, list[tuple[Expr, Expr]]]:
    """The rows, with a mark for each DISTINCT on the first of each value; and for each aggregate over distinct values
    the one over marked rows. group: what tells groups apart. route: a number by which groups lie together; place: one
    that tells the order of rows.
    """
    catalyst = build.catalyst
    distinct = [each for each in aggregates if catalyst.is_distinct(each)]
    of_group = [catalyst.column(each) for each in (route, *group)]

    def with_marks(frame: DataFrame) -> DataFrame:
        routed = build.together(frame, catalyst.column(route))
        marks = []
        for i, aggregate in enumerate(distinct):
            told_apart = [catalyst.column(each) for each in _told_apart(catalyst, aggregate)]
            values = Window.partitionBy(*of_group, *told_apart).orderBy(catalyst.column(place))
            marks.append((F.row_number().over(values) == 1).alias(f"first{i}"))
        return routed.select("*", *marks)

    plan = catalyst.over(rows, with_marks)
    marks = catalyst.output(plan)[-len(distinct) :]
    return plan, [
        (each, catalyst.filtered(catalyst.of_all_values(each), mark))
        for each, mark in zip(distinct, marks, strict=True)
    ]


def _told_apart(catalyst: Catalyst, aggregate: Expr) -> list[Expr]:
    """What makes two rows of a group differ to an aggregate over distinct values: its arguments, and whether it counts
    the row at all.
    """
    arguments = [
        catalyst.child(each) if catalyst.kind(each) == "SortOrder" else each
        for each in catalyst.children(catalyst.function(aggregate))
    ]
    only = catalyst.only_where(aggregate)
    found = [catalyst.normalised(each) for each in arguments if not catalyst.foldable(each)]
    return found if only is None else [*found, only]
