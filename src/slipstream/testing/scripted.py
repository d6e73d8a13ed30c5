"""Driving an app with scripted changes, and remembering what its inputs held at every epoch.

A `Scripted` is a memory source that keeps the books: what has been appended and retracted (or, with a key, replaced) by which epoch. A
`Script` takes an app step by step, one step one or more epochs, and then compares every view with the batch oracle now, as of every earlier
step, and by the changes in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slipstream.app import App
from slipstream.sources import memory
from slipstream.sources.memory import Memory
from slipstream.testing.oracle import applied, assert_equal, assert_equal_rows, recompute, rows_of

Row = tuple[Any, ...]


class Scripted:
    """A memory source, and what it holds after all that was handed to it so far."""

    def __init__(self, schema: str, key: Sequence[str] | None = None, op: str | None = None) -> None:
        self.schema = StructType.fromDDL(schema)
        self.source: Memory = memory(schema, key=key, op=op)
        self._key = [self.schema.fieldNames().index(name) for name in key or ()]
        self._op = None if op is None else self.schema.fieldNames().index(op)
        self._rows: list[Row] = []
        self._by_key: dict[str, Row] = {}

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows; with a key, replace those that have it, or delete them where the operation says so."""
        given = [tuple(row) for row in rows]
        self.source.append(given)
        if not self._key:
            self._rows += given
            return
        for row in given:
            key = repr([row[i] for i in self._key])
            if self._op is not None and row[self._op] == "delete":
                self._by_key.pop(key, None)
            else:
                self._by_key[key] = row

    def retract(self, rows: Iterable[Row]) -> None:
        """Take rows out again that are there."""
        given = [tuple(row) for row in rows]
        self.source.retract(given)
        self._rows = applied(self._rows, [(row, -1) for row in given])

    @property
    def rows(self) -> list[Row]:
        """What the source holds now."""
        held = list(self._by_key.values()) if self._key else list(self._rows)
        if self._op is None:
            return held
        return [tuple(value for i, value in enumerate(row) if i != self._op) for row in held]

    @property
    def row_schema(self) -> StructType:
        """The columns that views see."""
        return StructType([field for i, field in enumerate(self.schema) if i != self._op])


class Script:
    """An app and its scripted sources, taken on step by step."""

    def __init__(self, app: App, sources: Mapping[str, Scripted]) -> None:
        self.app, self.sources = app, sources
        self.steps: dict[int, dict[str, list[Row]]] = {}
        """What the sources held, by the epoch that a step ended with."""

    def step(self, change: Callable[[], None]) -> int:
        """Change the sources, run until caught up; the epoch reached."""
        change()
        self.app.run(until="caught_up")
        self.steps[self.app.epoch] = {name: source.rows for name, source in self.sources.items()}
        return self.app.epoch

    def check(
        self,
        views: Iterable[str] | None = None,
        *,
        epochs: Iterable[int] | None = None,
        relative: float | None = None,
        absolute: float = 0.0,
    ) -> None:
        """Compare views (all, if not said) with the oracle as of every step, and the changes between steps."""
        names = list(self.app.definitions) if views is None else list(views)
        tolerance = {"relative": relative, "absolute": absolute}
        for name in names:
            before, since = [], 0
            for epoch in self.steps if epochs is None else epochs:
                what = f"view '{name}' as of epoch {epoch}"
                got = self.app.read(name, as_of=epoch)
                assert_equal(got, self.expected(name, epoch), what, **tolerance)  # type: ignore[arg-type]
                now = rows_of(got)
                changed = [(row[:-2], row[-1]) for row in rows_of(self.app.changes(name, since, epoch))]
                assert_equal_rows(applied(before, changed), now, f"{what}, by changes since {since}")
                before, since = now, epoch

    def expected(self, view: str, epoch: int) -> DataFrame:
        """The oracle's answer at the end of a step."""
        spark = self.app.spark
        held = self.steps[epoch]
        frames = {
            name: _frame(spark, held[name], source.row_schema) for name, source in self.sources.items()
        }
        return recompute(self.app, view, frames)


def _frame(spark: SparkSession, rows: list[Row], schema: StructType) -> DataFrame:
    return spark.createDataFrame(rows, schema)  # type: ignore[arg-type]
