"""Join nodes: an inner join with equal keys to Join, others with equal keys to Regroup."""

from __future__ import annotations

from dataclasses import replace

from slipstream.dataflow.graph import Step
from slipstream.dataflow.join import Join
from slipstream.plan import regroup
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.delta import Builder, Delta

EQUALITIES = {"EqualTo", "EqualNullSafe"}


def equal_keys(catalyst: Catalyst, node: Node) -> tuple[list[tuple[Expr, Expr, str]], list[Expr]]:
    """Pairs of expressions, left and right, that must be equal, with the kind of equality; and the rest of
    the condition.
    """
    condition = catalyst.option(node.condition())
    keys: list[tuple[Expr, Expr, str]] = []
    rest: list[Expr] = []
    left, right = (child.outputSet() for child in catalyst.children(node))
    for part in catalyst.split_and(condition) if condition is not None else []:
        kind = catalyst.kind(part)
        one, other = (part.left(), part.right()) if kind in EQUALITIES else (None, None)
        if one is not None and _from(one, left) and _from(other, right):
            keys.append((one, other, kind))
        elif one is not None and _from(one, right) and _from(other, left):
            keys.append((other, one, kind))
        else:
            rest.append(part)
    return keys, rest


def _from(expr: Expr, attributes: Expr) -> bool:
    references = expr.references()
    return bool(references.nonEmpty() and references.subsetOf(attributes))


def inner(build: Builder, node: Node, left: Delta, right: Delta, name: str, traces: tuple[str, str]) -> Delta:
    catalyst = build.catalyst
    keys, rest = equal_keys(catalyst, node)
    pairs, kinds = [(one, other) for one, other, _ in keys], [kind for _, _, kind in keys]
    sides = []
    for i, child in enumerate((left, right)):
        plan = child.plan
        for pair, kind in zip(pairs, kinds, strict=True):
            if kind == "EqualTo" and pair[i].nullable():
                plan = catalyst.where(plan, catalyst.column(pair[i]).isNotNull())
        sides.append(replace(child, plan=plan))
    ran, stored = regroup.join_stage(
        build, node, pairs, (sides[0], sides[1]), lambda schema: Join(name, traces, schema)
    )
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    columns = [*build.restored(ran, [*stored[0], *stored[1]]), diff, route]
    plan = catalyst.project(columns, ran)
    condition = catalyst.conjunction(rest)
    if condition is not None:
        plan = catalyst.filter(condition, plan)
    step = Step("Join", catalyst.line(node), (left.step, right.step), traces)
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), step, "sharded")
