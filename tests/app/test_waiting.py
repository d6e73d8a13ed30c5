"""Views that wait for what is not declared: a state of theirs, which hinders nobody else."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.errors import UnknownInput, WaitingWarning
from slipstream.testing.oracle import rows_of

pytestmark = pytest.mark.spark


def opened(spark: SparkSession, store: Path) -> tuple[sl.App, Any]:
    app = sl.App("shop", store=store, spark=spark, shards=1)
    orders = sl.memory("k string, v long")
    app.source("orders", orders)
    return app, orders


def test_the_others_run_and_are_read_explained_planned_and_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    app, orders = opened(spark, tmp_path)
    with app:
        app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
        assert app.view("totals", lambda order: order) is None
        app.view("above", "SELECT * FROM totals")
        assert str(app.plan()).splitlines()[1:4] == [
            "  sums    new",
            "  totals  waits for 'order' (is it 'orders'?)",
            "  above   waits for 'order' (is it 'orders'?)",
        ]
        orders.append([("a", 1)])
        with pytest.warns(WaitingWarning) as told:
            app.run(until="caught_up")
        (warned,) = told
        assert str(warned.message) == (
            "shop: not all views are computed: 'totals' waits for 'order' (is it 'orders'?); 'above' waits for 'order' "
            "(is it 'orders'?). Declare what is missing with app.source or app.view, or correct the name. The other "
            "views run."
        )
        assert rows_of(app.read("sums")) == [("a", 1)]
        assert app.explain().endswith("\n\nabove\n  waits for 'order' (is it 'orders'?)")
        assert "waits for &#x27;order&#x27;" in app._repr_html_()
        app.watch("sums", until=1)
        app.view("counts", "SELECT count(*) n FROM orders")
        orders.append([("a", 2)])
        app.run(until="caught_up")  # nobody is told twice
        assert rows_of(app.read("counts")) == [(2,)]
        app.view("order", "SELECT * FROM orders")
        app.run(until="caught_up")
        assert sorted(rows_of(app.read("above"))) == [("a", 1), ("a", 2)]
        assert app.plan().possible


def test_one_that_waits_says_for_what_when_it_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    app, _ = opened(spark, tmp_path)
    with app:
        app.view("totals", "SELECT * FROM order_lines")
        for ask in (
            app.read,
            app.explain,
            app.rebuild,
            app.watch,
            lambda name: app.changes(name, 0),
            lambda name: app.sql(f"SELECT * FROM {name}"),
        ):
            with pytest.raises(UnknownInput) as error:
                ask("totals")
            assert str(error.value) == (
                "view 'totals' waits for 'order_lines' (is it 'orders'?), which is no source or view of this app. "
                "There are: 'orders'. Declare it with app.source or app.view, or correct the name."
            )
        app.view("sums", "SELECT k FROM orders")
        with pytest.raises(UnknownInput, match="view 'sums' waits for 'order_lines'"):
            app.view("sums", "SELECT * FROM totals", replace=True)


def test_only_views_that_wait_make_an_app_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    app, orders = opened(spark, tmp_path)
    with app:
        app.view("totals", "SELECT * FROM later")
        orders.append([("a", 1)])
        with pytest.warns(WaitingWarning):
            app.start()
        app.view("later", "SELECT k FROM orders")
        assert app.await_views(60)
        app.stop()
        app.run(until="caught_up")
        assert rows_of(app.read("totals")) == [("a",)]


def test_a_view_that_was_computed_is_not_dropped_for_a_name_that_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    app, orders = opened(spark, tmp_path)
    with app:
        app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
        app.view("keys", "SELECT k FROM orders")
        orders.append([("a", 1)])
        app.run(until="caught_up")

    app, orders = opened(spark, tmp_path)
    with app:
        app.view("sums", "SELECT k, sum(v) s FROM ordres GROUP BY k")
        app.view("keys", "SELECT k FROM orders")
        assert not app.plan().possible
        assert "to be mended: 'sums' waits, and the store has rows" in str(app.plan())
        assert "dropped\n" not in str(app.plan())
        with pytest.raises(
            UnknownInput, match=r"'sums' waits for 'ordres' \(is it 'orders'\?\).*app.drop\('sums'\)"
        ):
            app.run(until="caught_up")
        app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
        app.run(until="caught_up")
        assert rows_of(app.read("sums")) == [("a", 1)]

    app, orders = opened(spark, tmp_path)
    with app:
        app.view("sums", "SELECT k, sum(v) s FROM ordres GROUP BY k")
        app.view("keys", "SELECT k FROM orders")
        app.drop("sums")
        app.view("sums", "SELECT k, max(v) s FROM more GROUP BY k")
        assert app.plan().possible
        with pytest.warns(WaitingWarning, match="'sums' waits for 'more'"):
            app.run(until="caught_up")
        app.source("more", sl.memory("k string, v long"))
        app.run(until="caught_up")
        assert rows_of(app.read("sums")) == []


def test_a_name_is_waited_for_whatever_its_case(spark: SparkSession, tmp_path: Path) -> None:
    with sl.App("shop", store=tmp_path, spark=spark, shards=1) as app, warnings.catch_warnings():
        app.view("keys", "SELECT k FROM Orders")
        orders = sl.memory("k string")
        app.source("orders", orders)
        orders.append([("a",)])
        app.run(until="caught_up")
        assert rows_of(app.read("keys")) == [("a",)]
