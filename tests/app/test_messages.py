"""What a user reads where something is wrong: one message, without Java's stack, and with what to do."""

from __future__ import annotations

import errno
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.core.errors import (
    AppClosed,
    AppRuns,
    BadAppOption,
    BadQuery,
    BadSourceOption,
    EndsBeforeItBegins,
    EpochFailed,
    IsASource,
    NoFrame,
    Placeholder,
    SourceClosed,
    SourceStays,
    StoreNotWritable,
    UnknownEpoch,
    WaitsForItself,
)
from slipstream.store import store as stores
from slipstream.store.disk import LocalDisk

pytestmark = pytest.mark.spark


@pytest.fixture
def app(spark: SparkSession, tmp_path: Path) -> Iterator[sl.App]:
    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=1) as made:
        yield made


def fed(app: sl.App) -> Any:
    orders = sl.memory("k string, v long")
    app.source("orders", orders)
    orders.append([("x", 5), ("y", 0)])
    return orders


def test_an_epoch_that_fails_is_one_message_and_the_log_has_the_rest(
    app: sl.App, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fed(app)
    inverse = F.udf(lambda v: 1 // v, "long")
    app.view("inverse", lambda orders: orders.select(inverse("v").alias("v")))
    app.view("cast", "SELECT cast(k AS int) k FROM orders")
    with caplog.at_level(logging.ERROR), pytest.raises(EpochFailed) as failed:
        app.run(until="caught_up")
    said = "".join(traceback.format_exception(failed.value))
    log = tmp_path / "store/events/engine.log"
    assert "direct cause" not in said
    assert "\tat org.apache" not in said
    assert "py4j" not in said
    assert said.count("Traceback") == 1
    assert "Cause in inverse: ZeroDivisionError: integer division or modulo by zero\n" in said
    assert "Cause in cast: [CAST_INVALID_INPUT] The value 'x' of the type" in said
    assert "It fails on this row of 'orders': {'k': 'y', 'v': 0}" in said
    assert said.endswith(f"The whole story is in {log}.\n")
    assert "direct cause" in json.loads(log.read_text().splitlines()[-1])["traceback"]


def test_a_notebook_shows_the_message_alone() -> None:
    shown = EpochFailed(8, 7, {"v": "it fails"})._render_traceback_()
    assert shown == [
        (
            "EpochFailed: epoch 8 failed in view 'v'; the app stays at epoch 7 and nothing is lost. Mend what the "
            "cause below names and run again: the same input is taken again.\nCause in v: it fails"
        )
    ]


def test_rows_are_not_asked_for_of_a_placeholder(app: sl.App) -> None:
    orders = app.source("orders", sl.memory("k string"))
    revenue = app.view("revenue", "SELECT k, count(*) n FROM orders GROUP BY k")
    assert revenue is not None
    for call in (revenue.show, revenue.collect, revenue.count, revenue.toPandas, lambda: revenue.take(3)):
        with pytest.raises(Placeholder):
            call()
    with pytest.raises(Placeholder) as told:
        revenue.show(5)
    assert str(told.value) == (
        ".show() was called on what stands for the view 'revenue' in queries, and has no rows. Call "
        "app.read('revenue').show(), after app.run(until='caught_up')."
    )
    with pytest.raises(Placeholder) as told:
        _ = orders.write
    assert str(told.value) == (
        ".write was called on what stands for the source 'orders' in queries, and has no rows. Call a view of it, "
        "such as app.view('all_orders', 'SELECT * FROM orders'), and read that."
    )
    assert app.view("closure", lambda: orders.join(revenue, "k")) is not None, "it is a frame for queries"


def test_a_source_is_no_view(app: sl.App, tmp_path: Path) -> None:
    fed(app)
    app.view("all", "SELECT * FROM orders")
    app.run(until="caught_up")
    asked: list[Callable[[], object]] = [
        lambda: app.read("orders"),
        lambda: app.changes("orders", 0),
        lambda: sl.read_view(tmp_path / "store", "orders"),
    ]
    for ask in asked:
        with pytest.raises(IsASource) as told:
            ask()
    assert str(told.value) == (
        "'orders' is a source, whose rows are read by views and not kept. Declare a view to read it, such as "
        "app.view('all_orders', 'SELECT * FROM orders'). The views are: 'all'."
    )


def nothing(orders: object) -> None:
    return


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (nothing, "returned nothing. Is a `return` missing?"),
        (lambda orders: orders.groupBy("k"), "something else (GroupedData). End it with .agg(...), such as "),
        (
            lambda orders: orders.k,
            "something else (Column). Select it from its DataFrame: frame.select(column).",
        ),
        (
            lambda orders: 7,
            "something else (int). Return what spark.sql(...) or a method of one of its inputs",
        ),
    ],
)
def test_a_view_s_function_returns_a_frame(app: sl.App, query: Any, said: str) -> None:
    app.source("orders", sl.memory("k string"))
    with pytest.raises(NoFrame) as told:
        app.view("bad", query)
    assert said in str(told.value)
    assert str(told.value).startswith("view 'bad': its function must return a DataFrame")
    app.view("bad", "SELECT k FROM orders")


