"""Joins without an equality.

An inner one goes to Join all the same, by a key made up for it: each row of one input has a salt, a number
below `SALTS` taken from its hash, and each row of the other input is there once for every salt. So every pair
meets exactly once, the work is spread over the shards, and the number of shards may change. The condition is
Catalyst's, above. An epoch costs the change times the whole other input, and `explain` warns of it.

The others are put together from that and from joins by equality. With M, the distinct rows of A that match
some row of B:

    A semi B = A semi M,   A anti B = A anti M,   each by equality of whole rows,
    A left outer B = (A inner B) + (A anti M, with NULLs),   and so on,

so that only the pairs are computed from whole inputs, never the rest. For M it does not matter how often a row
matches, so the condition may be taken apart at its ORs, and each part joined in its own way. That is what makes
`NOT IN` cheap, whose condition Spark writes as `a = b OR isnull(a = b)`: rows that are equal (by equality), all
rows if any b is NULL, and rows with a NULL if there is any b at all.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from pyspark.sql import functions as F

from slipstream.dataflow.graph import Step
from slipstream.dataflow.join import Join
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.collation import by_collation_keys
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.existence import some
from slipstream.plan.join import join_stage, outputs

SALTS = 8
"""Fixed: rows are stored by it."""

_MOST_PARTS = 16


def inner(build: Builder, node: Node, left: Delta, right: Delta, name: str, traces: tuple[str, str]) -> Delta:
    catalyst = build.catalyst
    repeated = 0 if catalyst.at_most_one_row(catalyst.children(node)[0]) else 1
    salted, salts = [], []
    for i, child in enumerate((left, right)):
        plan = _salted(build, catalyst.children(node)[i], child, i == repeated)
        salted.append(replace(child, plan=plan))
        salts.append(catalyst.output(plan)[-1])
    ran, stored = join_stage(
        build,
        [(salts[0], salts[1])],
        (salted[0], salted[1]),
        outputs(catalyst, node),
        lambda schema, _: Join(name, traces, schema),
    )
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    plan = catalyst.project([*build.restored(ran, [*stored[0], *stored[1]]), diff, route], ran)
    condition = catalyst.option(node.condition())
    if condition is not None:
        plan = catalyst.filter(condition, plan)
    step = Step("CrossJoin", catalyst.line(node), (left.step, right.step), traces)
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), step, "sharded")


def _salted(build: Builder, node: Node, child: Delta, repeated: bool) -> Node:
    """The child's change with a column `salt` at its end."""
    catalyst = build.catalyst
    if repeated:
        salt = F.explode(F.array(*[F.lit(n) for n in range(SALTS)]))
    else:
        own = [(catalyst.column(a), catalyst.type_of(a)) for a in catalyst.output(node)]
        columns = build.hashable(own)
        salt = F.pmod(F.xxhash64(*columns), F.lit(SALTS)).cast("int") if columns else F.lit(0)
    return catalyst.over(child.plan, lambda frame: frame.select("*", salt.alias("salt")))


def can_match_rows(catalyst: Catalyst, node: Node) -> bool:
    """Whether whole rows of the sides that must be matched can be compared."""
    how = node.joinType().toString()
    left, right = catalyst.children(node)
    sides = {"RightOuter": [right], "FullOuter": [left, right]}.get(how, [left])
    columns = [catalyst.output(side) for side in sides]
    return how != "LeftSingle" and all(own and all(map(catalyst.orderable, own)) for own in columns)


def pairs(catalyst: Catalyst, node: Node) -> Node:
    """The inner join under an outer one: what `outer` needs to have computed once."""
    left, right = catalyst.children(node)
    return catalyst.inner_join(left, right, catalyst.option(node.condition()))


def outer(catalyst: Catalyst, node: Node, matched: Node) -> Node:
    """An outer join, of the pairs that match and the rows of either side that are in no pair."""
    how = node.joinType().toString()
    left, right = catalyst.children(node)
    parts = [matched]
    for side, present in ((left, how != "RightOuter"), (right, how != "LeftOuter")):
        if present:
            alone = _alone(catalyst, side, catalyst.project(catalyst.output(side), matched))
            own = {catalyst.expr_id(a) for a in catalyst.output(side)}
            columns = [
                catalyst.column(a)
                if catalyst.expr_id(a) in own
                else F.lit(None).cast(catalyst.type_of(a)).alias(a.name())
                for a in catalyst.output(matched)
            ]
            parts.append(catalyst.select(alone, columns))
    return catalyst.union(parts)


def semi(catalyst: Catalyst, node: Node) -> Node:
    """A semi, anti or existence join, by equality with the rows that match."""
    left, right = catalyst.children(node)
    condition = catalyst.option(node.condition())
    found = [
        catalyst.project(catalyst.output(left), _part(catalyst, left, right, part))
        for part in _alternatives(catalyst, condition)
    ]
    matching, condition = _distinct(catalyst, left, catalyst.union(found))
    return catalyst.rejoin(node, left, matching, condition)


def _alone(catalyst: Catalyst, side: Node, matched: Node) -> Node:
    """The rows of a side that are not among those matched."""
    matching, condition = _distinct(catalyst, side, matched)
    return catalyst.anti_join(side, matching, condition)


def _distinct(catalyst: Catalyst, side: Node, matched: Node) -> tuple[Node, Expr]:
    """Rows of a side, each once, and the condition that a row of that side is one of them."""
    own = catalyst.output(side)
    named = [catalyst.alias(attribute, attribute.name()) for attribute in own]
    once = by_collation_keys(catalyst, catalyst.aggregate(own, named, matched))
    same = [
        catalyst.equal_or_both_null(attribute, catalyst.attribute(name))
        for attribute, name in zip(own, named, strict=True)
    ]
    condition = catalyst.conjunction(same)
    assert condition is not None, "a side without columns has no condition to be matched by"
    return once, condition


def _alternatives(catalyst: Catalyst, condition: Expr | None) -> list[list[Expr]]:
    """A condition as the alternatives that an OR leaves, each a list of conjuncts; itself if these are many."""
    whole = catalyst.split_and(condition) if condition is not None else []
    choices = [[one for part in catalyst.split_or(each) for one in _causes(catalyst, part)] for each in whole]
    if prod(map(len, choices)) > _MOST_PARTS:
        return [whole]
    return [list(chosen) for chosen in product(*choices)]


def _causes(catalyst: Catalyst, part: Expr) -> list[Expr]:
    """Why an equality may be NULL: one of its sides is."""
    if catalyst.kind(part) == "IsNull" and catalyst.kind(part.child()) == "EqualTo":
        return [catalyst.is_null(part.child().left()), catalyst.is_null(part.child().right())]
    return [part]


def _part(catalyst: Catalyst, left: Node, right: Node, condition: list[Expr]) -> Node:
    """The pairs of one alternative, with what concerns one side alone applied to it first."""
    of_left = [part for part in condition if catalyst.refers_only_to(part, left)]
    of_right = [part for part in condition if part not in of_left and catalyst.refers_only_to(part, right)]
    of_both = [part for part in condition if part not in of_left and part not in of_right]
    if (only := catalyst.conjunction(of_left)) is not None:
        left = catalyst.filter(only, left)
    if (only := catalyst.conjunction(of_right)) is not None:
        right = catalyst.filter(only, right)
    if not of_both:
        right = some(catalyst, right)
    return catalyst.inner_join(left, right, catalyst.conjunction(of_both))
