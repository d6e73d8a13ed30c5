"""TPC-DS: a view of each query kept up to date, beside Spark computing it again in full.

As for TPC-H, but that there are 99 queries: a process measures a pack of them, one after the other, each in an app of
its own. The first is kept once before it is timed, so that each finds a warm JVM; what is warmed up anew for each is
what a plan compiles.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

import slipstream as sl
from benchmarks.data import Feed
from benchmarks.decision import BATCH_TIMED, BATCH_WARM_UP, digest, kept, stage_table
from benchmarks.job import Job, Measured, percentile
from slipstream.spark.session import start_session
from slipstream.testing.tpcds.duck import connected
from slipstream.testing.tpcds.queries import NUMBERS, query
from slipstream.testing.tpcds.tables import TABLES

PACK = 11


def pack(first: int) -> Sequence[int]:
    """The queries that are measured in one process."""
    return NUMBERS[first - 1 : first - 1 + PACK]


def make_tpcds(folder: Path, scale: float, warm: int, timed: int) -> None:
    connection = connected(scale)
    for number, (name, table) in enumerate(TABLES.items()):
        rows: pa.Table = connection.execute(f"SELECT * FROM {name}").to_arrow_table()
        connection.execute(f"DROP TABLE {name}")
        stage_table(folder, name, rows, table.settled(rows), seed=number, warm=warm, timed=timed)


def measure_kept(job: Job, dataset: Path, folder: Path) -> Measured:
    """The median epoch of the timed batches, of each query."""
    first, *others = pack(job.number)
    with start_session("tpcds", None, shards=2) as spark:
        _kept(spark, first, dataset, folder)
        each = {number: _kept(spark, number, dataset, folder) for number in (first, *others)}
    return _measured(
        {number: seconds for number, (seconds, _) in each.items()}, {n: a for n, (_, a) in each.items()}
    )


def measure_batch(job: Job, dataset: Path) -> Measured:
    """The whole of each query, again and again."""
    seconds, answers = {}, {}
    with start_session("batch", None, shards=2, settings={"spark.driver.memory": "4g"}) as spark:
        for name in TABLES:
            spark.read.parquet(str(dataset / "tables" / f"{name}.parquet")).createOrReplaceTempView(name)
        for number in pack(job.number):
            took = []
            for _ in range(BATCH_WARM_UP + BATCH_TIMED):
                started = time.monotonic()
                spark.sql(query(number)).write.format("noop").mode("overwrite").save()
                took.append(time.monotonic() - started)
            seconds[number] = took[BATCH_WARM_UP:]
            answers[number] = digest(spark.sql(query(number)))
    return _measured(seconds, answers)


def _kept(spark: SparkSession, number: int, dataset: Path, folder: Path) -> tuple[list[float], str]:
    words = set(re.findall(r"\w+", query(number).lower()))
    schemas = {name: _schema(dataset, name) for name in TABLES if name in words}
    here = folder / f"q{number}"
    shutil.rmtree(here, ignore_errors=True)
    feed = Feed(dataset, here / "landing", only=tuple(schemas))
    with sl.App("tpcds", store=here / "store", spark=spark, target_latency="5s") as app:
        seconds = [epoch.seconds for epoch in kept(app, query(number), schemas, feed)]
        answer = digest(app.read("answer"))
    shutil.rmtree(here)
    return seconds, answer


def _schema(dataset: Path, name: str) -> StructType:
    return from_arrow_schema(pq.read_schema(dataset / "tables" / f"{name}.parquet"))


def _measured(seconds: dict[int, list[float]], answers: dict[int, str]) -> Measured:
    all_of_them = [each for took in seconds.values() for each in took]
    by_query = {str(number): percentile(took, 50) for number, took in seconds.items()}
    digests = {str(number): answer for number, answer in answers.items()}
    return Measured(0, sum(all_of_them), all_of_them, steps=by_query, answers=digests)
