"""Orders that Spark's plan has in one place and relies on in another.

Spark's optimiser may leave a Sort where it is and rely on rows staying in that order through projections, filters and
limits, up to a node that goes by it: the row numbers that a correlated `ORDER BY ... LIMIT` becomes have no order of
their own, and neither has `first` over a sorted subquery. A change has no such order. So the order is carried up to the
node that needs it, together with the columns that it goes by:

    Window [row_number()] over Project over Sort [o]      =  Project over Window [row_number() by o] over Project with o
    Aggregate [first(x)] over Project over Sort [o]       =  Aggregate [first(x)] over Sort [o] over Project with o

Where there is no order at all, row numbers pick rows at random. That is refused (`refuse`), unless the rows that they
tell apart are all the same.
"""

from __future__ import annotations

from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.sums import accumulates

_KEEPING = {"Filter", "SubqueryAlias", "GlobalLimit", "LocalLimit", "Offset"}
"""Nodes that leave rows in their order, and columns as they are."""


def with_orders(catalyst: Catalyst, plan: Node) -> Node:
    """The plan with the order of its rows wherever a node goes by it."""
    children = catalyst.children(plan)
    rewritten = [with_orders(catalyst, child) for child in children]
    if any(new is not old for new, old in zip(rewritten, children, strict=True)):
        plan = catalyst.with_children(plan, rewritten)
    kind = catalyst.kind(plan)
    if kind == "Window" and numbers_without_order(catalyst, plan):
        return _numbered(catalyst, plan)
    if kind == "Aggregate" and not accumulates(catalyst, plan):
        return _aggregated(catalyst, plan)
    return plan


def numbers_without_order(catalyst: Catalyst, window: Node) -> bool:
    """Whether a window numbers its rows and does not say in which order."""
    parts = (part for each in catalyst.expressions(window) for part in catalyst.subtree(each))
    return not catalyst.window_orders(window) and any(catalyst.kind(part) == "RowNumber" for part in parts)


def _numbered(catalyst: Catalyst, window: Node) -> Node:
    child = catalyst.children(window)[0]
    keys = catalyst.partition_keys(window)
    carried = _carried(catalyst, child)
    if carried is not None:
        below, orders = carried
    elif keys and all(any(catalyst.same(own, key) for key in keys) for own in catalyst.output(child)):
        below, orders = child, [catalyst.sort_order(keys[0], descending=False)]
    else:
        return window
    return catalyst.project(catalyst.output(window), catalyst.ordered_window(window, orders, below))


def _aggregated(catalyst: Catalyst, aggregate: Node) -> Node:
    child = catalyst.children(aggregate)[0]
    carried = None if catalyst.kind(child) == "Sort" else _carried(catalyst, child)
    if carried is None:
        return aggregate
    below, orders = carried
    return catalyst.with_children(aggregate, [catalyst.sort(orders, below)])


def _carried(catalyst: Catalyst, plan: Node) -> tuple[Node, list[Expr]] | None:
    """A plan whose rows are in an order, with the columns that it goes by, and that order; None if they are in none."""
    kind = catalyst.kind(plan)
    if kind == "Sort":
        return plan, catalyst.sort_orders(plan)
    if kind != "Project" and kind not in _KEEPING:
        return None
    carried = _carried(catalyst, catalyst.children(plan)[0])
    if carried is None:
        return None
    below, orders = carried
    if kind != "Project":
        return catalyst.with_children(plan, [below]), orders
    known = [attribute for attribute in catalyst.output(below) if _used(catalyst, attribute, orders)]
    own = {catalyst.expr_id(each) for each in catalyst.output(plan)}
    more = [attribute for attribute in known if catalyst.expr_id(attribute) not in own]
    return catalyst.project([*catalyst.project_list(plan), *more], below), orders


def _used(catalyst: Catalyst, attribute: Expr, orders: list[Expr]) -> bool:
    return any(catalyst.reads(order, attribute) for order in orders)
