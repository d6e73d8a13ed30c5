"""Views that fail and are held: the others go on exactly, and what is mended catches up."""

from __future__ import annotations

import json
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.udtf import UserDefinedTableFunction
from rich.console import Console

import slipstream as sl
from slipstream.app.assembly import Assembly
from slipstream.app.backfill import Backfill
from slipstream.cli.tables import status_picture
from slipstream.core.clock import ManualClock
from slipstream.core.errors import (
    BadViewOption,
    ChangeFailed,
    EpochFailed,
    HeldElsewhere,
    HeldWarning,
    HoldNeedsInput,
    RecoveryWarning,
    UnknownView,
)
from slipstream.durability.fsck import check_store
from slipstream.observe import Status, read_status
from slipstream.observe.view import read_view
from slipstream.store.store import Store
from slipstream.testing.oracle import assert_equal, recompute, rows_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::slipstream.core.errors.HeldWarning"),
]
SCHEMA = "k string, v long"
SUMS = "SELECT k, sum(v) s FROM orders GROUP BY k"
PARTS = "SELECT k, 100 div v q FROM orders"
TOTALS = "SELECT k, sum(q) t FROM parts GROUP BY k"
SAFE = "SELECT k, if(v = 0, NULL, 100 div v) q FROM orders"


class Shop:
    """An app with one source of rows in memory, and what was appended to it."""

    def __init__(self, spark: SparkSession, store: Path) -> None:
        self.spark, self.store, self.clock = spark, store, ManualClock(1e9)
        self.rows: list[tuple[str, int]] = []
        self.notices: list[str] = []
        self.app = self.open()

    def open(self) -> sl.App:
        self.orders = sl.memory(SCHEMA)
        self.app = sl.App("shop", store=self.store, spark=self.spark, shards=2, clock=self.clock)
        self.app.on_notice(self.notices.append)
        self.app.source("orders", self.orders)
        return self.app

    def reopen(self) -> sl.App:
        self.app.close()
        return self.open()

    def three(self) -> None:
        """A view that never fails, one that does where v is 0, and one that reads that."""
        self.app.view("sums", SUMS)
        self.app.view("parts", PARTS, on_error="hold")
        self.app.view("totals", TOTALS)

    def more(self, *rows: tuple[str, int]) -> int:
        """Rows that are an epoch of their own."""
        self.rows += rows
        self.orders.append(list(rows))
        return self.run()

    def less(self, *rows: tuple[str, int]) -> int:
        for row in rows:
            self.rows.remove(row)
        self.orders.retract(list(rows))
        return self.run()

    def run(self) -> int:
        self.summary = self.app.run(until="caught_up")
        return self.app.epoch

    def again(self) -> int:
        """The next run is long after."""
        self.clock.advance(10_000)
        return self.run()

    def check(self, *views: str) -> None:
        inputs = {"orders": self.spark.createDataFrame(self.rows, SCHEMA)}
        for view in views or tuple(self.app.definitions):
            assert_equal(self.app.read(view), recompute(self.app, view, inputs), view)

    def status(self) -> Status:
        return read_status(self.store)

    def held(self) -> dict[str, tuple[int, str]]:
        """The views that are held: since when, and because of which other."""
        found = {view.name: view.held for view in self.status().views if view.held is not None}
        return {name: (why.last, why.because) for name, why in found.items()}

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


def test_by_default_a_view_that_fails_stops_the_run(shop: Shop) -> None:
    shop.app.view("sums", SUMS)
    shop.app.view("parts", PARTS)
    with pytest.raises(EpochFailed, match=r"(?s)in view 'parts'.*by zero.*'k': 'a', 'v': 0"):
        shop.more(("a", 0))


