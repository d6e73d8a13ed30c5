"""Handles of what stays in the JVM: a node of a plan, an expression, a type.

They are opaque. Nobody but this package asks them anything by py4j, so what can be asked of a plan is what `Catalyst`
has methods for, with types. Two handles are equal where what they stand for is.
"""

from __future__ import annotations

from typing import Any


class Handle:
    """Something in the JVM."""

    __slots__ = ("_kind", "java")

    def __init__(self, java: Any) -> None:
        self.java = java
        self._kind: str | None = None

    @property
    def kind(self) -> str:
        """Its class, as Spark names it."""
        if self._kind is None:
            self._kind = str(self.java.getClass().getSimpleName())
        return self._kind

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and bool(self.java.equals(other.java)))

    def __hash__(self) -> int:
        return int(self.java.hashCode())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.java.toString()})"


class Node(Handle):
    """A node of a logical plan, and with it the plan below it."""

    __slots__ = ()


class Expr(Handle):
    """An expression."""

    __slots__ = ()


class Type(Handle):
    """A type, as the JVM has it."""

    __slots__ = ()


class ExprList(Handle):
    """Expressions in the JVM, to be used again without being sent again."""

    __slots__ = ()


def bare(value: Any) -> Any:
    """What py4j is to be given for a value that may be a handle."""
    return value.java if isinstance(value, Handle) else value
