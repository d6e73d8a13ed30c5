"""An app that is changed while epochs run in another thread: these do not wait, and what joins them is exact."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.app.backfill import Backfill
from slipstream.app.changing import Changes
from slipstream.core.errors import ChangeFailed, OnItsWay
from slipstream.durability.fsck import check_store
from slipstream.epoch import Given, Result, SparkJob
from slipstream.store.lineage import read_lineage
from slipstream.testing.merging import upkeep
from slipstream.testing.oracle import assert_equal, recompute
from slipstream.testing.pretend import eventually
from slipstream.trace import list_layers

pytestmark = pytest.mark.spark
SCHEMA = "k string, v long"
LONG = 120.0


class Shop:
    """An app that runs, with one source of rows in memory."""

    def __init__(self, spark: SparkSession, store: Path, history: str | int = "1 day") -> None:
        self.spark, self.rows = spark, [("a", 1), ("b", 2)]
        self.orders = sl.memory(SCHEMA)
        self.app = sl.App("shop", store=store, spark=spark, shards=2, history=history)
        self.app.source("orders", self.orders)
        self.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
        self.orders.append(list(self.rows))
        self.app.start()
        self.await_epoch(1)

    def more(self, *rows: tuple[str, int]) -> None:
        """Rows that are an epoch of their own."""
        self.rows += rows
        epoch = self.app.epoch
        self.orders.append(list(rows))
        self.await_epoch(epoch + 1)

    def await_epoch(self, epoch: int) -> None:
        assert self.app.await_epoch(epoch, LONG)

    def check(self) -> None:
        self.app.run(until="caught_up")
        inputs = {"orders": self.spark.createDataFrame(self.rows, SCHEMA)}
        for view in self.app.definitions:
            assert_equal(self.app.read(view), recompute(self.app, view, inputs), view)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(spark, tmp_path)
    yield made
    made.app.close()
    found = check_store(tmp_path).findings
    assert found == (), found


class Held:
    """Backfills wait in front of each step until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.may = threading.Semaphore(0), threading.Semaphore(0)
        advance = Backfill.advance

        def waiting(backfill: Backfill, *given: object) -> None:
            self.reached.release()
            assert self.may.acquire(timeout=LONG)
            advance(backfill, *given)  # type: ignore[arg-type]

        monkeypatch.setattr(Backfill, "advance", waiting)

    def await_step(self) -> None:
        assert self.reached.acquire(timeout=LONG)

    def let_go(self, steps: int = 1) -> None:
        self.may.release(steps)


