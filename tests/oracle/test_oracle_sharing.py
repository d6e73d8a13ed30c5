"""What views have in common exists once, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

TOTALS = "SELECT k, sum(l) AS s, count(*) AS c FROM a GROUP BY k"
VIEWS = {
    "totals": TOTALS,
    "totals_again": "SELECT k AS key, sum(l) AS total, count(*) AS number FROM a GROUP BY k",
    "totals_sorted": f"{TOTALS} ORDER BY c",
    "several": f"SELECT * FROM ({TOTALS}) WHERE c > 1",
    "alike": "SELECT k, max(l) m FROM a GROUP BY k",
    "alike_too": "SELECT k AS kk, max(l) AS mm FROM a GROUP BY k",
    "joined": "SELECT a.k, a.l, b.v FROM a JOIN b ON a.k = b.k",
    "joined_totals": "SELECT k, sum(l * v) s FROM (SELECT a.k, a.l, b.v FROM a JOIN b ON a.k = b.k) GROUP BY k",
    "twice": f"WITH t AS ({TOTALS}) SELECT x.k, y.k AS other FROM t x JOIN t y ON x.c = y.c",
    "first": "SELECT k, l FROM a ORDER BY l, k LIMIT 3",
    "first_of_first": "SELECT sum(l) s FROM (SELECT k, l FROM a ORDER BY l, k LIMIT 3)",
    "of_totals": "SELECT count(*) n FROM totals_again WHERE total > 3",
    "other": "SELECT k, sum(l + 1) AS s, count(*) AS c FROM a GROUP BY k",
}
OWN = set(VIEWS) - {"totals_again", "totals_sorted", "alike_too"}


def test_views_that_share_operators_equal_batch_spark(open_app: Any) -> None:
    app = open_app(hash_bits=3, history=None)
    a, b = Scripted("k string, l long"), Scripted("k string, v long")
    app.source("a", a.source)
    app.source("b", b.source)
    for name, query in VIEWS.items():
        app.view(name, query)
    script = Script(app, {"a": a, "b": b})

    def more() -> None:
        a.append([("x", 1), ("x", 5), ("y", 2), (None, 7), ("z", 4)])
        b.append([("x", 10), ("y", None)])

    def fewer() -> None:
        a.retract([("x", 5), ("z", 4)])
        b.retract([("x", 10)])

    for step in (more, more, fewer, more):
        script.step(step)
    script.check()
    kept = {path.parent.name for path in (app.store / "traces").glob("*/*")}
    assert kept == OWN
    assert len(list((app.store / "traces").glob("*/accumulate-*"))) == 7
    explained = app.explain("totals_again")
    assert "Shared" in explained
    assert "of totals" in explained
    assert app.explain("twice").count("Shared") == 1
    assert "added up" not in app.explain("joined_totals"), "the join is there already"
    assert "Shared" not in app.explain("other")
