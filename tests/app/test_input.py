"""Bad rows and bounds: what an app does with input that is not as it should be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.core.errors import BadInput, BadSourceOption, HistoryLetGo

pytestmark = pytest.mark.spark


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def drop(landing: Path, name: str, text: str) -> None:
    (landing / ".new").write_text(text)
    (landing / ".new").rename(landing / name)


def totals(orders: DataFrame) -> DataFrame:
    return orders.groupBy("k").agg(F.sum("v").alias("v"))


def test_a_row_that_does_not_parse_is_kept_with_its_file_line_and_reason(
    spark: SparkSession, tmp_path: Path, landing: Path
) -> None:
    with sl.App("bad", tmp_path / "store", spark=spark, shards=2) as app:
        app.source("orders", sl.files(landing, "json", "k long, v long"))
        app.view(totals)
        drop(landing, "a.json", '{"k": 1, "v": 2}\n{"k": 1, "v": "two"}\n{"k": 1, "v": 3}\n')
        summary = app.run(until="caught_up")
        assert (summary.rows, summary.rejected) == (3, 1)
        drop(landing, "b.json", '{"k": 1, "v": 4}\n')
        assert app.run(until="caught_up").rejected == 0
        assert [tuple(row) for row in app.read("totals").collect()] == [(1, 9)]
        (kept,) = app.read("orders_rejected").collect()
        assert (kept["source"], kept["line"], kept["raw"]) == ("orders", 2, '{"k": 1, "v": "two"}')
        assert kept["file"].endswith("a.json")
        assert "v" in kept["reason"]
        assert app.read("orders_rejected", as_of=0).count() == 0


def test_a_folder_of_the_app_s_own_is_no_input(spark: SparkSession, tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    with sl.App("own", tmp_path / "store", spark=spark, replicas=[f"file://{replica}"]) as app:
        for folder in (replica, tmp_path / "store", tmp_path / "x" / ".." / "replica"):
            with pytest.raises(BadSourceOption, match="which is the store of this app or a replica of it"):
                app.source("orders", sl.files(folder, "json", "k long"))


WORKER_DIES = """
import os, signal, sys
from pathlib import Path
from pyspark.sql import functions as F
import slipstream as sl

folder = Path(sys.argv[1])
died = folder / "died"

def once(v):
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * v

with sl.App("dies", folder / "store", master="local[1,4]", shards=2) as app:
    double = F.udf(once, "long", useArrow=False)
    app.source("orders", sl.files(folder / "landing", "json", "k long, v long", settle=0))
    app.view("doubled", lambda orders: orders.select("k", double("v").alias("v")))
    app.view("totals", lambda orders: orders.groupBy("k").agg(F.sum(double("v")).alias("v")))
    summary = app.run(until="caught_up")
    raw = [row["raw"] for row in app.read("orders_rejected").collect()]
    views = [sorted(tuple(row) for row in app.read(view).collect()) for view in ("doubled", "totals")]
    print("GOT", died.exists(), summary.rows, raw, *views)
"""


def test_bad_rows_are_found_although_a_worker_dies(tmp_path: Path, landing: Path) -> None:
    """Its task has read the file, and what it read is kept: the task in its place does not read it again."""
    drop(landing, "a.json", '{"k": 1, "v": 2}\nnot json\n{"k": 1, "v": 3}\n')
    command = [sys.executable, "-c", WORKER_DIES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "GOT True 3 ['not json'] [(1, 4), (1, 6)] [(1, 10)]\n"


def test_on_bad_fail_stops_the_app_at_the_epoch_before(
    spark: SparkSession, tmp_path: Path, landing: Path
) -> None:
    with sl.App("strict", tmp_path / "store", spark=spark, shards=2) as app:
        app.source("orders", sl.files(landing, "json", "k long, v long", on_bad="fail"))
        app.view(totals)
        drop(landing, "a.json", '{"k": 1, "v": 2}\n')
        app.run(until="caught_up")
        drop(landing, "b.json", '{"k": 1, "v": 5}\nnot json\n')
        with pytest.raises(BadInput, match=r"source 'orders': 1 bad row.*on_bad='reject'"):
            app.run(until="caught_up")
        assert app.epoch == 1
        assert [tuple(row) for row in app.read("totals").collect()] == [(1, 2)]


def test_limits_bound_what_an_epoch_takes(spark: SparkSession, tmp_path: Path) -> None:
    settings = sl.Settings(limits={"numbers": sl.Limits(most=100)})
    with sl.App("bounded", tmp_path / "store", spark=spark, shards=2, settings=settings) as app:
        app.source("numbers", sl.rate(None, keys=5, limit=350, rows_per_epoch=350))

        @app.view
        def counts(numbers: DataFrame) -> DataFrame:
            return numbers.groupBy("key").agg(F.count("*").alias("n"))

        taken: list[int] = []
        app.on_epoch(lambda report: taken.append(report.rows))
        app.run(until="caught_up")
        assert sum(taken) == 350
        assert max(taken) == 100


def test_time_travel_reaches_back_as_far_as_history_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    source = sl.memory("k long")
    with sl.App("short", tmp_path / "store", spark=spark, shards=1, history="3 epochs") as app:
        app.source("rows", source)

        @app.view
        def counts(rows: DataFrame) -> DataFrame:
            return rows.groupBy("k").agg(F.count("*").alias("n"))

        def another_epoch() -> None:
            source.append([(1,)])
            app.run(until="caught_up")

        for _ in range(4):
            another_epoch()
        before = app.read("counts", as_of=2)
        for _ in range(8):
            another_epoch()
        for epoch in range(9, 13):
            assert app.read("counts", as_of=epoch).collect()[0]["n"] == epoch

        def read_on() -> None:
            for _ in range(500):  # the agent forgets when it gets round to it
                another_epoch()
                app.read("counts", as_of=2)

        with pytest.raises(
            HistoryLetGo, match=r"epoch 2 of 'counts' is not kept any more: its history reaches"
        ):
            read_on()
        with pytest.raises(PythonException, match=r"History up to epoch \d+ is collapsed"):
            before.collect()  # it was there when it was asked for
