"""SQL text, as Spark parses it."""

from __future__ import annotations

from slipstream.plan.catalyst.handles import Node
from slipstream.plan.catalyst.reading import Reading


class Parsing(Reading):
    """What SQL text names, before it is analysed."""

    def relations(self, text: str) -> list[str]:
        """The tables and views that SQL text names by one word, in order, each once, without its own CTEs. A name of
        several parts is that of a table in a catalog, or of a file: parquet.`/path`.
        """
        found: list[str] = []
        self._gather_relations(self._parsed(text), found, set())
        return list(dict.fromkeys(found))

    def has_watermark(self, text: str) -> bool:
        """Whether SQL text has a WATERMARK clause."""
        return any(node.kind == "UnresolvedEventTimeWatermark" for node in self.nodes(self._parsed(text)))

    def _parsed(self, text: str) -> Node:
        return Node(self._jsession.sessionState().sqlParser().parsePlan(text))

    def _gather_relations(self, node: Node, found: list[str], own: set[str]) -> None:
        if node.kind == "UnresolvedRelation":
            name, *more = self.items(node.java.multipartIdentifier())
            if not more and name.lower() not in own:
                found.append(name)
            return
        if node.kind == "UnresolvedWith":
            for pair in self.items(node.java.cteRelations()):
                within = own | {pair._1().lower()}
                self._gather_relations(Node(pair._2()), found, within if node.java.allowRecursion() else own)
                own = within
        for expression in self.expressions(node):
            for part in self.subtree(expression):
                if (subquery := self.plan_in(part)) is not None:
                    self._gather_relations(subquery, found, own)
        for child in self.children(node):
            self._gather_relations(child, found, own)
