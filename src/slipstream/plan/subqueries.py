"""Subqueries that Spark leaves inside expressions, as joins.

Spark turns a correlated subquery into a join, but leaves an uncorrelated scalar one where it stands and runs
it before the query. A maintained query has no before: the subquery's value changes with its input. So a node
whose expressions hold a subquery is given the subquery's plan as one more input,

    Project [x + (SELECT ...)] (A)   =   Project [x + s] (A x S)      where S is the subquery, with exactly one row,

and a filter's conjuncts become the condition of that join, so that `x = (SELECT max(x) ...)` is a join with an
equality. S has one row because a global aggregate has. Any other subquery is made one: NULL over no row, and
the error that Spark raises over two. `EXISTS` without correlation is, to Spark, a scalar subquery with LIMIT 1
over a constant: here it is a count.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.existence import enough, without_idle_limits
from slipstream.plan.kinds import LIMITS
from slipstream.plan.stretch import limits_over

_TOO_MANY = (
    "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a subquery used as an expression. "
    "Aggregate it (max, first ... ORDER BY LIMIT 1), or correlate it to one row."
)
_MERGED = "mergedValue"
"""What Spark calls the struct of the values of several subqueries that it computes together. It reads them by their
places, and gives the fields the names of the subqueries' columns, which may be one name.
"""
_OWN_OUTPUT = {"Project", "Aggregate", "Expand"}
"""Nodes that say what they output; any other outputs its child's attributes too."""


def without_subqueries(catalyst: Catalyst, plan: Node) -> Node:
    """The plan with joins in the place of the scalar subqueries in its expressions."""
    if not catalyst.has_subquery(plan):
        return plan
    children = [without_subqueries(catalyst, child) for child in catalyst.children(plan)]
    node = catalyst.with_children(plan, children) if children else plan
    scalars = [part for part in catalyst.subqueries(node) if catalyst.kind(part) == "ScalarSubquery"]
    if not scalars:
        return node
    plans = [(scalar, catalyst.plan_in(scalar)) for scalar in scalars]
    singles = [(scalar, *_single(catalyst, within)) for scalar, within in plans if within is not None]
    kind = catalyst.kind(node)
    if kind == "Filter":
        return _filter(catalyst, node, singles)
    if kind == "Aggregate":
        return _aggregate(catalyst, node, singles)
    return _above(catalyst, node, singles)


def _above(catalyst: Catalyst, node: Node, singles: list[tuple[Expr, Node, Expr]]) -> Node:
    """A node over its first input joined with the subqueries."""
    first, *others = catalyst.children(node)
    for _, single, _ in singles:
        first = catalyst.inner_join(first, single, None)
    pairs = _replacements(catalyst, catalyst.expressions(node), singles)
    rewritten = catalyst.with_children(catalyst.rewrite_expressions(node, pairs), [first, *others])
    if catalyst.kind(node) in _OWN_OUTPUT:
        return rewritten
    return catalyst.project(catalyst.output(node), rewritten)


def _filter(catalyst: Catalyst, node: Node, singles: list[tuple[Expr, Node, Expr]]) -> Node:
    """A filter, each of its conjuncts as far down as what it reads allows."""
    pairs = _replacements(catalyst, [catalyst.filter_condition(node)], singles)
    waiting = [catalyst.replace(part, pairs) for part in catalyst.split_and(catalyst.filter_condition(node))]
    plan = catalyst.children(node)[0]
    plain = [part for part in waiting if catalyst.refers_only_to(part, plan)]
    waiting = [part for part in waiting if not catalyst.refers_only_to(part, plan)]
    if (condition := catalyst.conjunction(plain)) is not None:
        plan = catalyst.filter(condition, plan)
    for _, single, _ in singles:
        joined = catalyst.inner_join(plan, single, None)
        ready = [part for part in waiting if catalyst.refers_only_to(part, joined)]
        waiting = [part for part in waiting if not catalyst.refers_only_to(part, joined)]
        plan = catalyst.inner_join(plan, single, catalyst.conjunction(ready))
    return catalyst.project(catalyst.output(node), plan)


