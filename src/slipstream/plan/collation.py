"""Groups of strings that a collation takes for equal.

Operators compare keys byte by byte, and a collation may take different bytes for equal. So keys are compared by their
*collation key*, bytes that are the same exactly for equal strings. Where a key only serves to look up (joins, windows),
that is all there is to it (`Catalyst.normalised`). An aggregation also shows its keys:

    Aggregate [c] [c, count(1)]   =   Aggregate [collationkey(c)] [min(c as bytes), count(1)]

Spark shows any of a group's strings; here it is the least, byte by byte, so that a group shows the same whenever it has
the same rows. Of structs and arrays with strings in them it is the first in the order of the trace.
"""

from __future__ import annotations

from pyspark.sql.types import StringType

from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.sums import aggregates_in


def with_collations(catalyst: Catalyst, plan: Node) -> Node:
    """The plan with aggregations by collation keys in the place of those by strings with a collation."""
    children = catalyst.children(plan)
    rewritten = [with_collations(catalyst, child) for child in children]
    if any(new is not old for new, old in zip(rewritten, children, strict=True)):
        plan = catalyst.with_children(plan, rewritten)
    return by_collation_keys(catalyst, plan) if catalyst.kind(plan) == "Aggregate" else plan


def by_collation_keys(catalyst: Catalyst, plan: Node) -> Node:
    """An aggregation by collation keys in the place of strings with a collation, if it has such keys."""
    keys = catalyst.grouping(plan)
    collated = [catalyst.collation_key(key) for key in keys]
    if all(new == old for new, old in zip(collated, keys, strict=True)):
        return plan
    shown = [(key, _any_of(catalyst, key)) for key, new in zip(keys, collated, strict=True) if new != key]
    kept = [(each, each) for each in aggregates_in(catalyst, plan)]
    results = _with(catalyst, plan, [*kept, *shown])
    return catalyst.aggregate(collated, results, catalyst.children(plan)[0])


def _any_of(catalyst: Catalyst, key: Expr) -> Expr:
    """An aggregate that gives one of the values of a key that are taken for equal."""
    if isinstance(catalyst.type_of(key), StringType):
        return catalyst.cast(catalyst.least(catalyst.cast_plain(key)), catalyst.jvm_type(key))
    return catalyst.first(key)


def _with(catalyst: Catalyst, node: Node, pairs: list[tuple[Expr, Expr]]) -> list[Expr]:
    """The results of an aggregation with some of their parts replaced, each by way of an attribute of its own: what
    comes in the place of a key has the key in it, and so may the other aggregates.
    """
    named = [catalyst.attribute(catalyst.alias(old, "_")) for old, _ in pairs]
    away = [(old, name) for (old, _), name in zip(pairs, named, strict=True)]
    back = [(name, new) for (_, new), name in zip(pairs, named, strict=True)]
    results = zip(catalyst.results(node), catalyst.output(node), strict=True)
    return [
        catalyst.named_as(catalyst.replace(catalyst.replace(result, away), back), target)
        for result, target in results
    ]
