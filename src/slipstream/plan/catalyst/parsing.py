"""SQL text, as Spark parses it."""

from __future__ import annotations

from slipstream.plan.catalyst.handles import Node
from slipstream.plan.catalyst.reading import Reading

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_COMMAND_CLASSES = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
_COMMANDS = {
    "Call",
    "InsertIntoDir",
    "UnresolvedExecuteImmediate",
}  # commands that are of none of these classes


class Parsing(Reading):
    """What SQL text names, before it is analysed."""

    def relations(self, text: str) -> list[str]:
        """The tables and views that SQL text names by one word, in order, each once, without its own CTEs. A name of
        several parts is that of a table in a catalog, or of a file: parquet.`/path`.
        """
        found: list[str] = []
        self._gather_relations(self._parsed(text), found, set())
        return list(dict.fromkeys(found))

    def command_in(self, text: str) -> str | None:
        """What SQL text is that is no query, as Spark names it: a command, an insertion, a script. None for a query."""
        kinds = (node.kind for node in self.nodes(self._parsed(text)) if self._is_command(node))
        return next((kind.rstrip("$").removesuffix("Command") for kind in kinds), None)

    def has_watermark(self, text: str) -> bool:
        """Whether SQL text has a WATERMARK clause."""
        return any(node.kind == "UnresolvedEventTimeWatermark" for node in self.nodes(self._parsed(text)))

    def _is_command(self, node: Node) -> bool:
        return node.kind in _COMMANDS or any(self.is_a(node.java, name) for name in _COMMAND_CLASSES)

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