def test_changes_do_not_end_before_they_begin(app: sl.App) -> None:
    orders = fed(app)
    app.view("all", "SELECT * FROM orders")
    app.run(until="caught_up")
    orders.append([("z", 1)])
    app.run(until="caught_up")
    with pytest.raises(EndsBeforeItBegins) as told:
        app.changes("all", since=2, until=1)
    assert str(told.value) == (
        "the changes of 'all' were asked for since epoch 2 until epoch 1, which comes before it. Ask for since=1, "
        "until=2."
    )
    assert app.changes("all", since=2).count() == 0


def test_a_closed_app_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with sl.App("shop", store=tmp_path, spark=spark, shards=1) as app:
        orders = fed(app)
        app.view("all", "SELECT * FROM orders")
        app.run(until="caught_up")
    asked: list[Callable[[], object]] = [
        lambda: app.read("all"),
        lambda: app.changes("all", 0),
        lambda: app.sql("SELECT * FROM all"),
        lambda: app.run(until="caught_up"),
        app.start,
        lambda: app.view("more", "SELECT * FROM orders"),
        lambda: app.drop("all"),
        lambda: app.rebuild("all"),
        app.plan,
        app.explain,
        app.await_views,
        lambda: app.source("more", sl.memory("k string")),
    ]
    for ask in asked:
        with pytest.raises(AppClosed) as told:
            ask()
    assert str(told.value) == (
        f"the app 'shop' is closed. Open it again with App('shop', store='{tmp_path}'); its views can also be read "
        f"without it: sl.read_view('{tmp_path}', VIEW)."
    )
    with pytest.raises(SourceClosed, match="the app of the source 'orders' is closed: nothing was taken"):
        orders.append([("z", 1)])


def test_the_thread_that_runs_epochs_does_not_wait_for_itself(spark: SparkSession, tmp_path: Path) -> None:
    with sl.App("shop", store=tmp_path, spark=spark, shards=1) as app:
        fed(app)
        app.view("all", "SELECT * FROM orders")
        told = []

        def listener(report: sl.EpochReport) -> None:
            assert app.await_epoch(report.epoch)
            waits: list[Callable[[], bool]] = [app.await_views, lambda: app.await_epoch(report.epoch + 1)]
            for wait in waits:
                with pytest.raises(WaitsForItself) as refused:
                    wait()
                told.append(str(refused.value))

        app.on_epoch(listener)
        app.run(until="caught_up")
        assert app.await_views()
    assert set(told) == {
        (
            "the thread that runs the epochs of 'shop' would wait for itself: this was called by a function given to "
            "on_epoch, on_turn or on_notice. Wait in another thread."
        )
    }


def test_an_app_that_runs_is_not_run_a_second_time(spark: SparkSession, tmp_path: Path) -> None:
    with sl.App("shop", store=tmp_path, spark=spark, shards=1) as app:
        orders = fed(app)
        app.view("all", "SELECT * FROM orders")
        app.start()
        assert app.start() is app
        with pytest.raises(AppRuns) as told:
            app.run(until="caught_up")
        assert str(told.value) == (
            "the app 'shop' runs already, in another thread. Wait for what it computes with app.await_epoch(EPOCH), or "
            "end that run with app.stop() first."
        )
        app.stop()
        asked: list[type[BaseException]] = []

        def again(report: object) -> None:
            with pytest.raises(AppRuns) as refused:
                app.start()
            asked.append(refused.type)

        app.on_epoch(again)
        orders.append([("z", 1)])
        app.run(until="caught_up")
        assert asked == [AppRuns]


