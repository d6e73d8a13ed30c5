"""Join: both inputs by key, the rest of the condition above."""

from __future__ import annotations

from slipstream.dataflow.join import Join as Joining
from slipstream.plan.lower.builder import Delta
from slipstream.plan.lower.eventtime import timed
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.lower.sides import both_sides, pairs_of, without_nulls
from slipstream.plan.nodes import Join


def join(low: Lowering, op: Join) -> Delta:
    catalyst, build = low.catalyst, low.build
    inputs = [without_nulls(catalyst, op.keys, low.delta(each), i) for i, each in enumerate(op.inputs)]
    left, right = (catalyst.output(child) for child in catalyst.children(op.plan))
    sides = both_sides(build, pairs_of(op.keys), (inputs[0], inputs[1]), (left, right))
    times = tuple(timed(catalyst, each, sides.stored[each.side or 0]) for each in op.following)
    ran = sides.stage(build, Joining(low.view, op.kept, sides.schema(build), timed=times))
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    plan = catalyst.project([*build.restored(ran, [*sides.stored[0], *sides.stored[1]]), diff, route], ran)
    condition = catalyst.conjunction(op.rest)
    if condition is not None:
        plan = catalyst.filter(condition, plan)
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), "sharded")
