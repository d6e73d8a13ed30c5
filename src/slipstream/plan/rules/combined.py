"""An aggregation of sums right above an inner join: the join adds its pairs up before it sends them.

Spark's plan is Aggregate over some projections over Join. The projections are folded into the aggregation, so
that its keys and arguments are expressions over the join's two inputs. Where each of them needs one input alone,
Catalyst evaluates it below, on that side; the join keeps nothing else of the row, and adds up what it pairs. What is
added up is kept as sums where that can be done in whole numbers. Any other shape is joined and aggregated in two steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.kinds import INNER
from slipstream.plan.nodes import Accumulate, CombinedJoin, Key, Op, Sums
from slipstream.plan.rules.keys import equal_keys
from slipstream.plan.rules.query import Query
from slipstream.plan.sums import accumulates, sums_of
from slipstream.plan.told_apart import told_apart


def combined(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Aggregate" or not accumulates(catalyst, node):
        return None
    over = folded(catalyst, node)
    (join,) = catalyst.children(over)
    if not _is_inner(catalyst, join) or query.timing.follows(node) or query.timing.follows(join):
        return None
    keys, rest = equal_keys(catalyst, join)
    sums = sums_of(catalyst, over)
    sides = _sides(catalyst, join, sums)
    plain = keys and not rest and not sums.extremes and told_apart(catalyst, sums.keys)
    if not plain or sides is None or query.commons.find(join) is not None:
        return None
    return Accumulate(
        plan=over,
        input=_combined_join(query, over, join, tuple(keys), sums, sides),
        kept=(query.trace("accumulate", over),),
        times=(),
        sums=sums,
        addable=False,
    )


def _combined_join(
    query: Query, over: Node, join: Node, keys: tuple[Key, ...], sums: Sums, sides: tuple[int, ...]
) -> CombinedJoin:
    left, right = query.sides(join)
    of_arguments = sides[len(sums.keys) :]
    summed = set(of_arguments) if all(each.sums for each in sums.arguments) else set()
    kinds = [f"{side}-sums" if i in summed else side for i, side in enumerate(("left", "right"))]
    return CombinedJoin(
        plan=join,
        left=left,
        right=right,
        kept=(query.trace(kinds[0], over), query.trace(kinds[1], over)),
        keys=keys,
        sums=sums,
        sides=sides,
        as_sums=bool(summed),
    )


def folded(catalyst: Catalyst, node: Node) -> Node:
    """An Aggregate with the projections below it folded into its expressions."""
    (below,) = catalyst.children(node)
    if catalyst.kind(below) != "Project":
        return node
    keys, results = catalyst.grouping(node), catalyst.results(node)
    while catalyst.kind(below) == "Project":
        pairs = [
            (catalyst.attribute(each), catalyst.child(each))
            for each in catalyst.project_list(below)
            if catalyst.kind(each) == "Alias"
        ]
        keys = [catalyst.replace(key, pairs) for key in keys]
        named = zip(results, catalyst.output(node), strict=True)
        results = [catalyst.named_as(catalyst.replace(result, pairs), target) for result, target in named]
        (below,) = catalyst.children(below)
    return catalyst.aggregate(keys, results, below)


def _is_inner(catalyst: Catalyst, node: Node) -> bool:
    return catalyst.kind(node) == "Join" and catalyst.join_type(node) in INNER


def _sides(catalyst: Catalyst, join: Node, sums: Sums) -> tuple[int, ...] | None:
    """The side of a join that each key and each argument needs; None where one needs both."""
    found = [_side(catalyst, join, [key]) for key in sums.keys]
    found += [_side(catalyst, join, each.parts) for each in sums.summands]
    known = tuple(side for side in found if side is not None)
    return known if len(known) == len(found) else None


def _side(catalyst: Catalyst, join: Node, parts: Iterable[Expr]) -> int | None:
    """The side of a join that gives all these expressions need."""
    for i, child in enumerate(catalyst.children(join)):
        if all(catalyst.refers_only_to(part, child) for part in parts):
            return i
    return None
