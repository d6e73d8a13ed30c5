"""Sliding windows behind a watermark: equal rows of a pane are expanded together.

A row may be late for some of its windows and on time for others, so an aggregation that follows a watermark tells rows
apart by window before it adds them up (`dataflow/eventtime.py`), and keeps its state by window. But all rows of a pane
are in the same windows, and late for the same. So rows that are alike in all that the aggregation reads are counted
first, each with its event time moved to the beginning of its pane, and go through Spark's Expand as one, with how many
of them there are. Late ones are written down as often as they came.

It is not done where the event time itself is read above, or where Arrow and Spark do not tell values apart alike.
"""

from __future__ import annotations

from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.nodes import Alike, Expand, Op, Passing, Project
from slipstream.plan.panes import Expanded, bounds_window, windows_of
from slipstream.plan.rules.query import Query
from slipstream.plan.told_apart import told_apart


def together(query: Query, node: Node) -> Op | None:
    """What an aggregation over sliding windows reads, with equal rows of a pane together; None where it is none, or
    that can not be done.
    """
    catalyst = query.catalyst
    above: list[Node] = []
    (below,) = catalyst.children(node)
    while catalyst.kind(below) in ("Project", "Filter"):
        above.append(below)
        (below,) = catalyst.children(below)
    found = windows_of(catalyst, below) if catalyst.kind(below) == "Expand" else None
    if found is None:
        return None
    (rows,) = catalyst.children(below)
    made = [made for _, made in found.others]
    attributes = [
        each
        for each in catalyst.output(rows)
        if not catalyst.same(each, found.time) and _reads(catalyst, made, each)
    ]
    if catalyst.kind(found.time) != "AttributeReference":
        return None
    if _reads(catalyst, _read(catalyst, node, above, found), found.time):
        return None
    if not told_apart(catalyst, attributes):
        return None
    op: Op = Expand(below, Alike(rows, query.op(rows), tuple(attributes), found.time, found.sliding))
    for each in reversed(above):
        op = Project(each, op) if catalyst.kind(each) == "Project" else Passing(each, op)
    return op


def _read(catalyst: Catalyst, node: Node, above: list[Node], found: Expanded) -> list[Expr]:
    """All that is read above the windows, but for what keeps only windows that the event time is in."""
    read = [*catalyst.expressions(node)]
    for each in above:
        if catalyst.kind(each) == "Project":
            read += catalyst.project_list(each)
        else:
            conditions = catalyst.split_and(catalyst.filter_condition(each))
            read += [one for one in conditions if not bounds_window(catalyst, one, found.time, found.window)]
    return [*read, *catalyst.output(catalyst.children(node)[0])]


def _reads(catalyst: Catalyst, expressions: list[Expr], attribute: Expr) -> bool:
    return any(catalyst.reads(each, attribute) for each in expressions)
