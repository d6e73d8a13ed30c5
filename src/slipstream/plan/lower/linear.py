"""Linear nodes: the change of the output is the node applied to the change of the input; `diff` rides along.

They run in Catalyst as they are.
"""

from __future__ import annotations

from dataclasses import replace

from slipstream.plan.kinds import TABLE_FUNCTIONS
from slipstream.plan.lower.builder import Delta
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.nodes import Expand, Passing, Project, Union


def project(low: Lowering, op: Project) -> Delta:
    child = low.delta(op.input)
    plan = low.catalyst.project([*low.catalyst.project_list(op.plan), *child.extras()], child.plan)
    return replace(child, plan=plan)


def passing(low: Lowering, op: Passing) -> Delta:
    """The node takes its child's attributes by place: they are put back into order first."""
    child = low.delta(op.input)
    own = low.catalyst.output(low.catalyst.children(op.plan)[0])
    ordered = low.catalyst.project([*own, *child.extras()], child.plan)
    if low.catalyst.kind(op.plan) in TABLE_FUNCTIONS:
        return replace(child, plan=low.catalyst.table_function_over(op.plan, child.extras(), ordered))
    return replace(child, plan=low.catalyst.with_children(op.plan, [ordered]))


def expand(low: Lowering, op: Expand) -> Delta:
    child = low.delta(op.input)
    plan, carried = low.catalyst.expand(op.plan, child.extras(), child.plan)
    route = carried[1] if child.route is not None else None
    return replace(child, plan=plan, diff=carried[0], route=route)


def union(low: Lowering, op: Union) -> Delta:
    """Rows of different inputs lie in shards by different keys, so the route is lost."""
    catalyst = low.catalyst
    children = [low.delta(part) for part in op.parts]
    targets = catalyst.output(op.plan)
    diff = catalyst.alias(children[0].diff, "diff")
    parts = []
    for own, child in zip(catalyst.children(op.plan), children, strict=True):
        renamed = [catalyst.renamed(a, b) for a, b in zip(catalyst.output(own), targets, strict=True)]
        signed = catalyst.renamed(child.diff, catalyst.attribute(diff))
        parts.append((catalyst.project([*renamed, signed], child.plan), child.layout))
    plan, layout = low.build.union(parts)
    inserts_only = all(child.inserts_only for child in children)
    return Delta(plan, catalyst.attribute(diff), None, layout, inserts_only)
