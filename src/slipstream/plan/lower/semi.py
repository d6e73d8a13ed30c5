"""Semi: the left input whole, of the right one its keys."""

from __future__ import annotations

from slipstream.dataflow.semi import Semi as Matching
from slipstream.plan.lower.builder import Delta
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.lower.sides import both_sides, pairs_of, without_nulls
from slipstream.plan.nodes import Semi


def semi(low: Lowering, op: Semi) -> Delta:
    catalyst, build = low.catalyst, low.build
    left, right = (low.delta(each) for each in op.inputs)
    if not op.anti:
        left = without_nulls(catalyst, op.keys, left, 0)
    right = without_nulls(catalyst, op.keys, right, 1)
    own = catalyst.output(catalyst.children(op.plan)[0])
    sides = both_sides(build, pairs_of(op.keys), (left, right), (own, []))
    ran = sides.stage(build, Matching(low.view, op.kept, sides.schema(build), op.anti))
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    plan = catalyst.project([*build.restored(ran, sides.stored[0]), diff, route], ran)
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), "sharded")
