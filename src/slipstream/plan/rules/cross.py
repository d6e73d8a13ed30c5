"""An inner join without an equality: to CrossJoin, by a key made up for it (`plan/lower/cross.py`)."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.kinds import INNER
from slipstream.plan.nodes import CrossJoin, Op
from slipstream.plan.rules.keys import equal_keys
from slipstream.plan.rules.query import Query


def cross_join(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Join" or catalyst.join_type(node) not in INNER:
        return None
    if equal_keys(catalyst, node)[0]:
        return None
    left, right = query.sides(node)
    traces = (query.trace("left", node), query.trace("right", node))
    repeated = 0 if catalyst.at_most_one_row(catalyst.children(node)[0]) else 1
    return CrossJoin(node, left, right, traces, catalyst.join_condition(node), repeated)
