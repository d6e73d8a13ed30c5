"""Sinks of a whole app: what is outside is what batch Spark gives, after restarts, resets, failures and losses."""

from __future__ import annotations

import shutil
import threading
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.errors import (
    BadSinkOption,
    HistoryLetGo,
    NameTaken,
    SinkWarning,
    StillRead,
    UnknownSink,
    UnknownView,
)
from slipstream.testing.targets import Memory, MemorySink, Row

pytestmark = pytest.mark.spark

TOTALS = "SELECT k, sum(v) s, count(*) n FROM orders GROUP BY k"


class Shop:
    """An app with one source of files and a view of totals; a step is a file."""

    def __init__(self, spark: SparkSession, folder: Path, **options: Any) -> None:
        self.folder, self.landing = folder, folder / "landing"
        self.landing.mkdir(exist_ok=True)
        self.app = sl.App("shop", store=folder / "store", spark=spark, shards=2, **options)
        self.app.source("orders", sl.files(str(self.landing), "json", "k long, v long", settle=0))
        self.app.view("totals", TOTALS)

    def feed(self, *rows: tuple[int, int]) -> None:
        number = len(list(self.landing.iterdir()))
        file = self.landing.parent / "new"
        file.write_text("".join(f'{{"k": {k}, "v": {v}}}\n' for k, v in rows))
        file.rename(self.landing / f"{number:04d}.json")
        self.app.run(until="caught_up")

    def totals(self) -> Counter[Row]:
        return Counter(tuple(row) for row in self.app.read("totals").collect())

    def __enter__(self) -> Shop:
        return self

    def __exit__(self, *_: object) -> None:
        self.app.close()


def added_up(rows: Counter[Row]) -> Counter[Row]:
    """What a log of changes comes to."""
    found: Counter[Row] = Counter()
    for (*row, _, diff), times in rows.items():
        found[tuple(row)] += diff * times
    return +found


def written(folder: Path) -> Counter[Row]:
    files = [each for each in folder.glob("*.parquet") if each.name[0] not in "._"]
    columns = pa.concat_tables([pq.read_table(each) for each in files]).columns
    return Counter(zip(*(column.to_pylist() for column in columns), strict=True))


def test_every_mode_is_what_the_view_is_after_every_epoch(spark: SparkSession, tmp_path: Path) -> None:
    changes, upserts, whole = Memory(), Memory(), Memory()
    with Shop(spark, tmp_path) as shop:
        shop.app.sink("totals", MemorySink(memory=changes), name="changes")
        shop.app.sink("totals", MemorySink(mode="upsert", key=("k",), memory=upserts), name="upserts")
        shop.app.sink("totals", MemorySink(mode="replace", memory=whole), name="whole")
        for step in range(5):
            shop.feed((step % 3, 1), (step, 10), (7, -step))
            expected = shop.totals()
            assert added_up(changes.rows) == upserts.rows == whole.rows == expected
    assert [each.after.epoch for each in changes.deliveries] == [1, 2, 3, 4, 5]


def test_rows_that_are_owed_are_not_outside(spark: SparkSession, tmp_path: Path) -> None:
    """A row that is taken away before it comes: it is shown while it is there more often than never."""
    log, upserts, whole, orders = Memory(), Memory(), Memory(), sl.memory("k long, v long")
    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=2) as app:
        app.source("orders", orders)
        app.view("rows", "SELECT k, v + 1 AS v FROM orders")
        app.sink("rows", MemorySink(memory=log), name="log")
        app.sink("rows", MemorySink(mode="upsert", key=("k",), memory=upserts), name="upserts")
        app.sink("rows", MemorySink(mode="replace", memory=whole), name="whole")
        for sign, rows in (
            (1, [(9, 9)]),
            (-1, [(1, 1)]),
            (1, [(1, 1)]),
            (1, [(1, 1), (2, 2)]),
            (-1, [(1, 1)]),
        ):
            (orders.append if sign > 0 else orders.retract)(rows)
            app.run(until="caught_up")
            view = Counter(tuple(row) for row in app.read("rows").collect())
            assert added_up(log.rows) == upserts.rows == whole.rows == view
        assert view == Counter({(9, 10): 1, (2, 3): 1})


