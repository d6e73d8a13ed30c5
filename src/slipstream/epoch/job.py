"""What computes an epoch: one job over its input, which leaves layers and figures.

The loop runs whichever job it is given; that of an app is Spark's (`spark_job`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from slipstream.store.records import Cut


@dataclass(frozen=True)
class Given:
    """An epoch to compute. reached: the watermarks of the epoch before. failing: it failed before, so rows that were
    taken back since are to be left out.
    """

    cut: Cut
    reached: Mapping[str, int] = field(default_factory=dict)
    failing: bool = False


@dataclass(frozen=True)
class Result:
    """What a job says once its layers are all there. rejected: bad rows, by source. late: rows that came too late, by
    view. times: the latest event time of each watermark, in microseconds. steps: seconds spent in each.
    """

    rows: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    stats: tuple[Mapping[str, int | str], ...] = ()


class JobTroubled(Exception):
    """A job that failed for what became of its tasks, not for its rows: a layer that is damaged or missing, or a disk
    that takes nothing more.
    """

    def __init__(self, trouble: Literal["damage", "hindered"], says: str) -> None:
        self.trouble = trouble
        super().__init__(says)


class Job(Protocol):
    """See the module's docstring."""

    def run(self, given: Given) -> Result:
        """Compute an epoch. The same input gives the same layers, however often it is run. Raises `JobTroubled` where
        it failed for no fault of its rows.
        """

    def cancel(self) -> None:
        """End what `run` or `explained` does, from another thread: it fails."""

    def explained(self, given: Given, error: Exception) -> Exception:
        """The error to tell the user where `run` raised this one. Leaves layers that are to be discarded."""

    def learn(self, cut: Cut, rows: int) -> None:
        """An epoch of so many rows was published."""

    def measured(self) -> dict[str, dict[str, int]]:
        """What was measured of each operator in the last epoch, by the operator's own trace."""
