"""The 22 queries of TPC-H as views, over tables in which rows come, change and go, against batch Spark.

The views are in two apps, for an app is dear to start, and there are two processes to test with. Each view is looked at
as of every epoch that ended a batch. Batch Spark reads the tables as they then were, from files of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType

import slipstream as sl
from slipstream.testing.changes import Changing, drop
from slipstream.testing.oracle import assert_equal, rows_of
from slipstream.testing.tpch import NUMBERS, TABLES, generate, query

pytestmark = pytest.mark.spark

SCALE, PARTS = 0.01, 2


@dataclass
class Kept:
    """The app after all batches, the session of the oracle, and where the tables are as of each epoch."""

    app: sl.App
    batch: SparkSession
    tables: dict[int, Path] = field(default_factory=dict)
    compiled: list[int] = field(default_factory=list)
    """How many pieces of code Spark had generated and compiled by the end of each batch."""


@contextmanager
def kept(spark: SparkSession, folder: Path, numbers: Sequence[int]) -> Iterator[Kept]:
    """An app with some of the queries, after all batches."""
    generate(folder / "generated", SCALE)
    tables = {
        name: Changing(table.rows(folder / "generated"), table.key, seed=7, share=0.8)
        for name, table in TABLES.items()
    }
    with sl.App("tpch", folder / "store", spark=spark, shards=2, history=None) as app:
        result = Kept(app, plain_session(spark))
        for name, table in TABLES.items():
            (folder / "landing" / name).mkdir(parents=True)
            declared = table.schema.add("diff", LongType(), False)
            app.source(name, sl.files(folder / "landing" / name, "parquet", declared, diff="diff"))
        for number in numbers:
            app.view(f"q{number}", query(number, SCALE))
        for step in range(3):
            for name, changing in tables.items():
                some = max(1, changing.rows.num_rows // 50)
                batch = changing.batch(4 * some, some, some) if step else changing.load()
                drop(batch, folder / "landing" / name, step)
            app.run(until="caught_up")
            result.compiled.append(pieces_compiled(spark))
            result.tables[app.epoch] = folder / f"as-of-{app.epoch}"
            result.tables[app.epoch].mkdir()
            for name, changing in tables.items():
                pq.write_table(changing.rows, result.tables[app.epoch] / f"{name}.parquet")
        yield result


def pieces_compiled(spark: SparkSession) -> int:
    metrics: Any = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    return int(metrics.METRIC_COMPILATION_TIME().getCount())


def plain_session(spark: SparkSession) -> SparkSession:
    """For many small queries, each run once: what takes Spark long to prepare is off."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


@pytest.mark.parametrize("first", range(PARTS))
def test_oracle_tpch(spark: SparkSession, tmp_path: Path, first: int) -> None:
    numbers = list(NUMBERS)[first::PARTS]
    with kept(spark, tmp_path, numbers) as result:
        for number in numbers:
            check(result, number)
        check_changes(result)
        first_epoch, second, third = result.compiled
        assert third - second < (second - first_epoch) / 10 + 10, "code is compiled in the first epochs only"


def check(kept: Kept, number: int) -> None:
    shown = 0
    for epoch, folder in kept.tables.items():
        for name, table in TABLES.items():
            frame = kept.batch.read.schema(table.schema).parquet(str(folder / f"{name}.parquet"))
            frame.createOrReplaceTempView(name)
        expected = kept.batch.sql(query(number, SCALE))
        assert_equal(
            kept.app.read(f"q{number}", as_of=epoch), expected, f"query {number} as of epoch {epoch}"
        )
        shown += len(rows_of(expected))
    assert shown, f"query {number} has something to show at one step at least"


def check_changes(kept: Kept) -> None:
    """Every table was inserted into, updated and deleted from."""
    for name, table in TABLES.items():
        held = []
        for folder in kept.tables.values():
            rows = pq.read_table(folder / f"{name}.parquet").to_pylist()
            held.append({tuple(row[key] for key in table.key): row for row in rows})
            assert len(held[-1]) == len(rows), f"{name} has one row for each key"
        steps = list(pairwise(held))
        assert all(after.keys() - before.keys() for before, after in steps), f"{name} gets new rows"
        assert all(before.keys() - after.keys() for before, after in steps), f"{name} loses rows"
        assert any(
            after[key] != before[key] for before, after in steps for key in before.keys() & after.keys()
        ), f"{name} has rows that change"
