"""Declarations and stores that cannot work: each an error that says what to do."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import slipstream as sl
from slipstream.core.errors import (
    AnotherSource,
    BadName,
    CannotMaintain,
    LongName,
    NameTaken,
    NewerFormat,
    OtherApp,
    StoreInUse,
    UnknownEpoch,
    UnknownView,
    ViewChanged,
    ViewCycle,
)
from slipstream.store.documents import encode

pytestmark = pytest.mark.spark


def opened(spark: SparkSession, store: Path, name: str = "shop") -> sl.App:
    return sl.App(name, store=store, spark=spark, shards=1)


@pytest.fixture
def app(spark: SparkSession, tmp_path: Path) -> sl.App:
    made = opened(spark, tmp_path)
    made.source("orders", sl.memory("k string, v long"))
    return made


def test_a_name_in_sql_is_found_whatever_its_case(app: sl.App) -> None:
    with app:
        assert app.view("totals", "SELECT k, sum(v) s FROM Orders GROUP BY k") is not None


def test_two_views_with_one_name(app: sl.App) -> None:
    with app:
        app.view("totals", "SELECT * FROM orders")
        with pytest.raises(
            NameTaken, match=r"there is a view named 'totals' already. Give this one another name"
        ):
            app.view("Totals", "SELECT * FROM orders")
        with pytest.raises(
            NameTaken, match=r"'totals' already.*another name, or replace its query with replace=True"
        ):
            app.view("totals", "SELECT k FROM orders")
        with pytest.raises(NameTaken, match=r"there is a source named 'orders' already"):
            app.view("orders", "SELECT * FROM totals")


def test_a_name_that_no_folder_can_have(app: sl.App) -> None:
    with app:
        app.view("x" * 200, "SELECT * FROM orders")
        with pytest.raises(LongName, match=r"^'x{40}\.\.\.' is a name of 201 bytes, and .* can have 200"):
            app.view("x" * 201, "SELECT * FROM orders")
        app.run(until="caught_up")


def test_views_may_wait_for_the_source_that_they_read(spark: SparkSession, tmp_path: Path) -> None:
    rows = sl.memory("k string, v long")
    with opened(spark, tmp_path) as app:
        app.view("upper", "SELECT count(*) c FROM keys")
        assert app.view("keys", "SELECT v FROM orders") is None
        app.view("keys", "SELECT k FROM orders")  # nothing was known of it yet
        app.view("values", "SELECT v FROM orders")
        app.source("orders", rows)
        rows.append([("a", 1)])
        app.run(until="caught_up")
        assert {name: app.read(name).collect() for name in app.definitions} == {
            "keys": [("a",)],
            "values": [(1,)],
            "upper": [(1,)],
        }


def test_a_view_that_waited_and_is_refused_harms_neither_the_source_nor_its_own_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = sl.memory("k string, v long")
    with opened(spark, tmp_path) as app:
        app.view("odd", "SELECT k, rand() r FROM orders")
        app.view("keys", "SELECT k FROM orders")
        with pytest.raises(CannotMaintain, match="view 'odd'"):
            app.source("orders", rows, keep=True)
        app.view("odd", "SELECT v FROM orders")
        rows.append([("a", 1)])
        app.run(until="caught_up")
        assert {name: app.read(name).collect() for name in ("keys", "odd", "orders_kept")} == {
            "keys": [("a",)],
            "odd": [(1,)],
            "orders_kept": [("a", 1)],
        }


def test_a_name_of_a_source_stays_with_its_kind(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "store") as app:
        rows = sl.memory("k string")
        app.source("orders", rows)
        app.view("keys", "SELECT k FROM orders")
        rows.append([("a",)])
        app.run(until="caught_up")
    (tmp_path / "in").mkdir()
    with opened(spark, tmp_path / "store") as app:
        files = sl.files(tmp_path / "in", format="json", schema="k string")
        with pytest.raises(AnotherSource, match=r"'orders' is declared as sl.files, and was sl.memory"):
            app.source("orders", files)
        app.source("orders", sl.memory("k string"))


def test_a_source_whose_rows_cannot_be_kept_is_none(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files = sl.files(tmp_path / "in", format="json", schema="k string, v variant")
    with opened(spark, tmp_path / "store") as app:
        with pytest.raises(CannotMaintain, match=r"view 'orders_kept'.*VARIANT"):
            app.source("orders", files, keep=True)
        app.source("orders", sl.memory("k string"), keep=True)


def test_a_name_that_cannot_be_one(app: sl.App) -> None:
    with app, pytest.raises(BadName, match=r"'top ten' cannot name a source or view. Use letters"):
        app.view("top ten", "SELECT * FROM orders")


def test_a_view_declared_before_what_it_reads_is_taken_up_later(app: sl.App) -> None:
    with app:
        assert app.view("late", "SELECT * FROM early") is None
        assert app.view("early", "SELECT k FROM orders") is not None
        assert app.explain("late").startswith("late\n")


def test_what_closes_a_circle_is_refused_with_its_path_and_the_rest_goes_on(app: sl.App) -> None:
    def one(two: DataFrame) -> DataFrame:
        return two

    def two(one: DataFrame) -> DataFrame:
        return one

    with app:
        app.view(one)
        with pytest.raises(ViewCycle, match=r"in a circle: two -> one -> two. .*break the circle"):
            app.view(two)
        with pytest.raises(ViewCycle, match=r"in a circle: Own -> Own. "):
            app.view("Own", "SELECT * FROM own")
        app.view("two", "SELECT k FROM orders")
        app.view("own", "SELECT k FROM one")
        with pytest.raises(ViewCycle, match=r"in a circle: two -> own -> one -> two. "):
            app.view("two", "SELECT k FROM own", replace=True)
        app.run(until="caught_up")
        assert app.read("own").collect() == []


def test_a_circle_beside_another_input_is_found_too(app: sl.App) -> None:
    with app:
        app.view("leaf", lambda later: later)
        app.view("one", lambda leaf, two: leaf)
        with pytest.raises(ViewCycle, match=r"two -> one -> two"):
            app.view("two", lambda one: one)
        with pytest.raises(ViewCycle, match=r"later -> leaf -> later"):
            app.view("later", lambda leaf: leaf)
        app.drop("one")
        app.drop("leaf")


def test_an_unknown_view_lists_those_there_are(app: sl.App) -> None:
    with app:
        app.view("totals", "SELECT * FROM orders")
        for ask in (app.read, app.explain, lambda name: app.changes(name, 0)):
            with pytest.raises(UnknownView, match=r"there is no view named 'total'. There are: 'totals'"):
                ask("total")


def test_a_store_in_use_by_this_process(app: sl.App, spark: SparkSession, tmp_path: Path) -> None:
    with (
        app,
        pytest.raises(StoreInUse, match=r"is in use by process \d+. Two engines cannot write one store"),
    ):
        opened(spark, tmp_path)


def test_a_store_in_use_by_another_process(app: sl.App, tmp_path: Path) -> None:
    code = (
        "import sys; from slipstream.store.store import Store, claim_store; "
        "claim_store(Store.at(sys.argv[1]), 'shop')"
    )
    with app:
        ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert "StoreInUse" in ran.stderr
    assert "stop the other one, or give this app a store of its own" in ran.stderr


def test_a_store_of_another_app(app: sl.App, spark: SparkSession, tmp_path: Path) -> None:
    app.close()
    with pytest.raises(
        OtherApp, match=r"belongs to the app 'shop', not to 'bank'. Name the app 'shop', or give"
    ):
        opened(spark, tmp_path, "bank")


def test_a_store_of_a_newer_format_is_left_alone(app: sl.App, spark: SparkSession, tmp_path: Path) -> None:
    app.close()
    (tmp_path / "format.json").write_bytes(encode({"format": 99, "app": "shop", "id": "1"}, "format.json"))
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(
        NewerFormat, match=r"has format 99; this version of Slipstream reads up to format 2. Install"
    ):
        opened(spark, tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_store_that_was_refused_can_be_opened_by_its_own_app(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path).close()
    with pytest.raises(OtherApp):
        opened(spark, tmp_path, "bank")
    opened(spark, tmp_path).close()


def test_time_travel_and_a_changed_query(app: sl.App, spark: SparkSession, tmp_path: Path) -> None:
    with app:
        source = app._sources["orders"]
        app.view("totals", "SELECT k, sum(v) s FROM orders GROUP BY k")
        app.view("wide", f"SELECT {', '.join(f'v + {i} AS c{i}' for i in range(40))} FROM orders")
        assert app.read("totals").collect() == []
        with pytest.raises(UnknownEpoch, match=r"nothing has been computed yet: run the app first"):
            app.read("totals", as_of="2026-01-31T12:00:00")
        source.append([("x", 1)])  # type: ignore[attr-defined]
        app.run(until="caught_up")
        with pytest.raises(
            UnknownEpoch, match=r"epoch 2 is not there: the store is computed up to epoch 1. Ask for"
        ):
            app.read("totals", as_of=2)
        with pytest.raises(UnknownEpoch, match=r"epoch -1 is not there"):
            app.read("totals", as_of=-1)
        with pytest.raises(
            UnknownEpoch, match=r"'yesterday' is neither an epoch nor a time. Give a number, or"
        ):
            app.read("totals", as_of="yesterday")
        with pytest.raises(UnknownEpoch, match=r"nothing had been computed at .* Ask for a later time"):
            app.read("totals", as_of=datetime.now().astimezone() - timedelta(days=1))
        later = datetime.now().astimezone() + timedelta(seconds=1)
        assert [tuple(row) for row in app.read("totals", as_of=later).collect()] == [("x", 1)]
        with pytest.raises(
            ValueError, match=r"until='soon': give 'caught_up', the number of an epoch, or None"
        ):
            app.run(until="soon")

    with opened(spark, tmp_path) as changed:
        changed.source("orders", sl.memory("k string, v long"))
        changed.view("totals", "SELECT k, sum(v) + 1 s FROM orders GROUP BY k")
        changed.view("more", "SELECT * FROM orders")
        changed.view(
            "wide", f"SELECT {', '.join(f'v + {i if i < 39 else 0} AS c{i}' for i in range(40))} FROM orders"
        )
        with pytest.raises(
            ViewChanged,
            match=r"Changed: 'totals', 'wide'; new: 'more'; views that read these: none; unchanged, and going on: "
            r"none. State .*FILE.py --replace` \(or `--rebuild totals --rebuild wide`",
        ):
            changed.run(until="caught_up")