def test_one_that_comes_later_begins_with_the_whole_view(spark: SparkSession, tmp_path: Path) -> None:
    whole, later = Memory(), Memory()
    with Shop(spark, tmp_path) as shop:
        for step in range(3):
            shop.feed((step, 1))
        shop.app.sink("totals", MemorySink(memory=whole), name="whole")
        shop.app.sink("totals", MemorySink(memory=later), name="later", since=2)
        shop.feed((0, 5))
        assert added_up(whole.rows) == shop.totals()
        assert {row[-2] for row in later.rows} == {3, 4}
        assert Counter(row[-2] for row in whole.rows)[3] == 3


def test_a_restart_goes_on_where_the_target_is(spark: SparkSession, tmp_path: Path) -> None:
    for step in range(4):
        with Shop(spark, tmp_path) as shop:
            shop.app.sink("totals", sl.to_folder(tmp_path / "out"))
            shop.feed((step % 2, 1))
            assert added_up(written(tmp_path / "out")) == shop.totals()
    assert sorted(row[-2] for row in written(tmp_path / "out")) == [1, 2, 3, 3, 4, 4]


def test_a_sink_that_fails_slows_nobody_and_catches_up(spark: SparkSession, tmp_path: Path) -> None:
    memory = Memory(failing=[ConnectionError("the target is down")] * 50)
    with Shop(spark, tmp_path) as shop:
        shop.app.sink("totals", MemorySink(memory=memory), name="down")
        with pytest.warns(SinkWarning, match="the target is down"):
            shop.feed((1, 1))
        assert shop.app.sinks["down"].error == "the target is down"
        memory.failing.clear()
        assert shop.app.await_sinks(timeout=60)
        shop.feed((1, 1))
        assert added_up(memory.rows) == shop.totals()
        assert shop.app.sinks["down"].error is None


def test_a_key_that_is_none_stops_the_sink_alone(spark: SparkSession, tmp_path: Path) -> None:
    memory, other = Memory(), Memory()
    with Shop(spark, tmp_path) as shop:
        shop.app.sink("totals", MemorySink(mode="upsert", key=("n",), memory=memory), name="upserts")
        shop.app.sink("totals", MemorySink(memory=other), name="others")
        with pytest.warns(SinkWarning, match="several rows with the key 1"):
            shop.feed((1, 1), (2, 1))
        assert shop.app.sinks["upserts"].stopped
        assert not shop.app.await_sinks(timeout=60)
        assert added_up(other.rows) == shop.totals()


def test_a_reset_writes_the_target_anew(spark: SparkSession, tmp_path: Path) -> None:
    memory = Memory()
    with Shop(spark, tmp_path) as shop:
        shop.app.sink("totals", MemorySink(mode="upsert", key=("k",), memory=memory), name="upserts")
        shop.feed((1, 1))
        memory.rows = Counter({(99, 99, 99): 1})
        shop.app.reset_sink("upserts")
        assert shop.app.await_sinks(timeout=60)
        assert memory.rows == shop.totals()


def test_a_view_that_is_replaced_is_a_difference_outside(spark: SparkSession, tmp_path: Path) -> None:
    log, upserts = Memory(), Memory()
    with Shop(spark, tmp_path) as shop:
        shop.app.sink("totals", MemorySink(memory=log), name="log")
        shop.app.sink("totals", MemorySink(mode="upsert", key=("k",), memory=upserts), name="upserts")
        shop.feed((1, 1), (2, 5))
        shop.app.view("totals", TOTALS.replace("sum(v)", "sum(2 * v)"), replace=True)
        shop.feed((2, 1))
        assert added_up(log.rows) == upserts.rows == shop.totals()
        assert shop.totals() == Counter({(1, 2, 1): 1, (2, 12, 2): 1})


