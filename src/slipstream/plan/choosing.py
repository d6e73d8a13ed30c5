"""Choosing between plans from what epochs measured. Pure: facts in, choices out; whoever runs epochs gathers the facts.

What is chosen changes how something is computed, never what: plans of the same nodes (`plan/nodes.py`) keep the same
traces, so one can take the place of another between two epochs, and a choice that was wrong costs time and nothing
else.

There is one choice: whether an aggregation has its rows **added up before they are shuffled** (`lower/accumulate.py`).

- What it costs: one more Python stage, through which every row goes.
- What it saves: the shuffle of what is added up. It spreads over all tasks what would otherwise wait for the one
  that has the key.
- So it pays where an epoch has many rows for each that is left of them. What is left is one row for each key and task:
  the more tasks there are, the more rows a key must have. `MANY` and `FEW` are apart, so that figures in between leave
  things as they are and a plan is not made anew from one look to the next.
- Small epochs are no guide: what they cost does not depend on rows (`ENOUGH_ROWS`).

Looking at the figures takes some milliseconds, so it is done soon after the start, and then ever less often (`Looks`).
An operator of which there is no fact stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

ENOUGH_ROWS = 20_000
"""Rows that an operator must be given in an epoch for its figures to count."""

MANY, FEW = 8, 2
"""Rows for each row that is left: from MANY on they are added up first, below FEW no longer."""

_FIRST_LOOK, _LONGEST_WAIT = 3, 128


@dataclass(frozen=True)
class Choices:
    """partial: the aggregations, by their first traces, whose rows are added up before they are shuffled."""

    partial: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Fact:
    """Of an aggregation in one epoch: the rows it was given, and how many are left if each task adds up its own."""

    rows: int
    left: int


def choose(choices: Choices, facts: Mapping[str, Fact]) -> Choices:
    """What to choose after an epoch, of which this is known of some aggregations, by their first traces."""
    counted = {trace: each for trace, each in facts.items() if each.rows >= ENOUGH_ROWS}
    pays = {trace for trace, each in counted.items() if each.rows >= MANY * each.left}
    costs = {trace for trace, each in counted.items() if each.rows < FEW * each.left}
    return Choices(partial=(choices.partial | pays) - costs)


@dataclass(frozen=True)
class Looks:
    """When to look at the figures. epochs: so many were computed; next: the one after which to look."""

    epochs: int = 0
    next: int = _FIRST_LOOK
    wait: int = _FIRST_LOOK

    def after(self, rows: int) -> tuple[bool, Looks]:
        """Whether to look after an epoch of so many rows; and what is then known."""
        epochs = self.epochs + 1
        if rows < ENOUGH_ROWS or epochs < self.next:
            return False, replace(self, epochs=epochs)
        wait = min(2 * self.wait, _LONGEST_WAIT)
        return True, Looks(epochs, epochs + wait, wait)

    def in_vain(self) -> Looks:
        """There was nothing to be seen: look again after the next epoch."""
        return replace(self, next=self.epochs + 1)