def test_a_view_is_held_with_its_readers_and_the_others_are_exact_at_every_epoch(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1), ("b", 2))
    before = {view: shop.now(view) for view in ("parts", "totals")}
    assert shop.more(("a", 0), ("b", 3)) == 2
    assert shop.held() == {"parts": (1, ""), "totals": (1, "parts")}
    shop.check("sums")
    assert shop.more(("c", 5)) == 3
    shop.check("sums")
    for view, rows in before.items():
        assert shop.now(view) == shop.now(view, 1) == shop.now(view, 2) == rows
        assert sorted(map(tuple, read_view(shop.store, view).to_pylist()[0].items()))
        assert shop.changes(view, 1) == Counter()
        assert sum(shop.changes(view, 0).values()) == 2
    assert shop.now("sums", 2) == [("a", 1), ("b", 5)]
    read = shop.spark.read.format("slipstream").option("view", "parts").load(str(shop.store))
    assert sorted(map(tuple, read.collect())) == before["parts"]
    assert len(shop.notices) == 1, "it is said once"
    assert "held: from epoch 2 on without 'parts' (" in shop.notices[0]
    assert "{'k': 'a', 'v': 0}); with 'totals', which cannot be computed without" in shop.notices[0]
    assert str(shop.summary).endswith(", held: parts, totals")


