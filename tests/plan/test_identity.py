"""Traces keep their names whatever happens elsewhere, and have another one when they hold something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import LongType

import slipstream as sl
from slipstream.core.settings import Starting, starting_with
from slipstream.plan.identity import TraceNames
from slipstream.plan.meaning import Meaning
from slipstream.testing.oracle import assert_equal_rows, rows_of

SUMS = "SELECT k, sum(v) AS s FROM t WHERE v > 0 AND u IS NOT NULL GROUP BY k"
JOINED = "SELECT a.k, a.v, b.v AS w FROM t a JOIN t b ON a.k = b.k AND a.v < b.v"

Query = str | Callable[..., DataFrame]


def meaning(digest: str) -> Meaning:
    return Meaning(digest * 16, digest * 16)


def test_operators_of_one_meaning_are_told_apart_by_a_number() -> None:
    names = TraceNames("v", {})
    assert names.name("left", meaning("abcd")) == "traces/v/left-abcdabcdabcd"
    assert names.name("right", meaning("abcd")) == "traces/v/right-abcdabcdabcd"
    assert names.name("left", meaning("abcd")) == "traces/v/left-abcdabcdabcd-2"
    assert names.name("left", meaning("1234")) == "traces/v/left-123412341234"


def test_what_a_store_has_stays_where_it_is() -> None:
    known = {"v": ["traces/w/left-abcdabcdabcd"], "x": ["traces/x/left-123412341234"]}
    names = TraceNames("v", known)
    assert names.name("left", meaning("abcd")) == "traces/w/left-abcdabcdabcd"
    assert names.name("left", meaning("1234")) == "traces/v/left-123412341234", "another view's own"
    shared = TraceNames("y", known)
    with shared.sharing():
        assert shared.name("left", meaning("1234")) == "traces/x/left-123412341234"
        with shared.sharing(False):
            assert shared.name("left", meaning("abcd")) == "traces/w/left-abcdabcdabcd"
    with shared.sharing(False):
        assert shared.name("left", meaning("abcd")) == "traces/y/left-abcdabcdabcd-2"


def test_a_new_name_has_a_turn_and_what_goes_on_keeps_its_own() -> None:
    known = {
        "v": ["traces/v/left-abcdabcdabcd-t3.1", "traces/v/right-abcdabcdabcd"],
        "w": ["traces/w/left-123412341234-t2"],
    }
    names = TraceNames("v", known, "4.2")
    assert names.name("left", meaning("abcd")) == "traces/v/left-abcdabcdabcd-t3.1"
    assert names.name("right", meaning("abcd")) == "traces/v/right-abcdabcdabcd"
    assert names.name("left", meaning("1234")) == "traces/v/left-123412341234-t4.2"
    with names.sharing():
        assert names.name("left", meaning("abcd")) == "traces/v/left-abcdabcdabcd-2-t4.2"
    shared = TraceNames("y", known, "4.2")
    with shared.sharing():
        assert shared.name("left", meaning("1234")) == "traces/w/left-123412341234-t2"


def traces(
    spark: SparkSession, store: Path, views: Mapping[str, Query], delay: str = "1 minute", **source: Any
) -> dict[str, list[str]]:
    """The traces of each view."""
    with sl.App("app", store=store, spark=spark, shards=1) as app:
        app.source("t", sl.memory(source.pop("schema", "k long, v long, u string, at timestamp"), **source))
        app.source("u", sl.memory("k long, at timestamp"), watermark=("at", delay))
        for name, query in views.items():
            app.view(name, query)
        return {name: [t for step in top.walk() for t in step.traces] for name, top in app.steps().items()}


@pytest.mark.spark
def test_what_is_added_elsewhere_leaves_the_other_traces_their_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = traces(spark, tmp_path / "one", {"sums": SUMS, "joined": JOINED})
    views = {
        "new": "SELECT count(*) AS n FROM t",
        "joined": JOINED,
        "sums": SUMS,
        "of_sums": "SELECT * FROM sums",
    }
    after = traces(spark, tmp_path / "two", views)
    assert {name: after[name] for name in before} == before
    above = {
        "sums": f"SELECT s, count(k) AS n FROM ({SUMS}) GROUP BY s",
        "joined": f"SELECT k, count(*) AS n FROM ({JOINED}) GROUP BY k",
    }
    more = traces(spark, tmp_path / "three", above)
    assert set(before["sums"]) <= set(more["sums"]), "an operator above leaves what is below as it was"


SETS = ("v", "u", "at", "v + 1", "upper(u)")


@pytest.mark.spark
def test_several_distinct_aggregates_have_one_name_however_often_they_are_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark numbers the sets of distinct values in the order of a hash table of expression ids."""
    views: dict[str, Query] = {
        "two": "SELECT k, count(DISTINCT v) a, count(DISTINCT u) b, sum(v) s FROM t GROUP BY k",
        "pair": "SELECT count(DISTINCT v, u) a, count(DISTINCT at) b, sum(DISTINCT v) c FROM t",
        "many": "SELECT "
        + ", ".join(f"count(DISTINCT {each}) c{i}" for i, each in enumerate(SETS))
        + " FROM t",
        "some": "SELECT count(DISTINCT v) FILTER (WHERE k > 1) a, count(DISTINCT u) FILTER (WHERE v > 1) b, "
        "count(DISTINCT at) c, max(k) m FROM t",
    }
    found = []
    for planned in range(6):
        for _ in range(planned):
            spark.sql("SELECT 1 AS x, 2 AS y, 3 AS z")  # uses up expression ids
        found.append(traces(spark, tmp_path / str(planned), views))
    assert all(each == found[0] for each in found)