def test_a_store_that_cannot_be_written_to(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreNotWritable, match=r"Not a directory: .*App\(\.\.\., store=FOLDER\)"):
        sl.App("shop", store=tmp_path / "file" / "store", spark=spark)

    def refused(self: LocalDisk, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self.root))

    monkeypatch.setattr(stores, "claim_number", refused)
    monkeypatch.setattr(LocalDisk, "make_folder", refused)
    with pytest.raises(StoreNotWritable) as told:
        sl.App("shop", store=tmp_path / "store", spark=spark)
    assert str(told.value) == (
        f"the store '{tmp_path}/store' cannot be opened, for nothing can be written there: Read-only file system: "
        f"'{tmp_path}/store'. Give another folder (App(..., store=FOLDER)) or see to its permissions; views are read "
        "without an app too: sl.read_view(STORE, VIEW), or `slipstream query`."
    )


def test_an_app_that_cannot_be_opened_says_why(spark: SparkSession, tmp_path: Path, app: sl.App) -> None:
    def opened(name: Any = "shop", store: str = "other", **options: Any) -> None:
        sl.App(name, store=tmp_path / store, spark=spark, **options)

    asked: list[tuple[Callable[[], None], str]] = [
        (lambda: opened(name=""), r"an app cannot be called ''. To do: give it a name"),
        (lambda: opened(shards=0), r"shards=0 is no number of shards. To do: give 1 or more"),
        (lambda: opened(shards="2"), r"shards='2' is no number of shards"),
        (
            lambda: opened(replicas="file:///mnt/copy"),
            r"replicas='file:///mnt/copy' is one text. To do: give a list: replicas=\['file:///mnt/copy'\]",
        ),
        (
            lambda: opened(store="store/in/it"),
            r"would be inside of '.*store', which is the store of the app 'shop'. To do: give each app",
        ),
    ]
    for ask, told in asked:
        with pytest.raises(BadAppOption, match=told):
            ask()
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "store/in").exists()


def test_a_source_that_is_none_says_what_is_wanted(app: sl.App, tmp_path: Path, spark: SparkSession) -> None:
    for given in ("orders.csv", spark.range(1)):
        with pytest.raises(
            BadSourceOption,
            match=rf"app.source\('orders', ...\) was given a {type(given).__name__}. To do: give",
        ):
            app.source("orders", given)  # type: ignore[arg-type]
    (tmp_path / "x.csv").write_text("1\n")
    with pytest.raises(BadSourceOption, match=r"x.csv' is a file, and .* a folder. To do: .*pattern='x.csv'"):
        sl.files(tmp_path / "x.csv", format="csv", schema="a int")
    with pytest.raises(BadSourceOption, match=r"the columns 'A', 'a' of 'twins' differ in case only"):
        app.source("twins", sl.memory("a int, A int"))
    app.source("twins", sl.memory("a int, b int"))


def test_changes_are_since_some_epoch(app: sl.App) -> None:
    fed(app)
    app.view("all", "SELECT * FROM orders")
    app.run(until="caught_up")
    with pytest.raises(UnknownEpoch, match=r"since=None is no epoch. Give the number of an epoch, 0 for all"):
        app.changes("all", since=None)  # type: ignore[arg-type]
    with pytest.raises(UnknownEpoch, match=r"'x' is neither an epoch nor a time"):
        app.changes("all", since="x")  # type: ignore[arg-type]


def test_a_query_that_spark_cannot_take_is_named_and_leaves_nothing(app: sl.App) -> None:
    fed(app)
    asked = {
        "SELEC k FROM orders": r"\[PARSE_SYNTAX_ERROR\] Syntax error at or near 'SELEC'.*line 1",
        "SELECT nope FROM orders": r"\[UNRESOLVED_COLUMN.WITH_SUGGESTION\].*`nope`.*; line 1 pos 7\.$",
        "SELECT to_unix_timestamp('2020-01-01') d FROM orders": r"\[CANNOT_PARSE_TIMESTAMP\] Text '2020-01-01'",
    }
    for text, told in asked.items():
        with pytest.raises(BadQuery, match=rf"(?s)^view 'odd': Spark cannot take its query\. {told}"):
            app.view("odd", text)
    app.view("odd", "SELECT k FROM orders")
    app.run(until="caught_up")


def test_sql_over_a_source_says_that_it_is_one(app: sl.App) -> None:
    fed(app)
    app.view("all", "SELECT * FROM orders")
    app.run(until="caught_up")
    with pytest.raises(IsASource, match=r"'orders' is a source, .* The views are: 'all'\."):
        app.sql("SELECT count(*) FROM Orders")
    app.spark.range(3).createOrReplaceTempView("orders")
    try:
        assert app.sql("SELECT count(*) FROM orders").collect() == [(3,)]
    finally:
        app.spark.catalog.dropTempView("orders")
    with pytest.raises(
        SourceStays, match=r"'orders' is a source, and only views are dropped.*read by 'all'\."
    ):
        app.drop("orders")
