"""Every operator, and chains of them, against batch Spark: deletes, duplicates, NULLs, skew, hashes that collide.

Compiling an app costs more than running it, so views that read the same inputs share one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

SEEDS = [1]
"""More of them find more, at the cost of a minute each. Example by example is what test_replay does, without Spark."""

A = "k string, k2 int, i int, l long, d double, m decimal(10,2), w decimal(38,10), n decimal(25,10)"
B = "k string, k2 int, v long, s string"
ALL = "k, k2, i, l, d, m, w, n"
TOTAL = "l, i, d, m, w, n, k2"

LINEAR = {
    "projected": "SELECT k, l + 1 AS l1, d * 2 AS d2, upper(k) u FROM a",
    "filtered": "SELECT * FROM a WHERE l > 3 AND k IS NOT NULL",
    "united": "SELECT k, l FROM a UNION ALL SELECT k, v FROM b",
    "twice": "SELECT k FROM a UNION ALL SELECT k FROM a",
    "exploded": "SELECT k, explode(array(l, i)) AS e FROM a",
    "lateral_outer": "SELECT k, e FROM a LATERAL VIEW OUTER explode(split(k, '')) t AS e",
    "grouping_sets": "SELECT k, k2, grouping_id() g, sum(l) s, count(*) c "
    "FROM a GROUP BY GROUPING SETS ((k, k2), (k), ())",
    "cubed": "SELECT k, k2, max(l) s FROM a GROUP BY CUBE (k, k2)",
    "sorted_only": "SELECT k, l FROM a ORDER BY l",
    "intersected": "SELECT k FROM a INTERSECT SELECT k FROM b",
    "excepted": "SELECT k FROM a EXCEPT SELECT k FROM b",
    "excepted_all": "SELECT k FROM a EXCEPT ALL SELECT k FROM b",
}
SUMS = {
    "counts": "SELECT k, count(*) c, count(l) cl, sum(l) s, sum(i) si, sum(d) sd FROM a GROUP BY k",
    "averages": "SELECT k, sum(m) sm, sum(w) sw, avg(m) am, avg(w) aw, avg(l) al, avg(d) ad, "
    "avg(i) ai FROM a GROUP BY k",
    "moments": "SELECT k, variance(d) a1, var_pop(l) a2, stddev(m) a3, stddev_pop(i) a4 FROM a GROUP BY k",
    "distinct_keys": "SELECT DISTINCT k, k2 FROM a",
    "distinct_doubles": "SELECT DISTINCT d FROM a",
    "filtered_sums": "SELECT k2, count(*) FILTER (WHERE l > 3) c, sum(l) FILTER (WHERE d > 0) s, "
    "avg(m) FILTER (WHERE k IS NOT NULL) am FROM a GROUP BY k2",
    "over_all": "SELECT count(*) c, sum(l) s, avg(d) a, sum(m) m, stddev(d) sd FROM a",
    "over_nothing": "SELECT count(*) c, sum(v) s FROM b WHERE v > 1000000",
    "having": "SELECT k, sum(l) s FROM a GROUP BY k HAVING sum(l) > 5 AND count(*) > 1",
    "by_expression": "SELECT CASE WHEN l > 3 THEN 'x' ELSE 'y' END AS z, count(*) c, "
    "sum(l) + count(*) AS e FROM a GROUP BY 1",
    "ordered_sums": "SELECT k, sum(l) s FROM a GROUP BY k ORDER BY s DESC",
    "tried_sums": "SELECT k, try_sum(l) s, try_avg(m) a FROM a GROUP BY k",
    "of_view": "SELECT c, count(*) n FROM counts GROUP BY c",
    "of_views": "SELECT x.k, x.c, y.am FROM counts x JOIN averages y ON x.k = y.k",
}
_OUTER = {
    how.replace(" ", "_"): (how, "a.k, a.l" if " " in how else "a.k, a.l, b.k AS bk, b.v")
    for how in ("left", "right", "full", "left semi", "left anti")
}
JOINS = {
    "inner_one": "SELECT a.*, b.v, b.s FROM a JOIN b ON a.k = b.k",
    "inner_two": "SELECT a.k, a.k2, a.l, b.v FROM a JOIN b ON a.k = b.k AND a.k2 = b.k2",
    "inner_null_safe": "SELECT a.k, a.l, b.v FROM a JOIN b ON a.k <=> b.k",
    "inner_residual": "SELECT a.k, a.l, b.v FROM a JOIN b ON a.k = b.k AND a.l < b.v",
    "self_joined": "SELECT x.k, x.l, y.l AS l2 FROM a x JOIN a y ON x.k = y.k AND x.l < y.l",
    **{n: f"SELECT {cols} FROM a {how} JOIN b ON a.k = b.k" for n, (how, cols) in _OUTER.items()},
    **{
        f"{n}_residual": f"SELECT {cols} FROM a {how} JOIN b ON a.k = b.k AND a.l < b.v"
        for n, (how, cols) in _OUTER.items()
    },
    "left_null_safe": "SELECT a.k, a.l, b.v FROM a LEFT JOIN b ON a.k <=> b.k AND a.k2 = b.k2",
    "existing": "SELECT k, l FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v > 2)",
    "existing_or": "SELECT k, l FROM a WHERE l > 5 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "among": "SELECT k, l FROM a WHERE k IN (SELECT k FROM b)",
    "correlated": "SELECT k, l, (SELECT sum(v) FROM b WHERE b.k = a.k) t FROM a",
    "joined_sums": "SELECT b.s, sum(a.l) s1, count(*) c, avg(a.m) am, sum(a.w) sw, sum(a.d) sd, "
    "stddev(a.i) sv, count(b.v) cv FROM a JOIN b ON a.k = b.k GROUP BY b.s",
    "joined_expressions": "SELECT a.k2 + 1 e, upper(b.s) u, a.k, sum(a.l * 2) FILTER (WHERE a.i > 0) s "
    "FROM a JOIN b ON a.k = b.k GROUP BY 1, 2, 3 HAVING count(*) > 1",
    "joined_total": "SELECT count(*) c, sum(b.v) s FROM a JOIN b ON a.k = b.k",
    "joined_whole": "SELECT b.s, a.k2, sum(a.l) sl, sum(a.m) sm, avg(a.m) am, count(a.i) ci, sum(b.v) sv, count(*) c "
    "FROM a JOIN b ON a.k = b.k GROUP BY b.s, a.k2",
    "joined_products": "SELECT a.k2, sum(a.l * b.v) s FROM a JOIN b ON a.k = b.k GROUP BY a.k2",
    "joined_doubles": "SELECT a.d, count(*) c FROM a JOIN b ON a.k = b.k GROUP BY a.d",
    "of_join": "SELECT v, count(*) c FROM inner_one GROUP BY v",
}
GROUPS = {
    "extremes": "SELECT k, max(l) m, min(d) mi, sort_array(collect_set(i)) cs, percentile(l, "
    "0.5) p FROM a GROUP BY k",
    "ordered_extremes": "SELECT k, min(l) l0, max(d) d1, min(d) d0, max(i) i1, min(m) m0, max(w) w1, min(n) n0, "
    "max(concat(k, '-a-long-suffix-', i)) s1, min(l) FILTER (WHERE i > 0) f0, sum(l) s, count(*) c, avg(m) am "
    "FROM a GROUP BY k",
    "maxima": "SELECT k2, max(k) k1 FROM a GROUP BY k2",
    "extremes_of_all": "SELECT min(d) d0, max(k) k1, count(*) c FROM a",
    "extremes_of_extremes": "SELECT k1, min(k2) m, count(*) c FROM maxima GROUP BY k1",
    "extremes_having": "SELECT k, max(l) m FROM a GROUP BY k HAVING max(l) > 2 AND min(l) < 3",
    "extremes_joined": "SELECT b.s, max(a.l) m FROM a JOIN b ON a.k = b.k GROUP BY b.s",
    "lists": "SELECT k, sort_array(collect_list(l)) cl, max_by(l, struct(d, l)) mb FROM a GROUP BY k",
    "distinct_counts": "SELECT k, count(DISTINCT l) c1, count(DISTINCT i) c2, sum(l) s, "
    "sum(DISTINCT l) sd FROM a GROUP BY k",
    "windows": f"SELECT k, l, i, row_number() OVER w rn, lag(l) OVER w lg, sum(l) OVER w rs, "
    f"rank() OVER (PARTITION BY k ORDER BY l) rk FROM a WINDOW w AS (PARTITION BY k ORDER BY {TOTAL})",
    "first_two": f"SELECT * FROM (SELECT k, l, i, row_number() OVER (PARTITION BY k ORDER BY l DESC, "
    f"{TOTAL}) rn FROM a) WHERE rn <= 2",
    "ranked": "SELECT k, l, dense_rank() OVER (ORDER BY l) rk FROM a",
    "top_string": f"SELECT * FROM a ORDER BY k DESC NULLS LAST, {ALL} LIMIT 4",
    "top_double": f"SELECT * FROM a ORDER BY d, {ALL} LIMIT 4",
    "top_wide_decimal": f"SELECT * FROM a ORDER BY w DESC, {ALL} LIMIT 4",
    "top_wide_decimal_up": f"SELECT * FROM a ORDER BY w NULLS LAST, {ALL} LIMIT 4",
    "top_decimal": f"SELECT * FROM a ORDER BY m ASC NULLS LAST, {ALL} LIMIT 4",
    "top_long_decimal": f"SELECT * FROM a ORDER BY n DESC, {ALL} LIMIT 4",
    "top_some": "SELECT k, l FROM a ORDER BY l, k LIMIT 4",
    "top_expression": "SELECT k, l FROM a ORDER BY l + i DESC, k, l LIMIT 4",
    "top_hidden": "SELECT l FROM a ORDER BY d DESC, l LIMIT 4",
    "of_top": "SELECT sum(l) s FROM top_some",
}


def a_row(random: random.Random) -> tuple[Any, ...]:
    """Skewed: many rows have the key x, and few have a value that is odd."""
    pick = random.choice
    odd = random.random() < 0.3
    return (
        pick(["x", "x", "x", "y", "zz", "", None, "longer-string-1", "longer-string-2"]),
        pick([0, 1, 2, None]),
        pick([0, 1, 5, -3, None]),
        pick([0, 1, 2, 3, 7, -2, None]),
        pick([0.0, -0.0, 1e300, 1e10, float("nan"), None, float("inf")]) if odd else pick([0.1, 0.7, -1.25]),
        pick([Decimal("1.10"), Decimal("-99999.99"), Decimal("0.00"), None]),
        pick(
            [
                Decimal("1.1234567890"),
                Decimal("-9999999999999999999999.5"),
                Decimal("1e20"),
                Decimal(-1),
                None,
            ]
        ),
        pick([Decimal("1.1234567890"), Decimal("1.1234567891"), Decimal("-123456789012345.5"), None]),
    )


def b_row(random: random.Random) -> tuple[Any, ...]:
    pick = random.choice
    return (
        pick(["x", "y", "zz", "q", None, ""]),
        pick([0, 1, None]),
        pick([0, 2, 4, None]),
        pick(["u", None]),
    )


def steps(a: Scripted, b: Scripted, random: random.Random) -> Iterator[Callable[[], None]]:
    """Input; more of it, with a second source; retractions alone; nearly everything gone; input again."""

    def some(rows: list[Any], count: int) -> list[Any]:
        random.shuffle(rows)
        return rows[:count]

    def first() -> None:
        a.append(a_row(random) for _ in range(12))

    def more() -> None:
        a.append(a_row(random) for _ in range(12))
        b.append(b_row(random) for _ in range(6))

    def fewer() -> None:
        a.retract(some(a.rows, 9))
        b.retract(some(b.rows, 2))

    def nearly_nothing() -> None:
        a.retract(some(a.rows, len(a.rows) - 2))
        b.append(b_row(random) for _ in range(4))

    yield from (first, more, fewer, nearly_nothing, more)


def by_python(a: DataFrame) -> DataFrame:
    plus_one = F.udf(lambda x: None if x is None else x + 1, "long")
    return a.select("k", plus_one("l").alias("p")).where("p > 2")


def by_pandas(a: DataFrame) -> DataFrame:
    def halved(values):  # type: ignore[no-untyped-def]
        return values / 2

    halved.__annotations__ = {"values": pd.Series, "return": pd.Series}  # as types, not as text
    half = pandas_udf(halved, "double")  # type: ignore[call-overload]
    return a.groupBy(half("d").alias("half")).agg(F.count("*").alias("c"))


def pivoted(a: DataFrame) -> DataFrame:
    return a.groupBy("k").pivot("k2", [0, 1, 2]).agg(F.sum("l"))


def without_duplicates(a: DataFrame) -> DataFrame:
    return a.dropDuplicates(["k", "k2"]).select("k", "k2")


FUNCTIONS = {
    "by_python": by_python,
    "by_pandas": by_pandas,
    "pivoted": pivoted,
    "without_duplicates": without_duplicates,
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "views",
    [LINEAR | FUNCTIONS, SUMS, JOINS, GROUPS],
    ids=["linear", "sums", "joins", "groups"],
)
def test_oracle(open_app: Any, views: dict[str, Any], seed: int) -> None:
    app = open_app(hash_bits=3, history=None)
    a, b = Scripted(A), Scripted(B)
    app.source("a", a.source)
    app.source("b", b.source)
    for name, query in views.items():
        app.view(name, query)
    script = Script(app, {"a": a, "b": b})
    for step in steps(a, b, random.Random(seed)):
        script.step(step)
        script.merge()
    script.check(relative=1e-9, absolute=1e-9)
