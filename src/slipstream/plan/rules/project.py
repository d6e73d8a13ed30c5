"""A select list: linear, the change of the output is the node applied to the change of the input."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.nodes import Op, Project
from slipstream.plan.rules.query import Query


def project(query: Query, node: Node) -> Op | None:
    return Project(node, query.child(node)) if query.catalyst.kind(node) == "Project" else None
