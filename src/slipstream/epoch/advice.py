"""Choosing between plans from what epochs measured: pure; figures in, choices out.

An aggregation, or a join that keeps sums, may have its rows added up before they are shuffled (`plan.partial`). That
costs a Python stage more and saves the shuffle of what is added up, and it spreads over all tasks what would otherwise
wait for the one that has the key. It pays where an epoch has many rows for each that is left of them, which is one for
each key and task: so the more tasks there are, the more rows a key must have. It does not change what is computed.
Small epochs are no guide: what they cost does not depend on rows.

A join may have its small input broadcast (`dataflow.broadcast`), which saves the shuffle of the large one and with it a
stage of the epoch, for as long as the small one does not change. In the epoch in which it does, rows that were put
aside are moved, and another plan is taken up, twice. So it pays for an input that has been still for long; one that
disappointed has to be still for twice as long before it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ENOUGH_ROWS = 20_000
"""Rows that an operator must be given in an epoch for its figures to count."""

MANY, FEW = 8, 2
"""Rows for each that is left of them from which on they are added up first; and below which they are not any more."""

SMALL = 100_000
"""Updates that an input of a join may consist of, for each task to look rows up in all of it."""

STILL = 32
"""Epochs for which an input must not have changed to be broadcast for the first time."""

_FIRST_LOOK, _LONGEST_WAIT, _LONGEST_STILL = 3, 128, 1 << 14


@dataclass(frozen=True)
class Seen:
    """Of an operator in one epoch: the rows that it was given, and how many are left if each task adds up its own."""

    rows: int
    left: int


def advise(partial: Iterable[str], seen: Mapping[str, Seen]) -> frozenset[str]:
    """The operators, by their first traces, whose rows are to be added up first."""
    chosen = set(partial)
    for trace, each in seen.items():
        if each.rows < ENOUGH_ROWS:
            continue
        if each.rows >= MANY * each.left:
            chosen.add(trace)
        elif each.rows < FEW * each.left:
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

    def in_vain(self) -> None:
        """There was nothing to be seen: look again after the next epoch."""
        self.next = self.epochs + 1


@dataclass
class Stillness:
    """For how many epochs an input of a join has not changed, and how many are enough."""

    epochs: int = 0
    enough: int = STILL

    def note(self, changed: bool) -> None:
        self.epochs = 0 if changed else self.epochs + 1

    def due(self) -> bool:
        """Whether to look at how large the input is."""
        return self.epochs == self.enough

    def put_off(self) -> None:
        """It was too large, or was broadcast and changed all the same."""
        self.enough = min(2 * self.enough, _LONGEST_STILL)
