"""TPC-H: a view of each query kept up to date, beside Spark computing it again in full.

Slipstream takes a batch in one epoch, which is what is timed. Spark reads the tables of the end, from Parquet on the
same disk, as a user would query them: adaptive execution on, 4 GB of heap, warmed up. Both say what the answer is, and
the two must be the same.
"""

from __future__ import annotations

import time
from pathlib import Path

import slipstream as sl
from benchmarks.data import Feed
from benchmarks.decision import BATCH_TIMED, BATCH_WARM_UP, digest, kept, stage_table
from benchmarks.job import Job, Measured, percentile
from slipstream.spark.session import start_session
from slipstream.testing.tpch import TABLES, generate, query


def make_tpch(folder: Path, scale: float, warm: int, timed: int) -> None:
    generate(folder / "generated", scale)
    for number, (name, table) in enumerate(TABLES.items()):
        rows = table.rows(folder / "generated")
        stage_table(folder, name, rows, table.key, seed=number, warm=warm, timed=timed)


def measure_kept(job: Job, dataset: Path, folder: Path) -> Measured:
    """The epochs of the timed batches."""
    with sl.App("tpch", store=folder / "store", target_latency="5s") as app:
        schemas = {name: table.schema for name, table in TABLES.items()}
        epochs = list(kept(app, query(job.number, job.scale), schemas, Feed(dataset, folder / "landing")))
        answer = digest(app.read("answer"))
    seconds = [epoch.seconds for epoch in epochs]
    steps = {step: percentile([e.steps.get(step, 0.0) for e in epochs], 50) for step in epochs[0].steps}
    return Measured(sum(e.rows for e in epochs), sum(seconds), seconds, steps=steps, answer=answer)


def measure_batch(job: Job, dataset: Path) -> Measured:
    """The whole query, again and again."""
    settings = {"spark.driver.memory": "4g"}
    with start_session("batch", None, shards=2, settings=settings) as spark:
        for name, table in TABLES.items():
            path = str(dataset / "tables" / f"{name}.parquet")
            spark.read.schema(table.schema).parquet(path).createOrReplaceTempView(name)
        seconds = []
        for _ in range(BATCH_WARM_UP + BATCH_TIMED):
            started = time.monotonic()
            spark.sql(query(job.number, job.scale)).write.format("noop").mode("overwrite").save()
            seconds.append(time.monotonic() - started)
        timed = seconds[BATCH_WARM_UP:]
        return Measured(0, sum(timed), timed, answer=digest(spark.sql(query(job.number, job.scale))))
