"""Why an epoch fails: in which views, of what, and on which rows. For an epoch that has failed, where time does not
matter.

To say which views failed, each is computed alone; a view that merely reads another that fails is not to blame. Then
the rows are looked for (`culprit`). All of this writes layers, which are to be discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from slipstream.core.columns import INTERNAL
from slipstream.core.errors import EpochFailed
from slipstream.dataflow.task import EpochProperty
from slipstream.epoch.culprit import MOST_ROWS, Tables, culprits
from slipstream.epoch.template import FAILURES, Template
from slipstream.spark.jvm import text_of
from slipstream.spark.session import EPOCH_POOL
from slipstream.store.layout import EVENTS


@dataclass(frozen=True)
class Diagnosis:
    """An epoch to look into. frames: makes its input, anew each time. reads: the views that each view reads. pool: of
    Spark's scheduler.
    """

    spark: SparkSession
    template: Template
    frames: Callable[[], Mapping[str, DataFrame]]
    sent: EpochProperty
    reads: Mapping[str, set[str]]
    pool: str = EPOCH_POOL

    def told(self, error: Exception) -> EpochFailed:
        """The error of an epoch whose job failed with another one."""
        try:
            failed = self.template.failing(self.spark, self.frames(), self.sent, self.pool)
        except FAILURES:  # already the input cannot be read
            failed = {}
        causes = self._causes(failed)
        blamed = self._culprits(causes) if causes else {}
        log = str(Path(self.sent.root) / EVENTS / "engine.log")
        return EpochFailed(
            self.sent.epoch, self.sent.epoch - 1, causes or {"": text_of(error)}, log, rows=blamed
        )

    def _causes(self, failed: Mapping[str, BaseException]) -> dict[str, str]:
        """Of views that fail, those that do not merely read another that does."""
        own = {view for view in failed if not failed.keys() & self.reads.get(view, set())}
        return {view: text_of(error) for view, error in failed.items() if view in own}

    def _culprits(self, views: Iterable[str]) -> dict[str, str]:
        """The rows that views fail on, in words; none where that cannot be told, or the input is too large to ask."""
        try:
            frames = self.frames()
            tables = {name: frame.limit(MOST_ROWS + 1).toArrow() for name, frame in frames.items()}
            if any(table.num_rows > MOST_ROWS for table in tables.values()):
                return {}
            return {view: self._culprits_of(view, frames, tables) for view in views}
        except FAILURES:
            return {}

    def _culprits_of(self, view: str, frames: Mapping[str, DataFrame], tables: Tables) -> str:
        def fails(given: Tables) -> bool:
            parts = {
                name: self.spark.createDataFrame(each, frames[name].schema) for name, each in given.items()
            }
            return self.template.failure(self.spark, view, parts, self.sent, self.pool) is not None

        found = culprits(fails, tables)
        shown = {
            name: {
                column: value
                for column, value in row.to_pylist()[0].items()
                if not column.startswith(INTERNAL)
            }
            for name, row in found.items()
        }
        return "".join(f"\nIt fails on this row of '{name}': {row}" for name, row in shown.items())
