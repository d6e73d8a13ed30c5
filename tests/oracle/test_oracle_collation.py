"""Strings with a collation, against batch Spark: which of several equal strings a group shows is left open there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from slipstream.testing.oracle import recompute, rows_of
from slipstream.testing.scripted import Scripted

pytestmark = pytest.mark.spark

VIEWS = {
    "groups": "SELECT c, count(*) n, sum(id) s FROM t GROUP BY c",
    "groups_and_more": "SELECT upper(c) u, c, max(c) m, s FROM t GROUP BY c, s",
    "once": "SELECT DISTINCT c FROM t",
    "distinct_count": "SELECT count(DISTINCT c) n FROM t",
    "of_arrays": "SELECT array(c) a, count(*) n FROM t GROUP BY 1",
    "windows": "SELECT id, count(*) OVER (PARTITION BY c) n FROM t",
    "joined_groups": "SELECT a.c, count(*) n FROM t a JOIN t b ON a.c = b.c GROUP BY a.c",
    "among": "SELECT id FROM t WHERE c IN (SELECT c FROM t WHERE id = 1)",
    "not_among": "SELECT id FROM t WHERE c NOT IN (SELECT c FROM t WHERE id = 1 AND c IS NOT NULL)",
    "excepted": "SELECT c FROM t WHERE id > 1 EXCEPT SELECT c FROM t WHERE id = 1",
    "first": "SELECT id FROM t ORDER BY c, id LIMIT 3",
}
ROWS = [(1, "Abc", "Abc"), (2, "ABC", "ABC"), (3, "x", "x"), (4, "B", "B"), (5, "b", "b"), (6, None, None)]


def test_oracle_collations(open_app: Any) -> None:
    t = Scripted("id long, c string collate utf8_lcase, s string")
    app = open_app(hash_bits=8, history=None)
    app.source("t", t.source)
    for name, query in VIEWS.items():
        app.view(name, query)
    for added, gone in (
        (ROWS[1:4], []),
        ([ROWS[0], *ROWS[4:]], []),
        ([], [ROWS[1], ROWS[4]]),
        ([(7, "aBC", "z"), (8, "X", "x")], []),
    ):
        t.append(added)
        t.retract(gone)
        app.run(until="caught_up")
        inputs = {"t": app.spark.createDataFrame(t.rows, t.row_schema)}
        for name in VIEWS:
            expected = rows_of(recompute(app, name, inputs))
            assert folded(rows_of(app.read(name))) == folded(expected), f"{name}, epoch {app.epoch}"
    assert Counter(rows_of(app.read("once"))) == Counter([("Abc",), ("B",), ("X",), (None,)])


def folded(rows: list[Any]) -> Counter[str]:
    return Counter(repr(tuple(row)).lower() for row in rows)
