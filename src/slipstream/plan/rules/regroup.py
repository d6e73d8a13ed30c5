"""What works group by group and no rule before takes: any aggregate, window functions, outer and existence joins, semi
and anti joins with a condition. To Regroup, which hands Catalyst whole groups.

An aggregation by a session window is regrouped by its other keys: which rows make one session depends on all rows
of those keys, and Spark's own node above merges them. One over a Sort goes by the order of its rows
(`plan/ordering.py`), ties as in TopK.
"""

from __future__ import annotations

from slipstream.plan.catalyst import Expr, Node
from slipstream.plan.nodes import Op, RegroupAggregate, RegroupJoin, RegroupWindow
from slipstream.plan.rules.keys import equal_keys
from slipstream.plan.rules.query import Query


def regroup_aggregate(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Aggregate":
        return None
    child, traces = query.child(node), (query.trace("regroup", node),)
    keys = catalyst.grouping(node)
    return RegroupAggregate(
        plan=node,
        input=child,
        kept=traces,
        times=query.timing.keyed(node, traces),
        keys=tuple(key for key in keys if not catalyst.is_session(key)),
        whole=not keys,
        orders=_orders(query, catalyst.children(node)[0]),
    )


def _orders(query: Query, child: Node) -> tuple[Expr, ...]:
    """The order in which a node's child gives its rows."""
    catalyst = query.catalyst
    if catalyst.kind(child) != "Sort":
        return ()
    ties = [each for each in catalyst.output(child) if catalyst.orderable(each)]
    return (
        *catalyst.sort_orders(child),
        *(catalyst.sort_order(each, descending=False) for each in ties),
    )


def regroup_window(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Window":
        return None
    child, traces = query.child(node), (query.trace("regroup", node),)
    keys = tuple(catalyst.partition_keys(node))
    return RegroupWindow(node, child, traces, query.timing.keyed(node, traces), keys)


def regroup_join(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Join":
        return None
    left, right = query.sides(node)
    traces = (query.trace("left", node), query.trace("right", node))
    return RegroupJoin(node, left, right, traces, tuple(equal_keys(catalyst, node)[0]))
