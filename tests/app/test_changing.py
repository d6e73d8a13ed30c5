"""An app that is changed after it has begun: views that come, are replaced and go, and what readers see of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.core.errors import (
    ChangeFailed,
    ColumnsReplaced,
    HistoryBegins,
    NameTaken,
    PastGone,
    ReaderBroken,
    RecoveryWarning,
    StillRead,
    UnknownView,
    ViewChanged,
    ViewCycle,
)
from slipstream.core.settings import Starting, starting_with
from slipstream.durability.fsck import check_store
from slipstream.observe.view import read_view
from slipstream.store.store import Store
from slipstream.testing.oracle import assert_equal, recompute

pytestmark = pytest.mark.spark
SCHEMA = "k string, v long"


class Shop:
    """An app with one source of rows in memory, and what was appended to it."""

    def __init__(self, spark: SparkSession, store: Path) -> None:
        self.spark, self.store = spark, store
        self.rows: list[tuple[str, int]] = []
        self.app = self.open()

    def open(self) -> sl.App:
        self.orders = sl.memory(SCHEMA)
        self.app = sl.App("shop", store=self.store, spark=self.spark, shards=2)
        self.app.source("orders", self.orders)
        return self.app

    def more(self, *rows: tuple[str, int]) -> None:
        self.rows += rows
        self.orders.append(list(rows))

    def run(self) -> int:
        self.app.run(until="caught_up")
        return self.app.epoch

    def check(self, *views: str) -> None:
        inputs = {"orders": self.spark.createDataFrame(self.rows, SCHEMA)}
        for view in views or tuple(self.app.definitions):
            assert_equal(self.app.read(view), recompute(self.app, view, inputs), view)

    def now(self, view: str, as_of: int | None = None) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.app.read(view, as_of=as_of).collect()))

    def changes(self, view: str, since: int, until: int | None = None) -> Counter[tuple[Any, ...]]:
        """Rows with their diffs added up, by epoch."""
        found: Counter[tuple[Any, ...]] = Counter()
        for row in self.app.changes(view, since, until).collect():
            *values, epoch, diff = row
            found[(epoch, *values)] += diff
        return Counter({row: n for row, n in found.items() if n})


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(spark, tmp_path)
    yield made
    made.app.close()
    found = check_store(tmp_path).findings
    assert found == (), found


def test_a_view_declared_after_the_app_has_begun_has_all_that_was_taken(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.more(("a", 1), ("b", 2))
    shop.run()
    shop.more(("a", 3))
    assert shop.run() == 2
    shop.app.view("counts", "SELECT k, count(*) n FROM orders GROUP BY k")
    shop.app.view("large", "SELECT * FROM sums WHERE s > 2")
    shop.app.view("pairs", "SELECT o.k, o.v, s.s FROM orders o JOIN sums s ON o.k = s.k")
    shop.check()
    assert shop.app.epoch == 2, "nothing was computed but the new views"
    shop.more(("b", 5), ("c", 1))
    assert shop.run() == 3
    shop.check()
    assert shop.app.read("sums", as_of=1).count() == 2, "the others keep their history"
    with pytest.raises(HistoryBegins, match="begins with epoch 2"):
        shop.app.read("counts", as_of=1)


def test_a_view_declared_twice_with_one_meaning_is_one(shop: Shop) -> None:
    def sums(orders: DataFrame) -> DataFrame:
        return orders.groupBy("k").agg(F.sum("v").alias("s"))

    shop.app.view(sums)
    shop.more(("a", 1))
    shop.run()
    version = shop.app._declared.version
    shop.app.view(sums)
    shop.app.view("sums", "SELECT k, sum(v) AS s FROM orders GROUP BY k")
    shop.app.source("orders", shop.orders)
    assert shop.app._declared.version == version
    with pytest.raises(NameTaken, match="or go on with the one that is there"):
        shop.app.source("orders", sl.memory(SCHEMA))


def test_replacing_a_query_emits_the_difference_to_readers_and_views_above(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.app.view("large", "SELECT k FROM sums WHERE s > 2")
    shop.app.view("plain", "SELECT v FROM orders")
    shop.more(("a", 1), ("b", 2), ("c", 7))
    shop.run()
    shop.more(("a", 1))
    assert shop.run() == 2
    shop.app.view("sums", "SELECT k, sum(if(k = 'b', 2, 1) * v) s FROM orders GROUP BY k", replace=True)
    assert {tuple(row) for row in shop.app.read("sums").collect()} == {("a", 2), ("b", 2), ("c", 7)}, (
        "not yet"
    )
    assert shop.run() == 3, "the new query takes over at an epoch of its own"
    shop.check()
    assert shop.changes("sums", 2, 3) == {(3, "b", 2): -1, (3, "b", 4): 1}
    assert shop.changes("large", 2, 3) == {(3, "b"): 1}
    assert shop.changes("plain", 2, 3) == {}
    shop.more(("b", 1))
    shop.run()
    shop.check()
    assert shop.changes("sums", 1, 4) == {
        (2, "a", 1): -1,
        (2, "a", 2): 1,
        (3, "b", 2): -1,
        (3, "b", 4): 1,
        (4, "b", 4): -1,
        (4, "b", 6): 1,
    }
    old = {("a", 2), ("b", 2), ("c", 7)}
    assert {tuple(row) for row in shop.app.read("sums", as_of=2).collect()} == old, "its past is what it was"
    assert {tuple(row.values()) for row in read_view(shop.store, "sums", 2).to_pylist()} == old
    assert shop.app.read("sums", as_of=1).count() == 3
    for options, rows in (({"since": 2, "until": 3}, 2), ({"asOf": 2}, 3)):
        reader = shop.spark.read.format("slipstream").option("view", "sums").options(**options)
        assert reader.load(str(shop.store)).count() == rows


def test_a_replaced_view_may_have_other_columns(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.app.view("names", "SELECT k FROM sums")
    shop.more(("a", 1), ("b", 2))
    shop.run()
    shop.app.view("sums", "SELECT k, sum(v) s, count(*) n FROM orders GROUP BY k", replace=True)
    shop.run()
    shop.check()
    assert shop.app.read("sums", as_of=1).columns == ["k", "s"]
    with pytest.raises(ColumnsReplaced, match="the columns of 'sums' became others at epoch 2"):
        shop.app.changes("sums", 1, 2)
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        shop.app.view("sums", "SELECT count(*) n FROM orders", replace=True)
    shop.check("names", "sums")


def test_what_is_replaced_and_replaced_back_is_what_it_was(shop: Shop) -> None:
    first, second = "SELECT k, sum(v) s FROM orders GROUP BY k", "SELECT k, max(v) s FROM orders GROUP BY k"
    shop.app.view("sums", first)
    shop.more(("a", 1), ("a", 2))
    shop.run()
    shown = {1: shop.now("sums")}
    for query in (second, first, second):
        shop.app.view("sums", query, replace=True)
        shop.more(("a", 4), ("b", 1))
        epoch = shop.run()
        shown[epoch] = shop.now("sums")
        shop.check()
    assert shop.changes("sums", 3, 4)
    assert {epoch: shop.now("sums", epoch) for epoch in shown} == shown


def test_a_query_is_never_shown_as_of_an_epoch_at_which_another_one_was(shop: Shop) -> None:
    """What took over is computed over all input that was taken, so its layers reach back to the beginning."""
    sums, largest = (f"SELECT k, {each}(v) s FROM orders GROUP BY k" for each in ("sum", "max"))
    shop.app.view("per_key", sums)
    for rows in (("a", 1), ("a", 5)):
        shop.more(rows)
        shop.run()
    for query in (largest, sums):
        shop.app.view("per_key", query, replace=True)
        shop.more(("b", 2))
        shop.run()
    shop.check()
    shown: dict[int, list[tuple[Any, ...]]] = {
        1: [("a", 1)],
        2: [("a", 6)],
        3: [("a", 5), ("b", 2)],
        4: [("a", 6), ("b", 4)],
    }
    for epoch, told in shown.items():
        assert shop.now("per_key", epoch) == told
        read = read_view(shop.store, "per_key", epoch).to_pylist()
        assert sorted((row["k"], row["s"]) for row in read) == told
    assert shop.changes("per_key", 2, 3) == {(3, "a", 6): -1, (3, "a", 5): 1, (3, "b", 2): 1}


def test_a_dropped_view_is_gone_with_all_it_kept_and_can_come_back(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.app.view("large", "SELECT * FROM sums WHERE s > 2")
    shop.more(("a", 1), ("b", 2))
    shop.run()
    with pytest.raises(StillRead, match=r"'sums' cannot be dropped: it is read by 'large'. Drop these first"):
        shop.app.drop("sums")
    with pytest.raises(UnknownView):
        shop.app.drop("sum")
    shop.app.drop("large")
    shop.more(("c", 5))
    shop.run()
    with pytest.raises(UnknownView):
        shop.app.read("large")
    assert [path.name for path in (shop.store / "traces" / "large").glob("*")] == []
    shop.app.view("large", "SELECT * FROM sums WHERE s > 1")
    shop.check()


@pytest.mark.parametrize("taken_up", [False, True])
@pytest.mark.parametrize("query", ["SELECT v FROM orders", "SELECT k FROM orders"])
def test_a_view_that_is_declared_where_another_was_dropped_begins_anew(
    shop: Shop, query: str, taken_up: bool
) -> None:
    shop.app.view("all", "SELECT * FROM orders")
    shop.app.view("some", "SELECT v FROM orders")
    shop.more(("a", 1))
    shop.run()
    shop.app.rebuild("some")
    shop.app.drop("some")
    if taken_up:
        shop.run()
    shop.app.view("some", query)
    shop.more(("b", 2))
    shop.run()
    shop.check()
    with pytest.raises(HistoryBegins):
        shop.app.changes("some", 0)


def test_what_views_share_stays_when_one_of_them_goes(shop: Shop) -> None:
    joined = "FROM orders a JOIN (SELECT k, max(v) m FROM orders GROUP BY k) b ON a.k = b.k"
    shop.app.view("one", f"SELECT a.k, a.v, b.m {joined}")
    shop.app.view("two", f"SELECT a.k, a.v, b.m {joined} WHERE a.v > 1")
    shop.more(("a", 1), ("b", 2))
    shop.run()
    shop.app.drop("one")
    shop.more(("a", 5), ("b", 1))
    shop.run()
    shop.check()
    shop.app.view("one", f"SELECT a.k, a.v, b.m {joined}")
    shop.more(("a", 2))
    shop.run()
    shop.check()


def test_a_view_is_rebuilt_on_request(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.app.view("large", "SELECT * FROM sums WHERE s > 2")
    shop.more(("a", 1), ("b", 2))
    shop.run()
    shop.more(("b", 1))
    shop.run()
    with pytest.raises(UnknownView):
        shop.app.rebuild("sum")
    shop.app.rebuild("sums")
    shop.check()
    shop.more(("a", 2))
    shop.run()
    shop.check()
    with pytest.raises(HistoryBegins):
        shop.app.changes("sums", 0)


def test_a_change_that_cannot_be_made_leaves_the_app_as_it_was(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.more(("a", 1), ("b", 0))
    shop.run()
    shop.app.view("shares", "SELECT k, 1 div v AS share FROM orders")
    with pytest.raises(ChangeFailed, match=r"could not be taken up \('shares'\).*DIVIDE_BY_ZERO"):
        shop.run()
    shop.app.view("shares", "SELECT k, try_divide(1, v) AS share FROM orders", replace=True)
    shop.more(("c", 3))
    shop.run()
    shop.check()


def test_a_view_is_computed_of_what_is_there_not_of_rows_that_were_taken_back(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.more(("a", 1), ("b", 0))
    shop.run()
    shop.rows.remove(("b", 0))
    shop.orders.retract([("b", 0)])
    shop.run()
    shop.app.view("shares", "SELECT k, 1 div v AS share FROM orders")
    shop.run()
    shop.check()
    shop.app.rebuild("shares")
    shop.more(("c", 1))
    shop.run()
    shop.check()
    assert not list(shop.store.glob(".rebuild-*"))


def test_a_reader_that_a_replaced_view_breaks_is_named(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.app.view("large", "SELECT * FROM sums WHERE s > 2")
    with pytest.raises(
        ReaderBroken, match=r"^'sums' cannot be replaced: 'large' reads it, and does not work with .*`s`"
    ) as told:
        shop.app.view("sums", "SELECT k, max(v) m FROM orders GROUP BY k", replace=True)
    assert "\n" not in str(told.value)
    shop.more(("a", 3))
    shop.run()
    shop.check()


def test_what_is_lost_of_what_a_view_was_is_a_finding_and_is_told(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    for rows in (("a", 1), ("a", 5)):
        shop.more(rows)
        shop.run()
    shop.app.view("sums", "SELECT k, max(v) s FROM orders GROUP BY k", replace=True)
    shop.more(("b", 2))
    shop.run()
    shop.app.close()
    assert check_store(shop.store).findings == ()
    was = Store.at(shop.store).catalog().views["sums"].past[0].trace
    layers = sorted((shop.store / was).glob("*.arrow"))
    first = next(layer for layer in layers if "-1-1-" in layer.name or layer is layers[0])
    first.unlink()
    found = check_store(shop.store)
    assert {finding.where for finding in found.findings} == {was}
    with pytest.raises(PastGone, match=r"What 'sums' was before .* at epoch 3 is only in part in the store"):
        read_view(shop.store, "sums", as_of=1)
    for layer in layers[1:]:
        layer.unlink(missing_ok=True)
    found = check_store(shop.store)
    assert found.sound
    assert "what 'sums' was up to epoch 2: nothing of it is in this store" in found.unchecked
    with pytest.raises(PastGone, match="is not in the store"):
        read_view(shop.store, "sums", as_of=1)
    with pytest.warns(RecoveryWarning, match="what 'sums' was from epoch 1 to 2 is lost"):
        shop.open()
    shop.app.close()
    shop.open()  # it was told


def test_a_view_cannot_come_to_read_itself(shop: Shop) -> None:
    shop.app.view("one", "SELECT * FROM orders")
    shop.app.view("two", "SELECT * FROM one")
    with pytest.raises(ViewCycle, match="one -> two -> one"):
        shop.app.view("one", "SELECT * FROM two", replace=True)
    shop.app.view("three", "SELECT * FROM orders")
    shop.app.view("one", "SELECT * FROM three", replace=True)
    shop.more(("a", 1))
    shop.run()
    shop.check()


def test_a_changed_program_says_what_it_wants_to_replace(shop: Shop) -> None:
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.app.view("old", "SELECT k FROM orders")
    shop.more(("a", 1), ("b", 2))
    shop.run()
    shop.app.close()

    shop.open()
    shop.app.view("sums", "SELECT k, sum(v + 1) s FROM orders GROUP BY k")
    with pytest.raises(ViewChanged, match="Changed: 'sums'"):
        shop.run()
    shop.app.close()

    shop.open()
    shop.app.view("sums", "SELECT k, sum(v + 1) s FROM orders GROUP BY k", replace=True)
    shop.app.view("new", "SELECT k, count(*) n FROM orders GROUP BY k")
    assert shop.run() == 2
    shop.check()
    assert shop.changes("sums", 1) == {(2, "a", 1): -1, (2, "a", 2): 1, (2, "b", 2): -1, (2, "b", 3): 1}
    assert not list((shop.store / "traces" / "old").glob("*")), "what is declared no more is dropped"
    shop.app.close()

    with starting_with(Starting(replace=True)):
        shop.open()
    shop.app.view("sums", "SELECT k, sum(v + 2) s FROM orders GROUP BY k")
    shop.run()
    shop.check()


def test_a_view_that_is_added_right_after_another_was_replaced_reads_the_new_one(shop: Shop) -> None:
    """No epoch has come between the two, so the replaced view has not shown its difference yet."""
    shop.app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
    shop.more(("a", 1), ("b", 2))
    shop.run()
    shop.app.view("sums", "SELECT k, sum(v) * 10 s FROM orders GROUP BY k", replace=True)
    assert shop.app.await_views()
    shop.app.view("large", "SELECT k, s FROM sums WHERE s > 5")
    assert shop.app.await_views()
    shop.run()
    shop.check()
    shop.more(("b", 5))
    shop.run()
    shop.check()


def test_a_view_computed_anew_at_the_newest_epoch_is_no_stranger(shop: Shop) -> None:
    shop.app.view("paired", "SELECT a.k, a.v, b.v w FROM orders a JOIN orders b ON a.k = b.k")
    shop.more(("a", 1), ("b", 2))
    shop.run()
    shop.app.rebuild("paired")
    assert shop.app.await_views()
    shop.check()
    shop.app.close()
    assert check_store(shop.store).findings == ()
    shop.open().view("paired", "SELECT a.k, a.v, b.v w FROM orders a JOIN orders b ON a.k = b.k")
    shop.more(("a", 3))
    shop.run()
    shop.check()
