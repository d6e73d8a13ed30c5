"""Joins of joins, whichever of their inputs change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

import slipstream as sl
from slipstream.core.errors import EpochFailed
from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

SCHEMAS = {
    "sales": "item int, buyer int, n long",
    "items": "item int, maker string, price long",
    "buyers": "buyer int, place string",
    "places": "place string, tax long",
}
CHAIN = "sales JOIN items USING (item) JOIN buyers USING (buyer) JOIN places USING (place)"
VIEWS = {
    "by_place": f"SELECT place, sum(n * price) s, count(*) c FROM {CHAIN} GROUP BY place",
    "rows": f"SELECT item, buyer, place, n * price AS paid FROM {CHAIN} WHERE price + tax > 3",
    "mirrored": "SELECT p.tax, count(*) c, min(j.n) m FROM places p JOIN"
    " (SELECT * FROM sales JOIN buyers USING (buyer)) j ON p.place = j.place AND p.tax < j.n GROUP BY p.tax",
    "by_most": f"SELECT tax, sum(n) s, max(most) m FROM {CHAIN}"
    " JOIN (SELECT buyer, max(n) most FROM sales GROUP BY buyer) USING (buyer) GROUP BY tax",
    "by_buyer": f"SELECT buyer, sum(tax) t, count(tax) c FROM {CHAIN} GROUP BY buyer",
    "by_tax": f"SELECT tax, sum(n * price) s, count(maker) c, sum(tax + 1) t FROM {CHAIN} GROUP BY tax",
    "of_rows": "SELECT r.place, sum(r.paid) s, max(p.tax) t FROM rows r JOIN places p USING (place) GROUP BY r.place",
}


def row(table: str, random: Random) -> tuple[Any, ...]:
    few, place = random.randrange, random.choice(("north", "south", "west", None))
    if table == "sales":
        return few(6), few(6), few(9)
    if table == "items":
        return few(6), random.choice(("x", "y", None)), few(1, 9)
    return (few(6), place) if table == "buyers" else (place, few(4))


@pytest.fixture
def opened(open_app: Any) -> Callable[..., Script]:
    """An app with all the sources and views, and what its sources hold."""
    held = {name: Scripted(schema) for name, schema in SCHEMAS.items()}
    steps: dict[int, Any] = {}

    def made(views: dict[str, str] = VIEWS, **options: Any) -> Script:
        app = open_app(history=None, **options)
        for name, schema in SCHEMAS.items():
            held[name].source = sl.memory(schema)
            app.source(name, held[name].source)
        for name, text in views.items():
            app.view(name, text)
        script = Script(app, held)
        script.steps = steps
        return script

    return made


def change(script: Script, tables: tuple[str, ...], random: Random) -> None:
    for table in tables:
        source = script.sources[table]
        source.retract(random.sample(source.rows, random.randint(0, len(source.rows) // 2)))
        source.append(row(table, random) for _ in range(4))


def test_oracle_joins_of_joins_whatever_changes(opened: Any) -> None:
    script, random = opened(shards=3, hash_bits=3), Random(3)
    others = ((), ("places",), (), ("buyers", "items"), ("places", "items"), ())
    for tables in (tuple(SCHEMAS), *(("sales", *each) for each in others), ("places",)):
        script.step(partial(change, script, tables, random))
    script.check()


def test_oracle_an_epoch_in_which_a_join_fails_is_taken_again(opened: Any) -> None:
    text = f"SELECT place, sum(n DIV tax) s FROM {CHAIN} GROUP BY place"
    script = opened(views={"by_place": text})
    whole = {"sales": (1, 1, 8), "items": (1, "x", 2), "buyers": (1, "north"), "places": ("north", 2)}

    def add(**rows: tuple[Any, ...]) -> None:
        for table, each in rows.items():
            script.sources[table].append([each])

    script.step(partial(add, **whole))
    script.step(partial(add, sales=(1, 1, 6)))
    with pytest.raises(EpochFailed, match="DIVIDE_BY_ZERO"):
        script.step(partial(add, places=("north", 0)))
    script.sources["places"].retract([("north", 0)])
    script.app.close()
    assert script.app.epoch == 2
    script = opened(views={"by_place": text})
    script.step(partial(add, places=("south", 5), sales=(1, 1, 4)))
    script.check()


def test_oracle_no_pair_is_computed_that_never_was(opened: Any) -> None:
    """A row whose retraction lies in another layer must not meet a new row of the other side."""
    text = f"SELECT place, sum(12 DIV (n + tax)) s FROM {CHAIN} GROUP BY place"
    script = opened(views={"by_place": text})

    def first() -> None:
        script.sources["sales"].append([(1, 1, 0), (1, 1, 2)])
        script.sources["items"].append([(1, "x", 2)])
        script.sources["buyers"].append([(1, "north")])
        script.sources["places"].append([("north", 1)])

    script.step(first)
    script.step(lambda: script.sources["sales"].retract([(1, 1, 0)]))
    script.step(lambda: script.sources["places"].append([("north", 0)]))
    script.check()