def test_a_view_that_gets_a_column_is_written_anew_where_that_can_be(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, upserts = Memory(), Memory()
    with Shop(spark, tmp_path) as shop:
        shop.app.sink("totals", MemorySink(memory=log), name="log")
        shop.app.sink("totals", MemorySink(mode="upsert", key=("k",), memory=upserts), name="upserts")
        shop.feed((1, 1))
        shop.app.view("totals", TOTALS.replace("count(*) n", "count(*) n, max(v) m"), replace=True)
        with pytest.warns(SinkWarning, match="has other columns now"):
            shop.feed((2, 3))
        assert upserts.rows == shop.totals() == Counter({(1, 1, 1, 1): 1, (2, 3, 1, 3): 1})
        assert shop.app.sinks["log"].stopped


def test_history_is_kept_for_a_sink_that_is_behind(spark: SparkSession, tmp_path: Path) -> None:
    """With hardly any history of its own, and a bound beyond which nobody is waited for."""
    memory, gone = Memory(), Memory()
    with Shop(spark, tmp_path, history="1 epochs") as shop:
        shop.app.sink("totals", MemorySink(memory=memory), name="held", hold="1000 epochs")
        shop.app.sink("totals", MemorySink(memory=gone), name="bounded", hold="2 epochs")
        shop.feed((1, 1))
        memory.failing[:] = gone.failing[:] = [ConnectionError("down")] * 50
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SinkWarning)
            for step in range(5):
                shop.feed((step, 1))
        assert shop.app.read("totals", as_of=1).count() == 1
        memory.failing.clear()
        gone.failing.clear()
        assert shop.app.await_sinks(timeout=60)
        assert added_up(memory.rows) == shop.totals()
        shop.app.drop_sink("held")
        gone.failing[:] = [ConnectionError("down")] * 50
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SinkWarning)
            for step in range(5):
                shop.feed((step, 1))
        with pytest.raises(HistoryLetGo):
            shop.app.read("totals", as_of=6).count()
        gone.failing.clear()
        assert not shop.app.await_sinks(timeout=60)
        assert "was let go" in str(shop.app.sinks["bounded"].error)


def test_nothing_leaves_before_it_is_safe_if_so_asked(spark: SparkSession, tmp_path: Path) -> None:
    memory = Memory()
    with Shop(spark, tmp_path, replicas=[(tmp_path / "replica").as_uri()]) as shop:
        shop.app.sink("totals", MemorySink(memory=memory), name="safe", when="safe")
        shop.feed((1, 1))
        shop.app.start()
        assert shop.app.await_sinks(timeout=120)
        assert added_up(memory.rows) == shop.totals()
        assert shop.app.frontiers().safe >= 1
        shop.app.stop()
    assert memory.deliveries[0].after.lineage == ()


@pytest.mark.filterwarnings("ignore::slipstream.core.errors.RecoveryWarning")
def test_what_the_store_lost_is_taken_up_from_a_target(spark: SparkSession, tmp_path: Path) -> None:
    """The store's folder goes after delivery, and the replica knows of the first epoch only: what was seen outside is
    computed again as it was, although the input came in other portions.
    """
    out, replica = tmp_path / "out", tmp_path / "replica"
    with Shop(spark, tmp_path, replicas=[replica.as_uri()]) as shop:
        shop.app.sink("totals", sl.to_folder(out))
        shop.feed((1, 1))
        shop.app.start()
        while shop.app.frontiers().safe < 1:
            threading.Event().wait(0.05)
        shop.app.stop()
    shutil.copytree(replica, tmp_path / "early")
    stuck = f"faulty+file://{replica}?delay=60"
    with Shop(
        spark, tmp_path, replicas=[stuck]
    ) as shop:  # nothing of this is durable before the store is gone
        shop.app.sink("totals", sl.to_folder(out))
        shop.feed((1, 2))
        shop.feed((2, 3))
        before = written(out)
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(replica)
    shutil.copytree(tmp_path / "early", replica)
    with Shop(spark, tmp_path, replicas=[replica.as_uri()]) as shop:
        shop.app.sink("totals", sl.to_folder(out))
        shop.feed((3, 4))
        assert added_up(written(out)) == shop.totals()
        assert before <= written(out)
        assert {row[-2] for row in written(out) - before} == {4}
        assert Counter(tuple(row) for row in shop.app.read("totals", as_of=2).collect()) == Counter(
            {(1, 3, 2): 1}
        )


@pytest.mark.filterwarnings("ignore::slipstream.core.errors.RecoveryWarning")
def test_without_that_the_sink_says_that_it_saw_something_else(spark: SparkSession, tmp_path: Path) -> None:
    """The same, but the target forgot the lineage: the app goes on, and the sink stops until it is reset."""
    memory, replica = Memory(), tmp_path / "replica"
    with Shop(spark, tmp_path, replicas=[replica.as_uri()]) as shop:
        shop.app.sink("totals", MemorySink(mode="upsert", key=("k",), memory=memory), name="upserts")
        shop.feed((1, 1))
        shop.app.start()
        while shop.app.frontiers().safe < 1:
            threading.Event().wait(0.05)
        shop.app.stop()
        shutil.copytree(replica, tmp_path / "early")
        shop.feed((1, 2))
        shop.feed((2, 3))
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(replica)
    shutil.copytree(tmp_path / "early", replica)
    assert memory.stamp is not None
    memory.stamp = replace(memory.stamp, lineage=())
    with Shop(spark, tmp_path, replicas=[replica.as_uri()]) as shop:
        shop.app.sink("totals", MemorySink(mode="upsert", key=("k",), memory=memory), name="upserts")
        with pytest.warns(SinkWarning, match="reset_sink"):
            shop.feed((3, 4))
        shop.app.reset_sink("upserts")
        assert shop.app.await_sinks(timeout=60)
        assert memory.rows == shop.totals()


