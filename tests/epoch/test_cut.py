"""The controller of how much input an epoch takes. Pure: epochs are simulated."""

from __future__ import annotations

import random

import pytest

from slipstream.epoch.cut import Bounds, Budget


def simulate(
    fixed: float, pace: float, target: float, epochs: int, backlog: int | None = None
) -> list[tuple[int, float]]:
    """Epochs of `fixed + amount / pace` seconds, give or take a tenth; the first three are slow, as a cold JVM is."""
    noise = random.Random(7)
    budget = Budget.start("bytes", target)
    ran = []
    for epoch in range(epochs):
        took = budget.amount if backlog is None else min(backlog, budget.amount)
        seconds = (fixed + took / pace) * noise.uniform(0.9, 1.1) * (4 if epoch < 3 else 1)
        ran.append((took, seconds))
        budget = budget.after(took, seconds)
    return ran


@pytest.mark.parametrize(("fixed", "pace", "target"), [(0.1, 20e6, 1.0), (0.05, 5e6, 0.2), (0.2, 200e6, 2.0)])
def test_epochs_come_to_last_about_as_long_as_the_target(fixed: float, pace: float, target: float) -> None:
    late = [seconds for _, seconds in simulate(fixed, pace, target, 80)[40:]]
    assert 0.7 * target < sum(late) / len(late) < 1.3 * target


def test_a_fixed_cost_above_the_target_does_not_starve_the_input() -> None:
    taken = [took for took, _ in simulate(1.5, 20e6, 1.0, 80)[40:]]
    assert min(taken) > 0.1 * 20e6, "input still gets a share of every epoch"


def test_little_input_teaches_nothing_about_taking_more() -> None:
    budget = Budget.start("rows", 1.0)
    assert budget.after(10, 0.05).amount == budget.amount


def test_what_fits_at_the_average_cost_may_be_taken_at_once() -> None:
    budget = Budget.start("rows", 1.0)
    assert budget.after(50_000, 0.05).amount == 1_000_000, (
        "fifty thousand rows took a twentieth of the target"
    )


def test_bounds_hold() -> None:
    low = Budget.start("rows", 1.0, least=500, most=2_000)
    assert low.amount == 2_000
    for _ in range(20):
        low = low.after(low.amount, 50.0)
    assert low.amount >= 500
    assert Budget.start("rows", 1.0, most=10).amount == 10, "a bound below the usual least counts"


def test_a_budget_changes_by_a_factor_of_two_at_most() -> None:
    budget = Budget.start("rows", 1.0)
    assert budget.after(budget.amount, 0.9).amount <= 2 * budget.amount
    slower = budget.after(budget.amount, 0.5).after(2 * budget.amount, 100.0)
    assert slower.amount >= budget.amount // 2


def test_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="from 5 to 3"):
        Bounds(5, 3)
