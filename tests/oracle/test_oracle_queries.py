"""Queries of every kind that people write, against batch Spark: each over inserts, updates, deletes and NULLs.

Views that read the same inputs share one app. `c` stays empty until the last steps, and is emptied again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

A = "id int, k string, l long, d double"
B = "k string, v long"
C = "k string, v long"

SUBQUERIES = {
    "scalars": "SELECT k, l, (SELECT max(v) FROM b) m, (SELECT min(v) FROM b) n FROM a",
    "scalars_of_one_name": "SELECT k, l, (SELECT max(v) x FROM b) m, (SELECT min(v) x FROM b) n FROM a",
    "scalar_twice": "SELECT k, (SELECT count(*) FROM c) n FROM a WHERE l >= (SELECT count(*) FROM c)",
    "above_average": "SELECT k, l FROM a WHERE l > (SELECT avg(v) FROM b) AND d < (SELECT max(v) FROM b)",
    "of_itself": "SELECT k, l FROM a WHERE l = (SELECT max(l) FROM a)",
    "share_of_total": "SELECT k, sum(l) / (SELECT count(*) FROM a) s, count(*) c FROM a GROUP BY k",
    "inside_a_sum": "SELECT k, sum(l * (SELECT count(*) FROM b)) s, (SELECT count(*) FROM c) n FROM a GROUP BY k",
    "having_scalar": "SELECT k, sum(l) s FROM a GROUP BY k HAVING sum(l) > (SELECT sum(l) * 0.3 FROM a)",
    "nested_scalar": "SELECT k FROM a WHERE l < (SELECT max(v) FROM b WHERE v < (SELECT max(l) FROM a))",
    "maybe_no_row": "SELECT k, (SELECT v FROM b WHERE k = 'one') s FROM a",
    "no_row": "SELECT k, l = (SELECT v FROM b WHERE v > 1000) s FROM a",
    "first_of": "SELECT k, (SELECT v FROM b ORDER BY v DESC NULLS LAST LIMIT 1) s FROM a",
    "any_at_all": "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM c)",
    "none_at_all": "SELECT k FROM a WHERE NOT EXISTS (SELECT * FROM c WHERE v > 3)",
    "in_select_list": "SELECT k, l IN (SELECT v FROM b) x, EXISTS (SELECT 1 FROM c) y FROM a",
    "in_join_condition": "SELECT a.k, b.v FROM a LEFT JOIN b ON a.k = b.k AND b.v > (SELECT min(v) FROM b)",
    "lateral": "SELECT a.k, x.t FROM a, LATERAL (SELECT sum(v) t FROM b WHERE b.v > a.l) x",
    "correlated_unequal": "SELECT id, (SELECT sum(v) FROM b WHERE b.v > a.l) x FROM a",
    "correlated_count": "SELECT id, (SELECT count(*) FROM c WHERE c.k = a.k) x FROM a",
    "of_a_view": "SELECT k FROM scalars WHERE l > (SELECT avg(m) FROM scalars)",
    "of_one_table": "SELECT id, (SELECT count(*) FROM c WHERE k = 'x') n, (SELECT avg(v) FROM c WHERE k = 'x') a, "
    "CASE WHEN l > 1 THEN (SELECT max(v) FROM c WHERE k = 'x') ELSE (SELECT sum(l) FROM a) END m FROM a",
    "counted_distinct": "SELECT id, (SELECT count(f.k) FROM (SELECT DISTINCT k, v FROM b) f WHERE f.k = a.k) n FROM a",
    "counted_of_grouped": "SELECT id, (SELECT count(*) + max(f.n) FROM (SELECT k, count(*) n FROM b GROUP BY k, v) f "
    "WHERE f.k = a.k) n FROM a",
    "any_of_union": "SELECT id FROM a WHERE EXISTS (SELECT k FROM b UNION SELECT string(v) FROM c)",
    "any_of_distinct": "SELECT id, EXISTS (SELECT DISTINCT v FROM c) e FROM a",
    "a_second": "SELECT id FROM a WHERE EXISTS (SELECT k FROM c OFFSET 1)",
    "a_second_of_three": "SELECT id, NOT EXISTS (SELECT * FROM (SELECT k FROM c LIMIT 3) OFFSET 1) e FROM a",
    "a_third_of_two": "SELECT id FROM a WHERE NOT EXISTS (SELECT * FROM (SELECT k FROM b LIMIT 2) OFFSET 2)",
    "any_of_five": "SELECT id FROM a WHERE EXISTS (SELECT k FROM c LIMIT 5)",
}
_TWO = "a.id, a.l, b.k AS bk, b.v"
JOINS = {
    "crossed": "SELECT a.id, b.v FROM a CROSS JOIN b",
    "crossed_empty": "SELECT a.id, c.v FROM a CROSS JOIN c",
    "crossed_count": "SELECT count(*) n FROM a CROSS JOIN b",
    "below": "SELECT a.id, a.l, b.v FROM a JOIN b ON a.l < b.v",
    "between": "SELECT x.id, y.id AS jd FROM a x JOIN a y ON x.l BETWEEN y.l AND y.l + 1",
    "either": "SELECT a.id, b.v FROM a JOIN b ON a.k = b.k OR a.l = b.v",
    **{
        f"{how}_unequal": f"SELECT {_TWO} FROM a {how} JOIN b ON a.l < b.v"
        for how in ("left", "right", "full")
    },
    "left_always": "SELECT a.id, c.v FROM a LEFT JOIN c ON TRUE",
    "full_always": "SELECT a.id, c.v FROM a FULL JOIN c ON a.id > -1 OR c.v > 0",
    "left_self": "SELECT x.id, y.id AS jd FROM a x LEFT JOIN a y ON x.l < y.l",
    "semi_unequal": "SELECT id, l FROM a LEFT SEMI JOIN b ON a.l < b.v",
    "anti_unequal": "SELECT id, l FROM a LEFT ANTI JOIN b ON a.l < b.v",
    "not_in": "SELECT id FROM a WHERE l NOT IN (SELECT v FROM b)",
    "not_in_maybe_empty": "SELECT id FROM a WHERE l NOT IN (SELECT v FROM c)",
    "not_in_without_nulls": "SELECT id FROM a WHERE l NOT IN (SELECT v FROM b WHERE v IS NOT NULL)",
    "not_in_two": "SELECT id FROM a WHERE (k, l) NOT IN (SELECT k, v FROM b)",
    "not_in_correlated": "SELECT id FROM a WHERE l NOT IN (SELECT v FROM b WHERE b.k = a.k)",
    "not_in_or": "SELECT id FROM a WHERE l NOT IN (SELECT v FROM c) OR k = 'x'",
    "exists_or": "SELECT id FROM a WHERE l > 5 OR EXISTS (SELECT 1 FROM b WHERE b.v < a.l)",
    "exists_as_value": "SELECT id, EXISTS (SELECT 1 FROM b WHERE b.v < a.l OR b.k = a.k) e FROM a",
    "without_columns": "SELECT 1 one FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.v < a.l)",
    "with_map": "SELECT m, b.v FROM (SELECT map(k, l) m, l FROM a WHERE k IS NOT NULL) LEFT JOIN b ON l < b.v",
    "correlated_single": "SELECT id, (SELECT v FROM c WHERE c.k = a.k) x FROM a",
    "if_any": "SELECT id FROM a LEFT SEMI JOIN c",
    "guarded_left": "SELECT a.id, b.v FROM a LEFT JOIN b ON a.l = 0 OR 10 DIV a.l = b.v",
    "guarded_anti": "SELECT id, l FROM a LEFT ANTI JOIN b ON a.l = 0 OR 10 DIV a.l > b.v",
    "guarded_exists": "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.l = 0 OR 10 DIV a.l = b.v)",
    "if_none": "SELECT id FROM a LEFT ANTI JOIN c",
    "if_any_of_some": "SELECT id FROM a LEFT SEMI JOIN (SELECT * FROM c LIMIT 3) ON a.l > 1",
    "with_structs": "SELECT a.id, p.s FROM a JOIN VALUES ('x', struct(1 AS i)), ('y', struct(2 AS i)) AS p(k, s) "
    "ON a.k = p.k",
    "with_structs_outer": "SELECT a.id, p.s, p.s.i FROM a LEFT JOIN VALUES ('x', struct(1 AS i, array(2) AS o)) "
    "AS p(k, s) ON a.k = p.k AND a.l > p.s.i",
    "with_structs_unequal": "SELECT a.id, p.s FROM a FULL JOIN (SELECT struct(v IS NULL AS n) s, v FROM b) p "
    "ON a.l < p.v",
    "with_maps_unequal": "SELECT a.id, p.s FROM a LEFT JOIN (SELECT struct(map(1, k IS NULL) AS m) s, v FROM b) p "
    "ON a.l < p.v",
}

WHOLE = {
    "extremes": "SELECT max(l) m, min(d) n, max(k) o FROM a",
    "extremes_of_none": "SELECT max(v) m, count(v) n, sum(v) s, collect_list(v) l FROM c",
    "whole_having": "SELECT max(l) m FROM a HAVING max(l) > 3",
    "whole_mixed": "SELECT count(*) n, sum(d) s, max(l) m, avg(l) FILTER (WHERE d > 0) f FROM a",
    "whole_distinct": "SELECT count(DISTINCT k) n, sum(DISTINCT l) s FROM a",
    "whole_distinct_filtered": "SELECT count(DISTINCT k) FILTER (WHERE l > 1) n, count(DISTINCT l) m, sum(d) s FROM a",
    "one_distinct": "SELECT count(DISTINCT k, v) n FROM c",
    "whole_lists": "SELECT sort_array(collect_set(k)) s, sort_array(collect_list(l)) l, percentile(l, 0.5) p FROM a",
    "whole_of_view": "SELECT max(m) x, count(*) n FROM extremes",
    "whole_listed": "SELECT listagg(DISTINCT l, ',') WITHIN GROUP (ORDER BY l) x FROM a",
    "whole_listed_among_others": "SELECT listagg(DISTINCT l, ',') WITHIN GROUP (ORDER BY l) x, count(*) n, "
    "max(d) m, sort_array(collect_list(k)) s FROM a",
    "whole_distinct_or_none": "SELECT count(DISTINCT coalesce(l, -1)) n, sort_array(collect_list(DISTINCT l)) s, "
    "max(d) m FROM a",
    "whole_distinct_constant": "SELECT count(DISTINCT 1) n, max(d) m FROM a",
    "whole_constant": "SELECT 'x' AS x, count(*) > 0 AS y FROM a HAVING max(l) IS NULL OR max(l) > 0",
    "rolled_up": "SELECT k, l, count(*) n, max(d) m, grouping(k) g FROM a GROUP BY ROLLUP (k, l)",
    "cube_distinct": "SELECT k, count(DISTINCT l) n, max(d) x FROM a GROUP BY CUBE (k)",
    "several_distincts": "SELECT k, count(DISTINCT l) n, count(DISTINCT d) m, sum(DISTINCT l) s, max(l) x, count(*) c "
    "FROM a GROUP BY k",
    "distincts_filtered": "SELECT k, count(DISTINCT l) FILTER (WHERE d > 0) n, sum(l) FILTER (WHERE d < 0) s "
    "FROM a GROUP BY k",
    "orders": "SELECT k, percentile_approx(l, 0.5) p, median(d) m, mode(l, true) o, "
    "max_by(id, struct(l, id)) b, listagg(l, ',') WITHIN GROUP (ORDER BY l) g FROM a GROUP BY k",
    "booleans": "SELECT k, bool_and(l > 1) e, bool_or(l > 2) s, count_if(l > 2) c, any_value(k) y, bit_xor(l) x "
    "FROM a GROUP BY k",
    "statistics": "SELECT k, corr(l, d) c, covar_pop(l, d) p, skewness(d) s, regr_slope(l, d) r FROM a GROUP BY k",
    "sketches": "SELECT approx_count_distinct(l) a, count_min_sketch(l, 0.5d, 0.5d, 1) s FROM a",
    "by_map": "SELECT m, count(*) n FROM (SELECT map('k', k, 'l', string(l)) m FROM a) GROUP BY m",
    "by_struct": "SELECT s, max(l) m FROM (SELECT struct(k, array(l)) s, l FROM a) GROUP BY s",
    "skipped": "SELECT * FROM a ORDER BY l, id, k, d LIMIT 3 OFFSET 2",
    "skipped_all": "SELECT id, l FROM a ORDER BY l DESC, id, k, d OFFSET 4",
    "skipped_hidden": "SELECT id FROM a ORDER BY d DESC, id, l, k LIMIT 2 OFFSET 1",
}
SHAPES = {
    "one": "SELECT 1 AS one, 'x' AS x",
    "some_values": "SELECT * FROM VALUES (1, 'x'), (2, NULL), (2, NULL) AS t(p, q)",
    "no_values": "SELECT k FROM a LIMIT 0",
    "united_with_values": "SELECT k, l FROM a UNION ALL SELECT 'const', 7 UNION ALL SELECT q, p FROM some_values",
    "joined_values": "SELECT p, q, a.id FROM VALUES (1, 'x'), (2, 'y'), (3, 'zz') AS t(p, q) LEFT JOIN a ON a.k = q",
    "per_day": "SELECT r.id, count(a.l) n FROM range(5) r LEFT JOIN a ON a.l = r.id GROUP BY r.id",
    "whole_values": "SELECT sum(p) s, count(*) n FROM some_values",
    "distinct_union": "SELECT k, l FROM a UNION SELECT k, v FROM b",
    "intersected_all": "SELECT k FROM a INTERSECT ALL SELECT k FROM b",
    "excepted_all": "SELECT k, l FROM a EXCEPT ALL SELECT k, v FROM b",
    "minus": "SELECT l FROM a EXCEPT SELECT v FROM c",
    "positions": "SELECT id, p, e FROM a LATERAL VIEW posexplode(array(l, id, NULL)) t AS p, e",
    "inlined": "SELECT id, x, y FROM a LATERAL VIEW OUTER inline(IF(l > 1, array(struct(l AS x, k AS y)), NULL)) t",
    "stacked": "SELECT id, stack(2, 'l', l, 'i', bigint(id)) AS (n, v) FROM a",
    "exploded_map": "SELECT id, explode(map('l', l, 'i', id)) FROM a",
    "higher_order": "SELECT id, transform(array(l, 1), x -> x + 1) t, filter(array(l, id), x -> x > 2) f, "
    "aggregate(array(1, id), 0, (s, x) -> s + x) g, exists(array(l), x -> x IS NULL) e, map_filter(map(k, l), "
    "(q, v) -> v > 1) m FROM a WHERE k IS NOT NULL",
    "best_two": "SELECT * FROM (SELECT k, id, l, row_number() OVER (PARTITION BY k ORDER BY l DESC, id, d) rn FROM a) "
    "WHERE rn <= 2",
    "best_ranks": "SELECT * FROM (SELECT k, l, rank() OVER (PARTITION BY k ORDER BY l DESC) r FROM a) WHERE r <= 2",
    "best_of_all": "SELECT * FROM (SELECT id, l, d, row_number() OVER (ORDER BY l, id, k, d) rn FROM a) WHERE rn <= 3",
    "running": "SELECT k, id, sum(l) OVER w s, avg(d) OVER w v, lag(l, 2, -1) OVER w p, lead(l) OVER w n, "
    "first_value(l) IGNORE NULLS OVER w f, ntile(2) OVER w t, nth_value(l, 2) OVER w h FROM a "
    "WINDOW w AS (PARTITION BY k ORDER BY l, id, d)",
    "frames": "SELECT k, id, sum(l) OVER (PARTITION BY k ORDER BY l, id, d "
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) s, count(*) OVER (PARTITION BY k ORDER BY l "
    "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) n, max(l) OVER () m FROM a",
    "shares": "SELECT k, l, l / nullif(sum(l) OVER (PARTITION BY k), 0) s FROM a",
    "of_windows": "SELECT k, max(s) m FROM running GROUP BY k",
    "pivot_rows": "SELECT * FROM (SELECT k, l, id FROM a) PIVOT (sum(id) FOR k IN ('x', 'y'))",
    "with_cte": "WITH t AS (SELECT k, sum(l) s FROM a GROUP BY k) "
    "SELECT x.k, x.s, y.s AS ys FROM t x JOIN t y ON x.s < y.s",
    "decimals_twice": "WITH r AS (SELECT k, sum(CAST(l AS decimal(7,2))) p, sum(CAST(d AS decimal(7,2))) q FROM a "
    "GROUP BY k, id % 2) SELECT p * 1.5 - q g, k FROM r UNION SELECT sum(p) * 1.0 - sum(q), k FROM r GROUP BY k",
    "decimals_united": "WITH r AS (SELECT k, sum(CAST(l AS decimal(20,2))) p, avg(CAST(d AS decimal(7,2))) q FROM a "
    "GROUP BY k) SELECT k, p - q g FROM r UNION ALL SELECT k, p + q FROM r",
    "pivot_structs": "SELECT * FROM (SELECT id % 2 g, k, l % 2 l, d FROM a) "
    "PIVOT (max(d) FOR (k, l) IN (('x', 0), ('y', 1)))",
    "pivot_struct": "SELECT * FROM (SELECT id % 2 g, named_struct('k', k, 'n', l IS NULL) s, d FROM a) "
    "PIVOT (max(s) m, count(*) n FOR g IN (0, 1))",
    "natural": "SELECT * FROM a NATURAL JOIN b",
    "key_twice": "SELECT k, k AS again FROM a GROUP BY k",
}


def a_row(random: random.Random) -> tuple[Any, ...]:
    pick = random.choice
    return (
        random.randrange(1000),
        pick(["x", "x", "y", "z", None]),
        pick([0, 1, 2, 3, 6, None]),
        pick([0.5, 0.25, -1.5, 3.0, None]),
    )


def b_row(random: random.Random) -> tuple[Any, ...]:
    return (random.choice(["x", "y", None]), random.choice([0, 2, 4, 7, None]))


def steps(a: Scripted, b: Scripted, c: Scripted, random: random.Random) -> Iterator[Callable[[], None]]:
    """Input; a second source; retractions; the third source comes and goes; all is gone; input again."""

    def some(rows: list[Any], count: int) -> list[Any]:
        random.shuffle(rows)
        return rows[:count]

    def first() -> None:
        a.append(a_row(random) for _ in range(8))

    def second() -> None:
        a.append(a_row(random) for _ in range(3))
        b.append([*(b_row(random) for _ in range(4)), ("one", 3)])

    def third() -> None:
        c.append([("x", 4), ("w", None)])
        b.retract([("one", 3), *[row for row in b.rows if row[1] is None]])

    def fewer() -> None:
        a.retract(some(a.rows, 5))
        a.append(a_row(random) for _ in range(2))
        b.append([("x", 100), ("z", 1)])

    def nothing() -> None:
        a.retract(a.rows)
        b.retract(b.rows)
        c.retract(c.rows)

    yield from (first, second, third, fewer, nothing, second)


@pytest.mark.parametrize(
    "views", [SUBQUERIES, JOINS, WHOLE, SHAPES], ids=["subqueries", "joins", "whole", "shapes"]
)
def test_oracle(open_app: Any, views: dict[str, Any]) -> None:
    app = open_app(hash_bits=3, history=None)
    sources = {"a": Scripted(A), "b": Scripted(B), "c": Scripted(C)}
    for name, source in sources.items():
        app.source(name, source.source)
    for name, query in views.items():
        app.view(name, query)
    script = Script(app, sources)
    for step in steps(sources["a"], sources["b"], sources["c"], random.Random(5)):
        script.step(step)
    script.check(relative=1e-9, absolute=1e-9)
