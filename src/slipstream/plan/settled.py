"""Several DISTINCTs in one aggregation, in an order that is the same whenever a query is planned.

Spark takes `count(DISTINCT a), count(DISTINCT b)` apart into two aggregations over an Expand, which gives a row of each
number for each set of distinct values: 1 for a, 2 for b. Which set has which number, and which column comes first, goes
by a hash table of expressions, and so by what else the session has done. The number and the place are kept in state. So
the columns are put into the order of what they mean here, the sets into the order of their columns, and numbers follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slipstream.plan.catalyst import Catalyst, Describer, Expr, Node
from slipstream.plan.meaning import of_node

_NUMBER = "gid"  # as Spark calls the number of a set


@dataclass(frozen=True)
class _Sets:
    """An Expand of Spark's, for sets of distinct values. rows: what it makes of a row. number: the column that tells
    the sets apart. distinct: the columns of distinct values, which are those right before it.
    """

    rows: list[list[Expr]]
    output: list[Expr]
    number: int
    distinct: range


def settled(catalyst: Catalyst, plan: Node) -> Node:
    """The plan with the sets of each such aggregation in their order."""
    children = catalyst.children(plan)
    rewritten = [settled(catalyst, child) for child in children]
    if any(new is not old for new, old in zip(rewritten, children, strict=True)):
        plan = catalyst.with_children(plan, rewritten)
    if catalyst.kind(plan) != "Aggregate":
        return plan
    (inner,) = catalyst.children(plan)
    if catalyst.kind(inner) != "Aggregate":
        return plan
    (expand,) = catalyst.children(inner)
    sets = (
        _sets(catalyst, expand, len(catalyst.grouping(plan))) if catalyst.kind(expand) == "Expand" else None
    )
    return plan if sets is None else _in_order(catalyst, plan, inner, expand, sets)


def _sets(catalyst: Catalyst, expand: Node, keys: int) -> _Sets | None:
    output = catalyst.output(expand)
    names = [catalyst.name(each) for each in output]
    rows = [catalyst.projection(expand, i) for i in range(catalyst.projections(expand))]
    if _NUMBER not in names[keys:]:
        return None
    number = names.index(_NUMBER, keys)
    if not all(catalyst.kind(row[number]) == "Literal" for row in rows):
        return None
    return _Sets(rows, output, number, range(keys, number))


def _in_order(catalyst: Catalyst, outer: Node, inner: Node, expand: Node, sets: _Sets) -> Node:
    told = _telling(catalyst, catalyst.children(expand)[0])
    entries = [[None if catalyst.is_null_literal(each) else told(each) for each in row] for row in sets.rows]

    def column(j: int) -> list[str]:
        return sorted({entry for row in entries if (entry := row[j]) is not None})

    places = sorted(sets.distinct, key=column)
    numbers = [catalyst.printed(row[sets.number]) for row in sets.rows]
    order = sorted(
        range(len(sets.rows)), key=lambda i: (numbers[i] != "0", [entries[i][j] or "" for j in places])
    )
    first = 0 if "0" in numbers else 1
    renumbered = {numbers[i]: first + place for place, i in enumerate(order)}
    moved = [*range(sets.distinct.start), *places, *range(sets.number, len(sets.output))]
    if moved == sorted(moved) and all(was == str(now) for was, now in renumbered.items()):
        return outer
    rows = []
    for i in order:
        row = [sets.rows[i][j] for j in moved]
        row[sets.number] = catalyst.numeral(renumbered[numbers[i]])
        rows.append(row)
    made = catalyst.expanded(rows, [sets.output[j] for j in moved], catalyst.children(expand)[0])
    once = catalyst.aggregate(
        _moved(catalyst, catalyst.grouping(inner), sets, places),
        _moved(catalyst, catalyst.results(inner), sets, places),
        made,
    )
    number = sets.output[sets.number]
    pairs = [
        (
            catalyst.equal(number, row[sets.number]),
            catalyst.equal(number, catalyst.numeral(renumbered[was])),
        )
        for row, was in zip(sets.rows, numbers, strict=True)
    ]
    return catalyst.rewrite_expressions(catalyst.with_children(outer, [once]), pairs)


def _moved(catalyst: Catalyst, listed: Sequence[Expr], sets: _Sets, places: Sequence[int]) -> list[Expr]:
    """A list of expressions with the distinct columns that are in it in the order of these places."""
    own = {catalyst.expr_id(sets.output[j]): j for j in sets.distinct}
    at = {
        own[catalyst.expr_id(each)]: i
        for i, each in enumerate(listed)
        if catalyst.kind(each) == "AttributeReference" and catalyst.expr_id(each) in own
    }
    result = list(listed)
    for i, j in zip(sorted(at.values()), (j for j in places if j in at), strict=True):
        result[i] = listed[at[j]]
    return result


def _telling(catalyst: Catalyst, child: Node) -> Callable[[Expr], str]:
    """Says what expressions over a plan mean."""
    describer = Describer(catalyst)

    def told(expr: Expr) -> str:
        alone = catalyst.project([catalyst.alias(expr, "told")], child)
        return of_node(describer.node(alone), []).whole

    return told
