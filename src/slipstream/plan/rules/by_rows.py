"""Joins other than inner without an equality, put together from joins that have one.

With M, the distinct rows of A that match some row of B:

    A semi B = A semi M,   A anti B = A anti M,   each by equality of whole rows,
    A left outer B = (A inner B) + (A anti M, with NULLs),   and so on,

so that only the pairs are computed from whole inputs, never the rest. For M it does not matter how often a row
matches, so the condition may be taken apart at its ORs, and each part joined in its own way. That is what makes
`NOT IN` cheap, whose condition Spark writes as `a = b OR isnull(a = b)`: rows that are equal (by equality), all
rows if any b is NULL, and rows with a NULL if there is any b at all. An OR of which a
part may fail on a row is left whole: in `n = 0 OR 10 / n = b` the first part keeps the second from being asked.

A, B and the pairs are read several times, so relations stand for them in the plan that is put together
(`Query.stand_in`).
"""

from __future__ import annotations

from itertools import product
from math import prod

from pyspark.sql import functions as F

from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.collation import by_collation_keys
from slipstream.plan.existence import some
from slipstream.plan.kinds import INNER
from slipstream.plan.nodes import Op
from slipstream.plan.rules.keys import equal_keys
from slipstream.plan.rules.query import Query

_MOST_PARTS = 16


def join_by_rows(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Join" or catalyst.join_type(node) in INNER:
        return None
    if equal_keys(catalyst, node)[0] or not can_match_rows(catalyst, node):
        return None
    sides = [query.stand_in(child, query.op(child)) for child in catalyst.children(node)]
    node = catalyst.with_children(node, sides)
    with query.timing.suspended():
        if not catalyst.join_type(node).endswith("Outer"):
            return query.op(semi(catalyst, node))
        matched = pairs(catalyst, node)
        return query.op(outer(catalyst, node, query.stand_in(matched, query.op(matched))))


def can_match_rows(catalyst: Catalyst, node: Node) -> bool:
    """Whether whole rows of the sides that must be matched can be compared."""
    how = catalyst.join_type(node)
    left, right = catalyst.children(node)
    sides = {"RightOuter": [right], "FullOuter": [left, right]}.get(how, [left])
    columns = [catalyst.output(side) for side in sides]
    return how != "LeftSingle" and all(own and all(map(catalyst.orderable, own)) for own in columns)


def pairs(catalyst: Catalyst, node: Node) -> Node:
    """The inner join under an outer one: what `outer` needs to have computed once."""
    left, right = catalyst.children(node)
    return catalyst.inner_join(left, right, catalyst.join_condition(node))


def outer(catalyst: Catalyst, node: Node, matched: Node) -> Node:
    """An outer join, of the pairs that match and the rows of either side that are in no pair."""
    how = catalyst.join_type(node)
    left, right = catalyst.children(node)
    parts = [matched]
    for side, present in ((left, how != "RightOuter"), (right, how != "LeftOuter")):
        if present:
            alone = _alone(catalyst, side, catalyst.project(catalyst.output(side), matched))
            own = {catalyst.expr_id(a) for a in catalyst.output(side)}
            columns = [
                catalyst.column(a)
                if catalyst.expr_id(a) in own
                else F.lit(None).cast(catalyst.type_of(a)).alias(catalyst.name(a))
                for a in catalyst.output(matched)
            ]
            parts.append(catalyst.select(alone, columns))
    return catalyst.union(parts)


def semi(catalyst: Catalyst, node: Node) -> Node:
    """A semi, anti or existence join, by equality with the rows that match."""
    left, right = catalyst.children(node)
    condition = catalyst.join_condition(node)
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
    named = [catalyst.alias(attribute, catalyst.name(attribute)) for attribute in own]
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
    whole = catalyst.split_and(condition)
    parts = [_parts(catalyst, each) for each in whole]
    choices = [[one for part in each for one in _causes(catalyst, part)] for each in parts]
    if prod(map(len, choices)) > _MOST_PARTS:
        return [whole]
    return [list(chosen) for chosen in product(*choices)]


def _parts(catalyst: Catalyst, condition: Expr) -> list[Expr]:
    """What an OR is of, if it may be taken apart: no part fails where another would have kept it from being asked. The
    first is always asked.
    """
    first, *others = parts = catalyst.split_or(condition)
    asked = catalyst.fallible(first)
    failing = (each for other in others for each in catalyst.fallible(other))
    return (
        parts if all(any(catalyst.same(each, known) for known in asked) for each in failing) else [condition]
    )


def _causes(catalyst: Catalyst, part: Expr) -> list[Expr]:
    """Why an equality may be NULL: one of its sides is."""
    if catalyst.kind(part) == "IsNull" and catalyst.kind(catalyst.child(part)) == "EqualTo":
        return [catalyst.is_null(side) for side in catalyst.sides(catalyst.child(part))]
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
