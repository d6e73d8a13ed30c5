"""TopK: the first rows of each shard, of which Catalyst picks the first of all.

Ties that the order leaves open are broken by the other columns, in their order, so that the result is one and
the same whenever it is computed. (Spark breaks them as rows happen to arrive.) Without an end, the rows are the whole
input less the first ones.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, MapType, VariantType

from slipstream.core.columns import INTERNAL
from slipstream.dataflow.topk import TopK as Ordered
from slipstream.plan.catalyst import Catalyst, Expr
from slipstream.plan.lower.builder import Columns, Delta
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.nodes import TopK

RANK = f"{INTERNAL}rank"


def topk(low: Lowering, op: TopK) -> Delta:
    child = low.delta(op.input)
    if op.last is not None:
        return _first(low, op, child, op.skipped, op.last)
    catalyst = low.catalyst
    child = low.shared(catalyst.children(op.plan)[0], child)
    first = _first(low, op, child, 0, op.skipped)
    own = [catalyst.column(attribute) for attribute in catalyst.output(op.plan)]
    parts = []
    for delta, sign in ((child, 1), (first, -1)):
        diff = (catalyst.column(delta.diff) * F.lit(sign)).alias("diff")
        parts.append((catalyst.select(delta.plan, [*own, diff]), delta.layout))
    plan, layout = low.build.union(parts)
    return Delta(plan, catalyst.output(plan)[-1], None, layout)


def _first(low: Lowering, op: TopK, child: Delta, skipped: int, last: int) -> Delta:
    catalyst, build = low.catalyst, low.build
    attributes = catalyst.output(op.plan)
    values, stored = build.store(attributes, [], "v")
    columns: Columns = {"h": (catalyst.order_prefix(op.orders[0]), LongType())}
    columns["r"] = (build.hash(build.hashable(values.values())), LongType())
    columns |= values
    columns["diff"] = (catalyst.column(child.diff), LongType())
    operator = Ordered(low.view, op.traces[0], build.input_schema(columns), last)
    ran = build.stage(child.plan, columns, operator)
    side = build.out(ran, "side")
    below = catalyst.project([*build.restored(ran, stored), side], ran)
    ties = [
        catalyst.column(attribute)
        for attribute in attributes
        if not isinstance(catalyst.type_of(attribute), MapType | VariantType)
    ]
    side_column = catalyst.column(catalyst.attribute(side))
    by = [_in_order(catalyst, order) for order in op.orders]
    window = Window.partitionBy(side_column).orderBy(*by, *ties)
    shown = [catalyst.column(attribute) for attribute in attributes]

    def ranked(frame: DataFrame) -> DataFrame:
        rank = frame.select("*", F.row_number().over(window).alias(RANK))
        within = rank.where(F.col(RANK).between(skipped + 1, last))
        return within.select(*shown, side_column.cast("long").alias("diff"))

    plan = catalyst.over(below, ranked)
    return Delta(plan, catalyst.output(plan)[-1], None, "free")


def _in_order(catalyst: Catalyst, order: Expr) -> Column:
    column, first = catalyst.column(catalyst.child(order)), catalyst.nulls_first(order)
    if catalyst.ascending(order):
        return column.asc_nulls_first() if first else column.asc_nulls_last()
    return column.desc_nulls_first() if first else column.desc_nulls_last()