def test_a_target_of_another_app_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with Shop(spark, tmp_path / "one") as shop:
        shop.app.sink("totals", sl.to_folder(tmp_path / "out"))
        shop.feed((1, 1))
    with Shop(spark, tmp_path / "two") as shop:
        shop.app.sink("totals", sl.to_folder(tmp_path / "out"))
        with pytest.warns(SinkWarning, match="of another app"):
            shop.feed((2, 2))
    assert added_up(written(tmp_path / "out")) == Counter({(1, 1, 1): 1})


def test_a_target_is_not_gone_on_with_in_another_form(spark: SparkSession, tmp_path: Path) -> None:
    memory = Memory()
    with Shop(spark, tmp_path) as shop:
        shop.app.sink("totals", MemorySink(memory=memory), name="out")
        shop.feed((1, 1))
        shop.app.drop_sink("out")
        shop.app.sink("totals", MemorySink(mode="upsert", key=("k",), memory=memory), name="out")
        with pytest.warns(
            SinkWarning, match=r"with mode='changes', and .* with mode='upsert' and key=\['k'\]"
        ):
            shop.feed((2, 1))
        shop.app.reset_sink("out")
        assert shop.app.await_sinks(timeout=60)
        assert memory.rows == shop.totals()


def test_functions_get_every_epoch_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    given: list[tuple[int, list[Row]]] = []

    def note(epoch: int, changes: pa.Table) -> None:
        given.append((epoch, sorted(zip(*(column.to_pylist() for column in changes.columns), strict=True))))

    for step in range(3):
        with Shop(spark, tmp_path) as shop:
            if step:
                shop.app.sink("totals", sl.foreach(note))
            shop.feed((1, 1))
            shop.feed((1, 1))
    assert [epoch for epoch, _ in given] == [2, 3, 4, 5, 6]
    assert given[0][1] == [(1, 2, 2, 2, 1)]
    assert given[1][1] == [(1, 2, 2, 3, -1), (1, 3, 3, 3, 1)]


def test_what_makes_no_sense_is_refused_when_declared(spark: SparkSession, tmp_path: Path) -> None:
    with Shop(spark, tmp_path) as shop:
        app = shop.app
        with pytest.raises(UnknownView):
            app.sink("nothing", MemorySink())
        with pytest.raises(BadSinkOption, match="which view 'totals' does not have"):
            app.sink("totals", MemorySink(mode="upsert", key=("x",)))
        with pytest.raises(BadSinkOption, match="no replicas"):
            app.sink("totals", MemorySink(), when="safe")
        with pytest.raises(BadSinkOption, match="'computed', 'safe'"):
            app.sink("totals", MemorySink(), when="later")  # type: ignore[arg-type]
        with pytest.raises(BadSinkOption, match="since=1"):
            app.sink("totals", MemorySink(mode="replace"), since=1)
        with pytest.raises(BadSinkOption, match="what sl"):
            app.sink("totals", "somewhere")  # type: ignore[arg-type]
        with pytest.raises(BadSinkOption, match="name="):
            app.sink("totals", MemorySink(), name="../x")
        sink = MemorySink()
        app.sink("totals", sink)
        app.sink("totals", sink)
        with pytest.raises(NameTaken):
            app.sink("totals", MemorySink(mode="replace"))
        with pytest.raises(StillRead, match="totals-memory"):
            app.drop("totals")
        with pytest.raises(UnknownSink, match="'totals-memory'"):
            app.drop_sink("nothing")
        app.drop_sink("totals-memory")
        app.drop("totals")


def test_the_store_tells_how_far_sinks_are(spark: SparkSession, tmp_path: Path) -> None:
    from slipstream.observe.sinks import read_sinks

    with Shop(spark, tmp_path) as shop:
        shop.app.sink("totals", sl.to_folder(tmp_path / "out"))
        shop.feed((1, 1))
    told = read_sinks(shop.app._claim.store.disk)["totals-folder"]
    assert (told.epoch, told.view, told.mode, told.error) == (1, "totals", "changes", None)
