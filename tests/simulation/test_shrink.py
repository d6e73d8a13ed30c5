"""Shrinking: what a failure does not need is left out, and what it needs stays."""

from __future__ import annotations

from slipstream.testing.simulation.plan import Fault, Plan, draw
from slipstream.testing.simulation.shrink import shrink


def test_only_what_is_needed_is_left() -> None:
    kinds = ("kill engine", "power cut", "kill agent", "lose store", "clock jump")
    plan = next(draw(seed) for seed in range(1000) if len(draw(seed).arrivals) > 8)
    plan = Plan(
        **{**vars(plan), "faults": tuple(Fault(float(i), 0, kind, i) for i, kind in enumerate(kinds))}  # type: ignore[arg-type]
    )
    wanted = plan.arrivals[5]

    def fails(tried: Plan) -> bool:
        found = [fault.kind for fault in tried.faults]
        return "power cut" in found and "lose store" in found and wanted in tried.arrivals

    found = shrink(plan, fails)
    assert [fault.kind for fault in found.faults] == ["power cut", "lose store"]
    assert found.arrivals == (wanted,)
    assert (found.shards, found.standby, found.history) == (1, False, None)


def test_a_budget_ends_it() -> None:
    plan = draw(7)
    tried = []

    def fails(each: Plan) -> bool:
        tried.append(each)
        return True

    shrink(plan, fails, budget=3)
    assert len(tried) == 3
