"""Aggregates that are all sums, minima or maxima: to Accumulate.

Rows may be added up before they are shuffled where that gives the same: there are no extremes, which need the rows;
keys are told apart by Arrow as by Spark; and no row may be late, which is told of one row at a time.
"""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.nodes import Accumulate, Op
from slipstream.plan.rules.query import Query
from slipstream.plan.rules.together import together
from slipstream.plan.sums import accumulates, sums_of
from slipstream.plan.told_apart import told_apart


def accumulate(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "Aggregate" or not accumulates(catalyst, node):
        return None
    sums = sums_of(catalyst, node)
    alike = together(query, node) if query.timing.follows(node) else None
    child = query.child(node) if alike is None else alike
    extremes = [query.trace("extreme", node) for _ in sums.extremes]
    traces = (query.trace("accumulate", node), *extremes)
    times = query.timing.keyed(node, traces)
    addable = not times and not sums.extremes and told_apart(catalyst, sums.keys)
    return Accumulate(node, child, traces, times, sums, addable, copies=alike is not None)
