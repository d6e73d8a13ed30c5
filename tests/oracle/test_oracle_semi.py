"""Semi and anti joins, and aggregates over distinct values, at the cost of the change."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest

from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

SEMI = {
    "semi": "SELECT * FROM a WHERE k IN (SELECT k FROM b)",
    "anti": "SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "two_keys": "SELECT * FROM a LEFT SEMI JOIN b ON a.k = b.k AND a.v = b.w",
    "null_safe": "SELECT * FROM a LEFT ANTI JOIN b ON a.k <=> b.k AND a.v = b.w",
    "doubles": "SELECT * FROM a LEFT SEMI JOIN b ON a.d = b.e",
    "of_groups": "SELECT k, count(*) c FROM a WHERE v IN (SELECT w FROM b GROUP BY w HAVING count(*) > 1) GROUP BY k",
    "guarded": "SELECT k, sum(6 DIV v) s FROM a LEFT ANTI JOIN b ON b.w = a.v WHERE v < 3 GROUP BY k",
    "self": "SELECT x.k, x.v FROM a x LEFT SEMI JOIN a y ON x.k = y.k AND x.v = y.v + 1",
}
DISTINCT = {
    "plain": "SELECT k, count(DISTINCT v) c FROM a GROUP BY k",
    "several_functions": "SELECT k, count(DISTINCT v) c, sum(DISTINCT v) s, avg(DISTINCT v) m FROM a GROUP BY k",
    "of_two": "SELECT count(DISTINCT k, v) c FROM a",
    "of_expressions": "SELECT upper(k) AS u, count(DISTINCT v % 2) + 1 AS c FROM a GROUP BY upper(k)",
    "of_its_key": "SELECT k, count(DISTINCT k) c, sum(DISTINCT v) s FROM a GROUP BY k",
    "filtered": "SELECT k, count(DISTINCT v) FILTER (WHERE v > 1) c FROM a GROUP BY k",
    "of_doubles": "SELECT count(DISTINCT d) c FROM a",
    "above_a_join": "SELECT w, count(DISTINCT v) c FROM a JOIN b USING (k) GROUP BY w HAVING count(DISTINCT v) > 1",
}
REGROUPED = {
    "semi_with_more": "SELECT * FROM a LEFT SEMI JOIN b ON a.k = b.k AND a.v < b.w",
    "distinct_and_all": "SELECT k, count(DISTINCT v) c, count(*) n FROM a GROUP BY k",
}
DOUBLES = (0.0, -0.0, 1.5, float("nan"), None)


def change(script: Script, random: Random) -> None:
    def row() -> tuple[Any, ...]:
        return random.choice(("x", "y", "z", None)), random.choice((1, 2, 3, None)), random.choice(DOUBLES)

    for source in script.sources.values():
        if random.random() < 0.8:
            source.retract(random.sample(source.rows, random.randint(0, len(source.rows) // 2)))
            source.append(row() for _ in range(random.randint(0, 5)))


def test_oracle_semi_joins_and_distinct_values(open_app: Any) -> None:
    app = open_app(shards=3, hash_bits=3, history=None)
    sources = {"a": Scripted("k string, v int, d double"), "b": Scripted("k string, w int, e double")}
    for name, each in sources.items():
        app.source(name, each.source)
    for name, text in (SEMI | DISTINCT | REGROUPED).items():
        app.view(name, text)
    script, random = Script(app, sources), Random(3)
    for _ in range(7):
        script.step(partial(change, script, random))
    script.check()
    kinds = {view: {part.kind for part in step.walk()} for view, step in app.steps().items()}
    assert all("Semi" in kinds[view] and "Regroup" not in kinds[view] for view in SEMI)
    assert all("Accumulate" in kinds[view] and "Regroup" not in kinds[view] for view in DISTINCT)
    assert all("Regroup" in kinds[view] for view in REGROUPED)


def test_oracle_a_row_that_goes_when_its_key_comes_to_be_shown_is_not_computed(open_app: Any) -> None:
    """A view above a semi join would fail on a row that was never in it."""
    app = open_app(history=None)
    sources = {"a": Scripted("k string, v int"), "b": Scripted("k string")}
    for name, each in sources.items():
        app.source(name, each.source)
    app.view("shares", "SELECT k, 12 DIV v AS share FROM a WHERE k IN (SELECT k FROM b)")
    script = Script(app, sources)
    script.step(partial(sources["a"].append, [("x", 0), ("x", 3)]))

    def both() -> None:
        sources["b"].append([("x",)])
        sources["a"].retract([("x", 0)])

    script.step(both)
    script.check()