def test_epochs_go_on_while_a_view_is_computed_and_it_joins_them_exactly(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    shop.app.view("counts", "SELECT k, count(*) n FROM orders GROUP BY k")
    shop.app.view("large", "SELECT k, s FROM sums WHERE s > 2")
    held.await_step()
    with pytest.raises(OnItsWay, match=r"'counts' is still being computed.*app.await_views"):
        shop.app.read("counts")
    assert not shop.app.await_views(timeout=0)
    for i in range(5):
        shop.more(("a", i), ("c", i))
    held.let_go()
    held.await_step()
    shop.more(("b", 9))
    held.let_go(100)
    assert shop.app.await_views(LONG)
    shop.more(("d", 3))
    shop.app.stop()
    shop.check()
    assert not list(shop.app.store.glob(".rebuild-*"))


def test_state_of_views_that_go_on_is_left_alone_whatever_merging_made_of_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was merged across the epoch up to which a change has computed can not be read as of that epoch any more."""
    shop = Shop(spark, tmp_path)
    shop.app.view("paired", "SELECT a.k, a.v, b.v w FROM orders a JOIN orders b ON a.k = b.k")
    assert shop.app.await_views(LONG)
    held = Held(monkeypatch)
    shop.app.view("counts", "SELECT k, count(*) n FROM orders GROUP BY k")
    held.await_step()
    for i in range(9):
        shop.more(("a", i), ("c", i))
    catalog = shop.app._claim.store.catalog()
    state = next(trace for trace in catalog.view("paired").traces if "left" in trace)
    upkeep(tmp_path / state, shop.app.epoch, None)
    assert any(layer.lo < layer.hi for layer in list_layers(tmp_path / state)), "by this or by the agent"
    held.let_go(100)
    assert shop.app.await_views(LONG)
    shop.more(("a", 99))
    shop.app.stop()
    shop.check()
    shop.app.close()


def test_history_that_a_change_on_its_way_reads_is_not_let_go_however_short_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(spark, tmp_path, history=1)
    held = Held(monkeypatch)
    shop.app.view("top", "SELECT k, max(s) m FROM sums GROUP BY k")
    held.await_step()
    store = shop.app._claim.store
    for i in range(9):
        shop.more(("a", i), ("c", i))
        with suppress(FileNotFoundError):  # the agent was quicker
            upkeep(tmp_path / store.view("sums").trace, shop.app.epoch, read_lineage(store.disk).history.kept)
    held.let_go(100)
    assert shop.app.await_views(LONG)

    def is_let_go() -> bool:
        shop.more(("d", 3))
        return read_lineage(store.disk).history.kept == shop.app.epoch - 1

    assert eventually(is_let_go), "once the change is over"
    shop.app.stop()
    shop.check()
    shop.app.close()


def test_a_row_that_a_view_had_only_while_a_change_was_on_its_way_is_not_evaluated(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.app.view("picked", "SELECT k, v FROM orders")
    assert shop.app.await_views(LONG)
    held = Held(monkeypatch)
    shop.app.view("shares", "SELECT k, sum(10 div v) s FROM picked GROUP BY k")
    held.await_step()
    shop.more(("z", 0))
    shop.orders.retract([("z", 0)])
    shop.rows.remove(("z", 0))
    shop.await_epoch(shop.app.epoch + 1)
    held.let_go(100)
    assert shop.app.await_views(LONG)
    shop.app.stop()
    shop.check()


def test_a_view_that_is_declared_while_the_first_epoch_is_computed_has_all_of_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computing, may = threading.Event(), threading.Event()
    run = SparkJob.run

    def waiting(job: SparkJob, given: Given) -> Result:
        computing.set()
        assert may.wait(LONG)
        return run(job, given)

    monkeypatch.setattr(SparkJob, "run", waiting)
    with sl.App("shop", store=tmp_path, spark=spark, shards=2) as app:
        orders = sl.memory(SCHEMA)
        app.source("orders", orders)
        app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
        orders.append([("a", 1)])
        app.start()
        assert computing.wait(LONG)
        app.view("counts", "SELECT k, count(*) n FROM orders GROUP BY k")
        began = Changes._begun

        def seen(changes: Changes, *given: Any, **more: Any) -> Any:
            changing = began(changes, *given, **more)
            may.set()
            return changing

        monkeypatch.setattr(Changes, "_begun", seen)
        assert app.await_views(LONG)
        orders.append([("a", 2), ("b", 3)])
        assert app.await_epoch(2, LONG)
        app.stop()
        assert sorted(map(tuple, app.read("counts").collect())) == [("a", 2), ("b", 1)]


def test_a_query_is_replaced_and_a_view_dropped_beside_epochs(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.app.view("large", "SELECT k, s FROM sums WHERE s > 2")
    shop.app.view("extra", "SELECT count(*) n FROM orders")
    assert shop.app.await_views(LONG)
    held = Held(monkeypatch)
    shop.app.view("sums", "SELECT k, sum(v) + 1 s FROM orders GROUP BY k", replace=True)
    held.await_step()
    shop.more(("c", 1))
    assert {row.k: row.s for row in shop.app.read("sums").collect()} == {"a": 1, "b": 2, "c": 1}, "as it was"
    held.let_go(100)
    assert shop.app.await_views(LONG)
    shop.app.drop("extra")
    assert shop.app.await_views(LONG)
    shop.app.stop()
    shop.check()
    replaced = shop.app._claim.store.view("sums").since
    told = shop.app.changes("sums", replaced - 1, replaced).collect()
    assert sorted((row.k, row.s, row._diff) for row in told) == [
        *(("a", 1, -1), ("a", 2, 1), ("b", 2, -1), ("b", 3, 1), ("c", 1, -1), ("c", 2, 1)),
    ]


def test_a_new_source_and_a_view_that_reads_it_join_an_app_that_runs(shop: Shop) -> None:
    names = sl.memory("k string, name string")
    names.append([("a", "Ann")])
    shop.app.source("names", names)
    shop.app.view("named", "SELECT n.name, s.s FROM names n JOIN sums s ON n.k = s.k")
    assert shop.app.await_views(LONG)
    shop.app.stop()
    shop.app.run(until="caught_up")
    assert [tuple(row) for row in shop.app.read("named").collect()] == [("Ann", 1)]


def test_what_fails_beside_epochs_is_told_and_the_app_goes_on(shop: Shop) -> None:
    shop.app.view("shares", "SELECT k, v div (v - 1) share FROM orders")
    with pytest.raises(
        ChangeFailed, match=r"could not be taken up \('shares'\), and the app goes on.*DIVIDE"
    ):
        shop.app.await_views(LONG)
    shop.more(("c", 5))
    assert {row.k for row in shop.app.read("sums").collect()} == {"a", "b", "c"}
    shop.app.view("shares", "SELECT k, try_divide(v, v - 1) share FROM orders", replace=True)
    assert shop.app.await_views(LONG)
    shop.app.stop()
    shop.check()


def test_an_app_that_is_closed_lets_go_of_a_change_that_is_under_way(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    shop.app.view("counts", "SELECT k, count(*) n FROM orders GROUP BY k")
    held.await_step()
    held.let_go(100)
    shop.app.close()
