"""An inner join with an equality: to Join. The rest of its condition is Catalyst's, above."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.kinds import INNER
from slipstream.plan.nodes import Join, Op
from slipstream.plan.rules.keys import equal_keys
from slipstream.plan.rules.query import Query


def inner_join(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Join" or catalyst.join_type(node) not in INNER:
        return None
    keys, rest = equal_keys(catalyst, node)
    if not keys:
        return None
    left, right = query.sides(node)
    traces = (query.trace("left", node), query.trace("right", node))
    times = query.timing.joined(node, traces)
    return Join(node, left, right, traces, tuple(keys), tuple(rest), times)
