"""dropDuplicatesWithinWatermark: to FirstSeen."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.nodes import FirstSeen, Op
from slipstream.plan.rules.query import Query


def first_seen(query: Query, node: Node) -> Op | None:
    catalyst = query.catalyst
    if catalyst.kind(node) != "DeduplicateWithinWatermark":
        return None
    child, traces = query.child(node), (query.trace("firstseen", node),)
    keys = tuple(catalyst.normalised(key) for key in catalyst.duplicate_keys(node))
    return FirstSeen(node, child, traces, query.timing.keyed(node, traces), keys)
