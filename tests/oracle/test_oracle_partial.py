"""Rows added up before they are shuffled: chosen from what epochs measure, and never another result."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as sl
from slipstream.plan.choosing import ENOUGH_ROWS
from slipstream.testing.oracle import assert_equal

pytestmark = pytest.mark.spark

VIEWS = {
    "sums": "SELECT k, count(*) c, sum(v) s, avg(v) m FROM t GROUP BY k",
    "whole": "SELECT count(*) c, sum(v) s, stddev(v) d FROM t",
    "above": "SELECT k, s FROM sums WHERE c > 10",
    "tens": "SELECT v % 2100 AS t, sum(v) s FROM t GROUP BY v % 2100",
    "largest": "SELECT k, max(v) m, count(*) c FROM t GROUP BY k",
    "named": "SELECT name, sum(v) s, count(v) c FROM t JOIN names USING (k) GROUP BY name",
    "by_double": "SELECT CAST(k AS double) d, sum(v) s FROM t GROUP BY CAST(k AS double)",
}


def kinds(app: sl.App, view: str) -> list[str]:
    return [step.kind for step in app.steps(view)[view].walk()]


def test_oracle_partial_is_chosen_and_given_up_by_what_is_measured(open_app: Any) -> None:
    app = open_app(shards=2)
    source = sl.memory("k long, v long")
    app.source("t", source)
    names = sl.memory("k long, name string")
    app.source("names", names)
    known = [(i, f"name {i % 7}") for i in range(2 * ENOUGH_ROWS)]
    names.append(known)
    for name, text in VIEWS.items():
        app.view(name, text)
    rows: list[tuple[int, int]] = []

    def step(keys: int, gone: int = 0) -> None:
        new = [(i % keys, i) for i in range(ENOUGH_ROWS + 1000)]
        source.append(new)
        source.retract(rows[:gone])
        del rows[:gone]
        rows.extend(new)
        app.run(until="caught_up")

    def check() -> None:
        batch = app.spark.createDataFrame(rows, "k long, v long")
        batch.createOrReplaceTempView("batch_t")
        app.spark.createDataFrame(known, "k long, name string").createOrReplaceTempView("batch_names")
        for name, text in VIEWS.items():
            if name == "above":
                continue
            expected = app.spark.sql(
                text.replace("FROM t", "FROM batch_t").replace(" names ", " batch_names ")
            )
            assert_equal(app.read(name), expected, name, relative=1e-12)

    for _ in range(2):
        step(keys=50)
    assert "Partial" not in kinds(app, "sums")
    for _ in range(20):  # what an epoch left behind may be merged before it is looked at
        step(keys=50)
        if all("Partial" in kinds(app, view) for view in ("sums", "whole")):
            break
    assert "Partial" in kinds(app, "sums")
    assert "added up by each task" in app.explain("sums")
    assert "Partial" in kinds(app, "whole")
    assert "Partial" not in kinds(app, "named"), "the join below it adds up already"
    assert "Partial" not in kinds(app, "tens"), "ten rows a key are five a key and task"
    assert "Partial" not in kinds(app, "largest"), "an extreme needs its rows"
    assert "Partial" not in kinds(app, "by_double"), "Arrow tells doubles apart otherwise than Spark"
    for _ in range(3):
        step(keys=50, gone=700)
    check()
    for _ in range(20):
        step(keys=ENOUGH_ROWS + 1000)
        if "Partial" not in kinds(app, "sums"):
            break
    assert "Partial" not in kinds(app, "sums"), "a key for each row"
    assert "Partial" in kinds(app, "whole")
    step(keys=50, gone=300)
    check()
