"""How much input an epoch takes: steered so that its duration stays near a target.

A pure controller, one for each source. An epoch's duration is taken to be a fixed part and a part that grows
with its input; both are fitted to the last few epochs. The next epoch gets the input whose share fits into
what the fixed part leaves of the target. Where the fixed part alone is most of the target, or more, taking
less input would make no epoch shorter, only more of them: then input gets half the target to itself.

A budget changes by at most a factor of two an epoch, except that what would fit at the average cost of the last
epoch may always be taken. Where less was there than allowed, nothing more is learnt about taking more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean

_START = {"bytes": 16 << 20, "rows": 200_000}
_LEAST = {"bytes": 64 << 10, "rows": 1_000}
_FULL = 0.5  # of the budget: whole files rarely fill it to the brim
_REMEMBERED = 8
_EXPLORE = 1.25


@dataclass(frozen=True)
class Bounds:
    """What the user allows an epoch to take of one source, in its unit."""

    least: int
    most: int | None = None

    def __post_init__(self) -> None:
        if self.least < 1 or (self.most is not None and self.most < self.least):
            raise ValueError(f"an epoch cannot take from {self.least} to {self.most} units")

    def clip(self, amount: float) -> int:
        kept = max(self.least, int(amount))
        return kept if self.most is None else min(kept, self.most)


@dataclass(frozen=True)
class Budget:
    """What the next epoch may take of one source, and what the last ones took: (amount, seconds)."""

    amount: int
    bounds: Bounds
    target: float
    recent: tuple[tuple[int, float], ...] = ()

    @staticmethod
    def start(unit: str, target: float, least: int | None = None, most: int | None = None) -> Budget:
        bounds = Bounds(min(least or _LEAST[unit], most or _LEAST[unit]), most)
        return Budget(bounds.clip(_START[unit]), bounds, target)

    def after(self, took: int, seconds: float) -> Budget:
        """The budget after an epoch that took so much and so long."""
        learnt = replace(self, recent=(*self.recent, (took, seconds))[-_REMEMBERED:])
        wanted = learnt._wanted(seconds)
        fits = took * self.target / max(seconds, 1e-3)  # even if all its time had gone into its input
        if wanted >= self.amount and took < self.amount * _FULL:
            return replace(learnt, amount=self.bounds.clip(max(self.amount, fits)))
        steered = min(2 * self.amount, max(self.amount / 2, wanted))
        return replace(learnt, amount=self.bounds.clip(max(steered, fits)))

    def _wanted(self, seconds: float) -> float:
        """The amount whose epoch would take the target's time."""
        amounts, times = [took for took, _ in self.recent], [spent for _, spent in self.recent]
        middle, usual = mean(amounts), mean(times)
        spread = sum((amount - middle) ** 2 for amount in amounts)
        together = sum((amount - middle) * (spent - usual) for amount, spent in self.recent)
        if spread == 0 or together <= 0:  # nothing to tell the two parts apart by: try
            if seconds < self.target / 2:
                return 2.0 * self.amount
            return self.amount * (_EXPLORE if seconds < self.target else 1 / _EXPLORE)
        slope = together / spread
        fixed = max(0.0, usual - slope * middle)
        return max(self.target - fixed, self.target / 2) / slope
