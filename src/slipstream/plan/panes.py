"""Sliding windows in Spark's plans, recognised and taken away again.

Spark's analyser turns `window(ts, length, slide)` into an Expand with a projection for each of the windows that a row
is in, and a filter above it where the slide does not divide the length. Its plan is Aggregate over projections and
that filter over Expand. Here they are taken away again: the aggregation goes over what is below the Expand, its keys
and arguments too, and the key that is the window becomes the number of a pane (`dataflow/sliding.py`). What Spark's
expressions say of the window, its length, slide and offset, is read from the first and the last of them.

Anything that is not recognised stays as it is and is expanded: keys or arguments that depend on the window,
conditions on the window, windows of very many panes, and aggregations that follow a watermark. A row may be late for
some of its windows and on time for others, so there a row is told apart by its window before it is added up.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import DataType

from slipstream.dataflow.sliding import Sliding
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.sums import accumulates

_MOST_PANES = 1 << 16
"""The panes of a window, at most: 10 s that slide by 3.333333 s are 10,000,000 panes of a microsecond, and four windows
a row. A day that slides by two seconds is still by panes.
"""

_WRAPPERS = {"KnownNullable", "KnownNotNull", "Alias"}


@dataclass(frozen=True)
class Slid:
    """An aggregation over sliding windows, taken apart.

    node: the aggregation over `child`, which has no windows; at: the number of its key that is the window; time: the
    event time, an expression over `child`.
    """

    node: Node
    child: Node
    at: int
    time: Expr
    sliding: Sliding
    kind: DataType


def slid(catalyst: Catalyst, node: Node) -> Slid | None:
    """An aggregation over sliding windows, if it is one and neither its keys nor what it adds up depends on them."""
    keys, results = catalyst.grouping(node), catalyst.results(node)
    outputs, conditions = catalyst.output(node), list[Expr]()
    (below,) = catalyst.children(node)

    def rewrite(pairs: list[tuple[Expr, Expr]]) -> None:
        keys[:] = [catalyst.replace(key, pairs) for key in keys]
        conditions[:] = [catalyst.replace(each, pairs) for each in conditions]
        named = zip(results, outputs, strict=True)
        results[:] = [catalyst.named_as(catalyst.replace(each, pairs), target) for each, target in named]

    while (kind := catalyst.kind(below)) in ("Project", "Filter"):
        if kind == "Filter":
            conditions += catalyst.split_and(catalyst.filter_condition(below))
        else:
            named = catalyst.project_list(below)
            rewrite(
                [
                    (catalyst.attribute(each), catalyst.child(each))
                    for each in named
                    if catalyst.kind(each) == "Alias"
                ]
            )
        (below,) = catalyst.children(below)
    if kind != "Expand":
        return None
    found = windows_of(catalyst, below)
    if found is None or found.sliding.reach > _MOST_PANES:
        return None
    rewrite(found.others)
    conditions = [each for each in conditions if not bounds_window(catalyst, each, found.time, found.window)]
    at = [i for i, key in enumerate(keys) if catalyst.same(key, found.window)]
    parts = [*(key for i, key in enumerate(keys) if i not in at), *conditions]
    parts += [
        child
        for result in results
        for part in catalyst.subtree(result)
        if catalyst.kind(part) == "AggregateExpression"
        for child in catalyst.children(part)
    ]
    (child,) = catalyst.children(below)
    if len(at) != 1 or not all(catalyst.refers_only_to(part, child) for part in parts):
        return None
    if (condition := catalyst.conjunction(conditions)) is not None:
        child = catalyst.filter(condition, child)
    over = catalyst.aggregate(keys, results, child)
    return Slid(over, child, at[0], found.time, found.sliding, catalyst.type_of(found.window))


def with_few_windows(catalyst: Catalyst, plan: Node) -> Node:
    """A plan in which the Expand of an aggregation by pane has only its first and its last projection, all that is read
    of it: an hour that slides by a second has 3,600 of them, each a tree of some fifty expressions.
    """
    children = catalyst.children(plan)
    fewer = [with_few_windows(catalyst, child) for child in children]
    if any(new is not old for new, old in zip(fewer, children, strict=True)):
        plan = catalyst.with_children(plan, fewer)
    if catalyst.kind(plan) != "Aggregate" or not accumulates(catalyst, plan) or slid(catalyst, plan) is None:
        return plan
    (expand,) = catalyst.children(plan)
    while catalyst.kind(expand) != "Expand":
        (expand,) = catalyst.children(expand)
    last = catalyst.projections(expand) - 1
    return (
        catalyst.swap(plan, [(expand, catalyst.fewer_projections(expand, [0, last]))]) if last > 1 else plan
    )


@dataclass(frozen=True)
class Expanded:
    """What an Expand makes: a window, of which event time, and how it slides; and what other columns are made of."""

    window: Expr
    time: Expr
    sliding: Sliding
    others: list[tuple[Expr, Expr]]


def windows_of(catalyst: Catalyst, expand: Node) -> Expanded | None:
    """The sliding windows that an Expand makes; None if it is for something else."""
    output, rows = catalyst.output(expand), catalyst.projections(expand)
    at = [i for i, each in enumerate(output) if catalyst.is_time_window(each)]
    if len(at) != 1 or rows < 2:
        return None
    first, last = (catalyst.projection(expand, i) for i in (0, rows - 1))
    others = [(each, first[i]) for i, each in enumerate(output) if i != at[0]]
    if any(not catalyst.same(first[i], last[i]) for i in range(len(output)) if i != at[0]):
        return None
    newest, oldest = (_bound_terms(catalyst, row[at[0]]) for row in (first, last))
    if newest is None or oldest is None:
        return None
    (start, end), (other, _) = newest, oldest
    length = end.shift - start.shift
    sliding = Sliding(length, start.slide, start.offset) if 0 < start.slide <= length else None
    if sliding is None or rows not in (sliding.most, 2) or start.shift != 0:
        return None
    if other.shift != (1 - sliding.most) * sliding.slide or not catalyst.same(start.time, other.time):
        return None
    return Expanded(output[at[0]], start.time, sliding, others)


def some_windows(catalyst: Catalyst, node: Node) -> list[Expr]:
    """If a node is an Expand to sliding windows, its first projection: the others differ from it in a number only."""
    if catalyst.kind(node) != "Expand" or windows_of(catalyst, node) is None:
        return []
    return catalyst.projection(node, 0)


@dataclass(frozen=True)
class _Bound:
    """The beginning or the end of a window: when the last one began that has the time in it, and a shift."""

    time: Expr
    slide: int
    offset: int
    shift: int


def _bound_terms(catalyst: Catalyst, window: Expr) -> tuple[_Bound, _Bound] | None:
    """The bounds of a window that Spark's analyser made."""
    window = _bare(catalyst, window)
    if catalyst.kind(window) != "CreateNamedStruct":
        return None
    _, start, _, end = catalyst.children(window)
    bounds = [_bound(catalyst, each) for each in (start, end)]
    return None if bounds[0] is None or bounds[1] is None else (bounds[0], bounds[1])


