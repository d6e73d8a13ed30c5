"""Every Spark type that Arrow carries, as a grouping key, a join key, a value and a sort key, against batch Spark."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import slipstream as sl
from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

NAN, INF = float("nan"), float("inf")
at = datetime.fromisoformat
VALUES: dict[str, tuple[str, list[Any]]] = {
    "text": ("string", ["", "a", "ä", "a" * 40, "a" * 40 + "b"]),
    "truth": ("boolean", [True, False]),
    "tiny": ("tinyint", [-128, 0, 127]),
    "small": ("smallint", [-1, 0, 32767]),
    "whole": ("int", [-(2**31), 0, 5]),
    "long": ("bigint", [-(2**63), 0, 2**63 - 1]),
    "single": ("float", [0.0, -0.0, 1.5, NAN, INF, -INF]),
    "real": ("double", [0.0, -0.0, 1.5, NAN, INF, -INF, 1e-300]),
    "narrow": ("decimal(10,2)", [Decimal("1.10"), Decimal("-1.10"), Decimal("0.00")]),
    "wide": ("decimal(38,10)", [Decimal("1e27"), Decimal("-1e27"), Decimal("1E-10")]),
    "day": ("date", [date(1969, 12, 31), date(2024, 2, 29)]),
    "moment": ("timestamp", [at("1969-12-31T23:00"), at("2024-03-31T01:30:00.123456")]),
    "wall": ("timestamp_ntz", [at("1969-12-31T23:00"), at("2024-03-31T02:30:00.123456")]),
    "raw": ("binary", [b"", b"\x00", b"\xff\x00", b"a" * 40]),
    "pair": ("struct<x:int,y:string>", [(1, "a"), (1, None), (None, None)]),
    "several": ("array<double>", [[], [1.0], [1.0, None], [NAN, -0.0]]),
    "nested": ("array<struct<x:int,y:array<string>>>", [[], [(1, ["a", None])], [(None, None)]]),
    "span": ("interval day to second", [timedelta(0), timedelta(days=-1, microseconds=5)]),
}
MAPS = [{}, {"a": 1}, {"a": 1, "b": None}, None]


@pytest.mark.parametrize("part", [0, 1])
def test_oracle_types(open_app: Any, part: int) -> None:
    kinds = dict(list(VALUES.items())[part::2])
    columns = [f"{name} {kind}" for name, (kind, _) in kinds.items()]
    t = Scripted(", ".join(["id int", *columns, "m map<string,int>"]))
    app = open_app(hash_bits=4, history=None)
    app.source("t", t.source)
    app.view("as_values", "SELECT * FROM t WHERE id >= 0")
    app.view(
        "as_group_values",
        f"SELECT id % 3 g, collect_list(struct({', '.join(kinds)}))[0] IS NULL e, max(id) m FROM t GROUP BY 1",
    )
    app.view("joined_values", "SELECT x.id, y.m FROM t x LEFT JOIN t y ON x.id = y.id + 1")
    for name in kinds:
        app.view(f"key_{name}", f"SELECT {name} AS k, count(*) c, sum(id) s FROM t GROUP BY {name}")
        app.view(
            f"joined_{name}",
            f"SELECT x.id, y.{name} AS v FROM t x JOIN t y ON x.{name} = y.{name} AND x.id < y.id",
        )
        app.view(f"top_{name}", f"SELECT {name} AS v, id FROM t ORDER BY {name} DESC NULLS LAST, id LIMIT 3")
    script = Script(app, {"t": t})
    rows = made_rows(kinds)
    script.step(lambda: t.append(rows))
    script.step(lambda: t.append(rows[::2]))
    script.step(lambda: t.retract([*rows[::3], *rows[:2]]))
    script.check()


UNTYPED = {
    "alone": "SELECT k, NULL AS n FROM t",
    "within": "SELECT k, array() AS a, map('a', NULL) AS m, struct(NULL AS z) AS s FROM t",
    "keys": "SELECT n, count(*) c, max(n) m FROM (SELECT k, NULL AS n FROM t) GROUP BY n",
    "joined": "SELECT a.k, b.n FROM t a LEFT JOIN (SELECT k, NULL AS n FROM t WHERE v > 1) b ON a.k = b.k",
    "windowed": "SELECT k, n, max(v) OVER (PARTITION BY n ORDER BY k) x FROM (SELECT k, v, NULL AS n FROM t)",
    "first": "SELECT k, n FROM (SELECT k, NULL AS n FROM t) ORDER BY n, k LIMIT 2",
}


def test_oracle_nulls_without_a_type(open_app: Any) -> None:
    t = Scripted("k int, v int")
    app = open_app(history=None)
    app.source("t", t.source)
    for view, query in UNTYPED.items():
        app.view(view, query)
    script = Script(app, {"t": t})
    script.step(lambda: t.append([(1, 1), (2, 2), (2, 2)]))
    script.step(lambda: t.append([(3, None)]))
    script.step(lambda: t.retract([(1, 1), (2, 2)]))
    script.check()


def test_oracle_extremes_of_times(open_app: Any) -> None:
    """With the time zone of a timestamp, and without."""
    t = Scripted("k int, moment timestamp, wall timestamp_ntz, day date")
    app = open_app(history=None)
    app.source("t", t.source)
    app.view("extremes", "SELECT k, max(moment) a, min(moment) b, max(wall) c, min(day) d FROM t GROUP BY k")
    script = Script(app, {"t": t})
    times = [at("1969-12-31T23:00"), at("2024-03-31T01:30:00.123456"), at("2024-03-31T03:30")]
    rows = [(i % 2, time, time, time.date()) for i, time in enumerate([*times, *times[::-1]])]
    script.step(lambda: t.append([*rows, (0, None, None, None)]))
    script.step(lambda: t.retract(rows[1:4]))
    script.check()


def made_rows(kinds: dict[str, tuple[str, list[Any]]]) -> list[tuple[Any, ...]]:
    """Each value of each type in some row, NULLs among them."""
    longest = max(len(values) for _, values in kinds.values()) + 1
    picked = [[*values, None] for _, values in kinds.values()]
    return [
        (n, *(values[(n + shift) % len(values)] for shift, values in enumerate(picked)), MAPS[n % len(MAPS)])
        for n in range(longest + 3)
    ]


def test_oracle_maps_in_another_order_are_other_rows(open_app: Any) -> None:
    """A map is equal to another whatever the order of its entries, but a query may ask for the first of them. The
    oracle has no say: what Spark makes of Python's dictionaries has lost their order.
    """
    t, u = sl.memory("id int, m map<string,int>"), sl.memory("id int, m map<string,int>", key=["id"])
    app = open_app(history=None)
    app.source("t", t)
    app.source("u", u)
    app.view("joined", "SELECT t.m FROM t JOIN u ON t.id = u.id")
    app.view("latest", "SELECT m FROM u")
    app.view("grouped", "SELECT count(*) c FROM t GROUP BY m")
    one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}

    def first(view: str) -> list[int]:
        return sorted(row[0] for row in app.read(view).selectExpr("map_values(m)[0]").collect())

    t.append([(1, one), (1, other), (1, other)])
    u.append([(1, one)])
    app.run(until="caught_up")
    assert (first("joined"), first("latest")) == ([1, 2, 2], [1])
    u.append([(1, other)])
    t.retract([(1, other)])
    app.run(until="caught_up")
    assert (first("joined"), first("latest")) == ([1, 2], [2])
    assert [row.c for row in app.read("grouped").collect()] == [2]