@pytest.mark.spark
def test_names_of_columns_and_the_order_of_rows_are_no_part_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = traces(spark, tmp_path / "one", {"sums": SUMS, "joined": JOINED})
    renamed = {
        "sums": "SELECT key AS kk, sum(val) AS total FROM (SELECT k AS key, v AS val FROM t WHERE u IS NOT NULL "
        "AND v > 0) GROUP BY key ORDER BY total",
        "joined": "SELECT one.k AS x, one.v AS y, other.v AS z FROM t one JOIN t other ON one.k = other.k "
        "AND one.v < other.v",
    }
    assert traces(spark, tmp_path / "two", renamed) == before


def zoned(zone: str) -> Callable[[SparkSession], None]:
    return lambda spark: spark.conf.set("spark.sql.session.timeZone", zone)


def lenient(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")


def by(number: int) -> Callable[[DataFrame], DataFrame]:
    """A view that calls a function whose closure holds a number."""
    return lambda t: t.groupBy("k").agg(F.sum(F.udf(lambda v: v // number, "long")("v")).alias("s"))


def plus(t: DataFrame) -> DataFrame:
    return t.groupBy("k").agg(F.sum(F.udf(lambda v: v + 10, "long")("v")).alias("s"))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SUMS, SUMS.replace("> 0", "> 1")),
        (SUMS, SUMS.replace("sum(v)", "sum(v + 0.5)")),
        (SUMS, SUMS.replace("u IS NOT NULL", "u IN ('a', 'b')")),
        (JOINED, JOINED.replace("JOIN", "LEFT JOIN")),
        (JOINED, JOINED.replace("a.v < b.v", "a.v <= b.v")),
        ("SELECT k FROM t ORDER BY v, k LIMIT 3", "SELECT k FROM t ORDER BY v, k LIMIT 4"),
        ("SELECT k FROM t ORDER BY v, k LIMIT 3", "SELECT k FROM t ORDER BY v DESC, k LIMIT 3"),
        (by(10), by(5)),
        (by(10), plus),
    ],
)
def test_what_an_operator_computes_is_its_name(
    spark: SparkSession, tmp_path: Path, one: Query, other: Query
) -> None:
    names = [traces(spark, tmp_path / str(i), {"v": query})["v"] for i, query in enumerate((one, other, one))]
    assert names[0] == names[2]
    assert set(names[0]).isdisjoint(names[1])


def broadcast(spark: SparkSession, number: int) -> Query:
    rates = spark.sparkContext.broadcast({"rate": number})
    fee = F.udf(lambda v: v * rates.value["rate"], LongType())
    return lambda t: t.select("k", fee("v").alias("f"))


def large(spark: SparkSession, number: int) -> Query:
    """A function that PySpark sends by way of a broadcast variable."""
    rates = bytes(2 << 20) + bytes([number])
    fee = F.udf(lambda v: v * rates[-1], LongType())
    return lambda t: t.select("k", fee("v").alias("f"))


def aggregated(spark: SparkSession, number: int) -> Query:
    def spread(v: pd.Series) -> float:
        return float(v.max() - v.min() + number)

    made: Any = pandas_udf
    return lambda t: t.groupBy("k").agg(made(spread, "double")("v").alias("s"))


def mapped(spark: SparkSession, number: int) -> Query:
    def shifted(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch[["k"]] + number

    return lambda t: t.select("k", "v").mapInPandas(shifted, "k long")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("made", "maintain"),
    [(broadcast, "incremental"), (large, "incremental"), (aggregated, "incremental"), (mapped, "recompute")],
)
def test_functions_of_every_kind_are_their_code(
    spark: SparkSession, tmp_path: Path, made: Callable[[SparkSession, int], Query], maintain: Any
) -> None:
    found = []
    for i, number in enumerate((1, 2, 1)):
        with sl.App("app", store=tmp_path / str(i), spark=spark, shards=1) as app:
            app.source("t", sl.memory("k long, v long"))
            app.view("v", made(spark, number), maintain=maintain)
            found.append(app.steps()["v"].traces)
    assert found[0] == found[2] != found[1]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "change", "felt"),
    [
        (
            "SELECT cast(at AS date) AS d, count(*) AS n FROM t GROUP BY cast(at AS date)",
            zoned("Asia/Tokyo"),
            True,
        ),
        (
            "SELECT k, count(*) AS n FROM t WHERE at > TIMESTAMP'2026-01-01' GROUP BY k",
            zoned("Asia/Tokyo"),
            True,
        ),
        (
            "SELECT cast(k AS double) AS x, sum(v) AS s FROM t GROUP BY cast(k AS double)",
            zoned("Asia/Tokyo"),
            False,
        ),
        (SUMS, lenient, True),
        ("SELECT k, count(*) AS n FROM t WHERE v > 3 GROUP BY k", lenient, False),
    ],
)
def test_settings_count_where_they_change_answers(
    spark: SparkSession, tmp_path: Path, query: str, change: Callable[[SparkSession], None], felt: bool
) -> None:
    found = []
    for i, changing in enumerate((zoned("UTC"), change)):
        session = spark.newSession()
        changing(session)
        found.append(traces(session, tmp_path / str(i), {"v": query})["v"])
    assert set(found[0]).isdisjoint(found[1]) if felt else found[0] == found[1]


