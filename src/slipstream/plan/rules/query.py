"""One view's query, as rules go through it.

A rule is asked for the operator of a node, and asks for those of the node's children (`Query.op`). Here is what rules
share: what the leaves stand for, what is read in several places, how traces are named, how event time is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.eventtime import Timing
from slipstream.plan.identity import Meanings, TraceNames
from slipstream.plan.nodes import Input, Once, Op, Source
from slipstream.plan.sharing import Common, Commons

Rule = Callable[["Query", Node], Op | None]
"""Gives the operator of a node, or None where the rule is not for it."""


class Query:
    """See the module's docstring. inputs: what placeholders stand for, a source or the name of a view."""

    def __init__(
        self,
        *,
        catalyst: Catalyst,
        view: str,
        rules: Sequence[Rule],
        inputs: Mapping[int, Source | str],
        commons: Commons,
        meanings: Meanings,
        names: TraceNames,
        marks: Mapping[str, int],
    ) -> None:
        self.catalyst = catalyst
        self.view = view
        self.commons = commons
        self.names = names
        self.timing = Timing(catalyst, view, dict(marks), lambda node: self.trace("late", node))
        self._rules = rules
        self._inputs = inputs
        self._meanings = meanings
        self._parts: dict[int, Op] = {}

    def op(self, node: Node) -> Op:
        """The operator of a node: what is common is made once."""
        common = self.commons.find(node)
        return self.alone(node) if common is None else self.common(node, common)

    def alone(self, node: Node) -> Op:
        """The operator of a node, for itself: of the first rule that is for it."""
        for rule in self._rules:
            made = rule(self, node)
            if made is not None:
                return made
        raise AssertionError(f"refuse.check_plan lets no {self.catalyst.kind(node)} through")

    def common(self, node: Node, common: Common) -> Once:
        """The operator of a node that is used in several places."""
        if common.op is None:
            with self.names.sharing():
                common.op = self.alone(node)
            common.view = self.view
            return Once(node, common.op, common.op.traces[0])
        return Once(node, common.op, common.op.traces[0], common.view)

    def child(self, node: Node) -> Op:
        """The operator of a node's only child."""
        (below,) = self.catalyst.children(node)
        return self.op(below)

    def sides(self, join: Node) -> tuple[Op, Op]:
        left, right = (self.op(child) for child in self.catalyst.children(join))
        return left, right

    def given(self, leaf: Node) -> Op | None:
        """What a leaf stands for: a source, a view, a part of the query."""
        number = self.catalyst.leaf_id(leaf)
        if number is None:
            return None
        if number in self._parts:
            return Once(leaf, self._parts[number], f"part {number}")
        return Input(leaf, number, self._inputs[number]) if number in self._inputs else None

    def stand_in(self, plan: Node, op: Op) -> Node:
        """A relation with a plan's output that stands for its operator: it can be read more than once."""
        catalyst = self.catalyst
        leaf = catalyst.analysed(catalyst.placeholder(catalyst.schema(plan)))
        number = catalyst.leaf_id(leaf)
        assert number is not None
        self._parts[number] = op
        self._meanings.know(number, self._meanings.of(plan))
        pairs = zip(catalyst.output(leaf), catalyst.output(plan), strict=True)
        return catalyst.project([catalyst.renamed(mine, theirs) for mine, theirs in pairs], leaf)

    def trace(self, kind: str, node: Node) -> str:
        """A trace for an operator, by what the node means."""
        return self.names.name(kind, self._meanings.of(node))
