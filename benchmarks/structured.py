"""The Structured Streaming side: the same queries on Spark's own engine, with the settings that suit it best.

One query runs with `processingTime=0`, so batches follow each other without a pause, and stays up from warm-
up to end, so that no restart is timed. Its sink is `noop` in update mode: results are computed and thrown
away, the least that any sink can cost. Batch times are `triggerExecution` from the query's progress. In a
paced feed a file counts as visible when its batch's commit is in the checkpoint: the source's log says which
batch took the file, and the commit's inode change time is when it was renamed into place.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import delayed
from benchmarks.data import CUSTOMERS_SCHEMA, ORDERS_SCHEMA, TOTALS_SCHEMA, Feed
from benchmarks.job import Job, Measured
from benchmarks.words import word_count

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def measure(job: Job, feed: Feed, folder: Path) -> Measured:
    with session(job, folder) as spark:
        query = start(job, spark, feed.landing, folder)
        try:
            feed.drop_all("load")
            query.processAllAvailable()
            for files in feed.files("warm"):
                feed.drop(files)
                query.processAllAvailable()
            warm = query.lastProgress
            last_warm = warm["batchId"] if warm else -1
            if job.every is None:
                feed.drop_all("timed")
            else:
                feed.drop_paced("timed", job.every)
            query.processAllAvailable()
            batches = [p for p in query.recentProgress if p["batchId"] > last_warm and p["numInputRows"]]
        finally:
            query.stop()
    seconds = max(map(ended, batches)) - min(feed.renamed.values())
    return Measured(
        rows=feed.rows("timed"),
        seconds=seconds,
        batches=[p["durationMs"]["triggerExecution"] / 1000 for p in batches],
        visible=[] if job.every is None else _visible(feed, folder / "checkpoint"),
    )


def session(job: Job, folder: Path) -> SparkSession:
    """Spark, with the state store of the job, and slow storage if it asks for it."""
    cores = os.cpu_count() or 1
    builder = (
        SparkSession.builder.appName("benchmark")
        .master(f"local[{cores}]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.sql.streaming.numRecentProgressUpdates", 10_000)
    )
    asked = dict(ROCKSDB) if job.engine == "rocksdb" else {}
    if job.delay is not None:
        asked |= delayed.settings(folder / "classes", job.delay)
    for key, value in asked.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def start(job: Job, spark: SparkSession, landing: Path, folder: Path) -> StreamingQuery:
    """The query of a job, with its checkpoint in a folder, on slow storage if the job asks for it."""

    def source(name: str, schema: str) -> DataFrame:
        reader = spark.readStream.schema(schema)
        if job.files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", job.files_per_batch)
        path = str(landing / name)
        return reader.text(path) if job.query == "words" else reader.json(path)

    if job.query == "words":
        result = word_count(source("lines", "value string"), job.window)
    elif job.query == "totals":
        result = source("totals", TOTALS_SCHEMA).groupBy("k").agg(F.sum("v"), F.count("*"))
    else:
        joined = source("orders", ORDERS_SCHEMA).join(source("customers", CUSTOMERS_SCHEMA), "cid")
        result = joined.groupBy("country").agg(F.sum("amount"))
    writer = result.writeStream.format("noop").outputMode("update").trigger(processingTime="0 seconds")
    checkpoint = (folder / "checkpoint").absolute()
    where = f"delayed://{checkpoint}" if job.delay is not None else str(checkpoint)
    return writer.option("checkpointLocation", where).start()


def ended(progress: dict[str, Any]) -> float:
    started = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return started + float(progress["durationMs"]["triggerExecution"]) / 1000


def _visible(feed: Feed, checkpoint: Path) -> list[float]:
    taken: dict[str, int] = {}
    for log in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            taken[Path(entry["path"]).name] = entry["batchId"]
    return [
        (checkpoint / "commits" / str(taken[name])).stat().st_ctime - renamed
        for name, renamed in feed.renamed.items()
    ]
