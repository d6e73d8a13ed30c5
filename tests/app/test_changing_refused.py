"""A change that is refused: who is at fault, and that nothing else which was asked for is lost or kept waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.app.backfill import Backfill
from slipstream.app.changing import Changes
from slipstream.app.holding import Pauses
from slipstream.core.errors import ChangeFailed, HistoryBegins
from slipstream.durability.fsck import check_store
from slipstream.epoch import Given, Result, SparkJob
from slipstream.testing.oracle import rows_of
from slipstream.testing.pretend import eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::slipstream.core.errors.HeldWarning"),
]
SCHEMA = "k string, v long"
SUMS = "SELECT k, sum(v) s FROM orders GROUP BY k"
PARTS = "SELECT k, 100 div v q FROM orders"
LONG = 120.0


class Shop:
    """An app with sources in memory."""

    def __init__(self, spark: SparkSession, store: Path) -> None:
        self.app = sl.App("shop", store=store, spark=spark, shards=2)
        self.orders, self.numbers = sl.memory(SCHEMA), sl.memory("n long")
        self.app.source("orders", self.orders)
        self.app.source("numbers", self.numbers)
        self.app.view("sums", SUMS)
        self.app.view("ns", "SELECT n FROM numbers")

    def run(self) -> int:
        self.app.run(until="caught_up")
        return self.app.epoch

    @property
    def held(self) -> set[str]:
        return {*self.app._claim.store.catalog().held}


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(spark, tmp_path)
    yield made
    made.app.close()
    assert not list(tmp_path.glob(".rebuild-*"))
    found = check_store(tmp_path).findings
    assert found == (), found


def test_a_rebuild_is_made_with_the_change_that_comes_after_one_that_was_refused(shop: Shop) -> None:
    shop.orders.append([("a", 1), ("b", 0)])
    shop.run()
    shop.orders.append([("a", 1)])
    shop.run()
    shop.app.rebuild("sums")
    shop.app.view("bad", PARTS)
    with pytest.raises(ChangeFailed, match=r"taken up \('bad'\), and"):
        shop.run()
    shop.app.drop("bad")
    shop.run()
    with pytest.raises(HistoryBegins):
        shop.app.changes("sums", 0)
    was = shop.app._claim.store.view("sums").rebuilt
    shop.app.view("more", "SELECT v FROM orders")
    shop.run()
    assert shop.app._claim.store.view("sums").rebuilt == was, "once"


def test_a_view_that_was_dropped_and_declared_again_begins_anew_also_after_a_refusal(shop: Shop) -> None:
    shop.orders.append([("a", 1), ("b", 0)])
    shop.run()
    shop.orders.append([("a", 1)])
    shop.run()
    shop.app.drop("sums")
    shop.app.view("sums", SUMS)
    shop.app.view("bad", PARTS)
    with pytest.raises(ChangeFailed):
        shop.run()
    shop.app.drop("bad")
    shop.run()
    with pytest.raises(HistoryBegins):
        shop.app.read("sums", as_of=1)


def test_a_rebuild_that_cannot_be_made_does_not_stand_in_the_way_of_other_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    (folder := tmp_path / "in").mkdir()
    (folder / "one.json").write_text('{"k": "a", "v": 1}')
    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=2) as app:
        app.source("orders", sl.files(folder, format="json", schema=SCHEMA, settle=0))
        app.view("sums", SUMS)
        app.view("large", "SELECT * FROM sums WHERE s > 0")
        app.run(until="caught_up")
        (folder / "one.json").unlink()
        app.rebuild("sums")
        with pytest.raises(ChangeFailed, match=r"taken up \('sums'\).*are gone"):
            app.run(until="caught_up")
        app.view("keys", "SELECT k FROM large")  # which is computed along with that
        with pytest.raises(ChangeFailed, match=r"taken up \('keys'\).*are gone"):
            app.run(until="caught_up")
        app.drop("keys")
        app.view("total", "SELECT sum(s) t FROM large")
        app.run(until="caught_up")
        assert rows_of(app.read("total")) == [(1,)]


def test_those_at_fault_are_named_and_not_what_else_was_declared(shop: Shop) -> None:
    shop.orders.append([("a", 1), ("b", 0)])
    shop.run()
    shop.app.view("fine", "SELECT v FROM orders")
    shop.app.view("div", PARTS)
    shop.app.view("reads_it", "SELECT q FROM div")
    with pytest.raises(ChangeFailed, match=r"taken up \('div'\), and .*DIVIDE_BY_ZERO") as told:
        shop.run()
    assert "'v': 0}" in str(told.value), "and the row"
    shop.app.drop("reads_it")
    shop.app.drop("div")
    shop.run()


def test_a_declaration_that_is_refused_keeps_no_held_view_from_being_mended(shop: Shop) -> None:
    shop.app.view("parts", PARTS, on_error="hold")
    shop.orders.append([("a", 1)])
    shop.numbers.append([(0,)])
    shop.app.start()
    assert shop.app.await_epoch(1, LONG)
    shop.orders.append([("z", 0)])
    assert shop.app.await_epoch(2, LONG)
    assert shop.held == {"parts"}
    shop.app.view("bad", "SELECT 1 div n q FROM numbers")
    with pytest.raises(ChangeFailed, match="'bad'"):
        shop.app.await_views(LONG)
    shop.orders.retract([("z", 0)])
    assert shop.app.await_epoch(3, LONG)
    joined = threading.Event()
    shop.app.on_notice(lambda text: joined.set() if text.startswith("goes on") else None)
    assert shop.app._changes is not None
    shop.app._changes._pauses = Pauses()  # it is time
    assert joined.wait(LONG)
    assert shop.held == set()
    with pytest.raises(ChangeFailed, match="'bad'"):
        shop.app.await_views(LONG)
    shop.app.drop("bad")
    assert shop.app.await_views(LONG)
    shop.app.stop()
    assert rows_of(shop.app.read("parts")) == [("a", 100)]


def test_a_view_that_is_declared_in_the_first_epoch_and_fails_is_held_if_it_may_be(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    computing, may = threading.Event(), threading.Event()
    run, begun = SparkJob.run, Changes._begun

    def waiting(job: SparkJob, given: Given) -> Result:
        computing.set()
        assert may.wait(LONG)
        return run(job, given)

    def seen(changes: Changes, *given: Any, **more: Any) -> Any:
        changing = begun(changes, *given, **more)
        may.set()
        return changing

    monkeypatch.setattr(SparkJob, "run", waiting)
    shop.orders.append([("a", 1), ("z", 0)])
    shop.app.start()
    assert computing.wait(LONG)
    monkeypatch.setattr(Changes, "_begun", seen)
    shop.app.view("parts", PARTS, on_error="hold")
    assert shop.app.await_views(LONG)
    assert shop.held == {"parts"}
    shop.app.stop()


def test_a_view_that_is_dropped_and_comes_to_wait_for_an_input_is_dropped(shop: Shop) -> None:
    shop.orders.append([("a", 1)])
    shop.app.start()
    assert shop.app.await_epoch(1, LONG)
    with shop.app._declaring:  # in one go, as in a cell of a notebook: nothing is taken up between
        shop.app.drop("sums")
        shop.app.view("sums", "SELECT k, p * sum(v) s FROM orders, prices GROUP BY k, p")
    assert shop.app.await_views(LONG)
    assert "sums" not in shop.app._claim.store.catalog().views
    prices = sl.memory("p long")
    prices.append([(10,)])
    shop.app.source("prices", prices)
    assert shop.app.await_views(LONG)
    shop.app.stop()
    shop.run()
    assert rows_of(shop.app.read("sums")) == [("a", 10)]


def test_a_damaged_layer_that_a_change_reads_is_healed_and_no_view_is_to_blame(
    spark: SparkSession, tmp_path: Path
) -> None:
    url, store = f"file://{tmp_path}/replica", tmp_path / "store"
    with sl.App("shop", store=store, spark=spark, shards=2, replicas=[url]) as app:
        orders = sl.memory(SCHEMA)
        app.source("orders", orders)
        app.view("picked", "SELECT k, v FROM orders")
        orders.append([("a", 1), ("b", 7)])
        app.run(until="caught_up")
        assert eventually(lambda: app.frontiers().safe == app.epoch)
        for layer in (store / app._claim.store.view("picked").trace).glob("*.arrow"):
            body = bytearray(layer.read_bytes())
            body[len(body) // 2] ^= 255
            layer.unlink()
            layer.write_bytes(bytes(body))
        app.view("sums", "SELECT k, sum(v) s FROM picked GROUP BY k", on_error="hold")
        app.run(until="caught_up")
        assert not app._claim.store.catalog().held
        assert sorted(rows_of(app.read("sums"))) == [("a", 1), ("b", 7)]
    assert check_store(store).findings == ()


def test_a_change_that_a_full_disk_hinders_is_made_when_there_is_room(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.app.view("sums", SUMS, replace=True)
    shop.orders.append([("a", 1)])
    shop.run()

    def full(backfill: Backfill) -> None:
        raise OSError(28, "No space left on device", str(backfill.folder))

    with monkeypatch.context() as patched:
        patched.setattr(Backfill, "begin", full)
        shop.app.view("parts", PARTS, on_error="hold")
        with pytest.raises(ChangeFailed, match=r"taken up \('parts'\), and .*No space left"):
            shop.run()
    shop.run()
    assert shop.held == set()
    assert rows_of(shop.app.read("parts")) == [("a", 100)]
