"""An app with replicas: what it computed is on them, and its frontiers say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.replica import Replica
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
