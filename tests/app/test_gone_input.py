"""Epochs that were cut and not computed, and whose input is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.errors import InputGone, RecoveryWarning
from slipstream.core.settings import Durability, Starting, starting_with
from slipstream.durability.start import start
from slipstream.store.lineage import read_lineage
from slipstream.store.records import Cut
from slipstream.store.store import Store, claim_store

FILES = ("a.json", "b.json", "c.json")


def app_of(spark: SparkSession, folder: Path) -> tuple[sl.App, Any]:
    app = sl.App("lake", store=folder / "store", spark=spark, shards=2)
    memory = sl.memory("m long", max_appends_per_epoch=1)
    app.source("t", sl.files(folder / "in", format="json", schema="v long", settle=0))
    app.source("held", memory)
    app.view("files", "SELECT v FROM t")
    app.view("rows", "SELECT m FROM held")
    return app, memory


def was_cut(folder: Path, ranges: dict[str, Any]) -> None:
    """An engine that was killed right after it had cut an epoch."""
    claim = claim_store(Store.at(folder / "store"), "lake")
    started = start(claim, "lake", Durability())
    started.writer.append(Cut(started.lineage.history.frontier + 1, 2.0, ranges))
    claim.release()


def values(app: sl.App, view: str) -> list[int]:
    return sorted(row[0] for row in app.read(view).collect())


def test_input_of_a_pending_epoch_that_is_gone_is_named_and_let_go_with_consent(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = tmp_path / "in"
    landing.mkdir()
    app, memory = app_of(spark, tmp_path)
    with app:
        memory.append([(1,)])
        (landing / "first.json").write_text('{"v": 0}\n')
        app.run(until="caught_up")
        before = app.epoch
        for number, name in enumerate(FILES, 1):
            (landing / name).write_text(f'{{"v": {number}}}\n')
        for number in (2, 3, 4):
            memory.append([(number,)])
    details = {name: (landing / name).stat() for name in FILES}
    files = [[name, said.st_size, said.st_mtime_ns] for name, said in details.items()]
    was_cut(tmp_path, {"t": {"files": files}, "held": {"appends": [1, 2]}})
    (landing / "b.json").unlink()
    (lost,) = (tmp_path / "store" / "sources" / "held").glob("*/000000000001-*")
    lost.unlink()

    app, _ = app_of(spark, tmp_path)
    with app, pytest.raises(InputGone) as refused:
        app.run(until="caught_up")
    assert str(refused.value) == (
        f"Input is gone of epoch {before + 1}, cut and not computed yet (source 'held': append number 1; source 't': "
        f"{landing}/b.json): put it back as it was, or go on without it with `slipstream run FILE.py --accept-loss`."
    )

    with starting_with(Starting(accept_loss=True)):
        app, memory = app_of(spark, tmp_path)
    with app:
        with pytest.warns(RecoveryWarning, match=rf"accepted: epoch {before + 1}: .*b\.json"):
            app.run(until="caught_up")
        assert values(app, "files") == [0, 1, 3]
        assert values(app, "rows") == [1, 3, 4]
        history = read_lineage(Store.at(tmp_path / "store").disk).history
        assert {"appends": [1, 2], "without": [1]} in history.consumed("held")
        assert not any("b.json" in str(each) for each in history.consumed("t"))

    app, memory = app_of(spark, tmp_path)
    with app:
        memory.append([(5,)])
        app.run(until="caught_up")
        assert values(app, "rows") == [1, 3, 4, 5]


def test_a_pending_epoch_of_which_everything_is_gone_is_an_empty_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = tmp_path / "in"
    landing.mkdir()
    app, memory = app_of(spark, tmp_path)
    with app:
        memory.append([(1,)])
        app.run(until="caught_up")
        memory.append([(2,)])
    was_cut(tmp_path, {"t": {"files": [["gone.json", 9, 9]]}, "held": {"appends": [1, 1]}})
    (lost,) = (tmp_path / "store" / "sources" / "held").glob("*/000000000001-*")
    lost.unlink()
    with starting_with(Starting(accept_loss=True)):
        app, memory = app_of(spark, tmp_path)
    with app:
        with pytest.warns(RecoveryWarning, match=r"gone\.json"):
            app.run(until="caught_up")
        assert values(app, "rows") == [1]
        memory.append([(3,)])
    (landing / "gone.json").write_text('{"v": 7}\n')  # it comes back after all: new input for the next start
    app, memory = app_of(spark, tmp_path)
    with app:
        app.run(until="caught_up")
        assert (values(app, "rows"), values(app, "files")) == ([1, 3], [7])
