"""ORDER BY with LIMIT, OFFSET or both: to TopK, with the projections above it that were between the two."""

from __future__ import annotations

from slipstream.plan.catalyst import Node
from slipstream.plan.kinds import LIMITS
from slipstream.plan.nodes import Op, Project, TopK
from slipstream.plan.rules.query import Query
from slipstream.plan.stretch import stretch


def limits(query: Query, node: Node) -> Op | None:
    if query.catalyst.kind(node) not in LIMITS:
        return None
    rows = stretch(query.catalyst, node)
    assert rows is not None, "refuse.check_plan lets only a limit over a sort through"
    op: Op = TopK(
        plan=rows.sort,
        input=query.child(rows.sort),
        kept=(query.trace("topk", node),),
        times=(),
        orders=tuple(query.catalyst.sort_orders(rows.sort)),
        skipped=rows.skipped,
        last=rows.last,
    )
    for between in reversed(rows.between):
        op = Project(between, op)
    return op
