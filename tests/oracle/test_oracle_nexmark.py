"""Nexmark's queries 0 to 22 against batch Spark: events in order, late events, and withdrawn ones."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest

from slipstream.testing.nexmark import QUERIES, ROUND, SCHEMAS, Event, events, rows_of_kind, side_rows
from slipstream.testing.scripted import Script, Scripted


@pytest.mark.spark
def test_oracle_nexmark(open_app: Any) -> None:
    app = open_app(history=None)
    sources = {kind: Scripted(schema) for kind, schema in SCHEMAS.items()}
    for kind, source in sources.items():
        app.source(kind, source.source)
    for name, query in QUERIES.items():
        app.view(name, query)
    script = Script(app, sources)
    random = Random(1)
    sources["side"].append(side_rows())
    made = events(0, 26 * ROUND, seed=3)
    late = set(random.sample(range(len(made)), len(made) // 10))

    def arrive(numbers: list[int]) -> None:
        arrived: list[Event] = [made[number] for number in numbers]
        for kind, source in sources.items():
            source.append(rows_of_kind(arrived, kind))

    def withdraw() -> None:
        sources["bid"].retract(random.sample(sources["bid"].rows, 200))
        sources["auction"].retract(random.sample(sources["auction"].rows, 5))
        sources["side"].retract(side_rows()[:3])

    on_time = [number for number in range(len(made)) if number not in late]
    for numbers in (on_time[: 10 * ROUND], on_time[10 * ROUND :], sorted(late)):
        script.step(partial(arrive, numbers))
    script.step(withdraw)
    script.check()
    assert all(app.read(name).count() for name in QUERIES), "every query has something to show"
