"""Rows that are taken away before they come, against batch Spark over what is left when all have come."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.observe import read_view
from slipstream.testing.oracle import applied, assert_equal_rows, recompute, rows_of

pytestmark = pytest.mark.spark

SCHEMA = "k string, v long, d double"
VIEWS = {
    "held": "SELECT * FROM a",
    "counts": "SELECT k, count(*) n, sum(v) s, avg(v) m FROM a GROUP BY k",
    "doubles": "SELECT k, sum(d) s, avg(d) m, count(d) n FROM a GROUP BY k",
    "total": "SELECT count(*) n, sum(v) s, sum(d) d FROM a",
    "having": "SELECT k, sum(v) s FROM a GROUP BY k HAVING count(*) > 1",
    "extremes": "SELECT k, min(v) l, max(d) h, count(*) n FROM a GROUP BY k",
    "extremes_of_all": "SELECT min(v) l, max(v) h FROM a",
    "distinct_counts": "SELECT k, count(DISTINCT v) n FROM a GROUP BY k",
    "once": "SELECT DISTINCT k FROM a",
    "lists": "SELECT k, sort_array(collect_list(v)) l FROM a GROUP BY k",
    "list_of_all": "SELECT sort_array(collect_list(v)) l FROM a",
    "windows": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, d) n FROM a",
    "first": "SELECT k, v, d FROM a ORDER BY v DESC, k, d LIMIT 3",
    "all_but_first": "SELECT k, v, d FROM a ORDER BY v DESC, k, d OFFSET 2",
    "joined": "SELECT a.k, a.v, b.v w FROM a JOIN b ON a.k = b.k",
    "joined_sums": "SELECT b.k, sum(a.v) s, count(*) n FROM a JOIN b ON a.k = b.k GROUP BY b.k",
    "left": "SELECT a.k, a.v, b.v w FROM a LEFT JOIN b ON a.k = b.k",
    "semi": "SELECT k, v FROM a WHERE k IN (SELECT k FROM b)",
    "anti": "SELECT a.k, a.v FROM a LEFT ANTI JOIN b ON a.k = b.k",
    "crossed": "SELECT a.v, b.v w FROM a JOIN b ON a.v < b.v",
    "scalar": "SELECT k, v - (SELECT max(v) FROM b) x FROM a",
    "excepted": "SELECT k, v FROM a EXCEPT ALL SELECT k, v FROM b",
    "of_counts": "SELECT n, count(*) c FROM counts GROUP BY n",
}


@pytest.mark.parametrize("seed", [1, 2])
def test_oracle_any_order_of_arrival(open_app: Any, seed: int) -> None:
    drawn = random.Random(seed)
    app = open_app(hash_bits=6, history=None)
    sources = {name: sl.memory(SCHEMA) for name in "ab"}
    for name, source in sources.items():
        app.source(name, source)
    for name, query in VIEWS.items():
        app.view(name, query)
    held, epochs = deliveries(drawn)
    for updates in epochs:
        for name, source in sources.items():
            for row in (row for table, row, diff in updates if table == name and diff > 0):
                source.append([row])
            if gone := [row for table, row, diff in updates if table == name and diff < 0]:
                source.retract(gone)
        app.run(until="caught_up")
    inputs = {
        name: app.spark.createDataFrame([row for table, row in held if table == name], SCHEMA)
        for name in sources
    }
    for view in VIEWS:
        expected = rows_of(recompute(app, view, inputs))
        assert_equal_rows(rows_of(app.read(view)), expected, view)
        kept = read_view(app.store, view)
        assert kept.num_rows == len(expected), view
        updates = rows_of(app.changes(view, 0, app.epoch).select("*"))
        together = [(row[:-2], row[-1]) for row in updates]
        assert_equal_rows(summed(together), expected, f"{view}, by its changes")


def deliveries(drawn: random.Random) -> tuple[list[tuple[str, Any]], list[list[tuple[str, Any, int]]]]:
    """Rows of tables, and updates of seven epochs that add up to them."""

    def row() -> tuple[str, Any]:
        doubles = [0.25, 0.5, None, 1e308, float("inf")]
        value = (drawn.choice(["x", "x", "y", "z"]), drawn.choice([0, 1, 2, 7, None]), drawn.choice(doubles))
        return drawn.choice("aab"), value

    held, passing = [row() for _ in range(14)], [row() for _ in range(14)]
    updates = [(*each, 1) for each in [*held, *passing]] + [(*each, -1) for each in passing]
    epochs: list[list[tuple[str, Any, int]]] = [[] for _ in range(7)]
    for update in updates:
        drawn.choice(epochs).append(update)
    return held, epochs


def summed(updates: list[tuple[Any, int]]) -> list[Any]:
    """Rows that updates add up to, in whatever order they come."""
    return applied([], sorted(updates, key=lambda update: -update[1]))


def test_oracle_while_rows_are_owed(open_app: Any) -> None:
    """A group is shown while it has rows, and over nothing is what all of no rows gives."""
    app = open_app(history=None)
    a = sl.memory(SCHEMA)
    app.source("a", a)
    names = ("held", "counts", "total", "extremes", "extremes_of_all", "distinct_counts", "once", "lists")
    for name in names:
        app.view(name, VIEWS[name])
    a.retract([("x", 5, 0.5), ("x", 6, 0.5)])
    app.run(until="caught_up")
    shown = {name: rows_of(app.read(name)) for name in names}
    assert shown.pop("total") == [(0, None, None)]
    assert shown.pop("extremes_of_all") == [(None, None)]
    assert not any(shown.values())
    a.append([("x", 5, 0.5), ("x", 6, 0.5), ("x", 7, 0.5)])
    app.run(until="caught_up")
    assert rows_of(app.read("counts")) == [("x", 1, 7, 7.0)]
    assert rows_of(app.read("extremes_of_all")) == [(7, 7)]
    assert not rows_of(app.read("counts", as_of=1))
    assert rows_of(app.changes("counts", 0, 2).select("k", "n", F.col("_diff"))) == [("x", 1, 1)]


def test_oracle_what_a_double_was_is_gone_with_it(open_app: Any) -> None:
    """Sums that overflow, NaN and infinities leave nothing behind."""
    app = open_app(history=None)
    a = sl.memory(SCHEMA)
    app.source("a", a)
    app.view("sums", "SELECT k, sum(d) s, avg(d) m, count(d) n FROM a GROUP BY k")
    app.view("moments", "SELECT k, var_pop(d) v FROM a GROUP BY k")
    app.view("joined", "SELECT x.k, sum(x.d) s FROM a x JOIN a y ON x.k = y.k WHERE y.v = 0 GROUP BY x.k")
    a.append([("x", 0, 1.0), ("x", 1, 3.0)])
    odd = [1e308, 1e308, -1e308, float("nan"), float("inf"), 1e200]
    for value in odd:
        a.append([("x", 2, value)])
        app.run(until="caught_up")
        a.retract([("x", 2, value)])
        app.run(until="caught_up")
        assert rows_of(app.read("sums")) == [("x", 4.0, 2.0, 2)], value
        assert rows_of(app.read("moments")) == [("x", 1.0)], value
        assert rows_of(app.read("joined")) == [("x", 4.0)], value
    a.append([("y", 0, 1e308), ("y", 0, 1e308)])
    app.run(until="caught_up")
    assert rows_of(app.read("sums").where("k = 'y'")) == [("y", float("inf"), float("inf"), 2)]
    a.retract([("y", 0, 1e308)])
    app.run(until="caught_up")
    assert rows_of(app.read("sums").where("k = 'y'")) == [("y", 1e308, 1e308, 1)]
