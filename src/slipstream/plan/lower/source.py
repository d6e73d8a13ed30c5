"""A source's input as the change of a collection.

Bad rows are counted (`observe`, in the same job) and left out; of the others the latest event time is measured.
Rows that carry a diff are that change already; rows that replace each other by key become one through Upsert.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from slipstream.core.columns import BAD, DELETE, DIFF
from slipstream.dataflow.upsert import Upsert
from slipstream.plan.catalyst import WATERMARK
from slipstream.plan.lower.builder import Builder, Columns, Delta, Leaf
from slipstream.plan.nodes import Source
from slipstream.plan.watermarks import measured


def source(build: Builder, op: Source) -> tuple[Leaf, Delta]:
    """The leaf to bind a source's frames to, and the change that comes of it."""
    catalyst = build.catalyst
    fields = [StructField(field.name, field.dataType) for field in op.schema]
    if op.mode == "diff":
        fields.append(StructField(DIFF, LongType()))
    if op.mode == "keyed":
        fields += [StructField(DELETE, BooleanType()), *op.orders]
    if op.rejects:
        fields.append(StructField(BAD, StringType()))
    frame = catalyst.placeholder(StructType(fields))
    leaf = build.leaf(frame)
    bad = F.count(BAD) if op.rejects else F.count_if(F.lit(False))
    frame = frame.observe(op.name, F.count(F.lit(1)).alias("rows"), bad.alias("bad"))
    if op.rejects:
        frame = frame.where(F.col(BAD).isNull()).drop(BAD)
    for field in op.schema:
        if WATERMARK in field.metadata:
            frame = measured(catalyst, frame, field.name, field.metadata[WATERMARK])
    if op.mode == "keyed":
        return leaf, _upsert(build, op, frame)
    if op.mode == "append":
        frame = frame.withColumn(DIFF, F.lit(1).cast("long"))
    plan = catalyst.analysed(frame)
    return leaf, Delta(plan, catalyst.output(plan)[-1], None, "free", inserts_only=op.mode == "append")


def _upsert(build: Builder, op: Source, frame: DataFrame) -> Delta:
    catalyst = build.catalyst
    by_name = {catalyst.name(a): a for a in catalyst.output(catalyst.analysed(frame))}
    keys = [catalyst.normalised(by_name[each]) for each in op.key]
    values, stored = build.store([by_name[field.name] for field in op.schema], keys, "v")
    of_keys = build.keys(keys)
    columns: Columns = {"h": (build.hash(column for column, _ in of_keys.values()), LongType())}
    columns |= of_keys | values
    columns["delete"] = (F.col(DELETE), BooleanType())
    orders = [field.name for field in op.orders]
    columns |= {f"o{i}": (F.col(o), catalyst.type_of(by_name[o])) for i, o in enumerate(orders)}
    operator = Upsert(op.name, op.trace, build.input_schema(columns))
    ran = build.stage(catalyst.analysed(frame), columns, operator)
    diff, route = build.out(ran, "diff", DIFF), build.out(ran, "h")
    plan = catalyst.project([*build.restored(ran, stored), diff, route], ran)
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), "sharded")
