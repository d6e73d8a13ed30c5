"""What it costs to change an app: a view that is added over many kept rows while epochs run, and one of ten replaced.

**adding**: an app keeps the rows of a source and a view of them. Small files come at a pace. Half-way a view is added,
which has to be computed over all that is kept: what do epochs take before and while it is? Then the app is stopped, and
the same view is computed anew, with nothing beside it.

**replacing**: of ten views over two sources one gets another query, while nothing runs; then all ten are computed anew.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import slipstream as sl
from benchmarks.data import TOTALS_SCHEMA, Feed, Sizes, make_shop, make_totals
from benchmarks.job import Job, Measured, percentile
from benchmarks.lab import Lab
from benchmarks.ours import PATIENCE, VIEWS, Epochs, opened
from benchmarks.report import Finding, Target

if TYPE_CHECKING:
    from benchmarks.suite import Scale

SETTLING = 10
"""Timed epochs that are not counted."""

RUNNING = "SELECT k % 100000 k, sum(v) total, count(*) n FROM totals GROUP BY k % 100000"
ADDED = "SELECT k % 1000 k, sum(v) total, max(v) largest, count(*) n FROM totals GROUP BY k % 1000"
REPLACED = "SELECT country, sum(amount) s, count(*) n FROM orders JOIN customers USING (cid) GROUP BY country"


def adding(lab: Lab, scale: Scale) -> list[Finding]:
    """A view is added while epochs run."""
    rows = scale.kept_rows
    sizes = Sizes(warm=[1_000] * scale.warm_up, timed=[1_000] * scale.paced_files * 4)
    dataset = lab.stage(f"kept-{rows}", lambda folder: make_totals(folder, rows, sizes, load=True))
    measured = lab.measure(Job("slipstream", "adding", dataset, every=0.5))
    steps, what = measured.steps, f"a view added over {rows:,} kept rows"
    p50, p99 = ((steps[f"p{each}, beside"], steps[f"p{each}, before"]) for each in (50, 99))
    until = (steps["beside"], steps["alone"])
    return [
        Finding("adding", f"{what}: epochs meanwhile, p50, against before", "ms", *p50),
        Finding("adding", "the same, p99", "ms", *p99, Target("at_most", 1.5)),
        Finding("adding", "until it is there, against nothing beside it", "ms", *until),
    ]


def replacing(lab: Lab, scale: Scale) -> list[Finding]:
    """One view of ten is replaced."""
    sizes = Sizes(warm=[1_000] * scale.warm_up, timed=[scale.join_rows] * scale.join_files)
    name = f"ten-{scale.join_files}"
    dataset = lab.stage(name, lambda folder: make_shop(folder, scale.customers, 100, sizes))
    steps = lab.measure(Job("slipstream", "replacing", dataset, number=len(VIEWS))).steps
    what = "one view of ten replaced, against computing all anew"
    return [Finding("replacing", what, "ms", steps["one"], steps["all"])]


def measure_adding(job: Job, feed: Feed, folder: Path) -> Measured:
    assert job.every is not None
    epochs = Epochs()
    with sl.App("benchmark", store=folder / "store", target_latency=job.target_latency) as app:
        files = sl.files(str(feed.landing / "totals"), format="json", schema=TOTALS_SCHEMA)
        app.source("totals", files, keep=True)
        app.view("running", RUNNING)
        feed.drop_all("load")
        app.run(until="caught_up", progress=False)
        for batch in feed.files("warm"):
            feed.drop(batch)
            app.run(until="caught_up", progress=False)
        app.on_epoch(epochs.note)
        app.start()
        pace = threading.Thread(target=feed.drop_paced, args=("timed", job.every))
        pace.start()
        time.sleep(job.every * len(feed.files("timed")) / 2)
        began = time.time()
        app.view("added", ADDED)
        if not app.await_views(PATIENCE):
            raise TimeoutError(f"the view was not there after {PATIENCE:.0f} s")
        there = time.time()
        pace.join()
        epochs.await_rows(feed.rows("timed"))
        app.stop()
        alone = time.monotonic()
        app.rebuild("added")
        app.await_views()
        steps = {"beside": there - began, "alone": time.monotonic() - alone}
    before = [each.seconds for each in epochs.reports if each.ended < began][SETTLING:]
    beside = [each.seconds for each in epochs.reports if began <= each.started < there]
    for percent in (50, 99):
        steps[f"p{percent}, before"] = percentile(before, percent)
        steps[f"p{percent}, beside"] = percentile(beside, percent)
    return Measured(rows=0, seconds=there - began, batches=beside, steps=steps)


def measure_replacing(job: Job, feed: Feed, folder: Path) -> Measured:
    steps = {}
    with opened(job, feed.landing, folder) as app:
        for phase in ("load", "timed"):
            feed.drop_all(phase)
            app.run(until="caught_up", progress=False)
        for batch in feed.files("warm"):
            feed.drop(batch)
            app.run(until="caught_up", progress=False)
        began = time.monotonic()
        app.view("view1", REPLACED, replace=True)
        app.await_views()
        steps["one"] = time.monotonic() - began
        began = time.monotonic()
        for number in range(1, job.number + 1):
            app.rebuild(f"view{number}")
        app.await_views()
        steps["all"] = time.monotonic() - began
    return Measured(rows=0, seconds=steps["one"], batches=[steps["one"]], steps=steps)
