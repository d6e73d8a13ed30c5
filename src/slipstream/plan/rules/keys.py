"""The equalities between the sides of a join."""

from __future__ import annotations

from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.kinds import EQUALITIES
from slipstream.plan.nodes import Key


def equal_keys(catalyst: Catalyst, join: Node) -> tuple[list[Key], list[Expr]]:
    """Pairs of expressions, left and right, that must be equal; and the rest of the condition."""
    keys: list[Key] = []
    rest: list[Expr] = []
    left, right = catalyst.children(join)
    for part in catalyst.split_and(catalyst.join_condition(join)):
        kind = catalyst.kind(part)
        pairs = [catalyst.sides(part), catalyst.sides(part)[::-1]] if kind in EQUALITIES else []
        across = (
            pair for pair in pairs if catalyst.is_from(pair[0], left) and catalyst.is_from(pair[1], right)
        )
        found = next(across, None)
        if found is None:
            rest.append(part)
        else:
            keys.append(Key(*found, null_safe=kind == "EqualNullSafe"))
    return keys, rest
