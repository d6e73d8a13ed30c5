"""What several queries have in common is computed and kept once.

Before anything is compiled, every plan is walked from its root, and each node that keeps state is known by its
canonical form: Spark's, in which neither names nor expression ids count, and the inputs below it. A node that is
met again is not walked into: what is below it exists once, too. Rules walk the same way. The first query to come
to a common node makes its operator; the others read that one, under their own attributes (`nodes.Once`).

What reads a watermark is each view's own: views go by different watermarks, and have late rows of their own.

A view whose root is common and can be read from its totals needs nothing of its own. If all uses of a node are
such views, nobody takes its change, and it is not emitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.direct import reads_directly
from slipstream.plan.eventtime import follows, watermarks_in
from slipstream.plan.kinds import STATEFUL
from slipstream.plan.nodes import Op
from slipstream.plan.panes import slid
from slipstream.plan.sums import accumulates


@dataclass
class Common:
    """A node that keeps state: how often it is used, which view came to it first, and the operator made there."""

    node: Node
    uses: int = 0
    taken: int = 0  # uses that need its change, not only its totals
    view: str = ""
    op: Op | None = None


@dataclass
class Commons:
    """The nodes of an app's queries that keep state, by what they mean."""

    catalyst: Catalyst
    names: Mapping[int, str]
    _known: dict[str, list[Common]] = field(default_factory=dict)
    _watermarks: bool = False

    def count(self, plan: Node, readers: int) -> None:
        """Take a view's plan into account. `readers`: how many other views take its change."""
        self._watermarks = self._watermarks or bool(watermarks_in(self.catalyst, plan))
        root = readable_root(self.catalyst, plan)
        if root is None:
            self._walk(plan)
            return
        common = self._entry(root)
        common.uses += 1
        common.taken += readers
        if common.uses == 1:
            self._walk(self.catalyst.children(root)[0])

    def find(self, node: Node) -> Common | None:
        """What is known of a node that is used more than once."""
        if not self._shareable(node):
            return None
        common = self._entry(node)
        return common if common.uses > 1 else None

    def _shareable(self, node: Node) -> bool:
        stateful = self.catalyst.kind(node) in STATEFUL
        return stateful and not (self._watermarks and watermarks_in(self.catalyst, node))

    def _walk(self, node: Node) -> None:
        if self._shareable(node):
            common = self._entry(node)
            common.uses += 1
            common.taken += 1
            if common.uses > 1:
                return
        for child in self.catalyst.children(node):
            self._walk(child)

    def _entry(self, node: Node) -> Common:
        meant = self._meant(node)
        known = self._known.setdefault(self._text(meant), [])
        for common in known:
            if self.catalyst.same_result(common.node, meant):
                return common
        known.append(Common(meant))
        return known[-1]

    def _meant(self, node: Node) -> Node:
        """The node with nothing in it that depends on how its columns are called: `k` and `k AS key` are the same."""
        if self.catalyst.kind(node) != "Aggregate":
            return node
        shown = self.catalyst.results(node)
        named = [
            each if self.catalyst.kind(each) == "Alias" else self.catalyst.alias(each, "") for each in shown
        ]
        keys = self.catalyst.grouping(node)
        return self.catalyst.aggregate(keys, named, self.catalyst.children(node)[0])

    def _text(self, node: Node) -> str:
        leaves = (self.catalyst.leaf_id(each) for each in self.catalyst.nodes(node))
        inputs = [self.names.get(leaf, "") for leaf in leaves if leaf is not None]
        return "\n".join([self.catalyst.text(self.catalyst.canonical(node)), *inputs])


def readable_root(catalyst: Catalyst, plan: Node) -> Node | None:
    """The aggregation at the root of a view that can be read from its totals; None for any other view."""
    while catalyst.kind(plan) == "Sort":
        plan = catalyst.children(plan)[0]
    if catalyst.kind(plan) != "Aggregate" or not accumulates(catalyst, plan):
        return None
    kept = not follows(catalyst, plan)
    by_pane = kept and slid(catalyst, plan) is not None
    return plan if kept and reads_directly(catalyst, plan, by_pane) else None
