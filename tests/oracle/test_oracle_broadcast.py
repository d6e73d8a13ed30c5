"""A side of a join that does not change is broadcast: chosen from what epochs measure, and never another result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

import slipstream as sl
from slipstream import planning
from slipstream.app import standing_by
from slipstream.epoch.advice import Stillness
from slipstream.errors import EpochFailed
from slipstream.settings import Starting, starting_with
from slipstream.testing.oracle import assert_equal_rows, rows_of
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
JOINS = ("Join", "Broadcast")
ENOUGH = 4


def row(table: str, random: Random) -> tuple[Any, ...]:
    few, place = random.randrange, random.choice(("north", "south", "west", None))
    if table == "sales":
        return few(6), few(6), few(9)
    if table == "items":
        return few(6), random.choice(("x", "y", None)), few(1, 9)
    return (few(6), place) if table == "buyers" else (place, few(4))


def joins(app: sl.App, view: str) -> list[str]:
    """The joins of a view, from the last to the first."""
    return [step.kind for step in app.steps(view)[view].walk() if step.kind in JOINS]


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


def test_oracle_broadcast_whatever_changes(opened: Any) -> None:
    script, random = opened(shards=3, hash_bits=3, broadcast=True, partial=True), Random(3)
    seen: set[tuple[str, ...]] = set()
    others = ((), ("places",), (), ("buyers", "items"), ("places", "items"), ())
    for tables in (tuple(SCHEMAS), *(("sales", *each) for each in others), ("places",)):
        script.step(partial(change, script, tables, random))
        seen.update(map(tuple, (joins(script.app, "by_place"), joins(script.app, "rows"))))
        added_up = [step.kind for step in script.app.steps("by_place")["by_place"].walk()].count("Partial")
        assert added_up == (joins(script.app, "by_place")[0] == "Join"), "only what is shuffled"
    script.check()
    assert ("Broadcast", "Broadcast", "Join") in seen, "two joins in a row"
    assert all(kinds[-1] == "Join" for kinds in seen), "the first join has nothing that lies in shards"
    assert ("Join", "Broadcast", "Join") in seen, "what a view records where it lies is not broadcast"


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "Stillness", partial(Stillness, enough=ENOUGH))


@pytest.mark.usefixtures("_soon")
def test_oracle_broadcast_is_chosen_and_given_up_by_what_is_measured(opened: Any) -> None:
    script, random = opened(views={"by_place": VIEWS["by_place"]}), Random(1)

    def step(*tables: str) -> list[str]:
        script.step(partial(change, script, tables, random))
        return joins(script.app, "by_place")

    step(*SCHEMAS)
    for _ in range(ENOUGH - 1):
        assert step("sales", "buyers") == ["Join", "Join", "Join"]
    assert step("sales", "buyers")[0] == "Broadcast", "places are few and have long been the same"
    assert "costs the change of the large input" in script.app.explain("by_place")
    assert step("sales")[0] == "Broadcast"
    assert "rows in" in script.app.explain("by_place", stats=True)
    assert step("sales", "places")[0] == "Join"
    for _ in range(2 * ENOUGH - 1):
        assert step("sales")[0] == "Join", "a second time takes longer"
    assert step("sales")[0] == "Broadcast"
    script.check()


@pytest.mark.usefixtures("_soon")
def test_oracle_a_large_side_is_not_broadcast(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SMALL", 0)
    script, random = opened(views={"by_place": VIEWS["by_place"]}), Random(2)
    script.step(partial(change, script, tuple(SCHEMAS), random))
    for _ in range(ENOUGH + 1):
        script.step(partial(change, script, ("sales", "buyers"), random))
    assert joins(script.app, "by_place") == ["Join", "Join", "Join"]


@pytest.mark.parametrize("broadcast", [None, True, False])
def test_oracle_rows_put_aside_are_found_after_a_restart(opened: Any, broadcast: bool | None) -> None:
    views = {name: VIEWS[name] for name in ("by_place", "mirrored")}
    script, random = opened(views=views, shards=2, broadcast=True), Random(3)
    script.step(partial(change, script, tuple(SCHEMAS), random))
    for _ in range(3):
        script.step(partial(change, script, ("sales",), random))
    script.app.close()
    script = opened(views=views, shards=3, broadcast=broadcast)
    script.step(partial(change, script, ("sales",), random))
    assert ("Broadcast" in joins(script.app, "by_place")) == (broadcast is not False)
    script.step(partial(change, script, ("places", "buyers"), random))
    script.step(partial(change, script, ("sales", "items"), random))
    script.check()


def test_oracle_an_epoch_that_moves_rows_back_and_fails_is_taken_again(opened: Any) -> None:
    text = f"SELECT place, sum(n DIV tax) s FROM {CHAIN} GROUP BY place"
    script = opened(views={"by_place": text}, broadcast=True)
    whole = {"sales": (1, 1, 8), "items": (1, "x", 2), "buyers": (1, "north"), "places": ("north", 2)}

    def add(**rows: tuple[Any, ...]) -> None:
        for table, each in rows.items():
            script.sources[table].append([each])

    script.step(partial(add, **whole))
    script.step(partial(add, sales=(1, 1, 6)))
    assert joins(script.app, "by_place")[0] == "Broadcast"
    with pytest.raises(EpochFailed, match="DIVIDE_BY_ZERO"):
        script.step(partial(add, places=("north", 0)))
    script.sources["places"].retract([("north", 0)])
    script.app.close()
    assert script.app.epoch == 2
    script = opened(views={"by_place": text}, broadcast=True)
    script.step(partial(add, places=("south", 5), sales=(1, 1, 4)))
    script.check()


def test_oracle_no_pair_is_computed_that_never_was(opened: Any) -> None:
    """A row that was kept by key and whose retraction was put aside must not meet a new row of the other side."""
    text = f"SELECT place, sum(12 DIV (n + tax)) s FROM {CHAIN} GROUP BY place"
    script = opened(views={"by_place": text}, broadcast=True)

    def first() -> None:
        script.sources["sales"].append([(1, 1, 0), (1, 1, 2)])
        script.sources["items"].append([(1, "x", 2)])
        script.sources["buyers"].append([(1, "north")])
        script.sources["places"].append([("north", 1)])

    script.step(first)
    script.step(lambda: script.sources["sales"].retract([(1, 1, 0)]))
    assert joins(script.app, "by_place")[0] == "Broadcast"
    script.step(lambda: script.sources["places"].append([("north", 0)]))
    script.check()


def test_oracle_a_standby_takes_over_while_a_constant_is_broadcast_and_rebuilds(opened: Any) -> None:
    """In the one epoch of a rebuild everything changes, what never changes otherwise too."""
    constant = "(VALUES ('north', 1), ('south', 2)) AS v (place, tax)"
    text = f"SELECT tax, sum(n) s FROM sales JOIN buyers USING (buyer) JOIN {constant} USING (place) GROUP BY tax"
    first, random = opened(views={"by_tax": text}, broadcast=True), Random(5)
    for _ in range(3):
        first.step(partial(change, first, ("sales", "buyers"), random))
    assert joins(first.app, "by_tax") == ["Broadcast", "Join"]
    before = rows_of(first.app.read("by_tax"))
    assert before
    with standing_by():
        second = opened(views={"by_tax": text}, broadcast=True).app
    left = iter(range(3))

    def waiting() -> bool:
        if next(left, None) is None:
            first.app.close()
        return True

    with starting_with(Starting(rebuild=("by_tax",))):
        assert second.stand_by(waiting)
        second.run(until="caught_up")
    assert joins(second, "by_tax") == ["Broadcast", "Join"]
    assert_equal_rows(rows_of(second.read("by_tax")), before, "by_tax, rebuilt")
