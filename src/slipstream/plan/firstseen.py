"""dropDuplicatesWithinWatermark: to FirstSeen."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import LongType

from slipstream.dataflow.firstseen import FirstSeen
from slipstream.dataflow.graph import Step
from slipstream.plan.catalyst import Node
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.eventtime import Timing
from slipstream.plan.stages import Columns, stage


def first_seen(build: Builder, node: Node, child: Delta, name: str, trace: str, timing: Timing) -> Delta:
    catalyst = build.catalyst
    keys = [catalyst.normalised(key) for key in catalyst.items(node.keys())]
    values, stored = build.store(catalyst.output(catalyst.children(node)[0]), keys, "v")
    key_columns = [catalyst.column(key) for key in keys]
    columns: Columns = {
        "h": (build.hash(key_columns), LongType()),
        "r": (build.hash([*key_columns, *build.hashable(values.values())]), LongType()),
    }
    columns |= {f"k{i}": (catalyst.column(key), catalyst.type_of(key)) for i, key in enumerate(keys)}
    columns |= values
    (timed,) = timing.keyed(node, [(each.attribute, each.column) for each in stored], columns, (trace,))
    columns["diff"] = (catalyst.column(child.diff), LongType())

    def make(schema: pa.Schema) -> FirstSeen:
        return FirstSeen(name, trace, schema, (timed,))

    ran = stage(build, child.plan, columns, make)
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    plan = catalyst.project([*build.restored(ran, stored), diff, route], ran)
    step = Step("FirstSeen", catalyst.line(node), (child.step,), (trace,), timing.told((timed,)))
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), step, "sharded")