@pytest.mark.filterwarnings("error::slipstream.core.errors.HeldWarning")
def test_who_reads_a_held_view_is_told(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    own = r"(?s)the view 'parts' is held, and fails: .*by zero.*'v': 0.*as of epoch 1.*app.rebuild\('parts'\)"
    with pytest.warns(HeldWarning, match=own):
        assert shop.app.read("parts").count() == 1
    with pytest.warns(HeldWarning, match="'totals' is held, because 'parts' is, which it reads"):
        assert shop.app.sql("SELECT * FROM totals").count() == 1
    with pytest.warns(HeldWarning):
        shop.app.changes("parts", 0)
    shop.app.read("parts", as_of=1).count()
    shop.app.read("sums").count()


def test_status_marks_what_is_held_in_text_in_json_and_in_pictures(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.more(("b", 1))
    said = json.loads(json.dumps(asdict(shop.status())))
    held = {view["name"]: view["held"] for view in said["views"]}
    assert held["sums"] is None
    assert held["parts"]["last"] == 1
    assert held["parts"]["tried"] == 2, "when the last run began"
    assert "by zero" in held["parts"]["cause"]
    assert held["parts"]["row"] == "It fails on this row of 'orders': {'k': 'a', 'v': 0}"
    assert held["totals"] == {
        "last": 1,
        "cause": "it reads 'parts', which is held",
        "row": "",
        "because": "parts",
        "tried": 2,
    }
    console = Console(width=400, record=True)
    console.print(status_picture(shop.status(), 1e9))
    text = console.export_text()
    assert "the view 'parts' is held at epoch 1: [DIVIDE_BY_ZERO] Division by zero." in text
    assert "the view 'totals' is held at epoch 1 because 'parts' is, which it reads" in text
    assert "epochs 0 to 1, held" in text
    assert "epochs 0 to 3\n" in text.replace("  ", "").replace(" \n", "\n")
    picture = shop.app._repr_html_()
    assert "held at epoch 1 because &#x27;parts&#x27; is, which it reads" in picture
    declared = shop.app.view("parts", PARTS, on_error="hold")
    assert declared is not None
    drawn = str(declared._repr_html_())
    assert "as of epoch 1" in drawn
    assert "held at epoch 1: [DIVIDE_BY_ZERO]" in drawn
    assert "100 div v" in shop.app.explain("parts") or "parts" in shop.app.explain("parts")


def test_two_views_are_held_for_causes_of_their_own(shop: Shop) -> None:
    shop.app.view("sums", SUMS)
    shop.app.view("parts", PARTS, on_error="hold")
    shop.app.view("numbers", "SELECT k, CAST(k AS INT) n FROM orders", on_error="hold")
    shop.app.view("both", "SELECT p.k, q, n FROM parts p JOIN numbers n ON p.k = n.k")
    shop.more(("1", 1))
    shop.more(("2", 0), ("x", 1), ("3", 3))
    assert shop.held() == {"parts": (1, ""), "numbers": (1, ""), "both": (1, "parts")}
    causes = {view.name: view.held for view in shop.status().views if view.held is not None}
    parts, numbers = causes["parts"], causes["numbers"]
    assert parts is not None
    assert numbers is not None
    assert "by zero" in parts.cause
    assert "{'k': '2', 'v': 0}" in parts.row
    assert "CAST_INVALID_INPUT" in numbers.cause
    assert "{'k': 'x', 'v': 1}" in numbers.row
    shop.check("sums")
    shop.less(("2", 0))
    shop.again()
    assert shop.held() == {"numbers": (1, ""), "both": (1, "numbers")}, "one of them is mended"
    shop.check("sums", "parts")
    shop.less(("x", 1))
    shop.again()
    assert shop.held() == {}
    shop.check()


def test_a_view_that_may_not_be_held_stops_the_run_also_beside_one_that_may(shop: Shop) -> None:
    shop.three()
    shop.app.view("numbers", "SELECT CAST(k AS INT) n FROM orders")
    shop.more(("1", 1))
    with pytest.raises(EpochFailed, match="'numbers', 'parts'"):
        shop.more(("x", 0))
    assert shop.held() == {}
    shop.rows.remove(("x", 0))
    shop.orders.retract([("x", 0)])
    shop.reopen()
    shop.three()
    shop.app.view("numbers", "SELECT CAST(k AS INT) n FROM orders")
    shop.run()
    shop.check()


def test_what_is_taken_back_lets_a_held_view_join_again_with_the_difference(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1), ("b", 2))
    shop.more(("a", 0), ("b", 4))
    shop.less(("b", 2))
    assert shop.less(("a", 0)) == 4
    assert shop.held() == {"parts": (1, ""), "totals": (1, "parts")}
    assert shop.again() == 5, "from the next epoch on, which needs no input"
    assert shop.held() == {}
    shop.check()
    assert shop.changes("parts", 1) == {(5, "b", 50): -1, (5, "b", 25): 1}
    assert shop.changes("totals", 1) == {(5, "b", 50): -1, (5, "b", 25): 1}
    assert shop.changes("parts", 3, 4) == Counter()
    for epoch in (1, 2, 3, 4):
        assert shop.now("totals", epoch) == [("a", 100), ("b", 50)], epoch
    assert shop.now("totals", 5) == [("a", 100), ("b", 25)]
    assert shop.notices[-1] == "goes on: from epoch 5 on again with 'parts', 'totals'"
    shop.more(("c", 10))
    shop.check()
    shop.reopen()
    shop.three()
    shop.more(("d", 10))
    shop.check()
    assert shop.now("parts", 3) == [("a", 100), ("b", 50)]


def test_a_view_is_held_and_mended_again_and_again(shop: Shop) -> None:
    shop.three()
    shown = {0: shop.more(("a", 1))}
    for number in (1, 2, 3):
        shop.more((f"x{number}", 0))
        shop.more((f"y{number}", number))
        shop.less((f"x{number}", 0))
        shown[number] = shop.again()
        shop.check()
    for number, epoch in shown.items():
        assert len(shop.now("parts", epoch)) == number + 1, "each turn is there to be read"
        assert len(shop.now("parts", max(epoch - 1, 1))) == max(number, 1)
    added = shop.changes("totals", 0)
    assert sum(added.values()) == 4


def test_a_key_that_is_overwritten_mends_a_view(spark: SparkSession, tmp_path: Path) -> None:
    rows = sl.memory(SCHEMA, key="k")
    clock = ManualClock(1e9)
    with sl.App("shop", store=tmp_path, spark=spark, shards=2, clock=clock) as app:
        app.source("orders", rows)
        app.view("plain", "SELECT * FROM orders")
        app.view("parts", PARTS, on_error="hold")
        rows.append([("a", 1), ("b", 2)])
        app.run(until="caught_up")
        rows.append([("a", 0)])
        app.run(until="caught_up")
        rows.append([("a", 4)])
        app.run(until="caught_up")
        assert sorted(map(tuple, app.read("parts").collect())) == [("a", 100), ("b", 50)]
        clock.advance(10_000)
        app.run(until="caught_up")
        assert sorted(map(tuple, app.read("parts").collect())) == [("a", 25), ("b", 50)]
        assert sorted(map(tuple, app.read("plain").collect())) == [("a", 4), ("b", 2)]
    assert check_store(tmp_path).findings == ()


def test_a_query_that_is_replaced_mends_a_view(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.app.view("parts", "SELECT k, 200 div v q FROM orders", replace=True, on_error="hold")
    shop.run()
    assert shop.held() == {"parts": (1, ""), "totals": (1, "parts")}, "the new one fails as well"
    cause = next(view.held for view in shop.status().views if view.name == "parts")
    assert cause is not None
    assert "SELECT k, 200 div v q" in cause.cause, "and that is what is said now"
    assert shop.now("parts") == [("a", 100)]
    shop.app.view("parts", SAFE, replace=True, on_error="hold")
    shop.run()
    assert shop.held() == {}
    shop.check()
    assert shop.changes("parts", 1) == {(3, "a", None): 1}
    assert shop.changes("totals", 1) == Counter()


def test_rebuild_tries_at_once_and_what_fails_still_stays_held(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.app.rebuild("parts")
    shop.more(("b", 1))
    assert shop.held() == {"parts": (1, ""), "totals": (1, "parts")}
    shop.check("sums")
    shop.less(("a", 0))
    shop.app.rebuild("parts")
    shop.run()
    assert shop.held() == {}
    shop.check()


def test_a_reader_that_fails_of_itself_when_it_is_tried_stays_held_whatever_it_says_of_errors(
    shop: Shop,
) -> None:
    shop.app.view("sums", SUMS)
    shop.app.view("parts", PARTS, on_error="hold")
    shop.app.view("wholes", "SELECT k, 100 div (q - 50) w FROM parts")
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.more(("b", 2))  # of which `wholes` knows nothing yet
    shop.less(("a", 0))
    shop.again()
    assert shop.held() == {"wholes": (1, "")}
    shop.check("sums", "parts")
    shop.reopen()
    shop.app.view("sums", SUMS)
    shop.app.view("parts", PARTS, on_error="hold")
    shop.app.view("wholes", "SELECT k, 100 div (q - 50) w FROM parts")
    shop.more(("c", 4))
    assert shop.held() == {"wholes": (1, "")}, "nor does it keep the app from starting"
    shop.less(("b", 2))
    shop.again()
    shop.check()


def test_something_else_that_is_declared_tries_again(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.less(("a", 0))
    shop.app.view("counts", "SELECT count(*) n FROM orders")
    shop.run()
    assert shop.held() == {}
    shop.check()


def test_a_new_view_joins_while_another_stays_held(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.app.view("counts", "SELECT count(*) n FROM orders")
    shop.app.view("bad", "SELECT k, 1 div v x FROM orders", on_error="hold")
    shop.app.view("twice", "SELECT k, 2 * t d FROM totals")
    shop.run()
    shop.check("sums", "counts")
    assert shop.held() == {
        "parts": (1, ""),
        "totals": (1, "parts"),
        "twice": (0, "totals"),
        "bad": (0, ""),
    }
    assert shop.now("bad") == shop.now("twice") == []
    shop.less(("a", 0))
    shop.again()
    shop.check()


def test_a_held_view_is_dropped_with_all_it_kept(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.app.drop("totals")
    shop.app.drop("parts")
    shop.more(("b", 1))
    assert shop.held() == {}
    assert not [trace for trace in shop.app._claim.store.traces() if "parts" in trace or "totals" in trace]
    with pytest.raises(UnknownView):
        shop.app.read("parts")
    shop.check()


def test_a_view_that_fails_in_the_first_epoch_is_held_before_it(shop: Shop) -> None:
    shop.three()
    assert shop.more(("a", 0), ("b", 1)) == 1
    assert shop.held() == {"parts": (0, ""), "totals": (0, "parts")}
    assert shop.now("parts") == shop.now("parts", 1) == []
    assert shop.changes("parts", 0) == Counter()
    shop.check("sums")
    shop.less(("a", 0))
    shop.again()
    shop.check()


def test_an_app_all_of_whose_views_are_held_goes_on(shop: Shop) -> None:
    shop.app.view("parts", PARTS, on_error="hold")
    shop.more(("a", 1))
    assert shop.more(("a", 0)) == 2
    assert shop.more(("b", 2)) == 3, "its input is taken all the same: what mends it may be in it"
    assert shop.held() == {"parts": (1, "")}
    shop.less(("a", 0))
    shop.again()
    assert shop.held() == {}
    shop.check()


def test_a_view_that_fails_right_after_it_has_joined_is_what_it_was_before(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1), ("b", 2))
    shop.more(("a", 0), ("b", 4))
    shop.rows.remove(("a", 0))
    shop.orders.retract([("a", 0)])
    shop.run()
    shop.clock.advance(10_000)
    shop.more(("c", 0))  # it is tried, joins, and fails in the epoch from which on it is what it is
    assert shop.held() == {"parts": (1, ""), "totals": (1, "parts")}
    assert shop.now("totals") == [("a", 100), ("b", 50)]
    shop.less(("c", 0))
    shop.again()
    shop.check()
    assert shop.changes("parts", 1) == {(6, "b", 25): 1} or sum(shop.changes("parts", 1).values()) == 1


def test_a_restart_tries_again_and_goes_on_with_what_is_mended(shop: Shop) -> None:
    def parts(body: Callable[[int], int | None]) -> Callable[[DataFrame], DataFrame]:
        divided = F.udf(body, "long")
        return lambda orders: orders.select("k", divided("v").alias("q"))

    def declared(body: Callable[[int], int | None]) -> None:
        shop.app.view("sums", SUMS)
        shop.app.view("parts", parts(body), on_error="hold")
        shop.app.view("totals", TOTALS)

    declared(lambda v: 100 // v)
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.reopen()
    declared(lambda v: 100 // v)
    shop.more(("b", 1))
    assert shop.held() == {"parts": (1, ""), "totals": (1, "parts")}, "it fails as it did"
    assert shop.now("parts") == [("a", 100)]
    shop.check("sums")
    shop.reopen()
    declared(lambda v: 100 // v if v else None)
    shop.run()
    assert shop.held() == {}, "nobody is asked: it went on in nothing"
    shop.check()
    assert shop.now("parts", 2) == [("a", 100)]
    assert shop.changes("parts", 1) == {(4, "a", None): 1, (4, "b", 100): 1}


def test_a_run_that_begins_tries_again_what_may_be_mended_since(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.less(("a", 0))
    assert shop.held() == {"parts": (1, ""), "totals": (1, "parts")}, "it has come in this run"
    shop.run()
    assert shop.held() == {}
    shop.check()


def test_it_is_tried_again_beside_the_run_with_growing_pauses(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    shop.run()  # which tries it as it begins: an epoch has come
    due = []
    changes = shop.app._changes
    assert changes is not None
    for _ in range(4):
        began = shop.clock.monotonic()
        shop.clock.advance(changes._pauses.due - began - 0.1)
        shop.run()
        assert changes._pauses.due - 0.1 == pytest.approx(shop.clock.monotonic(), abs=0.1), "too early"
        shop.clock.advance(1)
        shop.run()
        due.append(changes._pauses.pause)
    assert due == [20.0, 40.0, 80.0, 160.0]
    tried = [each for each in shop.notices if each.startswith("held")]
    assert len(tried) == 1, "what fails as it did is not said again"


def test_a_try_that_fails_for_no_view_is_followed_by_a_pause_too(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.three()
    shop.more(("a", 0))
    tries = []

    def begin(*given: object, **options: object) -> object:
        tries.append(shop.clock.now())
        raise OSError(28, "No space left on device", ".rebuild-1")

    monkeypatch.setattr(Assembly, "begin", begin)
    for _ in range(3):
        with pytest.raises(ChangeFailed, match="No space left"):
            shop.again()
        for _ in range(3):
            shop.run()
    assert len(tries) == 3
    monkeypatch.undo()
    shop.less(("a", 0))
    shop.again()
    shop.check()


def test_a_healthy_view_that_shares_with_one_that_is_held_goes_on_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Alone it would keep other traces, computed from files that may be gone."""
    (folder := tmp_path / "in").mkdir()
    prices = sl.memory("k string, p long", key="k")

    def arrives(name: str, v: int) -> None:
        (folder / f"{name}.json").write_text(json.dumps({"k": name[0], "v": v}))

    def opened() -> sl.App:
        app = sl.App("shop", store=tmp_path / "store", spark=spark, shards=2)
        app.source("orders", sl.files(folder, format="json", schema=SCHEMA, settle=0))
        app.source("prices", prices)
        joined = "FROM orders o JOIN prices p ON o.k = p.k"
        app.view("parts", f"SELECT o.k, 100 div o.v q {joined}", on_error="hold")
        app.view("good", f"SELECT o.k, sum(o.v) s {joined} GROUP BY o.k")
        app.view("large", "SELECT * FROM good WHERE s > 4")
        return app

    def good(app: sl.App, as_of: int | None = None) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, app.read("good", as_of=as_of).collect()))

    with opened() as app:
        prices.append([("a", 1), ("b", 2)])
        arrives("a1", 1)
        app.run(until="caught_up")
        (folder / "a1.json").unlink()
        arrives("a2", 0)
        arrives("b1", 5)
        app.run(until="caught_up")
        assert app.run(until="caught_up").held == ("parts",)
        assert (good(app), good(app, as_of=1)) == ([("a", 1), ("b", 5)], [("a", 1)])
    prices = sl.memory("k string, p long", key="k")
    with opened() as app:
        arrives("a3", 3)
        assert app.run(until="caught_up").held == ("parts",)
        assert (good(app), good(app, as_of=1)) == ([("a", 4), ("b", 5)], [("a", 1)])
        assert rows_of(app.read("large")) == [("b", 5)]
    assert check_store(tmp_path / "store").findings == ()


class Repeated:
    """A table function."""

    def eval(self, text: str, times: int) -> Iterator[tuple[str]]:
        for _ in range(min(times, 3)):
            yield (text,)


def test_a_view_of_a_python_table_function_is_not_blamed_for_another_one(shop: Shop) -> None:
    made = F.udtf(Repeated, returnType="w string")
    assert isinstance(made, UserDefinedTableFunction)
    shop.spark.udtf.register("repeated", made.asDeterministic())
    shop.app.view("words", "SELECT k, w FROM orders, LATERAL repeated(k, v)")
    shop.app.view("parts", PARTS, on_error="hold")
    shop.more(("a", 2))
    shop.more(("b", 0))
    assert list(shop.held()) == ["parts"]
    shop.check("words")


def test_what_is_lost_of_a_held_view_is_a_finding_and_is_told(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("b", 0))
    shop.app.close()
    assert check_store(shop.store).findings == ()
    trace = Store.at(shop.store).catalog().held["parts"].trace
    layers = sorted((shop.store / trace).glob("*.arrow"))
    for layer in layers:
        layer.unlink()
    found = check_store(shop.store)
    assert found.findings == ()
    assert "what 'parts' was up to epoch 1: nothing of it is in this store" in found.unchecked
    for told in (True, False):
        with pytest.raises(HeldElsewhere, match="what it showed as of epoch 1 is not in the store"):
            read_view(shop.store, "parts")
        with warnings.catch_warnings(record=True) as said:  # a start does not make it an empty view
            warnings.simplefilter("always", RecoveryWarning)
            shop.open()
        lost = [each for each in said if "what 'parts' was at epoch 1 is lost" in str(each.message)]
        assert bool(lost) == told, "once"
        shop.three()
        shop.run()
        shop.check("sums")
        shop.app.close()


def test_a_held_view_catches_up_by_itself_while_the_app_runs(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.app.start()
    shop.rows.append(("c", 3))
    shop.orders.append([("a", 0)])
    assert shop.app.await_epoch(2, 60)
    shop.orders.retract([("a", 0)])
    shop.orders.append([("c", 3)])
    for _ in range(2000):
        if shop.held() == {}:
            break
        shop.app.await_epoch(shop.app.epoch + 1, 0.05)
    shop.app.stop()
    shop.run()
    assert shop.held() == {}
    shop.check()


def test_input_that_is_gone_is_what_a_held_view_says_it_lacks(spark: SparkSession, tmp_path: Path) -> None:
    folder, clock = tmp_path / "orders", ManualClock(1e9)
    folder.mkdir()

    def arrives(name: str, v: int) -> None:
        (folder / f"{name}.json").write_text(json.dumps({"k": name, "v": v}))

    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=2, clock=clock) as app:
        app.source("orders", sl.files(folder, format="json", schema=SCHEMA, settle=0))
        app.view("sums", SUMS)
        app.view("parts", PARTS, on_error="hold")
        for name, v in {"a": 1, "b": 0}.items():
            arrives(name, v)
            app.run(until="caught_up")
        (folder / "a.json").unlink()
        (folder / "b.json").unlink()
        clock.advance(10_000)
        arrives("c", 2)
        app.run(until="caught_up")
        cause = next(view.held for view in read_status(app.store).views if view.name == "parts")
        assert cause is not None
        assert "2 of what source 'orders' gave are gone: " in cause.cause
        assert "a.json" in cause.cause
        assert app.read("sums").count() == 3
        assert app.read("parts").count() == 1
    assert check_store(tmp_path / "store").findings == ()


def test_a_view_that_could_never_catch_up_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/replica"
    (tmp_path / "orders").mkdir()
    forgets = sl.files(tmp_path / "orders", format="json", schema=SCHEMA, after_safe="delete")
    told = r"'parts' was declared with on_error='hold', and reads source 'orders', which forgets .* keep=True"
    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=2, replicas=[url]) as app:
        app.view("parts", PARTS, on_error="hold")
        with pytest.raises(HoldNeedsInput, match=told):
            app.source("orders", forgets)
        app.source("orders", forgets, keep=True)
        app.view("sums", SUMS)
        app.view("more", PARTS, on_error="hold")
    with sl.App("other", store=tmp_path / "other", spark=spark, shards=2, replicas=[f"{url}2"]) as app:
        app.source("orders", sl.files(tmp_path / "orders", format="json", schema=SCHEMA, after_safe="delete"))
        with pytest.raises(HoldNeedsInput, match=told):
            app.view("parts", PARTS, on_error="hold")
        app.view("parts", PARTS)
    url = f"file://{tmp_path}/replica3"
    with sl.App("memory", store=tmp_path / "memory", spark=spark, shards=2, replicas=[url]) as app:
        app.source("orders", sl.memory(SCHEMA))
        with pytest.raises(HoldNeedsInput, match=told):
            app.view("parts", PARTS, on_error="hold")


def test_what_to_do_on_error_is_one_of_two(shop: Shop) -> None:
    with pytest.raises(BadViewOption, match=r"on_error='skip'\. There are: 'stop', 'hold'"):
        shop.app.view("parts", PARTS, on_error="skip")  # type: ignore[call-overload]


def test_what_to_do_on_error_may_be_changed_without_computing_anything(shop: Shop) -> None:
    shop.app.view("sums", SUMS)
    shop.app.view("parts", PARTS)
    shop.more(("a", 1))
    shop.app.view("parts", PARTS, on_error="hold")
    shop.more(("a", 0))
    assert shop.held() == {"parts": (1, "")}
    shop.check("sums")


def test_a_plan_says_that_a_held_view_is_tried_again(shop: Shop) -> None:
    shop.three()
    shop.more(("a", 1))
    shop.more(("a", 0))
    told = str(shop.app.plan())
    assert "parts   tried again (held at epoch 1: [DIVIDE_BY_ZERO]" in told
    assert "totals  tried again (held at epoch 1 because 'parts' is, which it reads)" in told


def test_bad_rows_of_a_source_that_only_held_views_read_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    folder, clock = tmp_path / "orders", ManualClock(1e9)
    folder.mkdir()

    def arrives(name: str, *lines: str) -> None:
        (folder / f"{name}.json").write_text("\n".join(lines))

    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=2, clock=clock) as app:
        app.source("orders", sl.files(folder, format="json", schema=SCHEMA, settle=0))
        app.view("parts", PARTS, on_error="hold")
        arrives("a", '{"k": "a", "v": 1}')
        app.run(until="caught_up")
        arrives("b", '{"k": "b", "v": 0}', '{"k": "b", "v": "no number"}')
        app.run(until="caught_up")
        arrives("c", '{"k": "c", "v": 2}', "no JSON")
        summary = app.run(until="caught_up")
        assert (app.epoch, summary.rejected) == (3, 1)
        rejected = {Path(row.file).name: row.line for row in app.read("orders_rejected").collect()}
        assert rejected == {"b.json": 2, "c.json": 1} or set(rejected) == {"b.json", "c.json"}
        app.view("parts", SAFE, on_error="hold", replace=True)
        app.run(until="caught_up")
        assert sorted(map(tuple, app.read("parts").collect()), key=str) == [
            ("a", 100),
            ("b", None),
            ("c", 50),
        ]
        assert app.read("orders_rejected").count() == 2
    assert check_store(tmp_path / "store").findings == ()


def test_a_view_with_late_rows_is_held_with_them(spark: SparkSession, tmp_path: Path) -> None:
    schema, clock = "ts timestamp, v long", ManualClock(1e9)
    rows = sl.memory(schema)

    def at(minute: int) -> datetime:
        return datetime(2026, 1, 1, 12, minute, tzinfo=UTC)

    with sl.App("shop", store=tmp_path, spark=spark, shards=2, clock=clock) as app:
        app.source("orders", rows, watermark=("ts", "1 minute"))
        app.view("all", "SELECT v FROM orders")
        query = "SELECT window(ts, '1 minute').start s, sum(100 div v) q FROM orders GROUP BY window(ts, '1 minute')"
        app.view("parts", query, on_error="hold")
        for given in ([(at(1), 1)], [(at(9), 2)], [(at(1), 4)]):
            rows.append(given)
            app.run(until="caught_up")
        assert app.read("parts_late").count() == 1
        rows.append([(at(9), 0)])
        app.run(until="caught_up")
        held = {view.name for view in read_status(tmp_path).views if view.held is not None}
        assert held == {"parts", "parts_late"}
        assert app.read("parts_late").count() == 1
        rows.retract([(at(9), 0)])
        app.run(until="caught_up")
        clock.advance(10_000)
        app.run(until="caught_up")
        assert not [view for view in read_status(tmp_path).views if view.held is not None]
        rows.append([(at(10), 5), (at(2), 1)])
        app.run(until="caught_up")
        assert app.read("all").count() == 5
        assert app.read("parts").count() == 3
        assert app.read("parts_late").count() == 1, "what was late before is in it now, as after a rebuild"
        assert app.read("parts_late", as_of=4).count() == 1
    assert check_store(tmp_path).findings == ()


def test_a_change_that_is_on_its_way_when_views_are_held_is_begun_anew(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.three()
    shop.more(("a", 1), ("b", 2))
    reached, may = threading.Semaphore(0), threading.Event()
    advance = Backfill.advance

    def waiting(backfill: Backfill, *given: object) -> None:
        reached.release()
        assert may.wait(60)
        advance(backfill, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Backfill, "advance", waiting)
    shop.app.start()
    shop.app.view("twice", "SELECT k, 2 * t d FROM totals")
    assert reached.acquire(timeout=60)
    shop.rows.append(("c", 0))
    shop.orders.append([("c", 0)])
    assert shop.app.await_epoch(2, 60)
    assert shop.held() == {"parts": (1, ""), "totals": (1, "parts")}
    may.set()
    assert shop.app.await_views(120)
    held = shop.held()
    assert held == {"parts": (1, ""), "totals": (1, "parts"), "twice": (0, "totals")}
    shop.app.stop()
    shop.check("sums")
    shop.less(("c", 0))
    shop.app.rebuild("parts")
    shop.run()
    shop.check()


def test_an_epoch_in_which_views_were_held_is_never_gone_back_behind(shop: Shop) -> None:
    """Nothing waits for the disk in an epoch, but what is held from is on it before the catalog says so."""
    shop.three()
    shop.more(("a", 1))
    flushed: list[str] = []
    disk = type(shop.app._claim.store.disk)
    flush = disk.flush

    def noted(self: Any, name: str) -> None:
        flushed.append(name)
        flush(self, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(disk, "flush", noted)
        shop.more(("a", 0))
    assert any(name.startswith("lineage/") for name in flushed)
