"""Inputs that hypothesis makes up, against batch Spark: each example is one more epoch of one app."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

VIEWS = {
    "sums": "SELECT k, count(*) c, sum(v) s, avg(v) m, count(x) n, sum(x) d FROM a GROUP BY k",
    "paired": "SELECT a.k, a.v, b.w FROM a JOIN b ON a.k = b.k",
    "by_weight": "SELECT w, sum(v) s FROM paired GROUP BY w",
    "left_over": "SELECT a.k, a.v FROM a LEFT ANTI JOIN b ON a.k = b.k",
    "greatest": "SELECT k, max(v) v, count(DISTINCT x) n FROM a GROUP BY k",
    "first_three": "SELECT k, s FROM sums WHERE s IS NOT NULL ORDER BY s DESC, k LIMIT 3",
}

KEYS = st.sampled_from([None, "", "a", "a", "a", "b", "\u00e9", "long" * 20])
NUMBERS = st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**40), 2**40))
HALVES = st.one_of(st.none(), st.integers(-8, 8).map(lambda n: n / 2), st.just(float("nan")))
CHANGES = st.fixed_dictionaries(
    {
        "a": st.lists(st.tuples(KEYS, NUMBERS, HALVES), max_size=12),
        "b": st.lists(st.tuples(KEYS, NUMBERS), max_size=4),
        "back": st.lists(st.integers(0, 1000), max_size=6),
    }
)


@pytest.mark.parametrize("partial", [False, True])
def test_oracle_random_changes(open_app: Any, partial: bool) -> None:
    app = open_app(shards=3, hash_bits=3, partial=partial)
    sources = {"a": Scripted("k string, v long, x double"), "b": Scripted("k string, w long")}
    for name, source in sources.items():
        app.source(name, source.source)
    script = Script(app, sources)
    for name, text in VIEWS.items():
        app.view(name, text)

    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(CHANGES)
    def grow(change: dict[str, list[Any]]) -> None:
        def apply() -> None:
            for name in ("a", "b"):
                held = sources[name].rows
                gone = {number % len(held) for number in change["back"]} if held else set()
                sources[name].append(change[name])
                sources[name].retract([held[i] for i in gone])

        if any(change.values()):
            script.step(apply)

    grow()
    assert app.epoch >= 6, "hypothesis gave something to do"
    script.check(relative=1e-12)
