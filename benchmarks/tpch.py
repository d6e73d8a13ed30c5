"""TPC-H: a view of each query kept up to date, beside Spark computing it again in full.

The dataset has, beside the phases of every other (`load`, `warm`, `timed`), the tables as they are after the last
batch, in `tables`. A batch changes one row in a thousand of every table, a third each inserted, updated and
deleted; the smallest tables, of 5 and of 25 rows, therefore never change, and get no files. Slipstream takes a batch
in one epoch, which is what is timed. Spark reads the tables of the end, from Parquet on the same disk, as a user would
query them: adaptive execution on, 4 GB of heap, warmed up. Both say what the answer is, and the two must be the same.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from statistics import geometric_mean

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType

import slipstream as sl
from benchmarks.data import Feed
from benchmarks.job import Job, Measured, percentile
from benchmarks.report import Finding, Target
from slipstream.spark.session import start_session
from slipstream.testing.changes import Changing
from slipstream.testing.tpch import TABLES, generate, query

CHANGED = 1 / 1000
LOAD_ROWS = 250_000
BATCH_WARM_UP = 2
BATCH_TIMED = 5


def make_tpch(folder: Path, scale: float, warm: int, timed: int) -> None:
    generate(folder / "generated", scale)
    (folder / "tables").mkdir()
    for number, (name, table) in enumerate(TABLES.items()):
        changing = Changing(table.rows(folder / "generated"), table.key, seed=number, share=0.95)
        load = changing.load()
        for part, first in enumerate(range(0, load.num_rows, LOAD_ROWS)):
            _write(folder / "load" / name, part, load.slice(first, LOAD_ROWS))
        third = round(load.num_rows * CHANGED / 3)
        for phase, batches in (("warm", warm), ("timed", timed)):
            for batch in range(batches if third else 0):
                _write(folder / phase / name, batch, changing.batch(third, third, third))
        pq.write_table(changing.rows, folder / "tables" / f"{name}.parquet")


def measure_kept(job: Job, dataset: Path, folder: Path) -> Measured:
    """The epochs of the timed batches."""
    feed = Feed(dataset, folder / "landing")
    epochs: list[sl.EpochReport] = []
    with sl.App("tpch", store=folder / "store", target_latency="5s") as app:
        for name, table in TABLES.items():
            declared = table.schema.add("diff", LongType(), False)
            app.source(name, sl.files(feed.landing / name, "parquet", declared, diff="diff"))
        app.view("answer", query(job.number, job.scale))
        feed.drop_all("load")
        app.run(until="caught_up", progress=False)
        for phase in ("warm", "timed"):
            for files in feed.files(phase):
                if phase == "timed" and not epochs:
                    app.on_epoch(epochs.append)
                feed.drop(files)
                app.run(until="caught_up", progress=False)
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


def digest(frame: DataFrame) -> str:
    """A frame's rows, whatever their order, in short. TPC-H's answers have no doubles."""
    rows = sorted(repr(tuple(row)) for row in frame.collect())
    short = hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]
    return f"{len(rows)} rows, {short}"


def compare(kept: dict[int, Measured], batch: dict[int, Measured]) -> list[Finding]:
    """A line for each query, and one for all."""
    pairs = {n: (percentile(kept[n].batches, 50), percentile(batch[n].batches, 50)) for n in kept}
    findings = [
        Finding("tpch", f"query {n}, an epoch beside the whole", "ms", *pair, Target("at_most", 1 / 5))
        for n, pair in pairs.items()
    ]
    means = (
        geometric_mean(ours for ours, _ in pairs.values()),
        geometric_mean(theirs for _, theirs in pairs.values()),
    )
    slowest = max(pairs, key=lambda n: pairs[n][0] / pairs[n][1])
    whole = f"geometric mean of {len(pairs)}; least gain: query {slowest}"
    return [*findings, Finding("tpch", whole, "ms", *means, Target("at_most", 1 / 5))]


def _write(folder: Path, number: int, rows: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / f"{number:05d}.parquet")
