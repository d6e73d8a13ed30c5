"""Limits and offsets, as the stretch of rows that they leave.

A stretch of an order from place m to place n is the first n rows without the first m. Without a LIMIT it has no
end: then it is the whole input, less the first m rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.kinds import LIMITS


@dataclass(frozen=True)
class Stretch:
    """Rows of an order: those after the first `skipped`, up to the place `last` if there is one; and the
    projections that were between the limits and the Sort, topmost first.
    """

    sort: Node
    skipped: int
    last: int | None
    between: tuple[Node, ...]


def stretch(catalyst: Catalyst, node: Node) -> Stretch | None:
    """The rows that limits and offsets leave of a Sort below them; None where there is none, or a limit is open."""
    found = limits_over(catalyst, node)
    return Stretch(*found) if found is not None and catalyst.kind(found[0]) == "Sort" else None


def limits_over(catalyst: Catalyst, node: Node) -> tuple[Node, int, int | None, tuple[Node, ...]] | None:
    """What limits, offsets and projections, if there are any, are over, and which rows they leave of it: as in a
    `Stretch`. None where a limit is open.
    """
    steps, between = [], []
    while (kind := catalyst.kind(node)) in (*LIMITS, "Project"):
        if kind == "Project":
            between.append(node)
        elif kind != "LocalLimit":
            count = catalyst.limit_count(node)
            if count is None:
                return None
            steps.append((kind, count))
        node = catalyst.children(node)[0]
    skipped, last = 0, None
    for kind, count in reversed(steps):
        if kind == "Offset":
            skipped += count
        else:
            last = skipped + count if last is None else min(last, skipped + count)
    return node, skipped, last, tuple(between)
