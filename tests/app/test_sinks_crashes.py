"""A process that dies at any moment of a delivery leaves a target that has every epoch once.

One process starts Spark and forks: each child opens the app on a store of its own, delivers two epochs and dies at its
point while it delivers the third. Some lose their store besides, which was on a replica or was not. Afterwards the app
is opened anew in the test's own process, is given more, and what is outside is what the view is.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.testing.oracle import assert_equal, recompute
from slipstream.testing.targets import Row

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::slipstream.core.errors.RecoveryWarning"),
]

TOTALS = "SELECT k, sum(v) s, count(*) n FROM orders GROUP BY k"
FATAL = [
    (point, times, lost)
    for point in ("sink.before_delivery", "sink.after_delivery", "epoch.after_cut", "epoch.after_publish")
    for times in (1, 2)
    for lost in (False, True)
]

SCRIPT = """
import json, os, sys, threading
from pathlib import Path
import slipstream as sl
from slipstream.core.crashing import arm
from slipstream.spark.session import start_session

query, cases, folder = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
spark = start_session("crashes", "local[2]", 2)

def feed(here, number, rows):
    (here / "new").write_text("".join(json.dumps({"k": k, "v": v}) + chr(10) for k, v in rows))
    (here / "new").rename(here / "landing" / f"{number}.json")

def died(number, point, times, lost):
    here = folder / str(number)
    (here / "landing").mkdir(parents=True)
    child = os.fork()
    if child == 0:
        try:
            app = sl.App("shop", store=here / "store", spark=spark, shards=2, replicas=[(here / "replica").as_uri()])
            app.source("orders", sl.files(str(here / "landing"), "json", "k long, v long", settle=0))
            app.view("totals", query)
            app.sink("totals", sl.to_folder(here / "log"), name="log")
            app.sink("totals", sl.to_folder(here / "now", mode="replace"), name="now")
            feed(here, 0, [(1, 1), (2, 2)])
            app.run(until="caught_up")
            app.start()
            while app.frontiers().safe < 1:
                threading.Event().wait(0.05)
            app.stop()
            arm(f"{point}:{times}")
            for step in range(1, 9):
                feed(here, step, [(step % 3, step), (1, -step)])
                app.run(until="caught_up")
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(json.dumps([died(number, *case) for number, case in enumerate(cases)]), flush=True)
"""


def test_whoever_dies_delivers_every_epoch_once(spark: SparkSession, tmp_path: Path) -> None:
    given = [TOTALS, json.dumps(FATAL), str(tmp_path)]
    ran = subprocess.run([sys.executable, "-c", SCRIPT, *given], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [-signal.SIGKILL] * len(FATAL), ran.stderr
    for number, (point, times, lost) in enumerate(FATAL):
        _go_on(spark, tmp_path / str(number), lost=lost, case=f"{point}, {times} times, lost: {lost}")


def _go_on(spark: SparkSession, here: Path, *, lost: bool, case: str) -> None:
    if lost:
        shutil.rmtree(here / "store")
    seen = _log(here)
    schema = "k long, v long"
    with sl.App(
        "shop", store=here / "store", spark=spark, shards=2, replicas=[(here / "replica").as_uri()]
    ) as app:
        app.source("orders", sl.files(str(here / "landing"), "json", schema, settle=0))
        app.view("totals", TOTALS)
        app.sink("totals", sl.to_folder(here / "log"), name="log")
        app.sink("totals", sl.to_folder(here / "now", mode="replace"), name="now")
        app.run(until="caught_up")
        (here / "new").write_text('{"k": 7, "v": 7}\n')
        (here / "new").rename(here / "landing" / "last.json")
        app.run(until="caught_up")
        inputs = {"orders": spark.read.schema(schema).json(str(here / "landing"))}
        assert_equal(app.read("totals"), recompute(app, "totals", inputs), case)
        view = Counter(tuple(row) for row in app.read("totals").collect())
        assert _contents(_log(here)) == view, case
        assert _now(here) == view, case
        assert seen <= _log(here), f"what was seen outside is still true: {case}"
        for epoch in range(1, app.epoch + 1):
            then = Counter(tuple(row) for row in app.read("totals", as_of=epoch).collect())
            assert _contents(_log(here), epoch) == then, f"as of epoch {epoch}: {case}"


def _log(here: Path) -> Counter[Row]:
    files = sorted((here / "log").glob("*.parquet"))
    columns = pa.concat_tables([pq.read_table(each) for each in files]).columns
    return Counter(zip(*(column.to_pylist() for column in columns), strict=True))


def _contents(log: Counter[Row], as_of: int = 10**9) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for (*row, epoch, diff), times in log.items():
        if epoch <= as_of:
            found[tuple(row)] += diff * times
    return +found


def _now(here: Path) -> Counter[Row]:
    columns = pq.read_table(here / "now" / "rows.parquet").columns
    return Counter(zip(*(column.to_pylist() for column in columns), strict=True))
