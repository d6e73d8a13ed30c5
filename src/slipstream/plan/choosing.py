"""Choosing between plans from what epochs measured. Pure: facts in, choices out; whoever runs epochs gathers the facts.

What is chosen changes how something is computed, never what: plans of the same nodes (`plan/nodes.py`) keep the same
traces, so one can take the place of another between two epochs, and a choice that was wrong costs time and nothing
else.

Whether an aggregation has its rows **added up before they are shuffled** (`lower/accumulate.py`):

- What it costs: one more Python stage, through which every row goes.
- What it saves: the shuffle of what is added up. It spreads over all tasks what would otherwise wait for the one
  that has the key.
- So it pays where an epoch has many rows for each that is left of them. What is left is one row for each key and task:
  the more tasks there are, the more rows a key must have. `MANY` and `FEW` are apart, so that figures in between leave
  things as they are and a plan is not made anew from one look to the next.
- Small epochs are no guide: what they cost does not depend on rows (`ENOUGH_ROWS`).

Looking at the figures takes some milliseconds, so it is done soon after the start, and then ever less often (`Looks`).
An operator of which there is no fact stays as it is.

Whether an epoch is computed **by one task** or by shards (`Pace`):

- A stage costs some 25 ms however little it is given, and an epoch of many operators has as many stages, one after
  another. One task runs them all, with no shuffle: rows pass from one Python worker to the next.
- It has one core. So it is for epochs of little input (`Settings.little`), which is known before they run.
- Little input may still be much work, where it meets many rows. Where such epochs take long (`SLOW`), both ways are
  tried, and whichever was quicker of late is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

ENOUGH_ROWS = 20_000
"""Rows that an operator must be given in an epoch for its figures to count."""

MANY, FEW = 8, 2
"""Rows for each row that is left: from MANY on they are added up first, below FEW no longer."""

_FIRST_LOOK, _LONGEST_WAIT = 3, 128

Unit = Literal["bytes", "rows"]
ROW_BYTES = 100
"""What a row of input is taken to be, where only bytes are known."""

SLOW = 0.5
"""Seconds of an epoch of little input from which on it is looked whether shards are quicker."""

_RECENT, _FORGOTTEN_AFTER = 5, 256


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


def rows_of(sizes: Iterable[tuple[Unit, int | None]]) -> int | None:
    """The rows of an epoch's input, about; None where one of its sources can not tell."""
    total = 0
    for unit, size in sizes:
        if size is None:
            return None
        total += size // ROW_BYTES if unit == "bytes" else size
    return total


@dataclass(frozen=True)
class Pace:
    """What the last epochs of little input took, in seconds, by one task and by shards. epochs: how many there were."""

    one: tuple[float, ...] = ()
    many: tuple[float, ...] = ()
    epochs: int = 0

    def one_task(self) -> bool:
        """Whether the next such epoch is to be computed by one task."""
        if len(self.one) < _RECENT or median(self.one) < SLOW:
            return True
        return len(self.many) == _RECENT and median(self.one) <= median(self.many)

    def after(self, one_task: bool, seconds: float) -> Pace:
        """What is known after an epoch. Of what is not chosen nothing is known after a while: it is tried again."""
        forgotten = self.epochs % _FORGOTTEN_AFTER == _FORGOTTEN_AFTER - 1
        one, many = ((), self.many) if forgotten and not one_task else (self.one, self.many)
        one, many = (one, ()) if forgotten and one_task else (one, many)
        if one_task:
            one = (*one, seconds)[-_RECENT:]
        else:
            many = (*many, seconds)[-_RECENT:]
        return Pace(one, many, self.epochs + 1)
