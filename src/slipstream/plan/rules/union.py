"""UNION ALL: the change of the output is the changes of all inputs."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.nodes import Op, Union
from slipstream.plan.rules.query import Query


def union(query: Query, node: Node) -> Op | None:
    if query.catalyst.kind(node) != "Union":
        return None
    return Union(node, tuple(query.op(child) for child in query.catalyst.children(node)))
