"""Choosing between plans from what epochs measured: pure; figures in, choices out.

An aggregation may have its rows added up before they are shuffled (`plan.partial`). That costs a Python stage more and
saves the shuffle of what is added up, and it spreads over all tasks what would otherwise wait for the one that has the
key. It pays where an epoch has many rows for each key that it touches; it does not change what is computed. Small
epochs are no guide: what they cost does not depend on rows.

The other choice that one would expect here, a broadcast of a small side of a join that does not change, is none: the
join has to keep the rows of the large side in any case, by key, for the day on which the small one does change, so the
shuffle that a broadcast would save has to be made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ENOUGH_ROWS = 20_000
"""Rows that an aggregation must be given in an epoch for its figures to count."""

MANY, FEW = 8, 2
"""Rows a key from which on they are added up first; and below which they are not any more."""

_FIRST_LOOK, _LONGEST_WAIT = 3, 128


@dataclass(frozen=True)
class Seen:
    """Of an aggregation in one epoch: the rows that it was given, and the keys that it touched."""

    rows: int
    keys: int


def advise(partial: Iterable[str], seen: Mapping[str, Seen]) -> frozenset[str]:
    """The aggregations, by their traces, whose rows are to be added up first."""
    chosen = set(partial)
    for trace, each in seen.items():
        if each.rows < ENOUGH_ROWS:
            continue
        if each.rows >= MANY * each.keys:
            chosen.add(trace)
        elif each.rows < FEW * each.keys:
            chosen.discard(trace)
    return frozenset(chosen)


@dataclass
class Looks:
    """When to look at the figures, which takes some milliseconds: soon, and then ever less often."""

    next: int = _FIRST_LOOK
    wait: int = _FIRST_LOOK
    epochs: int = 0

    def due(self, rows: int) -> bool:
        """Whether to look after an epoch of so many rows."""
        self.epochs += 1
        if rows < ENOUGH_ROWS or self.epochs < self.next:
            return False
        self.wait = min(2 * self.wait, _LONGEST_WAIT)
        self.next = self.epochs + self.wait
        return True
