"""The shortest story: of a history that fails, leave out what it does not need to fail.

Faults first, then input, in halves and smaller parts (delta debugging), then what the app need not be. Whatever still
fails in the same way is kept. A history runs in the same way each time, so this ends with one that nothing can be
left out of, unless `budget` runs are up before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from slipstream.testing.simulation.plan import Plan

_PLAINER: tuple[Callable[[Plan], Plan], ...] = (
    lambda plan: replace(plan, proof=False),
    lambda plan: replace(plan, standby=False),
    lambda plan: replace(plan, unsafe_seconds=None),
    lambda plan: replace(plan, shards=1),
    lambda plan: replace(plan, history=None),
    lambda plan: replace(plan, deletes=False),
    lambda plan: replace(plan, replicas=min(1, plan.replicas), safe_on=1),
)


@dataclass
class _Trying:
    fails: Callable[[Plan], bool]
    left: int

    def __call__(self, plan: Plan) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return self.fails(plan)


def shrink(plan: Plan, fails: Callable[[Plan], bool], budget: int = 400) -> Plan:
    """The smallest history found that still fails. `fails` runs one and says whether it fails in the same way."""
    trying = _Trying(fails, budget)
    size = plan.size + 1
    while plan.size < size and trying.left > 0:
        size = plan.size
        plan = _fewer(plan, "faults", trying)
        plan = _fewer(plan, "arrivals", trying)
        plan = _plainer(plan, trying)
    return plan


def _fewer(plan: Plan, part: Literal["faults", "arrivals"], trying: _Trying) -> Plan:
    items: tuple[Any, ...] = getattr(plan, part)
    step = max(1, len(items) // 2)
    while items:
        at = 0
        while at < len(items):
            rest = items[:at] + items[at + step :]
            smaller = replace(plan, faults=rest) if part == "faults" else replace(plan, arrivals=rest)
            if trying(smaller):
                plan, items = smaller, rest
            else:
                at += step
        if step == 1:
            break
        step = max(1, step // 2)
    return plan


def _plainer(plan: Plan, trying: _Trying) -> Plan:
    """An app with fewer ways of its own."""
    for change in _PLAINER:
        plainer = change(plan)
        if plainer != plan and trying(plainer):
            plan = plainer
    return plan
