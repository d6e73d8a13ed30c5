"""Finding the rows that an epoch fails on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from slipstream.epoch import culprit
from slipstream.epoch.culprit import Tables, culprits


def table(*values: int) -> pa.Table:
    return pa.table({"v": pa.array(values, pa.int64())})


def values(found: dict[str, pa.Table]) -> dict[str, list[int]]:
    return {name: each.column("v").to_pylist() for name, each in found.items()}


def held(given: Tables, name: str) -> list[int]:
    found: list[int] = given[name].column("v").to_pylist()
    return found


@pytest.mark.parametrize("at", [0, 1, 500, 998, 999])
def test_one_row_of_many_is_found_with_few_attempts(at: int) -> None:
    rows, attempts = list(range(1000)), []

    def fails(given: Tables) -> bool:
        attempts.append(1)
        return at in held(given, "a")

    assert values(culprits(fails, {"a": table(*rows), "b": table(*rows)})) == {"a": [at]}
    assert len(attempts) <= 2 + 2 * 10


def test_two_rows_that_fail_together_are_both_named() -> None:
    found = culprits(
        lambda given: 3 in held(given, "a") and 7 in held(given, "b"),
        {"a": table(*range(9)), "b": table(*range(9)), "c": table(*range(9))},
    )
    assert values(found) == {"a": [3], "b": [7]}


def test_rows_that_fail_only_together_are_not_blamed() -> None:
    assert culprits(lambda given: sum(held(given, "a")) > 20, {"a": table(5, 6, 7, 8)}) == {}


def test_a_failure_without_any_row_blames_none() -> None:
    assert culprits(lambda given: True, {"a": table(1, 2)}) == {}


def test_too_many_rows_are_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(culprit, "MOST_ROWS", 3)
    assert culprits(lambda given: 1 in held(given, "a"), {"a": table(0, 1, 2, 3)}) == {}
