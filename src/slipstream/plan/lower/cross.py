"""CrossJoin: a Join by a key made up for it.

Each row of one input has a salt, a number below `SALTS` taken from its hash, and each row of the other input is there
once for every salt. So every pair meets exactly once, the work is spread over the shards, and the number of shards may
change. The condition is Catalyst's, above. An epoch costs the change times the whole other input, and `explain` warns
of it.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from slipstream.dataflow.join import Join as Joining
from slipstream.plan.catalyst import Node
from slipstream.plan.lower.builder import Builder, Delta
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.lower.sides import both_sides
from slipstream.plan.nodes import CrossJoin

SALTS = 8
"""Fixed: rows are stored by it."""


def cross_join(low: Lowering, op: CrossJoin) -> Delta:
    catalyst, build = low.catalyst, low.build
    salted, salts = [], []
    for i, (side, node) in enumerate(zip(op.inputs, catalyst.children(op.plan), strict=True)):
        child = low.delta(side)
        plan = _salted(build, node, child, i == op.repeated)
        salted.append(replace(child, plan=plan))
        salts.append(catalyst.output(plan)[-1])
    left, right = (catalyst.output(child) for child in catalyst.children(op.plan))
    sides = both_sides(build, [(salts[0], salts[1])], (salted[0], salted[1]), (left, right))
    ran = sides.stage(build, Joining(low.view, op.kept, sides.schema(build)))
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    plan = catalyst.project([*build.restored(ran, [*sides.stored[0], *sides.stored[1]]), diff, route], ran)
    if op.condition is not None:
        plan = catalyst.filter(op.condition, plan)
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), "sharded")


def _salted(build: Builder, node: Node, child: Delta, repeated: bool) -> Node:
    """The child's change with a column `salt` at its end."""
    catalyst = build.catalyst
    if repeated:
        salt = F.explode(F.array(*[F.lit(n) for n in range(SALTS)]))
    else:
        own = [(catalyst.column(a), catalyst.type_of(a)) for a in catalyst.output(node)]
        columns = build.hashable(own)
        salt = F.pmod(F.xxhash64(*columns), F.lit(SALTS)).cast("int") if columns else F.lit(0)
    return catalyst.over(child.plan, lambda frame: frame.select("*", salt.alias("salt")))
