"""Plans, run: rows that are kept for an epoch, what Spark measured and observed."""

from __future__ import annotations

from pyspark.sql import DataFrame

from slipstream.plan.catalyst.handles import Node
from slipstream.plan.catalyst.plans import Plans

_COUNTERS = {"ShuffleExchangeExec": "shuffleRecordsWritten", "MapInArrowExec": "pythonNumRowsReceived"}


class Running(Plans):
    """Runs plans."""

    def kept(self, plan: Node) -> tuple[DataFrame, Node]:
        """A plan's rows, to be kept once they are computed, and the relation that stands for them."""
        frame = self.frame(plan)
        frame._jdf.persist()
        return frame, Node(frame._jdf.queryExecution().withCachedData())

    def is_kept(self, relation: Node) -> bool:
        """Whether each part of the relation that stands for kept rows was computed by a task that succeeded."""
        loaded: bool = relation.java.cacheBuilder().isCachedColumnBuffersLoaded()
        return loaded

    def dropped(self, frame: DataFrame) -> None:
        """Keep a frame's rows no longer."""
        frame._jdf.unpersist()

    def planned(self, frame: DataFrame) -> None:
        """Optimise and plan a frame, so that running it does only that."""
        frame._jdf.queryExecution().executedPlan()

    def run(self, frame: DataFrame) -> None:
        """Run a frame for what is observed."""
        frame._jdf.queryExecution().toRdd().count()

    def collect_strings(self, frame: DataFrame) -> list[str]:
        """Run a frame of one string column."""
        rows = frame._jdf.collectAsList()
        # Not by iterating: PySpark asks the JVM thirty times what the exception is that ends it.
        return [rows.get(i).getString(0) for i in range(rows.size())]

    def stage_metrics(self, frame: DataFrame) -> dict[str, dict[str, int]]:
        """What Spark measured of each Python stage of a frame that has run, by the name of its function.

        rows_in: rows shuffled to it, or what the nearest node below that counts its rows has counted; rows_out,
        bytes_in, and milliseconds, over all tasks.
        """
        found: dict[str, dict[str, int]] = {}
        waiting = [Node(frame._jdf.queryExecution().executedPlan())]
        while waiting:
            node = waiting.pop()
            if node.kind == "InMemoryTableScanExec":
                waiting.append(Node(node.java.relation().cachedPlan()))
            elif node.kind == "MapInArrowExec":
                metrics = node.java.metrics()
                figures = {
                    "rows_out": metrics.apply("pythonNumRowsReceived").value(),
                    "bytes_in": metrics.apply("pythonDataSent").value(),
                    "milliseconds": metrics.apply("pythonTotalTime").value(),
                }
                rows_in = self._rows_below(node)
                if rows_in is not None:
                    figures["rows_in"] = rows_in
                found[node.java.func().name()] = figures
            waiting += self.children(node)
        return found

    def _rows_below(self, node: Node) -> int | None:
        """The rows that a node was given, if some node below it counted them."""
        total = 0
        for child in self.children(node):
            kind, metrics = child.kind, child.java.metrics()
            counter = _COUNTERS.get(kind, "numOutputRows")
            counted = metrics.apply(counter).value() if metrics.contains(counter) else self._rows_below(child)
            if counted is None:
                return None
            total += counted
        return total if self.children(node) else None

    def observed(self, frame: DataFrame) -> dict[str, tuple[int | None, ...]]:
        """The metrics that a frame's run observed, by name."""
        seen = frame._jdf.queryExecution().observedMetrics()
        names = self.items(seen.keys().toSeq())
        rows = [seen.apply(name) for name in names]
        return {
            name: tuple(None if row.isNullAt(i) else row.getLong(i) for i in range(row.size()))
            for name, row in zip(names, rows, strict=True)
        }
