"""Queries of TPC-DS as views, over tables in which rows come, change and go, against batch Spark.

Queries are kept in packs, one app a pack, for an app is dear to start. Each view is compared as of every epoch that
ended a batch, row for row; doubles, which only averages and deviations are, within a relative 1e-9. If an epoch of a
pack fails, each of its queries is played again alone. Batch Spark reads the tables as they then were, from files of
their own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from slipstream.app import App
from slipstream.core.errors import CannotMaintain
from slipstream.sources import files
from slipstream.testing.changes import Changing, drop
from slipstream.testing.oracle import QUICK, assert_equal_rows, rows_of
from slipstream.testing.scripted import kept_table
from slipstream.testing.tpcds.queries import query
from slipstream.testing.tpcds.tables import TABLES

STEPS = 3


@dataclass(frozen=True)
class Outcome:
    """What became of a query. trouble: what is wrong with it, if anything. shown: its rows, over all epochs."""

    number: int
    trouble: str | None = None
    shown: int = 0

    def __str__(self) -> str:
        return f"query {self.number}: {self.trouble or f'equal, {self.shown} rows'}"


def play(
    spark: SparkSession, folder: Path, given: Mapping[str, pa.Table], numbers: Sequence[int], seed: int = 7
) -> list[Outcome]:
    """Keep queries as views of tables through all batches, and compare them. given: the tables' rows."""
    try:
        return list(_played(spark, folder / f"{numbers[0]}-{len(numbers)}", given, numbers, seed))
    except Exception as trouble:
        if len(numbers) == 1:
            return [Outcome(numbers[0], f"{type(trouble).__name__}: {trouble}")]
        return [outcome for number in numbers for outcome in play(spark, folder, given, [number], seed)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _played(
    spark: SparkSession, folder: Path, given: Mapping[str, pa.Table], numbers: Sequence[int], seed: int
) -> Iterator[Outcome]:
    words = {word for number in numbers for word in re.findall(r"\w+", query(number).lower())}
    tables = {
        name: Changing(rows, TABLES[name].settled(rows), seed=seed, share=0.8)
        for name, rows in given.items()
        if name in words
    }
    schemas = {name: from_arrow_schema(table.rows.schema) for name, table in tables.items()}
    with App("tpcds", folder / "store", spark=spark, shards=1, history=None) as app:
        for name, schema in schemas.items():
            (folder / "landing" / name).mkdir(parents=True)
            declared = StructType([*schema, StructField("diff", LongType(), False)])
            app.source(name, files(folder / "landing" / name, "parquet", declared, diff="diff"))
        outcomes = {}
        for number in numbers:
            try:
                app.view(f"q{number}", query(number))
            except CannotMaintain as refusal:
                outcomes[number] = Outcome(number, f"refused: {refusal}")
        kept = [number for number in numbers if number not in outcomes]
        epochs = [_step(app, folder, tables, step) for step in range(STEPS)] if kept else []
        for epoch in epochs:
            for name, schema in schemas.items():
                frame = spark.read.schema(schema).parquet(str(folder / f"as-of-{epoch}" / f"{name}.parquet"))
                frame.createOrReplaceTempView(name)
            for number in kept:
                known = outcomes.get(number, Outcome(number))
                outcomes[number] = known if known.trouble else _compared(spark, app, known, epoch)
    yield from (outcomes[number] for number in numbers)


def _step(app: App, folder: Path, tables: Mapping[str, Changing], step: int) -> int:
    """One batch of every table; the epoch that it ended with. The tables as they are then are written beside."""
    for name, changing in tables.items():
        some = max(1, changing.rows.num_rows // 40)
        drop(
            changing.batch(3 * some, some, some) if step else changing.load(),
            folder / "landing" / name,
            step,
        )
    app.run(until="caught_up")
    (folder / f"as-of-{app.epoch}").mkdir()
    for name, changing in tables.items():
        pq.write_table(changing.rows, folder / f"as-of-{app.epoch}" / f"{name}.parquet")
    return app.epoch


def _compared(spark: SparkSession, app: App, known: Outcome, epoch: int) -> Outcome:
    expected = rows_of(spark.sql(query(known.number)))
    shown = known.shown + len(expected)
    try:
        got = _rows(kept_table(app, f"q{known.number}", epoch))
        assert_equal_rows(got, expected, f"as of epoch {epoch}", relative=1e-9)
    except AssertionError as trouble:
        return Outcome(known.number, str(trouble), shown)
    return Outcome(known.number, None, shown)


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def tuned(spark: SparkSession) -> SparkSession:
    """A session on the same context for many small queries, each run a few times."""
    session = spark.newSession()
    for key, value in QUICK.items():
        session.conf.set(key, value)
    return session
