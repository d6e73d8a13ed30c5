"""Semi and anti joins by nothing but equal keys: to Semi. With another condition besides, they are regrouped."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.nodes import Op, Semi
from slipstream.plan.rules.keys import equal_keys
from slipstream.plan.rules.query import Query

TYPES = ("LeftSemi", "LeftAnti")


def semi(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Join" or catalyst.join_type(node) not in TYPES:
        return None
    keys, rest = equal_keys(catalyst, node)
    if not keys or rest:
        return None
    left, right = query.sides(node)
    traces = (query.trace("left", node), query.trace("keys", node))
    return Semi(node, left, right, traces, tuple(keys), catalyst.join_type(node) == "LeftAnti")
