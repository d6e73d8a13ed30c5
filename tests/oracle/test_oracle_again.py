"""Groups that are evaluated twice, as they were and as they are: what is taken away must be, to the last bit, what was
shown, also where an answer goes by the order of its rows or by how Spark adds up.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame

from slipstream.testing.oracle import assert_equal_rows, recompute
from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

SCHEMA = "k int, s string, v double, l long"
DISTINCT = {
    "listed": "SELECT k, listagg(DISTINCT s, '|') t FROM o GROUP BY k",
    "listed_in_all": "SELECT listagg(DISTINCT s, '|') t, skewness(v) w FROM o",
    "gathered": "SELECT k, collect_list(DISTINCT coalesce(s, 'none')) t, avg(v) a, first(s) f FROM o GROUP BY k",
    "gathered_some": "SELECT k, collect_list(DISTINCT s) FILTER (WHERE v > 0) t, last(l) z FROM o GROUP BY k",
    "gathered_in_all": "SELECT collect_list(DISTINCT coalesce(s, 'none')) t, count(*) c FROM o",
}
"""Spark leaves open in which order values are listed, so lists are compared sorted, and what is first or last."""

EXACT = {
    "moments": "SELECT k, kurtosis(v) a, skewness(v) b, corr(v, l) c, count(DISTINCT v, s) n FROM o GROUP BY k",
    "moments_in_all": "SELECT avg(v) a, kurtosis(v) b, count(DISTINCT s) n, "
    "count(DISTINCT v) FILTER (WHERE l > 2) m FROM o",
    "beside_lists": "SELECT k, kurtosis(v) a, size(collect_set(s)) n FROM o GROUP BY k",
    "ordered": "SELECT k, listagg(DISTINCT s, ',') WITHIN GROUP (ORDER BY s) t, stddev(v) d FROM o GROUP BY k",
    "zeros": "SELECT k, sum(DISTINCT v) a, collect_set(l) IS NULL n, regr_slope(v, l) r FROM o GROUP BY k",
    "by_value": "SELECT v, s, kurtosis(l) a, count(DISTINCT k) n FROM o GROUP BY v, s",
}


def rows(source: random.Random, groups: int, count: int) -> list[tuple[Any, ...]]:
    return [
        (
            source.randrange(groups),
            source.choice(["a", "b", "cc", "d", "e", "ff", None]),
            source.choice([0.1, 0.7, -1.25, 3e5, 1e-7, 0.0, -0.0, float("nan"), None]),
            source.randrange(7),
        )
        for _ in range(count)
    ]


def in_any_order(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Rows with lists in the order of their values, without what is first or last."""
    columns = [each for each in frame.columns if each not in "fz"]
    return [tuple(_in_order(each) for each in row) for row in frame.select(*columns).collect()]


def _in_order(value: Any) -> Any:
    if isinstance(value, str):
        return sorted(value.split("|"))
    return sorted(value) if isinstance(value, list) else value


@pytest.mark.parametrize("groups", [3, 400])
def test_what_is_taken_away_is_what_was_shown(open_app: Any, groups: int) -> None:
    app = open_app(hash_bits=8, history=None, shards=1)
    o = Scripted(SCHEMA)
    app.source("o", o.source)
    for name, query in (DISTINCT | EXACT).items():
        app.view(name, query)
    script = Script(app, {"o": o})
    source = random.Random(groups)
    script.step(lambda: o.append(rows(source, groups, groups * 6)))
    for _ in range(4):
        script.step(lambda: o.append(rows(source, groups, groups)))
        held = o.rows
        source.shuffle(held)
        script.step(lambda held=held: o.retract(held[:groups]))  # type: ignore[misc]
        for name in DISTINCT:
            now = {"o": app.spark.createDataFrame(o.rows, o.row_schema)}
            expected = in_any_order(recompute(app, name, now))
            assert_equal_rows(in_any_order(app.read(name)), expected, name, relative=1e-9, absolute=1e-9)
    script.check(EXACT, relative=1e-9, absolute=1e-9)
