"""CombinedJoin: a join that adds up what it pairs. Of each side it is sent what keys and arguments need."""

from __future__ import annotations

from dataclasses import replace

from slipstream.dataflow.combine import Combine
from slipstream.dataflow.join import Join as Joining
from slipstream.dataflow.join import Summed
from slipstream.plan.catalyst import Expr, Node
from slipstream.plan.lower.builder import Delta
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.lower.sides import Added, both_sides, pairs_of, without_nulls
from slipstream.plan.lower.summands import summand_column
from slipstream.plan.nodes import CombinedJoin


def combined_join(low: Lowering, op: CombinedJoin) -> Node:
    """The plan of an aggregation's input, added up in part: c0.. keys, x0.. totals, diff."""
    catalyst, build, sums = low.catalyst, low.build, op.sums
    wanted = [catalyst.column(key) for key in sums.keys]
    ways = len(wanted)
    wanted += [summand_column(catalyst, each) for each in sums.summands]
    inputs: list[Delta] = []
    kept: list[list[Expr]] = []
    added: dict[int, Added] = {}
    for i, side in enumerate(op.inputs):
        child = without_nulls(catalyst, op.keys, low.delta(side), i)
        own = [j for j in range(len(wanted)) if op.sides[j] == i]
        carried = [catalyst.column(each) for each in catalyst.output(child.plan)]
        plan = catalyst.select(child.plan, [*carried, *(wanted[j].alias(f"w{j}") for j in own)])
        inputs.append(replace(child, plan=plan))
        made = dict(zip(own, catalyst.output(plan)[len(carried) :], strict=True))
        kept.append([each for j, each in made.items() if j < ways or not op.as_sums])
        if op.as_sums:
            numbered = {j - ways: each for j, each in made.items() if j >= ways}
            added |= {j: Added(each, Summed(i, sums.arguments[j])) for j, each in numbered.items()}
    in_order = [added[j] for j in sorted(added)]
    sides = both_sides(build, pairs_of(op.keys), (inputs[0], inputs[1]), (kept[0], kept[1]), in_order)
    found = {catalyst.name(each.attribute): each.column for side in sides.stored for each in side}
    keys = tuple(found[f"w{j}"] for j in range(ways))
    if op.as_sums:
        values = tuple(f"s{j}" for j in range(sum(each.sums for each in sums.arguments)))
    else:
        values = tuple(found[f"w{j}"] for j in range(ways, len(wanted)))
    adding = Combine(keys, values, sums.arguments, kept=op.as_sums)
    summed = tuple(each.of for each in in_order)
    return sides.stage(build, Joining(low.view, op.kept, sides.schema(build), combine=adding, summed=summed))
