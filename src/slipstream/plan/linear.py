"""Linear nodes: the change of the output is the node applied to the change of the input; `diff` rides along.

Project, Filter, Generate, Expand, Union and the nodes that evaluate Python UDFs run in Catalyst as they are.
"""

from __future__ import annotations

from dataclasses import replace

from slipstream.dataflow.graph import Step
from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.delta import Builder, Delta

IDENTITY = {
    "WindowGroupLimit",
    "Sort",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "SubqueryAlias",
}
PASSING = {"Filter", "Generate", "ArrowEvalPython", "BatchEvalPython", "CollectMetrics"}


def below(catalyst: Catalyst, node: Node) -> Node:
    """The first node below that is not linear in one input, or the node itself."""
    while catalyst.kind(node) in (*IDENTITY, *PASSING, "Project", "Expand"):
        (node,) = catalyst.children(node)
    return node


def project(build: Builder, node: Node, child: Delta) -> Delta:
    catalyst = build.catalyst
    plan = catalyst.project([*catalyst.items(node.projectList()), *child.extras()], child.plan)
    return replace(child, plan=plan, step=_step(build, node, child))


def passing(build: Builder, node: Node, child: Delta) -> Delta:
    """A node that takes its child's attributes by position: they are put back into order first."""
    catalyst = build.catalyst
    own = catalyst.output(catalyst.children(node)[0])
    ordered = catalyst.project([*own, *child.extras()], child.plan)
    return replace(child, plan=catalyst.with_children(node, [ordered]), step=_step(build, node, child))


def expand(build: Builder, node: Node, child: Delta) -> Delta:
    plan, carried = build.catalyst.expand(node, child.extras(), child.plan)
    route = carried[1] if child.route is not None else None
    return replace(child, plan=plan, diff=carried[0], route=route, step=_step(build, node, child))


def union(build: Builder, node: Node, children: list[Delta]) -> Delta:
    """Rows of different inputs lie in shards by different keys, so the route is lost."""
    catalyst = build.catalyst
    targets = catalyst.output(node)
    diff = catalyst.alias(children[0].diff, "diff")
    parts = []
    for own, child in zip(catalyst.children(node), children, strict=True):
        renamed = [catalyst.renamed(a, b) for a, b in zip(catalyst.output(own), targets, strict=True)]
        signed = catalyst.renamed(child.diff, catalyst.attribute(diff))
        parts.append((catalyst.project([*renamed, signed], child.plan), child.layout))
    plan, layout = build.union(parts)
    step = Step("Linear", f"Union of {len(children)}", tuple(child.step for child in children))
    inserts_only = all(child.inserts_only for child in children)
    return Delta(plan, catalyst.attribute(diff), None, step, layout, inserts_only)


def _step(build: Builder, node: Node, child: Delta) -> Step:
    return Step("Linear", build.catalyst.line(node), (child.step,))
