"""Semi and anti joins by nothing but equal keys, to Semi. With another condition besides, they are Regroups."""

from __future__ import annotations

from slipstream.dataflow.graph import Step
from slipstream.dataflow.semi import Semi
from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.join import equal_keys, join_stage, matching

TYPES = ("LeftSemi", "LeftAnti")


def is_plain(catalyst: Catalyst, node: Node) -> bool:
    """Whether a join is a semi or an anti join by equal keys alone."""
    keys, rest = equal_keys(catalyst, node)
    return node.joinType().toString() in TYPES and bool(keys) and not rest


def semi(build: Builder, node: Node, left: Delta, right: Delta, name: str, traces: tuple[str, str]) -> Delta:
    catalyst = build.catalyst
    anti = node.joinType().toString() == "LeftAnti"
    pairs, sides = matching(build, node, left, right, without_nulls=(1,) if anti else (0, 1))
    ran, stored = join_stage(
        build,
        pairs,
        sides,
        (catalyst.output(catalyst.children(node)[0]), []),
        lambda schema, _: Semi(name, traces, schema, anti),
    )
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    plan = catalyst.project([*build.restored(ran, stored[0]), diff, route], ran)
    step = Step("Semi", catalyst.line(node), (left.step, right.step), traces)
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), step, "sharded")
