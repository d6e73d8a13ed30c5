"""What cannot be maintained is refused when it is declared: the view, the construct, why, and what to do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

import slipstream as sl
from slipstream.core.errors import (
    AsksForRows,
    BadDuration,
    BadViewOption,
    BadWatermark,
    CannotMaintain,
    NameTaken,
    NotAQuery,
    UnknownInput,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def app(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sl.App]:
    with sl.App("refusals", store=tmp_path_factory.mktemp("refusals"), spark=spark, shards=2) as made:
        made.source("t", sl.memory("k string, v long"))
        made.source("u", sl.memory("k string, v long"))
        made.source("timed", sl.memory("k string, ts timestamp"), watermark=("ts", "10 minutes"))
        yield made


FROZEN = "it is a different value whenever it is asked, and would be frozen at the time the view was defined"
RANDOM = "it gives another value each time it is computed, so what was added could never be taken away"
OF_THE_SESSION = "it follows from the session that asks, not from input"
NO_PLACE = "rows cannot be kept with it, because Arrow has no such type"
OPEN = "which rows it keeps is left open"

REFUSED = {
    "rand": ("SELECT k, rand() r FROM t", "rand(", RANDOM),
    "uuid": ("SELECT k, uuid() r FROM t", "uuid(", RANDOM),
    "monotonic": (
        "SELECT k, monotonically_increasing_id() r FROM t",
        "monotonically_increasing_id()",
        RANDOM,
    ),
    "in_filter": ("SELECT k FROM t WHERE rand() < 0.5", "rand(", RANDOM),
    "now": ("SELECT k, current_timestamp() r FROM t", "current_timestamp()", FROZEN),
    "today": ("SELECT k FROM t WHERE current_date() > date'2020-01-01'", "current_date()", FROZEN),
    "in_subquery": (
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v < unix_timestamp(now()))",
        "now()",
        FROZEN,
    ),
    "special_literal": ("SELECT k, TIMESTAMP ' Now ' r FROM t", "TIMESTAMP ' Now '", FROZEN),
    "special_date": ('SELECT k FROM t WHERE date"yesterday UTC" > k', 'date"yesterday UTC"', FROZEN),
    "user": ("SELECT k, current_user() u FROM t", "current_user()", OF_THE_SESSION),
    "database": ("SELECT k FROM t WHERE k = current_schema()", "current_schema()", OF_THE_SESSION),
    "catalog": ("SELECT max(current_catalog()) c FROM t", "current_catalog()", OF_THE_SESSION),
    "path": ("SELECT current_path() c FROM t", "current_path()", OF_THE_SESSION),
    "version": ("SELECT version() v FROM t", "version()", OF_THE_SESSION),
    "partition": ("SELECT spark_partition_id() p FROM t", "SPARK_PARTITION_ID()", RANDOM),
    "file": ("SELECT input_file_name() f FROM t", "input_file_name()", RANDOM),
    "months": (
        "SELECT k, make_ym_interval(0, 1) i FROM t",
        "the column 'i' of type INTERVAL YEAR TO",
        NO_PLACE,
    ),
    "grouped_by_months": (
        "SELECT k FROM t GROUP BY k, make_ym_interval(0, int(v))",
        "the column 'make_ym_interval(0, ",
        NO_PLACE,
    ),
    "map_of_nothing": (
        "SELECT k, map() AS n FROM t",
        "'n' of type MAP<VOID,VOID>:",
        "no map whose keys have no type",
    ),
    "interval": ("SELECT k, make_interval(0, int(v)) i FROM t", "the column 'i' of type INTERVAL:", NO_PLACE),
    "variant": ("SELECT k, array(parse_json(k)) j FROM t", "the column 'j' of type ARRAY<VARIANT>", NO_PLACE),
    "field_twice": (
        "SELECT struct(a.k, b.k) s FROM t a JOIN t b ON a.v = b.v",
        "the column 's' of type STRUCT<K:",
        "Arrow has no struct with two fields named 'k'",
    ),
    "sampled": ("SELECT * FROM t TABLESAMPLE (10 PERCENT)", "Sample", "it picks rows at random"),
    "limited": ("SELECT * FROM t LIMIT 3", "LIMIT without ORDER BY", OPEN),
    "offset": ("SELECT * FROM t OFFSET 2", "OFFSET without ORDER BY", OPEN),
    "scalar_limited": ("SELECT k, (SELECT v FROM u LIMIT 1) m FROM t", "LIMIT without ORDER BY", OPEN),
    "recursive": (
        "WITH RECURSIVE r(n) AS (SELECT min(v) FROM t UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT n FROM r",
        "UnionLoop",
        "no rule maintains UnionLoop by its changes",
    ),
    "watermarked": (
        "SELECT * FROM timed WATERMARK ts DELAY OF INTERVAL 5 MINUTES",
        "the WATERMARK clause",
        "Spark drops it from a query over relations that are not streams",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_when_declared(app: sl.App, name: str) -> None:
    query, what, why = REFUSED[name]
    with pytest.raises(CannotMaintain) as refused:
        app.view(f"refused_{name}", query)
    text = str(refused.value)
    assert text.startswith(f"view 'refused_{name}': cannot maintain ")
    assert what in text
    assert why in text
    assert ". Instead: " in text
    assert text.endswith(".")
    assert "#" not in text


def test_types_without_a_place_may_come_up_inside_a_query(app: sl.App) -> None:
    app.view("inside", "SELECT k, variant_get(parse_json(k), '$.a', 'int') a FROM t WHERE v > 0")
    app.view("dated", "SELECT k, date'2026-01-31' + make_ym_interval(0, int(v)) d FROM t")


def test_a_function_marked_nondeterministic_is_refused(app: sl.App) -> None:
    noise = F.udf(lambda: random.random(), "double").asNondeterministic()
    with pytest.raises(
        CannotMaintain, match=r"the function is marked nondeterministic. Instead: make it a function"
    ):
        app.view("noisy", lambda t: t.select("k", noise().alias("n")))


def test_a_table_that_is_not_followed_is_refused(app: sl.App, tmp_path: Path) -> None:
    app.spark.range(3).withColumnRenamed("id", "v").write.parquet(str(tmp_path / "table"))
    table = app.spark.read.parquet(str(tmp_path / "table"))

    def with_table(t: DataFrame) -> DataFrame:
        return t.join(table, "v")

    with pytest.raises(
        CannotMaintain,
        match=r"does not follow, so that later changes of it would be missed. Instead: declare",
    ):
        app.view(with_table)


def test_a_file_that_sql_names_is_refused_as_a_table_is(app: sl.App, tmp_path: Path) -> None:
    app.spark.range(3).withColumnRenamed("id", "v").write.parquet(str(tmp_path / "a folder"))
    with pytest.raises(
        CannotMaintain, match=r"a folder of files that come with app.source\('t', sl.files\(...\)\)"
    ):
        app.view("of_a_file", f"SELECT * FROM t JOIN parquet.`{tmp_path / 'a folder'}` f ON t.v = f.v")


def test_a_table_that_sql_names_is_refused_with_how_to_declare_it(app: sl.App, tmp_path: Path) -> None:
    app.spark.sql(f"CREATE DATABASE bank LOCATION '{tmp_path / 'bank'}'")
    try:
        app.spark.sql("CREATE TABLE bank.rates USING parquet AS SELECT 1L v")
        with pytest.raises(
            CannotMaintain, match=r"app.source\('rates', sl.table\('bank.rates'\)\), with refresh="
        ):
            app.view("of_a_table", "SELECT * FROM t JOIN bank.rates r ON t.v = r.v")
    finally:
        app.spark.sql("DROP DATABASE bank CASCADE")


def test_a_name_that_is_no_word_is_unknown_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    with sl.App("words", store=tmp_path / "words", spark=spark, shards=1) as app:
        app.source("t", sl.memory("k string"))
        app.view("v", "SELECT * FROM t JOIN `u x` USING (k)")
        with pytest.raises(UnknownInput, match="u x"):
            app.read("v")


def test_a_variable_of_the_session_is_refused(app: sl.App) -> None:
    app.spark.sql("DECLARE OR REPLACE VARIABLE least INT DEFAULT 5")
    try:
        with pytest.raises(CannotMaintain, match=rf"least=5\): {OF_THE_SESSION}"):
            app.view("v", "SELECT * FROM t WHERE v > least")
    finally:
        app.spark.sql("DROP TEMPORARY VARIABLE least")
    app.view("v", "SELECT k, 'timestamp now' s, date'2020-01-01' d, timestamp'epoch' e FROM t")
    app.drop("v")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("CREATE TABLE made USING parquet AS SELECT 1 a", "CreateTableAsSelect"),
        ("CREATE TEMPORARY VIEW made AS SELECT 1 a", "CreateView"),
        ("/* a comment */ DROP TABLE there", "DropTable"),
        ("INSERT INTO there SELECT 2", "InsertIntoStatement"),
        ("WITH more AS (SELECT 2) INSERT INTO there SELECT * FROM more", "InsertIntoStatement"),
        ("FROM there INSERT INTO there SELECT a INSERT INTO there SELECT a", "InsertIntoStatement"),
        ("INSERT OVERWRITE DIRECTORY '{folder}' USING parquet SELECT 1", "InsertIntoDir"),
        ("EXECUTE IMMEDIATE 'DROP TABLE there'", "UnresolvedExecuteImmediate"),
        ("BEGIN DROP TABLE there; END", "CompoundBody"),
        ("SET spark.sql.ansi.enabled = false", "Set"),
        ("SET TIME ZONE 'Asia/Tokyo'", "Set"),
        ("RESET", "Reset"),
        ("USE other", "SetCatalogAndNamespace"),
        ("CACHE TABLE there", "CacheTable"),
        ("CLEAR CACHE", "ClearCache"),
        ("DECLARE VARIABLE made INT", "CreateVariable"),
        ("EXPLAIN SELECT 1", "Explain"),
        ("SHOW TABLES", "ShowTables"),
        ("DESCRIBE there", "DescribeRelation"),
    ],
)
def test_a_command_is_no_view_and_is_not_run(app: sl.App, tmp_path: Path, text: str, named: str) -> None:
    spark = app.spark
    spark.sql(f"CREATE TABLE there (a INT) USING parquet LOCATION '{tmp_path / 'there'}'")
    try:
        spark.sql("INSERT INTO there VALUES (1)")
        settings = dict(spark.conf.getAll)
        tables = {table.name for table in spark.catalog.listTables()}
        with pytest.raises(NotAQuery, match=rf"view 'v': its SQL is no query \({named}\), and was not run"):
            app.view("v", text.format(folder=tmp_path / "out"))
        assert dict(spark.conf.getAll) == settings
        assert {table.name for table in spark.catalog.listTables()} == tables
        assert spark.table("there").collect() == [(1,)]
        assert not spark.catalog.isCached("there")
        assert not (tmp_path / "out").exists()
        app.view("v", "SELECT 1 AS a")
        app.drop("v")
    finally:
        spark.sql("DROP TABLE IF EXISTS there")


def test_rows_of_the_program_are_refused_as_a_later_start_could_not_tell_them(app: sl.App) -> None:
    fixed = app.spark.createDataFrame([("x",)], "k string")
    with pytest.raises(
        CannotMaintain, match=r"could not tell whether they are the same. Instead: write them as"
    ):
        app.view("with_rows", lambda t: t.join(fixed, "k"))


def in_batches(t: DataFrame) -> DataFrame:
    return t.mapInPandas(lambda batches: batches, "k string, v long")


def test_a_refusal_says_that_the_view_can_be_computed_anew(app: sl.App) -> None:
    with pytest.raises(
        CannotMaintain, match=r"no rule maintains MapInPandas by its changes.*maintain='recompute'"
    ):
        app.view("in_batches", in_batches)


@pytest.mark.parametrize("name", ["rand", "now", "limited", "offset", "sampled"])
def test_what_has_no_one_answer_is_refused_even_to_be_computed_anew(app: sl.App, name: str) -> None:
    with pytest.raises(CannotMaintain):
        app.view(f"refused_{name}", REFUSED[name][0], maintain="recompute")


def test_a_whole_aggregate_in_python_is_refused(app: sl.App) -> None:
    def largest(values):  # type: ignore[no-untyped-def]
        return float(values.max())

    largest.__annotations__ = {"values": pd.Series, "return": float}
    top = pandas_udf(largest, "double")  # type: ignore[call-overload]
    with pytest.raises(CannotMaintain, match=r"a whole input is not given to an aggregate written in Python"):
        app.view("by_python", lambda t: t.agg(top("v").alias("m")))


def test_an_unknown_way_to_maintain_is_refused(app: sl.App) -> None:
    with pytest.raises(
        BadViewOption,
        match=r"app.view was given maintain='weekly'. There are: 'incremental', 'recompute'.",
    ):
        app.view("again", "SELECT * FROM t", maintain="weekly")  # type: ignore[call-overload]


def test_a_refused_view_leaves_its_name_free(app: sl.App) -> None:
    with pytest.raises(CannotMaintain):
        app.view("again", "SELECT * FROM t LIMIT 3")
    app.view("again", "SELECT * FROM t ORDER BY k, v LIMIT 3")


def test_duplicates_within_a_watermark_need_one(app: sl.App) -> None:
    with pytest.raises(CannotMaintain, match=r"its input has no watermark, .* Instead: give the source one"):
        app.view("once", lambda t: t.dropDuplicatesWithinWatermark(["k"]))


def test_duplicates_within_a_watermark_are_not_recomputed(app: sl.App) -> None:
    with pytest.raises(
        CannotMaintain, match=r"depends on when they came, .* Instead: leave out maintain='recompute'"
    ):
        app.view("anew", lambda timed: timed.dropDuplicatesWithinWatermark(["k"]), maintain="recompute")


def test_metrics_that_a_query_observes_are_refused(app: sl.App) -> None:
    with pytest.raises(CannotMaintain, match="no rule maintains CollectMetrics by its changes"):
        app.view("observed", lambda t: t.observe("seen", F.count("k").alias("n")))


def test_a_watermark_needs_a_timestamp_and_a_delay(app: sl.App) -> None:
    with pytest.raises(BadWatermark) as refused:
        app.view("mistyped", lambda t: t.withWatermark("v", "10 minutes"))
    assert str(refused.value) == (
        "view 'mistyped': no watermark can be kept: 'v' is of type bigint, not TIMESTAMP. "
        "Give a TIMESTAMP column and a delay, such as ('ts', '10 minutes')."
    )
    with pytest.raises(BadWatermark) as refused:
        app.source("x", sl.memory("k string, v long"), watermark=("ts", "10 minutes"))
    assert str(refused.value) == (
        "source 'x': no watermark can be kept: it has no column 'ts'. Its columns are 'k', 'v'. "
        "Give a TIMESTAMP column and a delay, such as ('ts', '10 minutes')."
    )
    with pytest.raises(BadDuration, match="'soon' is no duration"):
        app.source("y", sl.memory("ts timestamp"), watermark=("ts", "soon"))
    with pytest.raises(BadDuration, match="'-1 hours' is no duration"):
        app.source("z", sl.memory("ts timestamp"), watermark=("ts", "-1 hours"))


def test_a_view_of_late_rows_has_its_name_to_itself(app: sl.App) -> None:
    app.view("by_time", "SELECT ts, count(*) c FROM timed GROUP BY ts")
    with pytest.raises(NameTaken, match="by_time_late"):
        app.view("by_time_late", "SELECT k FROM t")


def test_watermarks_are_marked_only_while_a_view_is_written(app: sl.App) -> None:
    frame = app.spark.createDataFrame([], "ts timestamp").withWatermark("ts", "1 hour")
    assert frame.schema["ts"].metadata == {}
    marked = app.view("marked", lambda timed: timed.withWatermark("ts", "1 hour"))
    assert marked is not None
    assert marked.schema["ts"].metadata["slipstream.watermark"] == "marked.ts"


ASKING: dict[str, Callable[[DataFrame], DataFrame]] = {
    "pivot": lambda t: t.groupBy("k").pivot("v").count(),
    "crosstab": lambda t: t.crosstab("k", "v"),
    "transpose": lambda t: t.groupBy("k").count().transpose(),
    "collect": lambda t: t.where(F.col("v") > t.agg(F.max("v").alias("m")).collect()[0].m),
}


@pytest.mark.parametrize("what", ASKING)
def test_a_function_that_asks_for_rows_while_it_is_declared_is_refused(app: sl.App, what: str) -> None:
    said = rf"The function of the view 'asks_{what}' asks for rows.*Name the values"
    with pytest.raises(AsksForRows, match=said):
        app.view(f"asks_{what}", lambda t: ASKING[what](t))
