"""A source's input as the change of a collection.

Bad rows are counted (`observe`, in the same job) and left out; of the others the latest event time is measured.
Rows that carry a diff are that change already; rows that replace each other by key become one through Upsert.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from slipstream.columns import BAD, DELETE, DIFF
from slipstream.dataflow.graph import Step
from slipstream.dataflow.upsert import Upsert
from slipstream.plan.catalyst import WATERMARK
from slipstream.plan.delta import Builder, Delta, Leaf
from slipstream.plan.stages import Columns, stage
from slipstream.plan.watermarks import measured


def input_delta(
    build: Builder,
    name: str,
    rows: StructType,
    mode: str,
    key: Sequence[str],
    orders: Sequence[StructField],
    rejects: bool,
    trace: str,
) -> tuple[Leaf, Delta]:
    """The leaf to bind a source's frames to, and the change that comes of it. trace: where rows are kept by key."""
    catalyst = build.catalyst
    fields = [StructField(field.name, field.dataType) for field in rows]
    if mode == "diff":
        fields.append(StructField(DIFF, LongType()))
    if mode == "keyed":
        fields += [StructField(DELETE, BooleanType()), *orders]
    if rejects:
        fields.append(StructField(BAD, StringType()))
    frame = catalyst.placeholder(StructType(fields))
    leaf = build.leaf(frame)
    bad = F.count(BAD) if rejects else F.count_if(F.lit(False))
    frame = frame.observe(name, F.count(F.lit(1)).alias("rows"), bad.alias("bad"))
    if rejects:
        frame = frame.where(F.col(BAD).isNull()).drop(BAD)
    for field in rows:
        if WATERMARK in field.metadata:
            frame = measured(catalyst, frame, field.name, field.metadata[WATERMARK])
    step = Step("Source", name)
    if mode == "keyed":
        return leaf, _upsert(build, name, rows, key, [field.name for field in orders], frame, step, trace)
    if mode == "append":
        frame = frame.withColumn(DIFF, F.lit(1).cast("long"))
    plan = catalyst.analysed(frame)
    return leaf, Delta(plan, catalyst.output(plan)[-1], None, step, "free", inserts_only=mode == "append")


def _upsert(
    build: Builder,
    name: str,
    rows: StructType,
    key: Sequence[str],
    orders: Sequence[str],
    frame: DataFrame,
    step: Step,
    trace: str,
) -> Delta:
    catalyst = build.catalyst
    by_name = {a.name(): a for a in catalyst.output(catalyst.analysed(frame))}
    keys = [catalyst.normalised(by_name[each]) for each in key]
    own = [by_name[field.name] for field in rows]
    values, stored = build.store(own, keys, "v")
    key_columns = [catalyst.column(each) for each in keys]
    columns: Columns = {"h": (build.hash(key_columns), LongType())}
    columns |= {
        f"k{i}": (c, catalyst.type_of(e)) for i, (c, e) in enumerate(zip(key_columns, keys, strict=True))
    }
    columns |= values
    columns["delete"] = (F.col(DELETE), BooleanType())
    columns |= {f"o{i}": (F.col(o), catalyst.type_of(by_name[o])) for i, o in enumerate(orders)}

    def make(schema: pa.Schema) -> Upsert:
        return Upsert(name, trace, schema)

    ran = stage(build, catalyst.analysed(frame), columns, make)
    diff, route = build.out(ran, "diff", DIFF), build.out(ran, "h")
    plan = catalyst.project([*build.restored(ran, stored), diff, route], ran)
    upsert = Step("Upsert", f"{name} by {', '.join(key)}", (step,), (trace,))
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), upsert, "sharded")
