"""A process that dies at any moment of a change leaves an app that is what it was, or what it was to become.

One process starts Spark and forks: each child opens the app on a store of its own, changes it and dies at its point.
Afterwards the app is opened anew in the test's own process, as it was and as it was to become.
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
from slipstream.store.store import Store
from slipstream.testing.oracle import assert_equal, recompute

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BEFORE = {
    "sums": "SELECT k, sum(v) s FROM orders GROUP BY k",
    "large": "SELECT * FROM sums WHERE s > 3",
    "other": "SELECT k, max(v) m FROM orders GROUP BY k",
}
AFTER = {
    **{name: BEFORE[name] for name in ("large", "other")},
    "sums": "SELECT k, sum(v) + count(*) s FROM orders GROUP BY k",
    "counts": "SELECT k, count(*) n FROM orders GROUP BY k",
}
FATAL = [point for point in POINTS if point.startswith("backfill.")]

SCRIPT = """
import json, os, sys
from pathlib import Path
import slipstream as sl
from slipstream.core.crashing import arm
from slipstream.spark.session import start_session

before, after, points, folder = *map(json.loads, sys.argv[1:4]), Path(sys.argv[4])
spark = start_session("crashes", "local[2]", 2)

def died(point):
    child = os.fork()
    if child == 0:
        try:
            app = sl.App("shop", store=folder / point, spark=spark, shards=2)
            schema = "k string, v long"
            given = dict(format="json", schema=schema, max_files_per_epoch=1, settle=0)
            app.source("orders", sl.files(folder / "orders", **given))
            for name, query in {**before, "sums": after["sums"]}.items():
                app.view(name, query)
            app.run(until=1)
            app.view("sums", before["sums"], replace=True)  # and back again
            app.run(until=2)
            arm(f"{point}:1")
            app.view("sums", after["sums"], replace=True)
            app.view("counts", after["counts"])
            app.run(until=3)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(json.dumps({point: died(point) for point in points}), flush=True)
"""


def test_a_change_that_is_cut_short_harms_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    for number in range(3):
        rows = [{"k": f"k{i % 3}", "v": number + i} for i in range(6)]
        (tmp_path / "orders" / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    given = [json.dumps(BEFORE), json.dumps(AFTER), json.dumps(FATAL), str(tmp_path)]
    ran = subprocess.run([sys.executable, "-c", SCRIPT, *given], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == dict.fromkeys(FATAL, -signal.SIGKILL)
    for point in FATAL:
        was_taken_up = point == "backfill.taken_up"
        for views in (AFTER,) if was_taken_up else (BEFORE, AFTER):
            _go_on(spark, tmp_path, point, views)


def _go_on(spark: SparkSession, folder: Path, point: str, views: dict[str, str]) -> None:
    schema = "k string, v long"
    with sl.App("shop", store=folder / point, spark=spark, shards=2) as app:
        orders = sl.files(folder / "orders", format="json", schema=schema, max_files_per_epoch=1, settle=0)
        app.source("orders", orders)
        for name, query in views.items():
            app.view(name, query, replace=views is AFTER)
        app.run(until="caught_up")
        inputs = {"orders": spark.read.schema(schema).json(str(folder / "orders"))}
        for view in views:
            assert_equal(app.read(view), recompute(app, view, inputs), f"{view} after {point}")
        was = {row.k: row.s for row in app.read("sums", as_of=1).collect()}
        assert was == {"k0": 5, "k1": 7, "k2": 9}, "what was is there"
        store = Store.at(folder / point)
        named = {*store.catalog().traces(), *store.catalog().past_traces()}
        assert set(store.traces()) == named, f"nothing else is left after {point}"
    assert check_store(folder / point).findings == (), point
    assert not list((folder / point).glob(".rebuild-*"))
