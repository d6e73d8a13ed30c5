"""An app with replicas: what it computed is on them, and its frontiers say so."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.errors import RecoveryWarning, WouldLose
from slipstream.core.settings import Starting, starting_with
from slipstream.durability import families
from slipstream.durability.homecoming import all_home
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.replica import Replica
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
        assert set(manifest.layers) == set(app._claim.store.traces()), "every trace that the app keeps"


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


def test_a_deleted_store_comes_back_and_going_behind_what_was_safe_needs_consent(
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
    with pytest.raises(WouldLose, match="--accept-loss"):
        lake.app(url, gone)
    with (
        starting_with(Starting(accept_loss=True)),
        pytest.warns(RecoveryWarning, match=r"restored from file://.*/replica, as of epoch 3"),
    ):
        app = lake.app(url, gone)
    with app:
        assert app.epoch == 3
        assert app.run(until="caught_up").epochs == 4, "a file an epoch, as before"
        lake.more(2)
        app.run(until="caught_up")
        lake.check(app)
        assert eventually(lambda: durable(app, gone) == 9), "the replica that was lost is filled again"


def test_input_waits_while_too_much_is_unsafe(spark: SparkSession, tmp_path: Path) -> None:
    lake, folder = Lake(spark, tmp_path), tmp_path / "replica"
    with lake.app(f"file://{folder}", max_unsafe="1s") as app:
        lake.more(1)
        app.run(until="caught_up")
        assert eventually(lambda: app.frontiers().safe == 1)
        folder.rename(tmp_path / "away")  # from now on nothing becomes safe
        folder.write_text("no folder")
        reports: list[sl.EpochReport] = []
        app.on_epoch(reports.append)
        lake.more(1)
        app.run(until="caught_up")
        time.sleep(1.1)  # epoch 2 has been unsafe for too long by now
        lake.more(2)
        app.start()
        time.sleep(2)
        assert app.epoch == 2, "the rest waits"
        assert app.frontiers().safe == 1
        folder.unlink()
        (tmp_path / "away").rename(folder)
        assert app.await_epoch(4, timeout=120)
        app.stop()
        assert any(report.steps.get("held", 0.0) > 1.0 for report in reports)
        lake.check(app)


def test_files_are_deleted_once_they_are_safe_and_not_before(spark: SparkSession, tmp_path: Path) -> None:
    folder, landing = tmp_path / "replica", tmp_path / "in"
    landing.mkdir()
    url = f"file://{folder}"

    def more(name: str) -> None:
        (tmp_path / "hidden").write_text('{"v": 1}\n')
        (tmp_path / "hidden").rename(landing / name)

    with sl.App("lake", store=tmp_path / "store", spark=spark, shards=2, replicas=[url]) as app:
        source = sl.files(landing, format="json", schema="v long", settle=0, after_safe="delete")
        app.source("t", source)
        app.view("count", "SELECT count(*) c FROM t")
        folder.write_text("no folder")  # nothing can become safe
        more("1.json")
        app.run(until="caught_up")
        more("2.json")
        app.run(until="caught_up")
        assert sorted(path.name for path in landing.iterdir()) == ["1.json", "2.json"]
        folder.unlink()
        assert eventually(lambda: app.frontiers().safe == 2)
        more("3.json")
        app.run(until="caught_up")
        assert sorted(path.name for path in landing.iterdir()) == ["3.json"]
        assert app.read("count").collect()[0].c == 3
    shutil.rmtree(tmp_path / "store")
    with pytest.warns(RecoveryWarning, match="restored"):
        app = sl.App("lake", store=tmp_path / "store", spark=spark, shards=2, replicas=[url])
    with app:
        app.source("t", sl.files(landing, format="json", schema="v long", settle=0, after_safe="delete"))
        app.view("count", "SELECT count(*) c FROM t")
        app.run(until="caught_up")
        assert app.read("count").collect()[0].c == 3, "what is not there any more is on the replica"


def test_a_replica_may_be_any_filesystem_that_fsspec_knows(spark: SparkSession, tmp_path: Path) -> None:
    lake, url = Lake(spark, tmp_path), f"local://{tmp_path}/replica"
    lake.more(2)
    with lake.app(url) as app:
        app.run(until="caught_up")
        assert eventually(lambda: app.frontiers().safe == 2)
    shutil.rmtree(tmp_path / "store")
    with pytest.warns(RecoveryWarning, match=r"restored from local://.*/replica, as of epoch 2"):
        app = lake.app(url)
    with app:
        lake.more(1)
        app.run(until="caught_up")
        lake.check(app)


def test_an_app_goes_on_with_its_state_still_on_the_replica(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "LARGE", 1)
    lake, url = Lake(spark, tmp_path), f"file://{tmp_path}/replica"
    lake.more(3)
    with lake.app(url) as app:
        app.run(until="caught_up")
        assert eventually(lambda: durable(app, url) == 3)
    shutil.rmtree(tmp_path / "store")
    with pytest.warns(RecoveryWarning, match="restored"):
        app = lake.app(url)
    with app:
        disk = app._claim.store.disk
        assert not all_home(disk), "layers that are brought when they are needed"
        lake.more(2)
        app.run(until="caught_up")
        lake.check(app)
        assert eventually(lambda: all_home(disk))
        lake.more(1)
        app.run(until="caught_up")
        lake.check(app)
