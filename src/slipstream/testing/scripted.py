"""Driving an app with scripted changes, and remembering what its inputs held at every epoch.

A `Scripted` is a memory source that keeps the books: what it holds after all that was appended and retracted (or,
with a key, replaced). A `Script` takes an app step by step, one step one or more epochs, and then compares every
view with the batch oracle now, as of every earlier step, and by the changes in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from slipstream.app import App
from slipstream.observe import read_view
from slipstream.sources import memory
from slipstream.sources.memory import Memory
from slipstream.store.store import Store
from slipstream.testing.merging import upkeep
from slipstream.testing.oracle import (
    applied,
    assert_equal_rows,
    assert_same_columns,
    quick,
    recompute,
    rows_of,
)

Row = tuple[Any, ...]


class Scripted:
    """A memory source, and what it holds after all that was handed to it so far."""

    def __init__(self, schema: str, key: Sequence[str] | None = None, op: str | None = None) -> None:
        self.schema: StructType = StructType.fromDDL(schema)  # type: ignore[assignment]
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


def kept_table(app: App, view: str, epoch: int) -> pa.Table:
    """A view's rows as of an epoch, straight out of its trace: no Spark job is run."""
    return read_view(app.store, view, epoch)


class Script:
    """An app and its scripted sources, taken on step by step."""

    def __init__(self, app: App, sources: Mapping[str, Scripted]) -> None:
        self.app, self.sources = app, sources
        self.steps: dict[int, dict[str, list[Row]]] = {}
        """What the sources held, by the epoch that a step ended with."""
        self._frames: dict[int, dict[str, DataFrame]] = {}

    def step(self, change: Callable[[], None]) -> int:
        """Change the sources, run until caught up; the epoch reached."""
        change()
        self.app.run(until="caught_up")
        self.steps[self.app.epoch] = {name: source.rows for name, source in self.sources.items()}
        return self.app.epoch

    def merge(self) -> None:
        """Merge in this process what the agent has not merged yet; whichever of the two is first."""
        for trace in Store.existing(self.app.store).traces():
            with suppress(FileNotFoundError):
                upkeep(self.app.store / trace, self.app.epoch, 0)

    def check(
        self, views: Iterable[str] | None = None, *, relative: float | None = None, absolute: float = 0.0
    ) -> None:
        """Compare views (all, if not said) with the oracle as of every step, by the changes between them, and now."""
        with quick(self.app.spark):
            for name in list(self.app.definitions) if views is None else views:
                expected, kept = self._expected(name), self._kept(name)
                changed = self.app.changes(name, 0, max(self.steps))
                updates = rows_of(changed)
                before: list[Row] = []
                since = 0
                for epoch in self.steps:
                    what = f"view '{name}' as of epoch {epoch}"
                    assert_equal_rows(
                        kept[epoch], expected[epoch], what, relative=relative, absolute=absolute
                    )
                    between = [(row[:-2], row[-1]) for row in updates if since < row[-2] <= epoch]
                    assert_equal_rows(
                        applied(before, between), kept[epoch], f"{what}, by changes since {since}"
                    )
                    before, since = kept[epoch], epoch
                now = self.app.read(name)
                assert_same_columns(now, self._oracle(name, max(self.steps)), f"view '{name}'")
                assert_equal_rows(rows_of(now), kept[max(self.steps)], f"view '{name}', read with Spark")

    def _expected(self, view: str) -> dict[int, list[Row]]:
        """The oracle's rows at the end of each step, in one job."""
        return self._by_step({epoch: self._oracle(view, epoch) for epoch in self.steps})

    def _oracle(self, view: str, epoch: int) -> DataFrame:
        return recompute(self.app, view, self._inputs(epoch))

    def _inputs(self, epoch: int) -> dict[str, DataFrame]:
        if epoch not in self._frames:
            held = self.steps[epoch]
            self._frames[epoch] = {
                name: self.app.spark.createDataFrame(held[name], source.row_schema).cache()
                for name, source in self.sources.items()
            }
        return self._frames[epoch]

    def _kept(self, view: str) -> dict[int, list[Row]]:
        """The view's rows at the end of each step, as its trace has them."""
        schema = self.app.read(view).schema
        tables = {epoch: kept_table(self.app, view, epoch) for epoch in self.steps}
        return self._by_step(
            {epoch: self.app.spark.createDataFrame(each, schema) for epoch, each in tables.items()}
        )

    def _by_step(self, frames: Mapping[int, DataFrame]) -> dict[int, list[Row]]:
        marked = [frame.select(F.lit(epoch).alias("_step"), "*") for epoch, frame in frames.items()]
        held: dict[int, list[Row]] = {epoch: [] for epoch in frames}
        for row in rows_of(reduce(DataFrame.unionAll, marked)):
            held[row[0]].append(row[1:])
        return held
