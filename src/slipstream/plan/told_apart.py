"""Values that Arrow tells apart as Spark does: where they are keys, rows may be added up in Python before Spark sees
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from slipstream.plan.catalyst import Catalyst, Expr

_UNLIKE = (
    "struct",
    "array",
    "map",
    "float",
    "double",
    "variant",
    "interval",
    "void",
    "udt",
    "string collate",
)
"""Types of keys that Arrow does not tell apart as Spark does."""


def told_apart(catalyst: Catalyst, keys: Iterable[Expr]) -> bool:
    """Whether Arrow tells these keys' values apart as Spark does."""
    return not any(catalyst.type_of(key).simpleString().startswith(_UNLIKE) for key in keys)
