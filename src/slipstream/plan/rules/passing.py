"""Nodes that are linear, or do nothing to a change."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.kinds import IDENTITY, PASSING
from slipstream.plan.nodes import Op, Passing
from slipstream.plan.rules.query import Query


def passing(query: Query, node: Node) -> Op | None:
    """Filters, generators, Python functions."""
    return Passing(node, query.child(node)) if query.catalyst.kind(node) in PASSING else None


def without_effect(query: Query, node: Node) -> Op | None:
    """A Sort that nothing goes by, a repartition: what is below it."""
    return query.child(node) if query.catalyst.kind(node) in IDENTITY else None
