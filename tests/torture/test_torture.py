"""Some kills, seeded; then the oracle that they were judged by is itself compared with batch Spark."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slipstream.store.disk import LocalDisk
from slipstream.store.lineage import computed_frontier
from slipstream.testing.oracle import assert_equal_rows, rows_of
from slipstream.testing.torture import VIEWS, Torture, blows, expected

KILLS, SEED = 12, 4  # with every kind of victim


def test_a_seed_says_who_is_killed_and_every_kind_is() -> None:
    planned = list(islice(blows(SEED), KILLS))
    assert planned == list(islice(blows(SEED), KILLS)) != list(islice(blows(SEED + 1), KILLS))
    assert {blow.victim for blow in planned} == {"worker", "agent", "engine", "jvm", "standby", "store"}


@pytest.mark.spark
@pytest.mark.slow
def test_an_app_whose_processes_are_killed_is_never_wrong(tmp_path: Path, spark: SparkSession) -> None:
    said: list[str] = []
    torture = Torture(tmp_path, seed=SEED, say=said.append)
    torture.run(lambda kills: kills >= KILLS)
    assert sum(torture.kills.values()) == KILLS, said
    assert torture.guests.compared > KILLS, said
    orders, customers = torture.inputs(computed_frontier(LocalDisk(torture.store)))
    spark.createDataFrame(orders, "oid long, cid long, amount long").createOrReplaceTempView("orders")
    spark.createDataFrame(list(customers.items()), "cid long, country string").createOrReplaceTempView(
        "customers"
    )
    wanted = expected(orders, customers)
    for view, query in VIEWS.items():
        assert_equal_rows(wanted[view], rows_of(spark.sql(query)), f"the oracle's '{view}'")
    for name in ("orders", "customers"):
        spark.catalog.dropTempView(name)
