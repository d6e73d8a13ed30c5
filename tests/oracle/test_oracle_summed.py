"""What a join keeps as sums, not row by row: never another result, and no more of it than there are keys."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import slipstream as sl
from slipstream.testing.scripted import Script, Scripted
from slipstream.trace import Span, TraceReader

pytestmark = pytest.mark.spark

ORDERS = "id int, customer int, kind string, amount long, price decimal(12,2), done boolean"
CUSTOMERS = "customer int, country string, points int"
VIEWS = {
    "revenue": "SELECT country, sum(amount) s, avg(amount) m, avg(price) a, count(*) c FROM {0} GROUP BY country",
    "by_kind": "SELECT kind, country, count(amount) n, sum(amount) FILTER (WHERE done) s FROM {0} GROUP BY ALL",
    "of_both": "SELECT country, sum(amount) s, sum(points) p, count(points) n FROM {0} GROUP BY country",
    "in_all": "SELECT sum(amount) s, count(*) c FROM {0}",
}


@pytest.fixture
def opened(open_app: Any) -> Callable[..., Script]:
    """An app over orders, each replaced by its id, and customers, and what the sources hold."""
    held = {"orders": Scripted(ORDERS, key=["id"]), "customers": Scripted(CUSTOMERS)}
    schemas: dict[str, dict[str, Any]] = {
        "orders": {"schema": ORDERS, "key": ["id"]},
        "customers": {"schema": CUSTOMERS},
    }
    steps: dict[int, Any] = {}

    def made(views: dict[str, str] = VIEWS, **options: Any) -> Script:
        app = open_app(history=None, **options)
        for name, of in schemas.items():
            held[name].source = sl.memory(**of)
            app.source(name, held[name].source)
        for name, text in views.items():
            app.view(name, text.format("customers JOIN orders USING (customer)"))
        script = Script(app, held)
        script.steps = steps
        return script

    return made


def order(number: int, random: Random) -> tuple[Any, ...]:
    pick = random.choice
    amount = pick([None, 0, 1, -1, 2**33 + 5, -(2**33) - 7, 2**50])
    price = pick([None, Decimal("0.01"), Decimal("-9999999999.99"), Decimal("12.50")])
    return number, pick([1, 2, 3, 4, None]), pick(["x", "y", None]), amount, price, pick([True, False, None])


def customer(random: Random) -> tuple[Any, ...]:
    return random.choice([1, 2, 3, None]), random.choice(["a", "b", None]), random.choice([None, 1, 7])


def change(script: Script, random: Random) -> None:
    """New orders, old ones that have changed, and customers who come, go and move."""
    orders, customers = script.sources["orders"], script.sources["customers"]
    orders.append(order(random.randrange(12), random) for _ in range(6))
    customers.retract(random.sample(customers.rows, random.randint(0, len(customers.rows) // 2)))
    customers.append(customer(random) for _ in range(2))


@pytest.mark.parametrize("hash_bits", [3, 64])
def test_oracle_whatever_changes(opened: Any, hash_bits: int) -> None:
    script, random = opened(shards=2, hash_bits=hash_bits), Random(hash_bits)
    assert all("kept as sums" in script.app.explain(view) for view in ("revenue", "by_kind"))
    for _ in range(5):
        script.step(partial(change, script, random))
        script.merge()
    script.check()


def test_oracle_another_number_of_shards_after_a_restart(opened: Any) -> None:
    script, random = opened(shards=3), Random(8)
    for _ in range(2):
        script.step(partial(change, script, random))
    script.app.close()
    script = opened(shards=2)
    for _ in range(2):
        script.step(partial(change, script, random))
    script.check()


def kept(store: Path, trace: str, epoch: int) -> list[dict[str, Any]]:
    parts = TraceReader(store / trace, epoch, Span.whole()).snapshot(["k0", "diff", "s0", "s1", "s2"])
    return sorted((row for part in parts for row in part.to_pylist()), key=lambda row: int(row["k0"]))


def test_oracle_there_is_one_row_for_each_key_and_an_update_may_change_nothing_but_its_sum(
    opened: Any,
) -> None:
    text = "SELECT country, sum(amount) s FROM orders JOIN customers USING (customer) GROUP BY country"
    script = opened(views={"revenue": text}, shards=2)
    orders, customers = script.sources["orders"], script.sources["customers"]

    def first() -> None:
        orders.append((i, i % 3, "x", 10, None, True) for i in range(90))
        customers.append((i, f"in {i}", 0) for i in range(3))

    script.step(first)
    steps = script.app.steps("revenue")["revenue"].walk()
    (trace,) = (name for step in steps for name in step.traces if "-sums-" in name)
    rows = [{"k0": i, "diff": 30, "s0": 30, "s1": 0, "s2": 300} for i in range(3)]
    assert kept(script.app.store, trace, 1) == rows
    script.step(lambda: orders.append([(0, 0, "x", -5, None, True), (1, 1, "x", None, None, True)]))
    rows[0] |= {"s1": -1, "s2": 300 - 10 + 2**32 - 5}
    rows[1] |= {"s0": 29, "s2": 290}
    assert kept(script.app.store, trace, 2) == rows
    script.check()
