"""Inputs that carry changes by key or with a diff, through joins and aggregates, against batch Spark."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as sl
from slipstream.testing.oracle import assert_equal_rows, rows_of
from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

VIEWS = {
    "all_people": "SELECT * FROM people",
    "all_rates": "SELECT * FROM rates",
    "by_town": "SELECT town, count(*) c, sum(age) s FROM people GROUP BY town",
    "rated": "SELECT p.id, p.age * r.rate AS v FROM people p JOIN rates r ON p.town = r.town",
    "unrated": "SELECT p.id, r.rate FROM people p LEFT JOIN rates r ON p.town = r.town",
    "oldest": "SELECT id, age FROM people ORDER BY age DESC, id LIMIT 2",
}


def test_rows_replaced_and_deleted_by_key(open_app: Any) -> None:
    app = open_app(hash_bits=2, history=None)
    people = Scripted("op string, id long, town string, age int", key=["id"], op="op")
    rates = Scripted("town string, rate int", key=["town"])
    app.source("people", people.source)
    app.source("rates", rates.source)
    for name, query in VIEWS.items():
        app.view(name, query)
    script = Script(app, {"people": people, "rates": rates})
    script.step(lambda: people.append([("insert", i, "abc"[i % 3], i) for i in range(9)]))
    script.step(lambda: rates.append([("a", 1), ("b", 2), ("a", 3)]))  # the last of one key counts

    def changed() -> None:
        people.append([("update", 1, "a", 99), ("delete", 2, None, None), ("delete", 77, None, None)])
        people.append([("insert", 2, "b", 5), ("delete", 3, None, None), ("update", 1, "c", None)])
        rates.append([("c", 7), ("a", 3)])

    script.step(changed)
    script.step(lambda: people.append([("delete", i, None, None) for i in range(8)]))
    script.check()


def test_a_diff_says_how_often(open_app: Any) -> None:
    app = open_app()
    source = sl.memory("k string, v long, times int", diff="times")
    app.source("t", source)
    app.view("rows", "SELECT * FROM t")
    app.view("sums", "SELECT k, sum(v) s, count(*) c FROM t GROUP BY k")
    source.append([("x", 1, 3), ("y", 2, 1), ("x", 1, -1)])
    app.run(until="caught_up")
    source.append([("y", 2, -1), ("x", 5, 2)])
    app.run(until="caught_up")
    assert_equal_rows(rows_of(app.read("rows")), [("x", 1)] * 2 + [("x", 5)] * 2, "rows")
    assert_equal_rows(rows_of(app.read("sums")), [("x", 12, 4)], "sums")
    assert_equal_rows(rows_of(app.read("sums", as_of=1)), [("x", 2, 2), ("y", 2, 1)], "sums as of 1")


def test_a_row_of_nan_is_found_in_input_that_several_views_read(open_app: Any) -> None:
    """Such input is kept in memory for the epoch, and Spark's bounds of what it keeps there know nothing of NaN."""
    app, source = open_app(), sl.memory("k long, x double")
    app.source("t", source)
    app.view("large", "SELECT k FROM t WHERE 1.5D <= x")
    app.view("counted", "SELECT count(*) n FROM t")
    source.append([(1, float("nan"))])
    app.run(until="caught_up")
    assert_equal_rows(rows_of(app.read("large")), [(1,)], "NaN is larger than any number")
