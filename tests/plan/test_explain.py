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
        app.source("clicks", sl.memory("cid long, at timestamp"))
        by_window = "SELECT window, cid, count(*) AS n FROM clicks GROUP BY window(at, '30 seconds', '12 seconds'), cid"
        app.view("clicked", by_window)
        app.view("often", f"{by_window} HAVING count(*) > 9")
        app.view(
            "seldom",
            "SELECT window.start, avg(cid) AS a FROM clicks GROUP BY window(at, '5 minutes', '1 second')",
        )
        return app.explain()


def test_explain_is_the_same_whenever_it_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    text = explained(spark, tmp_path / "one")
    assert text == explained(spark, tmp_path / "two")
    assert text + "\n" == (Path(__file__).parent / "explain.golden.txt").read_text()


def test_explain_with_stats_tells_what_each_operator_did_and_keeps(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders = sl.memory("oid long, cid long, amount double", key=["oid"])
    customers = sl.memory("cid long, country string")
    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=1) as app:
        app.source("orders", orders)
        app.source("customers", customers)
        app.view("joined", "SELECT oid, country FROM orders JOIN customers USING (cid)")
        app.view("shown", "SELECT country, collect_set(oid) AS oids FROM joined GROUP BY country")
        assert "keeps 0 rows" in app.explain("joined", stats=True)
        assert "rows in" not in app.explain("joined", stats=True)
        customers.append([(1, "NL"), (2, "BE")])
        orders.append([(10, 1, 1.0), (11, 1, 2.0), (12, 2, 3.0)])
        app.run(until="caught_up")
        said = app.explain(stats=True).splitlines()
        notes = {line.split()[0]: said[i + 1] for i, line in enumerate(said[:-1]) if "costs" in line}
        assert "3 rows in, 3 out" in notes["Upsert"]
        assert "5 rows in, 3 out" in notes["Join"]
        assert "keeps 5 rows" in notes["Join"]
        assert "in 2 layers" in notes["Join"]
        assert "3 rows in, 3 out" in notes["Regroup"]
        assert "ms in Python" in notes["Join"]


def test_explain_warns_of_what_costs_more_than_the_change(spark: SparkSession, tmp_path: Path) -> None:
    with sl.App("dear", store=tmp_path / "store", spark=spark, shards=1) as app:
        app.source("t", sl.memory("k long"))
        app.source("u", sl.memory("k long"))
        app.view("below", "SELECT t.k FROM t JOIN u ON t.k < u.k")
        app.view("anew", "SELECT k FROM t", maintain="recompute")
        app.view("cheap", "SELECT k FROM t WHERE k NOT IN (SELECT k FROM u WHERE k IS NOT NULL)")
        assert "CrossJoin  Join Inner, (k < k)" in app.explain("below")
        assert "costs WARNING: the change times the whole other input" in app.explain("below")
        assert "costs WARNING: the whole query, over all rows of its inputs" in app.explain("anew")
        assert "Join       Join Inner, (k = k)" in app.explain("cheap")
