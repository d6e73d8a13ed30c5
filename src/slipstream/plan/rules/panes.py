"""Aggregations over sliding windows: to Panes, which adds up by pane and keeps no windows (`plan/panes.py`).

Rows are added up by pane and keys in Catalyst, before they are sent to the operator, where everything that is added up
is a count or a whole number and no key is a map, for Spark gives such keys other names. Many rows of an epoch are in
one pane, so that is done without asking whether it pays.
"""

from __future__ import annotations

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.nodes import Op, Panes, Sums
from slipstream.plan.panes import slid
from slipstream.plan.rules.query import Query
from slipstream.plan.sums import accumulates, sums_of

_WHOLE = {"count", "long"}


def panes(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Aggregate" or not accumulates(catalyst, node) or query.timing.follows(node):
        return None
    found = slid(catalyst, node)
    if found is None:
        return None
    sums = sums_of(catalyst, found.node)
    child = query.op(found.child)
    extremes = [query.trace("extreme", node) for _ in sums.extremes]
    return Panes(
        plan=found.node,
        input=child,
        kept=(query.trace("panes", node), *extremes),
        times=(),
        sums=sums,
        addable=False,
        written=node,
        at=found.at,
        kind=found.kind,
        time=found.time,
        sliding=found.sliding,
        whole=_is_whole(catalyst, sums),
    )


def _is_whole(catalyst: Catalyst, sums: Sums) -> bool:
    """Whether Catalyst may add up rows by their keys."""
    maps = any("map<" in catalyst.type_of(key).simpleString() for key in sums.keys)
    return not (sums.extremes or maps) and all(each.kind in _WHOLE for each in sums.arguments)
