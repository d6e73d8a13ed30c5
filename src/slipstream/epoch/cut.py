"""How much input an epoch takes: steered so that its duration stays near a target.

A pure controller, one for each source. An epoch that took all that it was allowed and was early lets the next
take more, at most twice as much; one that was late makes the next take less, at least half. Where less was
there than allowed, nothing is learnt from being early.
"""

from __future__ import annotations

from dataclasses import dataclass

_START = {"bytes": 16 << 20, "rows": 200_000}
_LEAST = {"bytes": 64 << 10, "rows": 1_000}
_FULL = 0.5  # of the budget: whole files rarely fill it to the brim


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
    """What the next epoch may take of one source."""

    amount: int
    bounds: Bounds
    target: float

    @staticmethod
    def start(unit: str, target: float, least: int | None = None, most: int | None = None) -> Budget:
        bounds = Bounds(min(least or _LEAST[unit], most or _LEAST[unit]), most)
        return Budget(bounds.clip(_START[unit]), bounds, target)

    def after(self, took: int, seconds: float) -> Budget:
        """The budget after an epoch that took so much and so long."""
        factor = min(2.0, max(0.5, self.target / max(seconds, 1e-3)))
        if factor >= 1.0 and took < self.amount * _FULL:
            return self
        amount = self.amount * factor if factor >= 1.0 else min(self.amount, max(took, 1)) * factor
        return Budget(self.bounds.clip(amount), self.bounds, self.target)
