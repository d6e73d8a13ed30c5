"""Regroup: any Aggregate, Window, and outer, existence, semi and anti joins.

Below, Catalyst evaluates the keys. Above, the very node of the user's plan is evaluated over the touched
groups before and after the change, with `side` (-1 or 1) added to its keys; side becomes the diff. An
aggregate without keys is evaluated over all rows but the ghosts (`dataflow/regroup.py`). A group's rows lie in one
partition, where they are put into the order that an aggregate goes by.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType

from slipstream.dataflow.regroup import Regroup
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.lower.builder import Columns, Delta
from slipstream.plan.lower.eventtime import keyed
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.lower.sides import both_sides, pairs_of
from slipstream.plan.nodes import Keyed, RegroupAggregate, RegroupJoin, RegroupWindow
from slipstream.plan.sums import aggregates_in


def regroup_aggregate(low: Lowering, op: RegroupAggregate) -> Delta:
    catalyst = low.catalyst
    below, side, tag = _touched(low, op, op.keys, everything=op.whole)
    results = catalyst.results(op.plan)
    if op.whole:
        real = catalyst.at_least_zero(tag)
        found = [(each, catalyst.filtered(each, real)) for each in aggregates_in(catalyst, op.plan)]
        results = [catalyst.replace(result, found) for result in results]
    if op.orders:
        below = catalyst.sort(op.orders, below, everywhere=False)
    keys = [*catalyst.grouping(op.plan), side]
    evaluated = catalyst.aggregate(keys, [*results, side], below)
    return _signed(catalyst, op.plan, evaluated, catalyst.column(side))


def regroup_window(low: Lowering, op: RegroupWindow) -> Delta:
    catalyst = low.catalyst
    below, side, _ = _touched(low, op, op.keys)
    evaluated = catalyst.window(op.plan, [*op.keys, side], below)
    return _signed(catalyst, op.plan, evaluated, catalyst.column(side))


def regroup_join(low: Lowering, op: RegroupJoin) -> Delta:
    """By its equal keys, or over all rows where there are none; the whole condition is evaluated again above."""
    catalyst, build = low.catalyst, low.build
    left, right = (low.delta(each) for each in op.inputs)
    kept = [catalyst.output(child) for child in catalyst.children(op.plan)]
    sides = both_sides(build, pairs_of(op.keys), (left, right), (kept[0], kept[1]))
    both = build.share(sides.stage(build, Regroup(low.view, op.kept, sides.schema(build))))
    attributes = {catalyst.name(attribute): attribute for attribute in catalyst.output(both)}
    tags, inputs = [], []
    for tag in (0, 1):
        side = catalyst.alias(attributes["side"], "side")
        mine = catalyst.where(both, catalyst.column(attributes["tag"]) == tag)
        restored = [catalyst.renamed(attributes[s.column], s.attribute) for s in sides.stored[tag]]
        inputs.append(catalyst.project([*restored, side], mine))
        tags.append(catalyst.attribute(side))
    parts = catalyst.split_and(catalyst.join_condition(op.plan))
    condition = catalyst.conjunction([*parts, catalyst.equal(tags[0], tags[1])])
    joined = catalyst.join(op.plan, inputs[0], inputs[1], condition)
    output = catalyst.output(joined)
    shown = [catalyst.column(s) for s in tags if any(catalyst.same(s, o) for o in output)]
    return _signed(catalyst, op.plan, joined, F.coalesce(*shown))


def _touched(
    low: Lowering, op: Keyed, keys: Sequence[Expr], everything: bool = False
) -> tuple[Node, Expr, Expr]:
    """The rows of the touched groups, before and after, as the node's child; the attribute that tells them
    apart, and the one that tells ghosts.
    """
    catalyst, build = low.catalyst, low.build
    child = low.delta(op.input)
    normal = [catalyst.normalised(key) for key in keys]
    values, stored = build.store(catalyst.output(catalyst.children(op.plan)[0]), normal, "a")
    of_keys = build.keys(normal)
    hashed = [column for column, _ in of_keys.values()]
    columns: Columns = {
        "side": (F.lit(0), IntegerType()),
        "h": (build.hash(hashed), LongType()),
        "r": (build.hash([*hashed, *build.hashable(values.values())]), LongType()),
    }
    columns |= of_keys | values
    more, timed = keyed(build, op, [(each.attribute, each.column) for each in stored], columns)
    columns |= more
    columns["diff"] = (catalyst.column(child.diff), LongType())
    operator = Regroup(low.view, op.kept, build.input_schema(columns), everything, timed)
    ran = build.stage(child.plan, columns, operator)
    side, tag = build.out(ran, "side"), build.out(ran, "tag")
    rows = catalyst.project([*build.restored(ran, stored), side, tag], ran)
    return rows, catalyst.attribute(side), catalyst.attribute(tag)


def _signed(catalyst: Catalyst, node: Node, evaluated: Node, side: Column) -> Delta:
    """The node's output with the side as its diff."""
    columns = [catalyst.column(attribute) for attribute in catalyst.output(node)]
    plan = catalyst.select(evaluated, [*columns, side.cast("long").alias("diff")])
    return Delta(plan, catalyst.output(plan)[-1], None, "free")
