"""An epoch that a query's own error stops: what is said of it, and how the app goes on."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as sl
from slipstream.core.errors import EpochFailed
from slipstream.testing.oracle import assert_equal, recompute, rows_of

pytestmark = pytest.mark.spark

VIEWS = {
    "fine": "SELECT k, count(*) n FROM t GROUP BY k",
    "numbers": "SELECT k, cast(s AS int) n FROM t",
    "of_numbers": "SELECT sum(n) s FROM numbers",
    "shares": "SELECT k, 10 / length(s) q FROM t",
}


def declared(open_app: Any) -> tuple[Any, Any]:
    app, source = open_app(), sl.memory("k string, s string")
    app.source("t", source)
    for name, query in VIEWS.items():
        app.view(name, query)
    return app, source


def test_a_failed_epoch_names_the_views_and_the_expression_and_goes_on_without_the_row(open_app: Any) -> None:
    app, source = declared(open_app)
    source.append([("a", "1")])
    app.run(until="caught_up")
    source.append([("b", "2"), ("c", "abc")])
    with pytest.raises(EpochFailed) as failed:
        app.run(until="caught_up")
    text = str(failed.value)
    assert failed.value.views == ("numbers",), "a view that reads a failed one is not to blame"
    assert text.startswith("epoch 2 failed in view 'numbers'; the app stays at epoch 1 and nothing is lost.")
    assert "Cause in numbers: [CAST_INVALID_INPUT] The value 'abc'" in text
    assert "cast(s AS int)" in text
    assert "It fails on this row of 't': {'k': 'c', 's': 'abc'}" in text
    assert app.epoch == 1
    assert rows_of(app.read("numbers")) == [("a", 1)]
    app.close()

    app, source = declared(open_app)
    source.retract([("c", "abc")])
    app.run(until="caught_up")
    assert app.epoch == 2
    assert sorted(rows_of(app.read("numbers"))) == [("a", 1), ("b", 2)]
    assert rows_of(app.read("of_numbers")) == [(3,)]
    assert rows_of(app.changes("numbers", 1)) == [("b", 2, 2, 1)]

    source.append([("d", ""), ("e", "x")])
    with pytest.raises(EpochFailed) as failed:
        app.run(until="caught_up")
    assert failed.value.views == ("numbers", "shares")
    assert "Cause in shares: [DIVIDE_BY_ZERO]" in str(failed.value)
    assert "It fails on this row of 't': {'k': 'd', 's': ''}" in str(failed.value)


def test_a_sum_that_does_not_fit_fails_the_epoch_although_its_parts_are_kept_as_sums(open_app: Any) -> None:
    app, orders, customers = open_app(), sl.memory("c int, amount long"), sl.memory("c int, country string")
    app.source("orders", orders)
    app.source("customers", customers)
    app.view("revenue", "SELECT country, sum(amount) s FROM orders JOIN customers USING (c) GROUP BY country")
    assert "kept as sums" in app.explain("revenue")
    orders.append([(1, 2**62), (1, 2**62), (2, -(2**62))])
    customers.append([(1, "x"), (2, "x")])
    app.run(until="caught_up")
    assert rows_of(app.read("revenue")) == [("x", 2**62)], "one customer's sum alone would not fit"
    customers.retract([(2, "x")])
    with pytest.raises(EpochFailed, match=r"in view 'revenue'[^$]*sum"):
        app.run(until="caught_up")
    assert rows_of(app.read("revenue")) == [("x", 2**62)]


def test_a_scalar_subquery_with_two_rows_fails_the_epoch_as_it_fails_in_spark(open_app: Any) -> None:
    app, t, u = open_app(), sl.memory("v long"), sl.memory("w long")
    app.source("t", t)
    app.source("u", u)
    app.view("against", "SELECT v, (SELECT w FROM u) w FROM t")
    t.append([(1,)])
    app.run(until="caught_up")
    assert rows_of(app.read("against")) == [(1, None)]
    u.append([(5,)])
    app.run(until="caught_up")
    assert rows_of(app.read("against")) == [(1, 5)]
    u.append([(6,)])
    with pytest.raises(EpochFailed, match=r"in view 'against'[^$]*SCALAR_SUBQUERY_TOO_MANY_ROWS"):
        app.run(until="caught_up")
    assert rows_of(app.read("against")) == [(1, 5)]


def test_pairs_that_never_were_are_not_computed(open_app: Any) -> None:
    app, t, u = open_app(), sl.memory("k long, v long"), sl.memory("k long, w long")
    app.source("t", t)
    app.source("u", u)
    app.view("ratios", "SELECT t.k, v div w q FROM t JOIN u ON t.k = u.k")
    app.view("ratios_of_all", "SELECT v, v div w q FROM t CROSS JOIN u")
    t.append([(1, 8), (2, 9)])
    u.append([(1, 2)])
    app.run(until="caught_up")
    t.retract([(1, 8), (2, 9)])
    u.retract([(1, 2)])
    u.append([(1, 0)])
    app.run(until="caught_up")
    assert rows_of(app.read("ratios")) == rows_of(app.read("ratios_of_all")) == []
    u.retract([(1, 0)])
    u.append([(1, 4)])
    app.run(until="caught_up")
    t.append([(1, 12)])  # finds the row that is gone, and its retraction, in two layers
    app.run(until="caught_up")
    assert rows_of(app.read("ratios")) == [(1, 3)]
    assert rows_of(app.read("ratios_of_all")) == [(12, 3)]


@pytest.mark.parametrize(
    "row", ["OSError: [Errno 28] No space left on device", "slipstream.core.errors.DamagedLayer: x"]
)
def test_a_row_that_speaks_of_a_full_disk_is_a_row_that_fails(open_app: Any, row: str) -> None:
    app, source = open_app(), sl.memory("id long, x string")
    app.source("t", source)
    app.view("v", "SELECT id, CAST(x AS INT) AS x FROM t")
    source.append([(1, "1")])
    app.run(until="caught_up")
    source.append([(2, f"\n{row}")])
    with pytest.raises(EpochFailed, match="CAST_INVALID_INPUT"):
        app.run(until="caught_up")


ODD = "id int, n int, c string collate utf8_lcase, d double, m map<string,int>, s struct<x:float,l:array<string>>"
ODD_ROWS = [
    (1, 0, "a", 0.0, {"p": None}, (0.0, ["x", None])),
    (1, 0, "A", -0.0, {"p": 0}, (-0.0, ["x", None])),
    (3, 1, None, float("nan"), None, (float("nan"), None)),
    (3, 1, None, float("nan"), None, (float("nan"), None)),
]
SWAPPED = [(2, 1, "x", 1.0, {"p": 1, "q": 2}, None), (2, 1, "x", 1.0, {"q": 2, "p": 1}, None)]


def test_what_is_added_up_because_an_epoch_failed_keeps_rows_apart_that_only_look_alike(
    open_app: Any,
) -> None:
    app, source = open_app(), sl.memory(ODD)
    app.source("t", source)
    app.view(
        "texts", "SELECT id, CAST(c AS BINARY) c, CAST(d AS STRING) d, to_json(m) m, to_json(s) s FROM t"
    )
    app.view("maps", "SELECT id, m, m['p'] IS NULL AS without FROM t")
    app.view("shares", "SELECT id, 10 div n AS q FROM t")
    source.append([*ODD_ROWS, *SWAPPED])
    with pytest.raises(EpochFailed, match="in view 'shares'"):
        app.run(until="caught_up")
    app.drop("shares")
    app.run(until="caught_up")
    inputs = {"t": app.spark.createDataFrame(ODD_ROWS, ODD)}
    for view in ("texts", "maps"):
        assert_equal(app.read(view).where("id <> 2"), recompute(app, view, inputs), view)
    swapped = app.read("texts").where("id = 2").select("m")
    assert sorted(rows_of(swapped)) == [('{"p":1,"q":2}',), ('{"q":2,"p":1}',)]
    source.retract([*ODD_ROWS, *SWAPPED])
    app.run(until="caught_up")
    assert rows_of(app.read("maps")) == rows_of(app.read("texts")) == []
