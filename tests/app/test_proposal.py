"""What a change would do is told beforehand, and nothing is changed by asking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.app import standing_by
from slipstream.app.proposal import InputProposal, Proposal, ViewProposal

SUMS = "SELECT k, sum(v) s FROM orders GROUP BY k"


def opened(spark: SparkSession, folder: Path, views: dict[str, str]) -> sl.App:
    app = sl.App("shop", store=folder / "store", spark=spark, shards=2)
    (folder / "orders").mkdir(exist_ok=True)
    app.source("orders", sl.files(folder / "orders", format="json", schema="k string, v long", settle=0))
    for name, query in views.items():
        app.view(name, query)
    return app


def land(folder: Path, number: int) -> None:
    rows = [{"k": f"k{i}", "v": i} for i in range(4)]
    (folder / "orders" / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))


def proposed(spark: SparkSession, folder: Path, views: dict[str, str]) -> Proposal:
    """Asked as the command does: beside the engine that has the store."""
    before = files(folder)
    with standing_by(looking=True):
        app = opened(spark, folder, views)
    with app:
        found = app.plan()
    assert files(folder) == before
    return found


def files(folder: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and "events" not in path.parts and path.name != "progress.json"
    }


@pytest.mark.spark
def test_what_a_changed_program_would_do_is_told(spark: SparkSession, tmp_path: Path) -> None:
    first = {"sums": SUMS, "large": "SELECT * FROM sums WHERE s > 1", "old": "SELECT v FROM orders"}
    assert not (tmp_path / "store").exists()
    new = proposed(spark, tmp_path, first)
    assert {(view.name, view.what) for view in new.views} == {(name, "new") for name in first}
    assert not (tmp_path / "store").exists(), "a store that is not there is not made"
    with opened(spark, tmp_path, first) as app:
        for number in range(2):
            land(tmp_path, number)
            app.run(until="caught_up")
    same = proposed(spark, tmp_path, first)
    assert {view.what for view in same.views} == {"goes on"}
    assert (same.inputs, same.possible, str(same).splitlines()[-1]) == (
        (),
        True,
        "nothing has to be computed",
    )
    second = {
        "sums": SUMS,
        "large": "SELECT max(s) m FROM sums WHERE s > 2",
        "counts": "SELECT k, count(*) n FROM orders GROUP BY k",
    }
    told = proposed(spark, tmp_path, second)
    assert told.views == (
        ViewProposal("sums", "goes on"),
        ViewProposal("large", "replaced", ("its query changed",), ("sums",), consent=True),
        ViewProposal("counts", "new", (), ("orders",)),
        ViewProposal("old", "dropped"),
    )
    assert told.inputs == (InputProposal("sums", "view", 4), InputProposal("orders", "source", 8))
    assert (told.epoch, told.rows, told.possible) == (2, 12, False)
    assert told.seconds is not None
    assert "to be agreed to: large would be replaced (slipstream run FILE.py --replace" in str(told)
    (tmp_path / "orders" / "0.json").unlink()
    gone = proposed(spark, tmp_path, second)
    assert gone.inputs[1].gone == (str(tmp_path / "orders" / "0.json"),)
    assert (
        "read of source 'orders': its input, about 8 rows\n  cannot be built: 1 of its files are gone"
        in str(gone)
    )
    assert gone.unbuildable == {"orders": 1}
    above = proposed(spark, tmp_path, {**first, "more": "SELECT count(*) n FROM sums WHERE s > 9"})
    assert above.possible, "what is computed from a view needs no files"
    assert "source 'orders': 1 of its files are gone, so a view that reads it can be neither" in str(above)


@pytest.mark.spark
def test_input_that_is_in_the_store_is_told_by_a_process_that_looks_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    def made() -> tuple[sl.App, Any]:
        app, rows = sl.App("shop", store=tmp_path / "store", spark=spark, shards=1), sl.memory("k string")
        app.source("rows", rows)
        app.source("range", sl.table(spark.range(3), refresh="1 hour"))
        app.view("all", "SELECT k FROM rows")
        app.view("numbers", "SELECT id FROM `range`")
        return app, rows

    app, rows = made()
    with app:
        rows.append([("a",)])
        app.run(until="caught_up")
    with standing_by(looking=True):
        app, _ = made()
    with app:
        told = app.plan()
    assert [(view.name, view.what) for view in told.views] == [("all", "goes on"), ("numbers", "goes on")]
    assert told.possible


def test_an_unknown_time_is_said_to_be_unknown() -> None:
    inputs = (InputProposal("t", "source", None),)
    told = Proposal(1, (ViewProposal("a", "new", (), ("t",)),), inputs, None, {})
    assert told.rows is None
    assert str(told) == (
        "as of epoch 1:\n  a  new, from t\nread of source 't': its input, an unknown number of rows\n"
        "it should take an unknown time: nobody knows how many rows there are"
    )
    inputs = (InputProposal("t", "source", 5),)
    told = Proposal(1, (ViewProposal("a", "new", (), ("t",)),), inputs, None, {})
    assert str(told).endswith("it should take an unknown time: no epoch has been measured")


@pytest.mark.spark
def test_a_table_is_nobody_knows_how_long(spark: SparkSession, tmp_path: Path) -> None:
    with sl.App("shop", store=tmp_path, spark=spark, shards=1) as app:
        app.source("many", sl.table(spark.range(10)))
        app.view("ids", "SELECT id FROM many")
        app.run(until="caught_up")
        app.view("total", "SELECT sum(id) s FROM many")
        assert (app.plan().rows, app.plan().seconds) == (None, None)
