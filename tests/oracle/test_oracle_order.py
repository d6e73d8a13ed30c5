"""Queries whose answer goes by the order of their rows, where Spark's plan has the order in another place, against
batch Spark.
"""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.core.errors import CannotMaintain
from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

_OWN = "FROM e WHERE e.k = n.k"
VIEWS = {
    "one": f"SELECT n.id, l.z FROM n, LATERAL (SELECT e.id z {_OWN} ORDER BY e.id DESC LIMIT 1) l",
    "two": f"SELECT n.id, l.z FROM n, LATERAL (SELECT e.v z {_OWN} ORDER BY e.id DESC LIMIT 2) l",
    "after_one": f"SELECT n.id, l.z FROM n, LATERAL (SELECT e.v z {_OWN} ORDER BY e.id LIMIT 2 OFFSET 1) l",
    "latest": f"SELECT n.id, (SELECT e.v {_OWN} ORDER BY e.id DESC LIMIT 1) z FROM n",
    "by_expression": f"SELECT n.id, l.z FROM n, LATERAL (SELECT upper(e.v) z {_OWN} ORDER BY e.id % 3, e.id LIMIT 2) l",
    "largest_of_two": f"SELECT n.id, l.z FROM n, "
    f"LATERAL (SELECT max(v) z FROM (SELECT e.v {_OWN} ORDER BY e.id DESC LIMIT 2)) l",
    "or_none": f"SELECT n.id, l.z FROM n LEFT JOIN LATERAL (SELECT e.v z {_OWN} ORDER BY e.id DESC LIMIT 2) l",
    "some": f"SELECT n.id FROM n WHERE EXISTS (SELECT 1 {_OWN} ORDER BY e.id LIMIT 1)",
    "some_open": f"SELECT n.id FROM n WHERE EXISTS (SELECT 1 {_OWN} LIMIT 1)",
    "among_two": f"SELECT n.id FROM n WHERE n.w IN (SELECT e.v {_OWN} ORDER BY e.id LIMIT 2)",
    "among_all": "SELECT n.id FROM n WHERE n.w IN (SELECT e.v FROM e ORDER BY e.id LIMIT 2)",
    "last_of_all": "SELECT n.id, (SELECT e.v FROM e ORDER BY e.id DESC LIMIT 1) z FROM n",
    "firsts": "SELECT k, first(v) f, last(v) l FROM (SELECT * FROM e ORDER BY id DESC) GROUP BY k",
    "lists": "SELECT k, collect_list(v) l FROM (SELECT k, v FROM e ORDER BY id DESC) GROUP BY k",
    "first_of_all": "SELECT first(v) f, collect_list(v) l FROM (SELECT k, v FROM e ORDER BY id DESC)",
    "list_of_first": "SELECT collect_list(v) l FROM (SELECT v FROM e ORDER BY id DESC LIMIT 3)",
    "nested": "SELECT v FROM (SELECT v, k FROM e ORDER BY id DESC LIMIT 10) LIMIT 3",
}


def test_oracle_orders(open_app: Any) -> None:
    n, e = Scripted("id long, k long, w string"), Scripted("id long, k long, v string")
    app = open_app(hash_bits=8, history=None)
    app.source("n", n.source)
    app.source("e", e.source)
    for name, query in VIEWS.items():
        app.view(name, query)
    app.view("newest_of_each", lambda e: e.orderBy(e.id.desc()).dropDuplicates(["k"]))
    script = Script(app, {"n": n, "e": e})
    rows = [(100 + i, i % 5, f"v{(i * 7) % 23}") for i in range(30)]
    keys = [(i, i % 6, f"v{i}") for i in range(8)]

    def begin() -> None:
        n.append(keys)
        e.append(rows[5:20])

    script.step(begin)
    script.step(lambda: e.append([*rows[20:], *rows[:5]]))
    script.step(lambda: e.retract(rows[::3] + rows[25:27]))
    script.check()


def test_rows_that_a_correlated_limit_leaves_open_are_refused(open_app: Any) -> None:
    app = open_app()
    app.source("n", Scripted("id long, k long").source)
    app.source("e", Scripted("id long, k long, v string").source)
    with pytest.raises(CannotMaintain, match="LIMIT without ORDER BY: which rows it keeps is left open"):
        app.view("open", f"SELECT n.id, l.z FROM n, LATERAL (SELECT e.v z {_OWN} LIMIT 2) l")
