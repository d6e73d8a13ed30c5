"""Leaves: sources, other views, relations that are part of the query."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.kinds import CONSTANTS
from slipstream.plan.nodes import Constant, Op
from slipstream.plan.rules.query import Query


def given(query: Query, node: Node) -> Op | None:
    """A placeholder is what it stands for."""
    return query.given(node)


def constant(query: Query, node: Node) -> Op | None:
    """VALUES, a range, a query without FROM."""
    return Constant(node) if query.catalyst.kind(node) in CONSTANTS else None