def _bound(catalyst: Catalyst, moment: Expr) -> _Bound | None:
    moment = _bare(catalyst, moment)
    if catalyst.kind(moment) != "PreciseTimestampConversion":
        return None
    (rest,) = catalyst.children(moment)
    shift = 0
    while catalyst.kind(rest) in ("Add", "Subtract"):
        left, right = catalyst.children(rest)
        number = catalyst.whole_number(right)
        if number is None:
            break
        shift += number if catalyst.kind(rest) == "Add" else -number
        rest = left
    if catalyst.kind(rest) != "Subtract":
        return None
    micros, since = catalyst.children(rest)
    remainders = [each for each in catalyst.subtree(since) if catalyst.kind(each) == "Remainder"]
    if catalyst.kind(micros) != "PreciseTimestampConversion" or not remainders:
        return None
    shifted, slide = catalyst.children(remainders[0])[:2]
    offset = 0
    if catalyst.kind(shifted) == "Subtract":
        shifted, by = catalyst.children(shifted)
        offset = catalyst.whole_number(by) or 0
    number = catalyst.whole_number(slide)
    if number is None or not catalyst.same(shifted, micros):
        return None
    return _Bound(catalyst.children(micros)[0], number, offset, shift)


def bounds_window(catalyst: Catalyst, condition: Expr, time: Expr, window: Expr) -> bool:
    """Whether a condition is one by which Spark keeps only windows that the event time is in."""
    kind = catalyst.kind(condition)
    if kind == "IsNotNull":
        return _part(catalyst, catalyst.children(condition)[0], window) is not None
    if kind not in ("GreaterThanOrEqual", "LessThan"):
        return False
    left, right = catalyst.children(condition)
    part = 0 if kind == "GreaterThanOrEqual" else 1
    return _part(catalyst, right, window) == part and catalyst.same(left, time)


def _part(catalyst: Catalyst, expr: Expr, window: Expr) -> int | None:
    """Which part of the window an expression is, if it is one: 0 its beginning, 1 its end."""
    if catalyst.kind(expr) != "GetStructField" or not catalyst.same(catalyst.child(expr), window):
        return None
    return catalyst.field_number(expr)


def _bare(catalyst: Catalyst, expr: Expr) -> Expr:
    while catalyst.kind(expr) in _WRAPPERS:
        (expr,) = catalyst.children(expr)
    return expr
