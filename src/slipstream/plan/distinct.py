"""Aggregates over distinct values, made of two without.

Spark takes several `DISTINCT`s in one aggregation apart when it optimises, one alone only when it plans. Here that is
done for one as well: `count(DISTINCT x) GROUP BY k` counts the groups by k and x, and adding up and taking away groups
costs the change, where Regroup would read all the values of k again.
"""

from __future__ import annotations

from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.sums import aggregates_in


def without_distinct(catalyst: Catalyst, plan: Node) -> Node:
    """The plan with two aggregations in the place of one, wherever all of one's functions go over the same distinct
    values.
    """
    children = catalyst.children(plan)
    rewritten = [without_distinct(catalyst, child) for child in children]
    if any(new is not old for new, old in zip(rewritten, children, strict=True)):
        plan = catalyst.with_children(plan, rewritten)
    if catalyst.kind(plan) != "Aggregate":
        return plan
    values = _distinct_values(catalyst, plan)
    return plan if values is None else _twice(catalyst, plan, values)


def _distinct_values(catalyst: Catalyst, node: Node) -> list[Expr] | None:
    """What the functions of an aggregation all go over, each value once; None if that is not so."""
    found = aggregates_in(catalyst, node)
    if not found or any(
        not catalyst.is_distinct(each) or catalyst.only_where(each) is not None for each in found
    ):
        return None
    if any(catalyst.is_session(key) for key in catalyst.grouping(node)):
        return None
    values, *others = (catalyst.children(catalyst.function(each)) for each in found)
    alike = all(
        len(other) == len(values)
        and all(catalyst.same(one, two) for one, two in zip(values, other, strict=True))
        for other in others
    )
    return values if alike and all(catalyst.reads_any(value) for value in values) else None


def _twice(catalyst: Catalyst, node: Node, values: list[Expr]) -> Node:
    """Group by the keys and the values, and aggregate the groups."""
    grouped: list[Expr] = []
    for each in [*catalyst.grouping(node), *values]:
        if not any(catalyst.same(each, known) for known in grouped):
            grouped.append(each)
    named = [
        each if catalyst.kind(each) == "AttributeReference" else catalyst.alias(each, f"_{i}")
        for i, each in enumerate(grouped)
    ]
    once = catalyst.aggregate(grouped, named, catalyst.children(node)[0])
    inside = list(zip(grouped, catalyst.output(once), strict=True))
    pairs = [
        (each, catalyst.replace(catalyst.without_distinct(each), inside))
        for each in aggregates_in(catalyst, node)
    ]
    keys = [catalyst.replace(key, inside) for key in catalyst.grouping(node)]
    results = [
        catalyst.named_as(catalyst.replace(result, [*pairs, *inside]), target)
        for result, target in zip(catalyst.results(node), catalyst.output(node), strict=True)
    ]
    return catalyst.aggregate(keys, results, once)
