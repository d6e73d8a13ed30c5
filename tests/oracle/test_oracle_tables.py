"""Tables joined with what comes, against batch Spark: over refreshes, over restarts, and where a process dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.clock import ManualClock
from slipstream.core.settings import Starting, starting_with
from slipstream.epoch import loop
from slipstream.testing.oracle import assert_equal_rows, rows_of

pytestmark = pytest.mark.spark

VIEWS = {
    "paid": "SELECT o.id, o.town, r.rate, o.n * r.rate.x AS v FROM orders o LEFT JOIN rates r ON o.town = r.town",
    "by_rate": "SELECT r.rate.y y, count(*) c, sum(o.n) s FROM orders o JOIN rates r ON o.town = r.town GROUP BY 1",
    "all_rates": "SELECT * FROM rates",
}
ORDERS = [(1, "a", 2), (2, "b", 3), (3, None, 4), (4, "c", 5)]


class Died(BaseException):
    """In the place of a process that was killed."""


class Bank:
    """A folder of rates that changes, a table over it, and what the app reads."""

    def __init__(self, spark: SparkSession, folder: Path, open_app: Callable[..., sl.App]) -> None:
        self.spark, self.open_app, self.clock = spark, open_app, ManualClock(1_700_000_000.0)
        self.folder, self.times, self.orders = folder, 0, list(ORDERS)

    def show(self, *rates: str) -> None:
        """Have these rows: town, x, y."""
        values = ", ".join(f"({each})" for each in rates)
        query = f"SELECT town, IF(x IS NULL, NULL, struct(x, y)) rate FROM VALUES {values} t(town, x, y)"
        self.times += 1
        self.spark.sql(query).coalesce(1).write.mode("overwrite").parquet(str(self.folder))

    def app(self) -> sl.App:
        app = self.open_app()
        rates = self.spark.read.schema("town string, rate struct<x: int, y: string>").parquet(
            str(self.folder)
        )
        app.source("rates", sl.table(rates, refresh="10 minutes", clock=self.clock))
        self.memory = sl.memory("id int, town string, n int")
        app.source("orders", self.memory)
        for name, query in VIEWS.items():
            app.view(name, query)
        return app

    def check(self, app: sl.App) -> None:
        inputs = {
            "rates": self.spark.read.parquet(str(self.folder)),
            "orders": self.spark.createDataFrame(self.orders, "id int, town string, n int"),
        }
        for name in VIEWS:
            query = app.definitions[name]
            expected = rows_of(query.query(*[inputs[each] for each in query.inputs]))
            assert_equal_rows(rows_of(app.read(name)), expected, f"{name} after {self.times}")


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path, open_app: Callable[..., sl.App]) -> Bank:
    return Bank(spark, tmp_path / "rates", open_app)


def test_a_table_that_changes(bank: Bank) -> None:
    bank.show("'a', 1, 'x'", "'a', 1, 'x'", "'b', 2, NULL", "NULL, 7, 'z'")
    app = bank.app()
    bank.memory.append(ORDERS)
    app.run(until="caught_up")
    bank.check(app)
    first = rows_of(app.read("paid"))
    bank.clock.advance(600)
    bank.show("'a', 1, 'x'", "'c', 3, 'x'", "'b', NULL, NULL", "NULL, 7, 'z'", "NULL, 7, 'z'")
    assert app.run(until="caught_up").rows == 5, "one a gone, one b gone and come, one c come, one NULL come"
    bank.check(app)
    assert_equal_rows(rows_of(app.read("paid", as_of=1)), first, "the past stays")
    app.close()
    again = bank.app()
    assert again.run(until="caught_up").epochs == 0, "it is not due, and nothing came"
    bank.check(again)
    bank.clock.advance(600)
    bank.show("'b', 5, 'x'")
    bank.memory.append([(5, "b", 1)])
    bank.orders.append((5, "b", 1))
    assert again.run(until="caught_up").epochs == 1
    bank.check(again)


@pytest.mark.parametrize("point", ["epoch.before_cut", "epoch.after_cut", "epoch.before_publish"])
def test_a_process_that_dies_between_a_read_and_its_epoch(
    bank: Bank, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank.show("'a', 1, 'x'", "'b', 2, 'y'")
    app = bank.app()
    bank.memory.append(ORDERS)
    app.run(until="caught_up")

    def die(name: str) -> None:
        if name == point:
            raise Died

    bank.clock.advance(600)
    bank.show("'a', 9, 'x'", "'c', 3, 'z'")
    with monkeypatch.context() as patched:
        patched.setattr(loop, "crash_point", die)
        with pytest.raises(Died):
            app.run(until="caught_up")
    app.close()
    bank.show("'a', 8, 'x'")
    again = bank.app()
    again.run(until="caught_up")
    bank.clock.advance(600)
    again.run(until="caught_up")
    bank.check(again)


def test_a_table_that_is_read_once_is_replayed_for_a_view_that_comes_later(
    spark: SparkSession, tmp_path: Path, open_app: Callable[..., sl.App]
) -> None:
    spark.range(3).createOrReplaceTempView("numbers")
    app = open_app()
    app.source("n", sl.table("numbers"))
    app.view("doubled", "SELECT id * 2 AS d FROM n")
    app.run(until="caught_up")
    app.close()
    spark.range(100).createOrReplaceTempView("numbers")
    with starting_with(Starting(rebuild=("total",))):
        again = open_app()
    again.source("n", sl.table("numbers"))
    again.view("doubled", "SELECT id * 2 AS d FROM n")
    again.view("total", "SELECT sum(id) s FROM n")
    again.run(until="caught_up")
    assert rows_of(again.read("total")) == [(3,)]
    assert sorted(rows_of(again.read("doubled"))) == [(0,), (2,), (4,)]
    spark.catalog.dropTempView("numbers")
