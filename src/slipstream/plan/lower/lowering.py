"""Going down a plan: each node to the plan of its change, what is read in several places once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.lower.builder import Builder, Delta
from slipstream.plan.nodes import Op

Lower = Callable[["Lowering", Any], Delta]
"""Gives the change of one kind of node."""


@dataclass
class Lowering:
    """What lowering needs beside a node. view: the one that is being lowered. partial: the aggregations whose rows are
    to be added up before they are shuffled. inputs: the changes of sources and views, by the leaf that stands for each.
    """

    build: Builder
    kinds: Mapping[type[Op], Lower]
    partial: Collection[str]
    view: str = ""
    inputs: dict[int, Delta] = field(default_factory=dict)
    _once: dict[str, Delta] = field(default_factory=dict)

    @property
    def catalyst(self) -> Catalyst:
        return self.build.catalyst

    def delta(self, op: Op) -> Delta:
        """The change of an operator's output."""
        return self.kinds[type(op)](self, op)

    def once(self, key: str, op: Op) -> Delta:
        """The change of what is read in several places, computed once."""
        if key not in self._once:
            self._once[key] = self.shared(op.plan, self.delta(op))
        return self._once[key]

    def shared(self, plan: Node, delta: Delta) -> Delta:
        """A change, computed once for all that read it; plan: what it is the change of."""
        attributes = [*self.catalyst.output(plan), *delta.extras()]
        return replace(delta, plan=self.build.share(self.catalyst.project(attributes, delta.plan)))

    def renamed(self, delta: Delta, node: Node) -> Delta:
        """A change under the attributes of another node with as many."""
        catalyst = self.catalyst
        own = catalyst.output(node)
        carried = catalyst.output(delta.plan)[: len(own)]
        extras = [catalyst.alias(each, catalyst.name(each)) for each in delta.extras()]
        columns = [catalyst.renamed(a, b) for a, b in zip(carried, own, strict=True)]
        new = [catalyst.attribute(each) for each in extras]
        plan = catalyst.project([*columns, *extras], delta.plan)
        return replace(delta, plan=plan, diff=new[0], route=new[1] if len(new) > 1 else None)
