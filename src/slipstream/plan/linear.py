"""Linear nodes: the change of the output is the node applied to the change of the input; `diff` rides along.

Project, Filter, Generate, Expand, Union and the nodes that evaluate Python UDFs run in Catalyst as they are.
"""

from __future__ import annotations

from slipstream.dataflow.graph import Step
from slipstream.plan.catalyst import Node
from slipstream.plan.delta import Builder, Delta

IDENTITY = {
    "WindowGroupLimit",
    "Sort",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "SubqueryAlias",
}
PASSING = {"Filter", "Generate", "ArrowEvalPython", "BatchEvalPython"}


def project(build: Builder, node: Node, child: Delta) -> Delta:
    catalyst = build.catalyst
    plan = catalyst.project([*catalyst.items(node.projectList()), *child.extras()], child.plan)
    return Delta(plan, child.diff, child.route, _step(build, node, child))


def passing(build: Builder, node: Node, child: Delta) -> Delta:
    """A node that takes its child's attributes by position: they are put back into order first."""
    catalyst = build.catalyst
    own = catalyst.output(catalyst.children(node)[0])
    ordered = catalyst.project([*own, *child.extras()], child.plan)
    return Delta(catalyst.with_children(node, [ordered]), child.diff, child.route, _step(build, node, child))


def expand(build: Builder, node: Node, child: Delta) -> Delta:
    plan, carried = build.catalyst.expand(node, child.extras(), child.plan)
    return Delta(plan, carried[0], carried[1] if child.route is not None else None, _step(build, node, child))


def union(build: Builder, node: Node, children: list[Delta]) -> Delta:
    """Rows of different inputs lie in shards by different keys, so the route is lost."""
    catalyst = build.catalyst
    plans = []
    for own, child in zip(catalyst.children(node), children, strict=True):
        plans.append(catalyst.project([*catalyst.output(own), child.diff], child.plan))
    step = Step("Linear", f"Union of {len(children)}", tuple(child.step for child in children))
    return Delta(catalyst.union(plans), children[0].diff, None, step)


def _step(build: Builder, node: Node, child: Delta) -> Step:
    return Step("Linear", build.catalyst.line(node), (child.step,))
