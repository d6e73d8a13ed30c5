"""ORDER BY with LIMIT: to TopK.

Ties that the order leaves open are broken by the other columns, in their order, so that the result is one and
the same whenever it is computed. (Spark breaks them as rows happen to arrive.)
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, MapType, VariantType

from slipstream.dataflow.graph import Step
from slipstream.dataflow.topk import TopK
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.stages import Columns, stage


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


def topk(build: Builder, sort: Node, limit: int, child: Delta, name: str, trace: str) -> Delta:
    catalyst = build.catalyst
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
        rank = frame.select("*", F.row_number().over(window).alias("_rank"))
        shown = [catalyst.column(attribute) for attribute in attributes]
        return rank.where(F.col("_rank") <= limit).select(*shown, side_column.cast("long").alias("diff"))

    plan = catalyst.over(below, ranked)
    step = Step("TopK", f"first {limit} by {', '.join(o.sql() for o in orders)}", (child.step,), (trace,))
    return Delta(plan, catalyst.output(plan)[-1], None, step, "free")
