"""A process that dies at any moment while views are held, tried again or joined leaves an app that is right.

One process starts Spark and forks: each child opens the app on a store of its own and dies at its point. Afterwards the
app is opened anew in the test's own process: the view is held or runs, and the others never notice.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.crashing import POINTS
from slipstream.durability.fsck import check_store
from slipstream.observe import read_status
from slipstream.testing.oracle import assert_equal, recompute

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::slipstream.core.errors.HeldWarning"),
]

VIEWS = {
    "sums": "SELECT k, sum(v) s FROM orders GROUP BY k",
    "parts": "SELECT k, 100 div v q FROM orders",
    "totals": "SELECT k, sum(q) t FROM parts GROUP BY k",
}
HELD, TRIED, JOINED = "while it is held", "while it is tried in vain", "while it joins again"
FATAL = [
    *((HELD, point) for point in ("hold.begun", "backfill.taken_up", "hold.done")),
    (TRIED, "hold.noted"),
    *((JOINED, point) for point in POINTS if point.startswith("backfill.")),
]

SCRIPT = """
import json, os, sys, warnings
from pathlib import Path
import slipstream as sl
from slipstream.core.clock import ManualClock
from slipstream.core.crashing import arm
from slipstream.spark.session import start_session

views, cases, folder = *map(json.loads, sys.argv[1:3]), Path(sys.argv[3])
spark = start_session("crashes", "local[2]", 2)

def died(number, phase, point):
    child = os.fork()
    if child == 0:
        try:
            clock = ManualClock(1e9)
            app = sl.App("shop", store=folder / str(number), spark=spark, shards=2, clock=clock)
            orders = sl.memory("k string, v long")
            app.source("orders", orders)
            for name, query in views.items():
                app.view(name, query, on_error="hold" if name == "parts" else "stop")
            def given(rows):
                orders.append(rows)
                app.run(until="caught_up")
            given([("a", 1), ("b", 2)])
            if phase == "while it is held":
                arm(f"{point}:1")
            given([("a", 0), ("b", 4)])
            if phase == "while it joins again":
                orders.retract([("a", 0)])
                app.run(until="caught_up")
            arm(f"{point}:1")
            clock.advance(10_000)
            given([("c", 5)])
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(json.dumps([died(number, *case) for number, case in enumerate(cases)]), flush=True)
"""


def test_views_that_are_held_or_join_when_the_process_dies_are_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = [json.dumps(VIEWS), json.dumps(FATAL), str(tmp_path)]
    ran = subprocess.run([sys.executable, "-c", SCRIPT, *given], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [-signal.SIGKILL] * len(FATAL), ran.stderr
    for number, (phase, point) in enumerate(FATAL):
        _go_on(spark, tmp_path / str(number), phase, f"{point} {phase}")


def _go_on(spark: SparkSession, store: Path, phase: str, case: str) -> None:
    schema, orders = "k string, v long", sl.memory("k string, v long")
    with sl.App("shop", store=store, spark=spark, shards=2) as app:
        app.source("orders", orders)
        for name, query in VIEWS.items():
            app.view(name, query, on_error="hold" if name == "parts" else "stop")
        app.run(until="caught_up")
        rows = [("a", 1), ("b", 2), ("b", 4)]
        if phase == JOINED:
            rows += [("c", 5)] if app.read("sums").where("k = 'c'").count() else []
        else:
            rows += [("a", 0)] + ([("c", 5)] if app.read("sums").where("k = 'c'").count() else [])
            held = {view.name for view in read_status(store).views if view.held is not None}
            assert held == {"parts", "totals"}, case
            assert sorted(map(tuple, app.read("totals").collect())) == [("a", 100), ("b", 50)], case
            inputs = {"orders": spark.createDataFrame(rows, schema)}
            assert_equal(app.read("sums"), recompute(app, "sums", inputs), case)
            orders.retract([("a", 0)])
            rows.remove(("a", 0))
            app.run(until="caught_up")
            app.rebuild("parts")
            app.run(until="caught_up")
        inputs = {"orders": spark.createDataFrame(rows, schema)}
        for view in VIEWS:
            assert_equal(app.read(view), recompute(app, view, inputs), f"{view} after {case}")
        assert sorted(map(tuple, app.read("totals", as_of=1).collect())) == [("a", 100), ("b", 50)], case
        assert app.read("totals", as_of=2).count() == 2, f"what was shown is there, after {case}"
        assert not [view for view in read_status(store).views if view.held is not None], case
    found = check_store(store).findings
    assert found == (), (case, found)
    assert not list(store.glob(".rebuild-*"))
