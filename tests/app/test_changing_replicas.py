"""Replicas of an app that is changed: what it is now is on them, and what it was before is the store's alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.errors import HeldElsewhere, PastGone, RecoveryWarning
from slipstream.durability.fsck import check_replica, check_store
from slipstream.observe import read_status
from slipstream.testing.pretend import eventually

pytestmark = pytest.mark.spark


def test_a_replaced_view_comes_back_from_a_replica_as_it_is_now(spark: SparkSession, tmp_path: Path) -> None:
    url, rows = f"file://{tmp_path}/replica", sl.memory("k string, v long")

    def opened(query: str) -> sl.App:
        app = sl.App("shop", store=tmp_path / "store", spark=spark, shards=2, replicas=[url])
        app.source("orders", rows)
        app.view("sums", query)
        return app

    changed = "SELECT k, sum(v) + 1 s FROM orders GROUP BY k"
    with opened("SELECT k, sum(v) s FROM orders GROUP BY k") as app:
        for number in range(2):
            rows.append([("a", number), ("b", 1)])
            app.run(until="caught_up")
        app.view("counts", "SELECT k, count(*) n FROM orders GROUP BY k")
        app.view("sums", changed, replace=True)
        app.run(until="caught_up")
        assert app.read("sums", as_of=2).count() == 2
        now = sorted(map(tuple, app.read("sums").collect()))
        assert eventually(lambda: app.frontiers().safe == app.epoch == 3)
    assert check_store(tmp_path / "store").findings == ()
    assert check_replica(url).findings == ()
    shutil.rmtree(tmp_path / "store")
    rows = sl.memory("k string, v long")
    with pytest.warns(RecoveryWarning):
        app = opened(changed)
    with app:
        app.view("counts", "SELECT k, count(*) n FROM orders GROUP BY k")
        app.run(until="caught_up")
        assert sorted(map(tuple, app.read("sums").collect())) == now
        assert app.read("counts").count() == 2
        with pytest.raises(
            PastGone, match="What 'sums' was before it was computed anew at epoch 3 is not in"
        ):
            app.read("sums", as_of=2)
    assert check_store(tmp_path / "store").findings == ()


@pytest.mark.filterwarnings("ignore::slipstream.core.errors.HeldWarning")
def test_a_held_view_comes_back_from_a_replica_held_or_mended(spark: SparkSession, tmp_path: Path) -> None:
    url, schema = f"file://{tmp_path}/replica", "k string, v long"
    (tmp_path / "orders").mkdir()

    def arrives(name: str, v: int) -> None:
        (tmp_path / "orders" / f"{name}.json").write_text(json.dumps({"k": name, "v": v}))

    def opened(query: str) -> sl.App:
        app = sl.App("shop", store=tmp_path / "store", spark=spark, shards=2, replicas=[url])
        app.source("orders", sl.files(tmp_path / "orders", format="json", schema=schema, settle=0))
        app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
        app.view("parts", query, on_error="hold")
        app.view("totals", "SELECT sum(q) t FROM parts")
        return app

    def held(app: sl.App) -> dict[str, int]:
        return {view.name: view.held.last for view in read_status(app.store).views if view.held is not None}

    def restored(query: str) -> sl.App:
        shutil.rmtree(tmp_path / "store")
        with pytest.warns(RecoveryWarning):
            return opened(query)

    bad = "SELECT k, 100 div v q FROM orders"
    with opened(bad) as app:
        for name, v in {"a": 1, "b": 0, "c": 5}.items():
            arrives(name, v)
            app.run(until="caught_up")
        assert held(app) == {"parts": 1, "totals": 1}
        assert eventually(lambda: app.frontiers().safe == app.epoch == 3)
    assert check_store(tmp_path / "store").findings == ()
    assert check_replica(url).findings == ()
    with restored(bad) as app:
        arrives("d", 7)
        app.run(until="caught_up")
        assert app.read("sums").count() == 4
        assert held(app) == {"parts": 1, "totals": 1}, "it is computed anew, and fails"
        with pytest.raises(HeldElsewhere, match="what it showed as of epoch 1 is not in the store"):
            app.read("parts").count()
        assert eventually(lambda: app.frontiers().safe == app.epoch)
    assert check_store(tmp_path / "store").findings == ()
    with restored("SELECT k, try_divide(100, v) q FROM orders") as app:
        app.run(until="caught_up")
        assert held(app) == {}
        assert app.read("parts").count() == 4
        assert [tuple(row) for row in app.read("totals").collect()] == [(100 + 20 + 100 / 7,)]
        assert eventually(lambda: app.frontiers().safe == app.epoch)
    assert check_store(tmp_path / "store").findings == ()
    assert check_replica(url).findings == ()
