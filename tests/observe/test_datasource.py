"""Views read from other programs with `spark.read.format("slipstream")`, and with `app.sql` while the app runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.spark.java import java_home
from slipstream.testing.oracle import rows_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def app(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sl.App]:
    with sl.App("shop", store=tmp_path_factory.mktemp("shop"), spark=spark, shards=2, history=None) as made:
        source = sl.memory("k string, v long")
        made.source("orders", source)
        made.view("totals", "SELECT k, sum(v) s, count(*) c FROM orders GROUP BY k")
        made.view("lines", "SELECT k, v FROM orders")
        for epoch in range(1, 4):
            source.append([("x", epoch), ("y", 10 * epoch)])
            made.run(until="caught_up")
        yield made


OTHER_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from slipstream.observe.datasource import SlipstreamSource

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(SlipstreamSource)

def read(**options):
    reader = spark.read.format("slipstream")
    for name, value in options.items():
        reader = reader.option(name, value)
    try:
        return sorted(map(list, reader.load(sys.argv[1]).collect()))
    except Exception as error:
        return str(error)

print(json.dumps({
    "now": read(view="totals"),
    "past": read(view="totals", asOf=1),
    "some": read(view="totals", columns="c,k"),
    "changes": read(view="lines", since=2, until=3),
    "view": read(view="total"),
    "column": read(view="totals", columns="d"),
    "none": read(),
    "epoch": read(view="totals", asOf=9),
    "option": read(view="totals", as_of=1),
    "until": read(view="totals", until=1),
    "backwards": read(view="totals", since=2, until=1),
}))
"""


def test_another_program_reads_a_view(app: sl.App) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OTHER_PROGRAM, str(app.store)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home(os.environ))},
    )
    assert ran.returncode == 0, ran.stderr
    read = json.loads(ran.stdout.splitlines()[-1])
    assert read["now"] == [["x", 6, 3], ["y", 60, 3]]
    assert read["past"] == [["x", 1, 1], ["y", 10, 1]]
    assert read["some"] == [[3, "x"], [3, "y"]]
    assert read["changes"] == [["x", 3, 3, 1], ["y", 30, 3, 1]]
    assert "there is no view named 'total'. There are: 'lines', 'totals'" in read["view"]
    assert "there is no column of 'totals' named 'd'. There are: 'c', 'k', 's'" in read["column"]
    assert "name the store and the view" in read["none"]
    assert "epoch 9 is not there: the store is computed up to epoch 3" in read["epoch"]
    assert (
        "no option 'as_of'; there are 'asOf', 'columns', 'since', 'until', 'view'. Did you mean 'asOf'?"
        in (read["option"])
    )
    assert "'until' goes with 'since'" in read["until"]
    assert "Ask for since=1, until=2." in read["backwards"]
    assert max(read[name].count("\n  File ") for name in ("option", "view", "backwards")) <= 2, (
        "no story of calls"
    )


def test_sql_joins_views_with_what_else_the_session_knows(app: sl.App) -> None:
    app.spark.createDataFrame([("x", "ex")], "k string, label string").createOrReplaceTempView("labels")
    found = app.sql("SELECT label, s FROM Totals JOIN labels USING (k)")
    assert rows_of(found) == [("ex", 6)]
    assert rows_of(app.sql("SELECT sum(s) FROM totals", as_of=2)) == [(33,)]
    assert rows_of(app.sql("WITH lines AS (SELECT 1 AS one) SELECT * FROM lines")) == [(1,)]
    app.spark.catalog.dropTempView("labels")


def test_sql_leaves_the_user_s_own_view_of_that_name_as_it_was(app: sl.App) -> None:
    app.spark.range(3).createOrReplaceTempView("totals")
    try:
        assert app.sql("SELECT * FROM totals").columns == ["k", "s", "c"]
        assert app.spark.table("totals").columns == ["id"]
    finally:
        app.spark.catalog.dropTempView("totals")


def test_sql_sees_all_views_at_one_epoch_while_the_app_runs(spark: SparkSession, tmp_path: Path) -> None:
    with sl.App("shop", store=tmp_path, spark=spark, shards=2) as app:
        source = sl.memory("k string, v long", max_appends_per_epoch=1)
        app.source("orders", source)
        app.view("totals", "SELECT k, sum(v) s FROM orders GROUP BY k")
        app.view("lines", "SELECT k, v FROM orders")
        for n in range(30):
            source.append([("abc"[n % 3], n)])
        app.start()
        assert app.await_epoch(1, timeout=60)
        seen = []
        for _ in range(8):
            sums = rows_of(app.sql("SELECT (SELECT sum(s) FROM totals), (SELECT sum(v) FROM lines)"))
            assert sums[0][0] == sums[0][1]
            seen.append(sums[0][0])
        assert app.await_epoch(30, timeout=120)
        app.stop()
        assert rows_of(app.sql("SELECT sum(v) FROM lines")) == [(435,)]
        assert seen == sorted(seen)
