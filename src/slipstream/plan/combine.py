"""An aggregation of sums right above an inner join: the join adds its pairs up before it sends them.

Spark's plan is Aggregate over some projections over Join. The projections are folded into the aggregation, so
that its keys and arguments are expressions over the join's two inputs. Where each of them needs one input alone,
Catalyst evaluates it below, on that side; the join keeps nothing else of the row, and its `Combine` adds up what
it pairs. What is added up is kept as sums where that can be done (`keeps_sums`). Any other shape is joined and
aggregated in two steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from slipstream.dataflow.combine import Combine
from slipstream.dataflow.graph import Step
from slipstream.dataflow.join import Join, Summed
from slipstream.plan.aggregate import Sums
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.delta import Builder, Delta, Stored
from slipstream.plan.join import Added, Keeping, equal_keys, inner_stage, matching

_UNLIKE = ("struct", "array", "map", "float", "double", "variant", "interval", "void", "udt")
"""Types of keys that Arrow does not tell apart as Spark does."""


@dataclass(frozen=True)
class Combined:
    """The plan of an aggregation's input, added up in part: c0.. keys, x0.. totals, diff."""

    plan: Node
    step: Step


def folded(catalyst: Catalyst, node: Node) -> Node:
    """An Aggregate with the projections below it folded into its expressions."""
    below = catalyst.children(node)[0]
    keys, results = catalyst.items(node.groupingExpressions()), catalyst.items(node.aggregateExpressions())
    while catalyst.kind(below) == "Project":
        pairs = [
            (catalyst.attribute(each), each.child())
            for each in catalyst.items(below.projectList())
            if catalyst.kind(each) == "Alias"
        ]
        keys = [catalyst.replace(key, pairs) for key in keys]
        named = zip(results, catalyst.output(node), strict=True)
        results = [catalyst.named_as(catalyst.replace(result, pairs), target) for result, target in named]
        below = catalyst.children(below)[0]
    return node if below is catalyst.children(node)[0] else catalyst.aggregate(keys, results, below)


def can_combine(catalyst: Catalyst, node: Node, sums: Sums) -> bool:
    """Whether the (folded) aggregation is over an inner join on equal keys alone, and every key and argument of
    it needs one side only.
    """
    below = catalyst.children(node)[0]
    if (
        sums.extremes
        or catalyst.kind(below) != "Join"
        or below.joinType().toString() not in ("Inner", "Cross")
    ):
        return False
    keys, rest = equal_keys(catalyst, below)
    if not keys or rest:
        return False
    if not told_apart(catalyst, sums.keys):
        return False
    return all(_side(catalyst, below, parts) is not None for parts in _parts(sums))


def told_apart(catalyst: Catalyst, keys: Iterable[Expr]) -> bool:
    """Whether Arrow tells these keys' values apart as Spark does."""
    return not any(catalyst.type_of(key).simpleString().startswith(_UNLIKE) for key in keys)


def added_up_first(step: Step) -> Step:
    """The step that adds up what another one gives, before it is shuffled."""
    return Step("Partial", "added up by each task, because rows are many and keys are few", (step,))


def keeps_sums(catalyst: Catalyst, join: Node, sums: Sums) -> frozenset[int]:
    """The sides of a join that keep what is added up as sums."""
    if not all(each.sums for each in sums.arguments):
        return frozenset()
    return frozenset(side for parts in sums.parts if (side := _side(catalyst, join, parts)) is not None)


def combine(
    build: Builder,
    join: Node,
    sums: Sums,
    left: Delta,
    right: Delta,
    name: str,
    keeping: Keeping,
    as_sums: bool,
) -> Combined:
    """The join below an aggregation, adding up what it pairs. as_sums: whether it keeps that as sums."""
    catalyst = build.catalyst
    pairs, inputs = matching(build, join, left, right)
    wanted = [catalyst.column(key) for key in sums.keys] + [value for value, _ in sums.values]
    at = [_side(catalyst, join, parts) for parts in _parts(sums)]
    ways = len(sums.keys)
    sides: list[Delta] = []
    kept: list[list[Expr]] = []
    added: dict[int, Added] = {}
    for i, child in enumerate(inputs):
        own = [j for j in range(len(wanted)) if at[j] == i]
        carried = [catalyst.column(each) for each in catalyst.output(child.plan)]
        plan = catalyst.select(child.plan, [*carried, *(wanted[j].alias(f"w{j}") for j in own)])
        sides.append(replace(child, plan=plan))
        made = dict(zip(own, catalyst.output(plan)[len(carried) :], strict=True))
        kept.append([each for j, each in made.items() if j < ways or not as_sums])
        if as_sums:
            numbered = {j - ways: each for j, each in made.items() if j >= ways}
            added |= {j: Added(each, Summed(i, sums.arguments[j])) for j, each in numbered.items()}
    in_order = [added[j] for j in sorted(added)]

    def make(schema: pa.Schema, stored: list[list[Stored]]) -> Join:
        found = {each.attribute.name(): each.column for side in stored for each in side}
        keys = tuple(found[f"w{j}"] for j in range(ways))
        arguments = tuple(sums.arguments)
        if not as_sums:
            values = tuple(found[f"w{j}"] for j in range(ways, len(wanted)))
            return Join(name, keeping.sides, schema, Combine(keys, values, arguments), aside=keeping.aside)
        own = tuple(each.of for each in in_order)
        values = tuple(f"s{j}" for j in range(sum(each.sums for each in arguments)))
        adding = Combine(keys, values, arguments, kept=True)
        return Join(
            name,
            keeping.sides,
            schema,
            adding,
            aside=keeping.aside,
            summed=own,
            presummed=keeping.presummed,
        )

    ran, _ = inner_stage(build, pairs, (sides[0], sides[1]), (kept[0], kept[1]), make, keeping, in_order)
    detail = f"{catalyst.line(join)}, added up by group"
    if as_sums:
        detail += " and kept as sums"
    steps = [
        added_up_first(child.step) if i in keeping.presummed else child.step
        for i, child in enumerate((left, right))
    ]
    return Combined(ran, Step(keeping.kind, detail, tuple(steps), keeping.traces))


def _parts(sums: Sums) -> list[list[Expr]]:
    """What each key and each argument is made of."""
    return [*([key] for key in sums.keys), *sums.parts]


def _side(catalyst: Catalyst, join: Node, parts: Iterable[Expr]) -> int | None:
    """The side of a join that gives all these expressions need; None where one side does not."""
    inputs = [child.outputSet() for child in catalyst.children(join)]
    for i, given in enumerate(inputs):
        if all(part.references().subsetOf(given) for part in parts):
            return i
    return None
