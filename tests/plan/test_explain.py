"""explain is the same text whenever it is asked: no ids of expressions, no order of arrival."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl

pytestmark = pytest.mark.spark


def explained(spark: SparkSession, store: Path) -> str:
    with sl.App("shop", store=store, spark=spark, shards=1) as app:
        app.source("orders", sl.memory("oid long, cid long, amount double", key=["oid"]))
        app.source("customers", sl.memory("cid long, country string"))
        app.view(
            "revenue",
            "SELECT country, sum(amount) AS revenue FROM orders JOIN customers USING (cid) "
            "WHERE amount > 0 GROUP BY country",
        )
        app.view("leaders", "SELECT * FROM revenue ORDER BY revenue DESC LIMIT 10")
        app.view("largest", "SELECT cid, max(amount) AS m FROM orders GROUP BY cid")
        return app.explain()


def test_explain_is_the_same_whenever_it_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    text = explained(spark, tmp_path / "one")
    assert text == explained(spark, tmp_path / "two")
    assert text + "\n" == (Path(__file__).parent / "explain.golden.txt").read_text()