def _aggregate(catalyst: Catalyst, node: Node, singles: list[tuple[Expr, Node, Expr]]) -> Node:
    """Subqueries that groups or arguments of aggregates read are joined below. One that only the select list
    reads is joined above, so that its change touches the groups and not the rows.
    """
    results, keys = catalyst.results(node), catalyst.grouping(node)
    found: list[Expr] = []
    for result in results:
        for part in catalyst.subtree(result):
            if catalyst.kind(part) == "AggregateExpression" and part not in found:
                found.append(part)
    inside = [part for expr in [*keys, *found] for part in catalyst.subtree(expr)]
    below = [each for each in singles if any(catalyst.same(each[0], part) for part in inside)]
    if len(below) == len(singles):
        return _above(catalyst, node, singles)
    named = [catalyst.alias(expr, f"_{i}") for i, expr in enumerate([*keys, *found])]
    bare = catalyst.aggregate(keys, named, catalyst.children(node)[0])
    if below:
        bare = _above(catalyst, bare, below)
    shown = [(expr, catalyst.attribute(name)) for expr, name in zip([*keys, *found], named, strict=True)]
    list_above = [
        catalyst.alias(catalyst.replace(catalyst.unnamed(result), shown), catalyst.name(target), target)
        for result, target in zip(results, catalyst.output(node), strict=True)
    ]
    over = [each for each in singles if not any(each is known for known in below)]
    return _above(catalyst, catalyst.project(list_above, bare), over)


def _replacements(
    catalyst: Catalyst, expressions: Iterable[Expr], singles: list[tuple[Expr, Node, Expr]]
) -> list[tuple[Expr, Expr]]:
    """Every occurrence of a subquery with the attribute that holds its value."""
    pairs = []
    for expression in expressions:
        for part in catalyst.subtree(expression):
            if catalyst.kind(part) == "ScalarSubquery":
                pairs += [(part, value) for scalar, _, value in singles if catalyst.same(part, scalar)]
    return pairs


def _single(catalyst: Catalyst, subquery: Node) -> tuple[Node, Expr]:
    """A subquery's plan with exactly one row, and the attribute of its value."""
    plan = _one_row(catalyst, without_subqueries(catalyst, without_idle_limits(catalyst, subquery)))
    value = catalyst.output(plan)[0]
    if catalyst.name(value) == _MERGED:
        fields = catalyst.type_of(value)
        assert isinstance(fields, StructType), "subqueries are merged into a struct"
        by_place = StructType([StructField(f"_{i}", field.dataType) for i, field in enumerate(fields)])
        single = catalyst.select(plan, [catalyst.column(value).cast(by_place).alias("scalar")])
        return single, catalyst.output(single)[0]
    named = catalyst.alias(value, "scalar")
    return catalyst.project([named], plan), catalyst.attribute(named)


def _one_row(catalyst: Catalyst, plan: Node) -> Node:
    inner = plan
    while catalyst.kind(inner) in ("Project", "SubqueryAlias"):
        inner = catalyst.children(inner)[0]
    kind = catalyst.kind(inner)
    if kind == "OneRowRelation" or (kind == "Aggregate" and not catalyst.grouping(inner)):
        return plan
    constant, found = _constant(catalyst, plan), limits_over(catalyst, plan)
    if constant is not None and found is not None and catalyst.at_most_one_row(plan):
        below, skipped, last, _ = found
        counted = catalyst.over(below, lambda frame: frame.agg(F.count(F.lit(1)).alias("n")))
        value = F.when(enough(F.col("n"), skipped, last), catalyst.column(constant))
        return catalyst.over(counted, lambda frame: frame.select(value.alias("some")))
    value = catalyst.column(catalyst.output(plan)[0])

    def checked(frame: DataFrame) -> DataFrame:
        rows = frame.agg(F.count(F.lit(1)).alias("n"), F.first(value).alias("value"))
        too_many = F.raise_error(F.lit(_TOO_MANY))
        return rows.select(F.when(F.col("n") > 1, too_many).otherwise(F.col("value")).alias("value"))

    return catalyst.over(plan, checked)


def _constant(catalyst: Catalyst, plan: Node) -> Expr | None:
    """What the first column of a plan is in all of its rows, if that is known: which of them are kept makes no
    difference then.
    """
    kind = catalyst.kind(plan)
    if kind == "Project":
        first = catalyst.unnamed(catalyst.project_list(plan)[0])
        return first if catalyst.foldable(first) else None
    if kind not in (*LIMITS, "Union"):
        return None
    known, *others = (_constant(catalyst, child) for child in catalyst.children(plan))
    alike = known is not None and all(each is not None and catalyst.same(known, each) for each in others)
    return known if alike else None
