"""Replicas of an app that is changed: what it is now is on them, and what it was before is the store's alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.errors import HistoryBegins, RecoveryWarning
from slipstream.durability.fsck import check_replica, check_store
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
        with pytest.raises(HistoryBegins, match="The history of 'sums' begins with epoch 3"):
            app.read("sums", as_of=2)
    assert check_store(tmp_path / "store").findings == ()
