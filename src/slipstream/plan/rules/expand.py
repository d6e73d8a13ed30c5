"""Several rows for each, as of grouping sets: linear."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.nodes import Expand, Op
from slipstream.plan.rules.query import Query


def expand(query: Query, node: Node) -> Op | None:
    return Expand(node, query.child(node)) if query.catalyst.kind(node) == "Expand" else None
