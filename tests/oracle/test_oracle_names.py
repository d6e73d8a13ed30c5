"""Columns may have any names, and several of them the same one, as in batch Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

import slipstream as sl
from slipstream.testing.oracle import applied, assert_equal_rows, assert_same_columns, recompute, rows_of

pytestmark = pytest.mark.spark


def totals(joined: DataFrame) -> DataFrame:
    return joined.toDF("a", "v", "b", "_diff", "_epoch", "_rank").groupBy("a").count()


VIEWS: dict[str, Any] = {
    "joined": "SELECT * FROM t JOIN u ON t.k = u.k ORDER BY t.k DESC",
    "counted": "SELECT count(1), count(*) FROM t",
    "keys": "SELECT k, k, count(*) n FROM t GROUP BY k",
    "over": "SELECT max(_diff) m, count(*) n FROM joined",
    "again": "SELECT * FROM counted",
    "totals": totals,
    "plain": "SELECT * FROM u",
    "top": "SELECT * FROM u ORDER BY _diff LIMIT 2",
    "named": "SELECT k AS _diff, v AS _epoch, k AS _times FROM t",
}
BESIDE = {"plain": ["__epoch", "__diff"], "keys": ["_epoch", "_diff"], "named": ["__epoch", "__diff"]}


def test_oracle_names(open_app: Any) -> None:
    app: sl.App = open_app(history=None)
    t, u = sl.memory("k int, v long"), sl.memory("k int, _diff int, _epoch string, _rank int")
    app.source("t", t)
    app.source("u", u)
    for name, query in VIEWS.items():
        app.view(name, query)
    rows = [(1, 10), (2, 20), (2, 21), (3, 30)], [(1, 5, "x", 9), (2, 6, "y", 8), (2, 7, "z", 7)]
    t.append(rows[0])
    u.append(rows[1])
    app.run(until="caught_up")
    t.retract(rows[0][:1])
    u.retract(rows[1][-1:])
    app.run(until="caught_up")
    inputs = {
        "t": app.spark.createDataFrame(rows[0][1:], t.row_schema),
        "u": app.spark.createDataFrame(rows[1][:-1], u.row_schema),
    }
    for name in VIEWS:
        batch = recompute(app, name, inputs)
        expected = rows_of(batch)
        assert_same_columns(app.read(name), batch, name)
        assert_equal_rows(rows_of(app.read(name)), expected, name)
        kept = sl.read_view(app.store, name)
        assert kept.column_names == batch.columns
        assert_equal_rows(zip(*(each.to_pylist() for each in kept.columns), strict=True), expected, name)
        changed = app.changes(name, 0)
        assert changed.columns[-2:] == BESIDE.get(name, changed.columns[-2:])
        assert_equal_rows(applied([], [(row[:-2], row[-1]) for row in rows_of(changed)]), expected, name)
    assert [row[0] for row in app.read("joined").collect()] == [2, 2]
    assert rows_of(app.sql("SELECT count(*) FROM joined")) == [(2,)]
    read = app.spark.read.format("slipstream").option("view", "joined")
    with pytest.raises(
        Exception, match="view 'joined' has two columns named 'k', which a data source of Spark"
    ):
        read.load(str(app.store))
    assert sorted(rows_of(read.option("columns", "v").load(str(app.store)))) == [(20,), (21,)]
    changes = app.spark.read.format("slipstream").option("view", "plain").option("since", 0)
    assert changes.load(str(app.store)).columns == ["k", "_diff", "_epoch", "_rank", "__epoch", "__diff"]


def test_rows_that_carry_a_diff_in_a_column_of_that_name(open_app: Any) -> None:
    app: sl.App = open_app()
    t = sl.memory("k int, _diff int", diff="_diff")
    app.source("t", t)
    app.view("v", "SELECT k FROM t")
    t.append([(1, 2), (2, 1)])
    t.append([(1, -1)])
    app.run(until="caught_up")
    assert sorted(rows_of(app.read("v"))) == [(1,), (2,)]
