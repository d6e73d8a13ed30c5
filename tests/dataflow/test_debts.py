"""Rows that are taken away before they come: in whatever order updates arrive, epoch by epoch, what an operator has
emitted in the end is what it gives for the rows that are left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.dataflow import exact
from slipstream.dataflow.accumulate import Accumulate
from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.combine import Combine
from slipstream.dataflow.extreme import Extreme
from slipstream.dataflow.join import Join, Summed
from slipstream.dataflow.regroup import Regroup
from slipstream.dataflow.semi import Semi
from slipstream.dataflow.task import Task
from slipstream.dataflow.topk import TopK

Row = tuple[int, int, int | None]
"""Which input it is of, a key, and a value."""

WHOLE = pa.int64()
HUGE = {7: 1e308, 8: -1e308, 9: math.nan, 10: math.inf, 11: 1e-300}
"""What some values are as doubles."""

rows = st.tuples(st.integers(0, 1), st.integers(0, 3), st.none() | st.integers(0, 11))


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[Counter[Row], list[list[tuple[Row, int]]]]:
    """A bag of rows, and updates of epochs that add up to it: of these, some cancel each other out."""
    held = draw(st.lists(rows, max_size=8))
    passing = draw(st.lists(rows, max_size=8))
    updates = [(row, 1) for row in [*held, *passing]] + [(row, -1) for row in passing]
    shuffled = draw(st.permutations(updates))
    epochs: list[list[tuple[Row, int]]] = [[] for _ in range(draw(st.integers(1, 6)))]
    for update in shuffled:
        epochs[draw(st.integers(0, len(epochs) - 1))].append(update)
    return Counter(held), epochs


def double(value: int | None) -> float | None:
    return None if value is None else HUGE.get(value, value / 4)


def fields(*named: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*named, ("diff", WHOLE)])


KEYED = fields(("h", WHOLE), ("k0", WHOLE), ("x0", WHOLE), ("x1", pa.float64()))
TOTAL = fields(("h", WHOLE), ("x0", WHOLE), ("x1", pa.float64()))
VALUES = fields(("h", WHOLE), ("k0", WHOLE), ("p0", WHOLE), ("p1", WHOLE), ("e0", WHOLE), ("e1", WHOLE))
BAG = fields(("h", WHOLE), ("r", WHOLE), ("v0", WHOLE))
SIDES = [("side", pa.int32()), ("h", WHOLE), ("r", WHOLE), ("k0", WHOLE)]
JOINED = fields(*SIDES, ("a0", WHOLE), ("b0", WHOLE))
LEFT = fields(*SIDES, ("a0", WHOLE))
SUMMED = fields(*SIDES, ("y0", WHOLE))
LONG = Argument("long")
SUMS = (LONG, Argument("double", squares=True))
SHOWN = (
    Buffer("rows", -1, WHOLE),
    Buffer("count", 0, WHOLE),
    Buffer("sum", 0, WHOLE),
    Buffer("sum", 1, pa.float64()),
    Buffer("m2", 1, pa.float64()),
)


def batches(schema: pa.Schema, updates: Iterable[tuple[Row, int]]) -> Iterator[pa.RecordBatch]:
    made = []
    for (side, key, value), diff in updates:
        known: dict[str, Any] = {"side": side, "h": key % 2, "r": hash(value) % 3, "k0": key, "v0": value}
        known |= {"a0": None if side else value, "b0": value if side else None, "y0": None if side else value}
        known |= {"x0": value, "x1": double(value), "e0": value, "e1": value, "diff": diff}
        known |= {"p0": 0 if value is None else -(value // 3), "p1": value or 0}
        if "v0" in schema.names:  # in the order of its value
            known["h"] = -1 if value is None else value // 3
        if "k0" not in schema.names and "r" not in schema.names:
            known["h"] = 0
        made.append({name: known[name] for name in schema.names})
    yield pa.RecordBatch.from_pylist(made, schema=schema)


def emitted(operator: Any, root: Path, epochs: list[list[tuple[Row, int]]]) -> Counter[str]:
    """What an operator has emitted after some epochs, added up: rows as texts."""
    total: Counter[str] = Counter()
    for number, updates in enumerate(epochs, 1):
        task = Task(root, number, 1, 0, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Task, "current", staticmethod(lambda task=task: task))
            made = list(operator(batches(operator.input, updates)))
        for row in (row for batch in made for row in batch.to_pylist()):
            row.pop("h", None)
            times = row.pop("diff" if "diff" in row else "side")
            total[text(row)] += times
    return Counter({row: times for row, times in total.items() if times})


def over(rows: Iterable[Row]) -> dict[int, list[int | None]]:
    groups: dict[int, list[int | None]] = {}
    for _, key, value in rows:
        groups.setdefault(key, []).append(value)
    return groups


def aggregated(values: list[int | None]) -> dict[str, Any]:
    there = [value for value in values if value is not None]
    doubles = [each for each in map(double, there) if each is not None]
    return {
        "b0": len(values),
        "b1": len(there),
        "b2": sum(there) if there else None,
        "b3": added(doubles) if doubles else None,
        "b4": spread(doubles),
    }


def added(values: list[float]) -> float:
    if not all(map(math.isfinite, values)):
        return math.nan if any(map(math.isnan, values)) else math.inf
    return exact.rounded(sum(map(Fraction, values), Fraction(0)))


def spread(values: list[float]) -> float:
    """The sum of squared distances from the mean."""
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = sum(map(Fraction, values), Fraction(0)) / max(len(values), 1)
    return exact.rounded(sum(((Fraction(value) - mean) ** 2 for value in values), Fraction(0)))


def text(row: dict[str, Any]) -> str:
    """A row, with doubles to 12 digits."""
    return repr({name: f"{value:.12g}" if isinstance(value, float) else value for name, value in row.items()})


def accumulated(held: Counter[Row]) -> list[dict[str, Any]]:
    return [{"k0": key, **aggregated(values)} for key, values in over(held.elements()).items()]


def totalled(held: Counter[Row]) -> list[dict[str, Any]]:
    return [aggregated([value for _, _, value in held.elements()])]


def extremes(held: Counter[Row]) -> list[dict[str, Any]]:
    shown = []
    for key, values in over(held.elements()).items():
        there = [value for value in values if value is not None]
        largest, least = (max(there), min(there)) if there else (None, None)
        shown.append({"k0": key, "b0": largest, "b1": len(values), "b2": least})
    return shown


def first(held: Counter[Row]) -> list[dict[str, Any]]:
    """The first two, and all that tie with the last of them."""
    values = Counter(value for _, _, value in held.elements())
    prefixes = sorted(-1 if value is None else value // 3 for value in values.elements())
    last = prefixes[1] if len(prefixes) > 1 else math.inf
    return [
        {"v0": value}
        for value, times in values.items()
        for _ in range(min(times, 2))
        if (-1 if value is None else value // 3) <= last
    ]


def split(held: Counter[Row]) -> tuple[list[Row], list[Row]]:
    left, right = ([row for row in held.elements() if row[0] == side] for side in (0, 1))
    return left, right


def pairs(held: Counter[Row]) -> list[dict[str, Any]]:
    left, right = split(held)
    return [{"k0": k, "a0": a, "b0": b} for _, k, a in left for _, other, b in right if k == other]


def sums_of_pairs(held: Counter[Row]) -> Counter[tuple[int, ...]]:
    """Of each key the pairs, those with a value of the left, and the sum of these."""
    left, right = split(held)
    groups = over((0, k, a) for _, k, a in left for _, other, _ in right if k == other)
    kept = {key: [value for value in values if value is not None] for key, values in groups.items()}
    return Counter((key, len(values), len(kept[key]), sum(kept[key])) for key, values in groups.items())


def shown(held: Counter[Row], anti: bool) -> list[dict[str, Any]]:
    left, right = split(held)
    keys = {key for _, key, _ in right}
    return [{"k0": k, "a0": a} for _, k, a in left if (k in keys) != anti]


def regrouped(held: Counter[Row]) -> list[dict[str, Any]]:
    return [
        {"tag": side, "k0": key, "a0": None if side else value, "b0": value if side else None}
        for side, key, value in held.elements()
    ]


CASES: dict[str, tuple[Any, Any]] = {
    "accumulate": (Accumulate("v", "t", KEYED, SUMS, SHOWN, emits=True), accumulated),
    "accumulate, all": (
        Accumulate("v", "t", TOTAL, SUMS, SHOWN, emits=True, everything=True),
        totalled,
    ),
    "extreme": (
        Extreme(
            Accumulate("v", "t", VALUES, (), SHOWN[:1], emits=True),
            ("largest", "least"),
            VALUES,
            (True, False),
            (("extreme", 0), ("sum", 0), ("extreme", 1)),
        ),
        extremes,
    ),
    "topk": (TopK("v", "t", BAG, 2), first),
    "join": (Join("v", ("left", "right"), JOINED), pairs),
    "semi": (Semi("v", ("left", "keys"), LEFT, anti=False), lambda held: shown(held, anti=False)),
    "anti": (Semi("v", ("left", "keys"), LEFT, anti=True), lambda held: shown(held, anti=True)),
    "regroup": (Regroup("v", ("left", "right"), JOINED), regrouped),
}
slow_enough = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("name", CASES)
@given(deliveries())
@slow_enough
def test_in_any_order_of_arrival_the_end_is_the_same(
    name: str, tmp_path_factory: pytest.TempPathFactory, delivered: tuple[Counter[Row], Any]
) -> None:
    (operator, truth), (held, epochs) = CASES[name], delivered
    assert emitted(operator, tmp_path_factory.mktemp("v"), epochs) == Counter(map(text, truth(held)))


SUMMING = Join(
    "v",
    ("left", "right"),
    SUMMED,
    Combine(("k0",), ("s0", "s1", "s2"), (LONG,), kept=True),
    summed=(Summed(0, LONG),),
)


@given(deliveries())
@slow_enough
def test_sums_that_a_join_keeps_are_right_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, delivered: tuple[Counter[Row], Any]
) -> None:
    held, epochs = delivered
    root = tmp_path_factory.mktemp("v")
    total: dict[int, list[int]] = {}
    for number, updates in enumerate(epochs, 1):
        task = Task(root, number, 1, 0, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Task, "current", staticmethod(lambda task=task: task))
            made = list(SUMMING(batches(SUMMED, updates)))
        for row in (row for batch in made for row in batch.to_pylist()):
            known = total.setdefault(row["c0"], [0, 0, 0])
            for i, name in enumerate(("diff", "x0", "x1")):
                known[i] += row[name]
    assert Counter((key, *sums) for key, sums in total.items() if any(sums)) == sums_of_pairs(held)


LATE: dict[str, tuple[list[tuple[Row, int]], list[tuple[Row, int]]]] = {
    "rows": ([((0, 1, 5), -1), ((0, 1, 6), -1)], [((0, 1, 5), 1), ((0, 1, 6), 1), ((0, 1, 7), 1)]),
    "another in its place": ([((0, 1, 4), 1), ((0, 1, 6), -1)], [((0, 1, 6), 1)]),
}


@pytest.mark.parametrize("name", LATE)
def test_a_group_that_owes_its_rows_is_not_shown(name: str, tmp_path: Path) -> None:
    first, second = LATE[name]
    operator, truth = CASES["accumulate"]
    assert not emitted(operator, tmp_path / "one", [first])
    held = Counter({row: 1 for row, _ in second if ((row, -1)) not in first})
    held.update(row for row, diff in first if diff > 0)
    assert emitted(operator, tmp_path / "two", [first, second]) == Counter(map(text, truth(held)))


def test_over_all_rows_debts_show_as_no_rows(tmp_path: Path) -> None:
    operator, truth = CASES["accumulate, all"]
    assert emitted(operator, tmp_path, [LATE["rows"][0]]) == Counter(map(text, truth(Counter())))
