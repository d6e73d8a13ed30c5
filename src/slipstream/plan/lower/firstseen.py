"""FirstSeen: rows by key, and when they came."""

from __future__ import annotations

from pyspark.sql.types import LongType

from slipstream.dataflow.firstseen import FirstSeen as Seeing
from slipstream.plan.lower.builder import Columns, Delta
from slipstream.plan.lower.eventtime import keyed
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.nodes import FirstSeen


def first_seen(low: Lowering, op: FirstSeen) -> Delta:
    catalyst, build = low.catalyst, low.build
    child = low.delta(op.input)
    values, stored = build.store(catalyst.output(catalyst.children(op.plan)[0]), op.keys, "v")
    of_keys = build.keys(op.keys)
    hashed = [column for column, _ in of_keys.values()]
    columns: Columns = {
        "h": (build.hash(hashed), LongType()),
        "r": (build.hash([*hashed, *build.hashable(values.values())]), LongType()),
    }
    columns |= of_keys | values
    more, (timed,) = keyed(build, op, [(each.attribute, each.column) for each in stored], columns)
    columns |= more
    columns["diff"] = (catalyst.column(child.diff), LongType())
    operator = Seeing(low.view, op.traces[0], build.input_schema(columns), (timed,))
    ran = build.stage(child.plan, columns, operator)
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    plan = catalyst.project([*build.restored(ran, stored), diff, route], ran)
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), "sharded")
