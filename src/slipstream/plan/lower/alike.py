"""Alike: rows counted, by pane. How many there are is carried where a route would be: linear nodes pass it on."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from slipstream.plan.lower.builder import Delta
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.nodes import Alike


def alike(low: Lowering, op: Alike) -> Delta:
    catalyst, child = low.catalyst, low.delta(op.input)
    moment = catalyst.moment(op.time)
    size = F.lit(op.sliding.pane).cast("long")
    begins = moment - F.pmod(moment - F.lit(op.sliding.offset).cast("long"), size)
    names = [f"a{i}" for i in range(len(op.attributes))]

    def counted(frame: DataFrame) -> DataFrame:
        columns = [catalyst.column(each).alias(name) for each, name in zip(op.attributes, names, strict=True)]
        rows = frame.select(*columns, begins.alias("t"), catalyst.column(child.diff).alias("d"))
        groups = rows.groupBy(*names, "t", "d").agg(F.count(F.lit(1)).alias("n"))
        return groups.select(*names, "t", (F.col("d") * F.col("n")).alias("diff"), "n")

    made = catalyst.over(child.plan, counted)
    *given, begun, diff, copies = catalyst.output(made)
    renamed = [catalyst.renamed(mine, theirs) for mine, theirs in zip(given, op.attributes, strict=True)]
    again = catalyst.renamed(catalyst.timestamp(begun, op.time), op.time)
    plan = catalyst.project([*renamed, again, diff, copies], made)
    return Delta(plan, diff, copies, "free")
