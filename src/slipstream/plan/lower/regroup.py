"""Regroup: any Aggregate, Window, and outer, existence, semi and anti joins.

Below, Catalyst evaluates the keys. Above, the very node of the user's plan is evaluated over the touched
groups before and after the change, with `side` (-1 or 1) added to its keys; side becomes the diff. An
aggregate without keys is evaluated over all rows but the ghosts (`dataflow/regroup.py`). A group's rows lie in one
partition, where they are put into the order that an aggregate goes by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType

from slipstream.dataflow.regroup import PLACED, Regroup
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.lower.builder import Columns, Delta
from slipstream.plan.lower.distinct import marked
from slipstream.plan.lower.eventtime import keyed
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.lower.sides import both_sides, pairs_of
from slipstream.plan.nodes import Keyed, RegroupAggregate, RegroupJoin, RegroupWindow
from slipstream.plan.sums import aggregates_in


def regroup_aggregate(low: Lowering, op: RegroupAggregate) -> Delta:
    catalyst = low.catalyst
    found = [(each, each) for each in aggregates_in(catalyst, op.plan)]
    placed = any(catalyst.is_distinct(each) for each, _ in found)
    touched = _touched(low, op, op.keys, everything=op.whole, placed=placed)
    below, orders = touched.rows, list(op.orders)
    if op.whole:
        real = catalyst.at_least_zero(touched.tag)
        found = [(each, catalyst.filtered(each, real)) for each, _ in found]
    if touched.place is not None:
        group = [*catalyst.grouping(op.plan), touched.side]
        below, once = marked(low.build, below, group, *touched.place, [new for _, new in found])
        found = [(old, dict(once).get(new, new)) for old, new in found]
        orders.append(catalyst.sort_order(touched.place[1], descending=False))
    if orders:
        below = catalyst.sort(orders, below, everywhere=False)
    results = [catalyst.replace(result, found) for result in catalyst.results(op.plan)]
    keys = [*catalyst.grouping(op.plan), touched.side]
    evaluated = catalyst.aggregate(keys, [*results, touched.side], below)
    return _signed(catalyst, op.plan, evaluated, catalyst.column(touched.side))


def regroup_window(low: Lowering, op: RegroupWindow) -> Delta:
    catalyst = low.catalyst
    touched = _touched(low, op, op.keys)
    evaluated = catalyst.window(op.plan, [*op.keys, touched.side], touched.rows)
    return _signed(catalyst, op.plan, evaluated, catalyst.column(touched.side))


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


@dataclass(frozen=True)
class _Touched:
    """The rows of the touched groups, before and after, as a node's child. side: the attribute that tells the two
    apart; tag: the one that tells ghosts; place: if asked for, what rows of a group lie together by, and their order.
    """

    rows: Node
    side: Expr
    tag: Expr
    place: tuple[Expr, Expr] | None


def _touched(
    low: Lowering, op: Keyed, keys: Sequence[Expr], everything: bool = False, placed: bool = False
) -> _Touched:
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
    operator = Regroup(low.view, op.kept, build.input_schema(columns), everything, timed, placed)
    ran = build.stage(child.plan, columns, operator)
    names = ("side", "tag", *(PLACED if placed else ()))
    told = [build.out(ran, name) for name in names]
    rows = catalyst.project([*build.restored(ran, stored), *told], ran)
    side, tag, *place = map(catalyst.attribute, told)
    return _Touched(rows, side, tag, (place[0], place[1]) if place else None)


def _signed(catalyst: Catalyst, node: Node, evaluated: Node, side: Column) -> Delta:
    """The node's output with the side as its diff."""
    columns = [catalyst.column(attribute) for attribute in catalyst.output(node)]
    plan = catalyst.select(evaluated, [*columns, side.cast("long").alias("diff")])
    return Delta(plan, catalyst.output(plan)[-1], None, "free")
