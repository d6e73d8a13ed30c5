"""ORDER BY with LIMIT, OFFSET or both: to TopK.

A stretch of an order from place m to place n is the first n rows without the first m. Without a LIMIT it has no
end: then it is the whole input, less the first m rows.

Ties that the order leaves open are broken by the other columns, in their order, so that the result is one and
the same whenever it is computed. (Spark breaks them as rows happen to arrive.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, MapType, VariantType

from slipstream.columns import INTERNAL
from slipstream.dataflow.graph import Step
from slipstream.dataflow.topk import TopK
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.stages import Columns, stage

RANK = f"{INTERNAL}rank"
LIMITS = ("GlobalLimit", "LocalLimit", "Offset")


def order_columns(catalyst: Catalyst, orders: list[Expr]) -> list[Column]:
    columns = []
    for order in orders:
        column = catalyst.column(order.child())
        ascending = catalyst.kind(order.direction()).startswith("Ascending")
        first = catalyst.kind(order.nullOrdering()).startswith("NullsFirst")
        if ascending:
            columns.append(column.asc_nulls_first() if first else column.asc_nulls_last())
        else:
            columns.append(column.desc_nulls_first() if first else column.desc_nulls_last())
    return columns


@dataclass(frozen=True)
class Stretch:
    """Rows of an order: those after the first `skipped`, up to the place `last` if there is one; and the
    projections that were between the limits and the Sort, topmost first.
    """

    sort: Node
    skipped: int
    last: int | None
    between: tuple[Node, ...]


def stretch(catalyst: Catalyst, node: Node) -> Stretch | None:
    """The rows that limits and offsets leave of a Sort below them; None where there is none, or a limit is open."""
    found = limits_over(catalyst, node)
    return Stretch(*found) if found is not None and catalyst.kind(found[0]) == "Sort" else None


def limits_over(catalyst: Catalyst, node: Node) -> tuple[Node, int, int | None, tuple[Node, ...]] | None:
    """What limits, offsets and projections, if there are any, are over, and which rows they leave of it: as in a
    `Stretch`. None where a limit is open.
    """
    steps, between = [], []
    while (kind := catalyst.kind(node)) in (*LIMITS, "Project"):
        if kind == "Project":
            between.append(node)
        elif kind != "LocalLimit":
            count = node.offsetExpr() if kind == "Offset" else node.limitExpr()
            if catalyst.kind(count) != "Literal":
                return None
            steps.append((kind, int(count.value())))
        node = catalyst.children(node)[0]
    skipped, last = 0, None
    for kind, count in reversed(steps):
        if kind == "Offset":
            skipped += count
        else:
            last = skipped + count if last is None else min(last, skipped + count)
    return node, skipped, last, tuple(between)


def rest(build: Builder, sort: Node, skipped: int, child: Delta, name: str, trace: str) -> Delta:
    """All rows but the first. The child is read twice."""
    catalyst = build.catalyst
    first = topk(build, Stretch(sort, 0, skipped, ()), child, name, trace)
    own = [catalyst.column(attribute) for attribute in catalyst.output(sort)]
    parts = []
    for delta, sign in ((child, 1), (first, -1)):
        diff = (catalyst.column(delta.diff) * F.lit(sign)).alias("diff")
        parts.append((catalyst.select(delta.plan, [*own, diff]), delta.layout))
    plan, layout = build.union(parts)
    step = replace(first.step, detail=f"all but the {first.step.detail}")
    return Delta(plan, catalyst.output(plan)[-1], None, step, layout)


def topk(build: Builder, rows: Stretch, child: Delta, name: str, trace: str) -> Delta:
    catalyst = build.catalyst
    sort, skipped, limit = rows.sort, rows.skipped, rows.last
    assert limit is not None, "without an end there is nothing to keep ordered: see rest"
    orders = catalyst.items(sort.order())
    attributes = catalyst.output(sort)
    values, stored = build.store(attributes, [], "v")
    columns: Columns = {"h": (catalyst.order_prefix(orders[0]), LongType())}
    columns["r"] = (build.hash(build.hashable(values.values())), LongType())
    columns |= values
    columns["diff"] = (catalyst.column(child.diff), LongType())

    def make(schema: pa.Schema) -> TopK:
        return TopK(name, trace, schema, limit)

    ran = stage(build, child.plan, columns, make)
    side = build.out(ran, "side")
    below = catalyst.project([*build.restored(ran, stored), side], ran)
    ties = [
        catalyst.column(attribute)
        for attribute in attributes
        if not isinstance(catalyst.type_of(attribute), MapType | VariantType)
    ]
    side_column = catalyst.column(catalyst.attribute(side))
    window = Window.partitionBy(side_column).orderBy(*order_columns(catalyst, orders), *ties)

    def ranked(frame: DataFrame) -> DataFrame:
        rank = frame.select("*", F.row_number().over(window).alias(RANK))
        shown = [catalyst.column(attribute) for attribute in attributes]
        return rank.where(F.col(RANK).between(skipped + 1, limit)).select(
            *shown, side_column.cast("long").alias("diff")
        )

    plan = catalyst.over(below, ranked)
    places = f"first {limit}" if not skipped else f"places {skipped + 1} to {limit}"
    step = Step("TopK", f"{places} by {', '.join(o.sql() for o in orders)}", (child.step,), (trace,))
    return Delta(plan, catalyst.output(plan)[-1], None, step, "free")
