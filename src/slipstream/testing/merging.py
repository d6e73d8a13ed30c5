"""Merging a trace where nobody else is at work, as tests want it: at once, in the process that asks.

What to do is decided as ever (`trace.plan_upkeep`). How an agent does it, under takeovers and power cuts, is
`durability.agent.upkeep`.
"""

from __future__ import annotations

from pathlib import Path

from slipstream.trace import Remove, carry_out, layer_stats, plan_upkeep
from slipstream.trace.policy import Upkeep


def upkeep(directory: Path, computed: int, keep_from: int | None) -> list[Upkeep]:
    """Merge and pack what is due in a trace, then remove what that made superfluous; what was done."""
    due, done = _due(directory, computed, keep_from), list[Upkeep]()
    done += [step for step in due if not isinstance(step, Remove)]
    for step in done:
        carry_out(directory, step)
    doomed = [step for step in _due(directory, computed, keep_from) if isinstance(step, Remove)]
    for gone in doomed:
        carry_out(directory, gone)
    return [*done, *doomed]


def _due(directory: Path, computed: int, keep_from: int | None) -> list[Upkeep]:
    return plan_upkeep(layer_stats(directory), computed, keep_from)