@pytest.mark.spark
def test_a_source_is_its_columns_and_keys(spark: SparkSession, tmp_path: Path) -> None:
    query = {"v": "SELECT k, sum(v) AS s FROM t GROUP BY k"}
    plain = traces(spark, tmp_path / "1", query, schema="k long, v long, u string")["v"]
    typed = traces(spark, tmp_path / "2", query, schema="k long, v long, u int")["v"]
    keyed = traces(spark, tmp_path / "3", query, schema="k long, v long, u string", key="k")["v"]
    other = traces(spark, tmp_path / "4", query, schema="k long, v long, u string", key="u")["v"]
    assert len({*plain, *typed, *keyed, *other}) == 6
    upserts = [trace for trace in keyed + other if trace.startswith("traces/t/upsert-")]
    assert len(upserts) == 2


@pytest.mark.spark
def test_the_delay_of_a_watermark_is_part_of_what_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    """A view goes by the least of its watermarks, whether or not it uses the column."""
    windows = "SELECT window(at, '1 minute') AS w, count(*) AS n FROM u GROUP BY window(at, '1 minute')"

    def marked(delay: str) -> Query:
        return lambda t: t.withWatermark("at", delay).groupBy(F.window("at", "1 minute")).count()

    views: dict[str, Query] = {
        "windows": windows,
        "aside": "SELECT t.k, t.v FROM t JOIN u ON t.k = u.k",
        "other": "SELECT k, count(*) AS n FROM t GROUP BY k",
    }
    one, two = (
        traces(spark, tmp_path / delay, {**views, "marked": marked(delay)}, delay)
        for delay in ("1 minute", "2 minutes")
    )
    for name in ("windows", "aside", "marked"):
        assert set(one[name]).isdisjoint(two[name])
    assert one["other"] == two["other"]


@pytest.mark.spark
def test_two_operators_of_one_meaning_that_are_not_shared_have_names_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    windows = "SELECT window(at, '1 minute') AS w, count(*) AS n FROM u GROUP BY window(at, '1 minute')"
    views: dict[str, Query] = {
        "twice": f"SELECT a.w, a.n, b.n AS m FROM ({windows}) a JOIN ({windows}) b ON a.w = b.w"
    }
    found = traces(spark, tmp_path / "one", views)["twice"]
    assert len(set(found)) == len(found)
    assert sorted(trace.rpartition("-")[2] for trace in found if "accumulate" in trace)[0] == "2"
    assert traces(spark, tmp_path / "two", views)["twice"] == found


