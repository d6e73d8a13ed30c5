"""An app with replicas: what it computed is on them, and its frontiers say so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.replica import Replica
from slipstream.errors import RecoveryWarning
from slipstream.testing.oracle import assert_equal, recompute
from slipstream.testing.pretend import eventually

pytestmark = pytest.mark.spark


def test_every_epoch_of_an_app_reaches_its_replica(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/replica"
    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=2, replicas=[url]) as app:
        orders = sl.memory("k string, v long", key="k")
        app.source("orders", orders)
        app.view("sums", "SELECT v % 3 m, sum(v) s FROM orders GROUP BY v % 3")
        app.view("top", "SELECT * FROM orders ORDER BY v LIMIT 3")
        for epoch in range(5):
            orders.append([(f"k{i}", epoch + i) for i in range(7)])
            app.run(until="caught_up")

        def there() -> bool:
            manifest = newest_manifest(Replica(url))
            return manifest is not None and manifest.epoch == 5

        assert eventually(there)
        manifest = newest_manifest(Replica(url))
        assert manifest is not None
        kept = {str(path.relative_to(app._claim.store.root)) for path in app._claim.store.traces()}
        assert set(manifest.layers) == kept, "every trace that the app keeps"


VIEWS = {
    "sums": "SELECT k % 5 AS g, sum(v) s, count(*) c FROM t GROUP BY k % 5",
    "largest": "SELECT k, max(v) m FROM t GROUP BY k",
    "pairs": "SELECT s.g, s.c, l.m FROM sums s JOIN largest l ON s.g = l.k",
    "top": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 4",
}


class Lake:
    """A folder of JSON files, and an app over it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.files = spark, folder, 0
        (folder / "in").mkdir()

    def more(self, files: int) -> None:
        for _ in range(files):
            self.files += 1
            rows = [{"k": i % 7, "v": self.files * 10 + i} for i in range(20)]
            hidden = self.folder / "in" / f".{self.files}"
            hidden.write_text("\n".join(json.dumps(row) for row in rows))
            hidden.rename(self.folder / "in" / f"{self.files:04d}.json")

    def app(self, *replicas: str, **options: Any) -> sl.App:
        app = sl.App(
            "lake",
            store=self.folder / "store",
            spark=self.spark,
            shards=2,
            replicas=replicas,
            settings=sl.Settings(limits={"t": sl.Limits(most=1)}),  # a file an epoch
            **options,
        )
        app.source("t", sl.files(self.folder / "in", format="json", schema="k long, v long", settle=0))
        for name, query in VIEWS.items():
            app.view(name, query)
        return app

    def check(self, app: sl.App) -> None:
        """Every view equals batch Spark over all files."""
        batch = self.spark.read.schema("k long, v long").json(str(self.folder / "in"))
        for view in VIEWS:
            assert_equal(app.read(view), recompute(app, view, {"t": batch}), view)


def durable(app: sl.App, url: str) -> int:
    manifest = newest_manifest(Replica(url))
    return 0 if manifest is None else manifest.epoch


def test_a_deleted_store_comes_back_and_the_rest_is_caught_up_in_one_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, url, gone = Lake(spark, tmp_path), f"file://{tmp_path}/replica", f"file://{tmp_path}/gone"
    lake.more(3)
    with lake.app(url, gone) as app:
        app.run(until="caught_up")
        assert app.epoch == 3
        assert eventually(lambda: durable(app, url) == 3 and durable(app, gone) == 3)
        replica = tmp_path / "replica"
        replica.rename(tmp_path / "away")  # from now on the replica lags
        replica.write_text("no folder")
        lake.more(4)
        app.run(until="caught_up")
        assert app.epoch == 7
    replica.unlink()
    (tmp_path / "away").rename(replica)
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(tmp_path / "gone")
    with pytest.warns(RecoveryWarning, match=r"restored from file://.*/replica, as of epoch 3"):
        app = lake.app(url, gone)
    with app:
        assert app.epoch == 3
        assert app.run(until="caught_up").epochs == 1, "four files in one epoch"
        lake.more(2)
        assert app.run(until="caught_up").epochs == 2, "and then a file an epoch again"
        lake.check(app)
        assert eventually(lambda: durable(app, gone) == 6), "the replica that was lost is filled again"
