"""Files that only add rows beside a table that changes by key, on more shards than a scan has partitions.

A scan has as many partitions as its files ask for, an operator one for each shard. Where the two meet in one stage,
as the two inputs of a join or of a union do, a task must still know its shard.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.testing.oracle import assert_equal, recompute

ORDERS = "oid long, cid long, cents long"
CUSTOMERS = "op string, cid long, country string"


def drop(folder: Path, name: str, rows: list[dict[str, object]]) -> None:
    (folder / ".new").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / ".new").rename(folder / name)


@pytest.mark.spark
def test_oracle_files_joined_with_a_keyed_table(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(3)
    orders, customers = tmp_path / "orders", tmp_path / "customers"
    orders.mkdir()
    customers.mkdir()
    table: dict[int, str] = {}
    taken: list[tuple[int, int, int]] = []
    with sl.App("files", tmp_path / "store", spark=spark, shards=3) as app:
        app.source("orders", sl.files(orders, "json", ORDERS))
        app.source("customers", sl.files(customers, "json", CUSTOMERS, op="op", key="cid"))

        @app.view
        def totals(orders: DataFrame) -> DataFrame:
            return orders.groupBy("cid").agg(F.sum("cents").alias("cents"), F.count("*").alias("n"))

        @app.view
        def revenue(orders: DataFrame, customers: DataFrame) -> DataFrame:
            return orders.join(customers, "cid").groupBy("country").agg(F.sum("cents").alias("cents"))

        @app.view
        def everybody(orders: DataFrame, customers: DataFrame, totals: DataFrame) -> DataFrame:
            joined = orders.join(customers, "cid").select("cid")
            return (
                orders.select("cid").union(totals.select("cid")).union(joined).union(customers.select("cid"))
            )

        @app.view
        def often(everybody: DataFrame) -> DataFrame:
            return everybody.groupBy("cid").agg(F.count("*").alias("n"))

        for epoch in range(5):
            for part in range(chance.randrange(1, 5)):  # so many partitions in the scan
                new = [(len(taken) + i, chance.randrange(12), chance.randrange(100)) for i in range(40)]
                taken += new
                names = ("oid", "cid", "cents")
                drop(orders, f"{epoch}-{part}", [dict(zip(names, row, strict=True)) for row in new])
            if epoch != 2:
                changes: list[dict[str, object]] = []
                for _ in range(6):
                    cid, op = chance.randrange(14), chance.choice(["insert", "update", "delete"])
                    country = chance.choice(["Chile", "Nepal"])
                    changes.append({"op": op, "cid": cid, "country": country})
                    table[cid] = country
                    if op == "delete":
                        del table[cid]
                drop(customers, str(epoch), changes)
            app.run(until="caught_up")
            inputs = {
                "orders": spark.createDataFrame(taken, ORDERS),
                "customers": spark.createDataFrame(list(table.items()), "cid long, country string"),
            }
            inputs["totals"] = recompute(app, "totals", inputs)
            inputs["everybody"] = recompute(app, "everybody", inputs)
            for view in ("totals", "revenue", "everybody", "often"):
                assert_equal(app.read(view), recompute(app, view, inputs), f"{view} after epoch {epoch}")