PROGRAM = """
import json, sys
import slipstream as sl
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

RATES = {"a", "b", "c", "d"}

def rate(v):
    return v // 10 + len(RATES)

@F.udf(LongType())
def fee(v):
    return rate(v)

if len(sys.argv) > 2:
    import decimal  # another line, and other expression ids before those of the view
app = sl.App("app", store=sys.argv[1], master="local[1]", shards=1)
t = app.source("t", sl.memory("k long, v long, u string, at timestamp"))
for i in range(len(sys.argv) - 2):
    app.view(f"other{i}", "SELECT u, max(at) AS m FROM t WHERE k IS NOT NULL AND v > 3 GROUP BY u")
app.view("fees", lambda t: t.where("v > 0 AND u IS NOT NULL AND k < 5").groupBy("k").agg(F.sum(fee("v")).alias("s")))
matching = "a.k = b.k AND a.u = b.u AND a.v < b.v"
app.view("joined", f"SELECT a.k, b.u, cast(b.at AS date) AS d FROM t a JOIN t b ON {matching}")
print(json.dumps({name: [t for step in top.walk() for t in step.traces] for name, top in app.steps().items()}))
app.close()
"""


@pytest.mark.spark
def test_a_new_process_finds_the_same_names(tmp_path: Path) -> None:
    found = []
    for number, more in enumerate(((), ("one view more",))):
        program = tmp_path / f"program{number}.py"
        program.write_text("# a line more\n" * number + PROGRAM)
        ran = subprocess.run(
            [sys.executable, str(program), str(tmp_path / f"store{number}"), *more],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(number + 1)},
        )
        assert ran.returncode == 0, ran.stderr
        found.append(json.loads(ran.stdout.splitlines()[-1]))
    assert {name: found[1][name] for name in found[0]} == found[0]


@pytest.mark.spark
def test_state_that_views_share_stays_when_one_of_them_comes_or_goes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first of two views that share an operator keeps it; then that view is gone, then others come before."""
    shared = "SELECT k, sum(v) AS s FROM t GROUP BY k"

    def run(views: dict[str, str], rows: list[tuple[int, int]]) -> dict[str, list[Any]]:
        source = sl.memory("k long, v long")
        with sl.App("app", store=tmp_path / "store", spark=spark, shards=1, history=None) as app:
            app.source("t", source)
            for name, query in views.items():
                app.view(name, query)
            source.append(rows)
            app.run(until="caught_up")
            return {name: rows_of(app.read(name)) for name in views}

    first, second = {"a": shared}, {"b": shared, "c": f"SELECT k FROM ({shared}) WHERE s > 3"}
    run({**first, **second}, [(1, 1), (2, 5)])
    found = run(second, [(1, 3)])
    assert_equal_rows(found["b"], [(1, 4), (2, 5)], "without the view that kept it")
    found = run({"z": shared, **second}, [(2, 1)])
    assert_equal_rows(found["b"], [(1, 4), (2, 6)], "with one more before it")
    assert_equal_rows(found["z"], found["b"], "of one meaning")
    assert_equal_rows(found["c"], [(1,), (2,)], "over the same operator")


@pytest.mark.spark
def test_state_that_an_unchanged_view_has_too_stays_when_the_view_that_keeps_it_is_rebuilt(
    spark: SparkSession, tmp_path: Path
) -> None:
    shared = "SELECT k, sum(v) AS s FROM t GROUP BY k"
    folder = tmp_path / "store" / "traces" / "a"

    def opened(of_a: str) -> tuple[sl.App, Any]:
        source = sl.memory("k long, v long")
        app = sl.App("app", store=tmp_path / "store", spark=spark, shards=1, history=None)
        app.source("t", source)
        app.view("a", of_a)
        app.view("b", shared)
        return app, source

    app, source = opened(shared)
    with app:
        for row in ((1, 1), (1, 2)):
            source.append([row])
            app.run(until="caught_up")
    (kept,) = folder.iterdir()
    other = "SELECT v, count(*) AS n FROM t GROUP BY v"
    with starting_with(Starting(rebuild=("a",))):
        app, source = opened(other)
    with app:
        source.append([(1, 4)])
        app.run(until="caught_up")
        assert rows_of(app.read("b")) == [(1, 7)]
        assert rows_of(app.read("b", as_of=1)) == [(1, 1)], "with its history"
        assert_equal_rows(rows_of(app.read("a")), [(1, 1), (2, 1), (4, 1)], "rebuilt")
        assert kept in folder.iterdir()
        assert len(list(folder.iterdir())) == 2
