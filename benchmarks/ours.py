"""The Slipstream side, through its public API only.

Warm-up drops one file (of each source) at a time and runs until caught up, then the timed files are all there
when `run(until="caught_up")` begins; its whole duration is the time, including whatever it takes to notice
that nothing is left. In a paced feed the app runs in the background, and a file counts as visible when the
epoch that took its last row has been reported: epochs take files in order, so counting rows says which epoch
that is.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import slipstream as sl
from benchmarks.data import CUSTOMERS_SCHEMA, ORDERS_SCHEMA, TOTALS_SCHEMA, Feed
from benchmarks.job import Job, Measured, percentile
from benchmarks.words import word_count
from slipstream.spark.session import epoch_session, start_session

VIEWS = (
    "SELECT country, sum(amount) s FROM orders JOIN customers USING (cid) GROUP BY country",
    "SELECT cid, count(*) n, sum(amount) s FROM orders GROUP BY cid",
    "SELECT country, count(*) n FROM customers GROUP BY country",
    "SELECT cid, min(amount) a, max(amount) b FROM orders GROUP BY cid",
    "SELECT pmod(oid, 100) p, avg(amount) a FROM orders GROUP BY 1",
    "SELECT country, max(amount) m FROM orders JOIN customers USING (cid) GROUP BY country",
    "SELECT DISTINCT cid FROM orders WHERE amount > 9000",
    "SELECT c.cid FROM customers c LEFT ANTI JOIN orders o ON o.cid = c.cid",
    "SELECT * FROM orders ORDER BY amount DESC, oid LIMIT 10",
    "SELECT country, count(DISTINCT cid) n FROM orders JOIN customers USING (cid) GROUP BY country",
)
"""Ten views over the two sources of the shop."""

FLOOR_WARM_UP = 60
FLOOR_TIMED = 100
PATIENCE = 120.0


@dataclass
class Epochs:
    """Every epoch that was reported, with the time at which the report arrived."""

    reports: list[sl.EpochReport] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, report: sl.EpochReport) -> None:
        with self.changed:
            if report.rows:
                self.reports.append(report)
                self.arrived.append(time.time())
                self.changed.notify_all()

    def await_rows(self, rows: int) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: sum(r.rows for r in self.reports) >= rows, PATIENCE):
                raise TimeoutError(f"the app took fewer than {rows} rows in {PATIENCE:.0f} s")

    def clear(self) -> None:
        with self.changed:
            self.reports.clear()
            self.arrived.clear()


def measure(job: Job, feed: Feed, folder: Path) -> Measured:
    with opened(job, feed.landing, folder) as app:
        epochs = Epochs()
        app.on_epoch(epochs.note)
        feed.drop_all("load")
        app.run(until="caught_up", progress=False)
        for files in feed.files("warm"):
            feed.drop(files)
            app.run(until="caught_up", progress=False)
        epochs.clear()
        rows = feed.rows("timed")
        if job.every is None:
            feed.drop_all("timed")
            started = time.monotonic()
            app.run(until="caught_up", progress=False)
            seconds = time.monotonic() - started
        else:
            app.start()
            feed.drop_paced("timed", job.every)
            epochs.await_rows(rows)
            app.stop()
            seconds = epochs.arrived[-1] - min(feed.renamed.values())
    return Measured(
        rows=rows,
        seconds=seconds,
        batches=[report.seconds for report in epochs.reports],
        visible=[] if job.every is None else _visible(feed, epochs, rows),
        steps=_median_steps(epochs.reports),
    )


def opened(job: Job, landing: Path, folder: Path) -> sl.App:
    """The app of a job, with its store and its replica, if it has one, in a folder."""
    options: dict[str, Any] = {}
    if job.delay is not None:
        options["replicas"] = [f"faulty+file://{folder.absolute()}/replica?delay={job.delay}"]
    app = sl.App("benchmark", store=folder / "store", target_latency=job.target_latency, **options)
    define(app, job, landing)
    return app


def measure_floor() -> Measured:
    """The least that an epoch could cost: a Spark job over no rows with one shuffle and one Python stage."""
    shards = os.cpu_count() or 1
    with start_session("floor", None, shards) as session:
        epochs = epoch_session(session, shards)
        empty = epochs.range(0).repartition("id").mapInArrow(_pass_on, "id long")
        seconds = []
        for _ in range(FLOOR_WARM_UP + FLOOR_TIMED):
            started = time.monotonic()
            empty.write.format("noop").mode("overwrite").save()
            seconds.append(time.monotonic() - started)
    timed = seconds[FLOOR_WARM_UP:]
    return Measured(rows=0, seconds=sum(timed), batches=timed)


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def define(app: sl.App, job: Job, landing: Path) -> None:
    def source(name: str, schema: str, key: list[str] | None = None) -> None:
        path = str(landing / name)
        limit = job.files_per_batch
        files = sl.files(path, format="json", schema=schema, key=key, max_files_per_epoch=limit)
        app.source(name, files)

    if job.query == "words":
        path = str(landing / "lines")
        limit = job.files_per_batch
        app.source("lines", sl.files(path, format="text", schema="value string", max_files_per_epoch=limit))

        @app.view
        def words(lines: DataFrame) -> DataFrame:
            return word_count(lines, job.window)
    elif job.query == "totals":
        source("totals", TOTALS_SCHEMA)

        @app.view
        def by_key(totals: DataFrame) -> DataFrame:
            return totals.groupBy("k").agg(F.sum("v").alias("total"), F.count("*").alias("rows"))
    else:
        source("orders", ORDERS_SCHEMA)
        source("customers", CUSTOMERS_SCHEMA, key=["cid"])
        if job.query in ("views", "replacing"):
            for number, text in enumerate(VIEWS[: job.number], 1):
                app.view(f"view{number}", text)
            return

        @app.view
        def revenue(orders: DataFrame, customers: DataFrame) -> DataFrame:
            return orders.join(customers, "cid").groupBy("country").agg(F.sum("amount").alias("revenue"))


def _visible(feed: Feed, epochs: Epochs, rows: int) -> list[float]:
    """Seconds from each file's rename to the report of the epoch with which its last row was in; files are of
    one size.
    """
    per_file = rows // len(feed.renamed)
    seconds: list[float] = []
    pending = list(feed.renamed.values())
    taken = 0
    for report, arrived in zip(epochs.reports, epochs.arrived, strict=True):
        taken += report.rows
        while pending and (len(seconds) + 1) * per_file <= taken:
            seconds.append(arrived - pending.pop(0))
    return seconds


def _median_steps(reports: list[sl.EpochReport]) -> dict[str, float]:
    steps = {step for report in reports for step in report.steps}
    return {step: percentile([r.steps.get(step, 0.0) for r in reports], 50) for step in sorted(steps)}
