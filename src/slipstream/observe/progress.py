"""How a run goes, folded from the reports of its epochs.

`Progress` is immutable and knows no clock: each report makes the next one, and whoever shows it says
what time it is. Totals are of the whole run; the pace is of the last `PACE_SECONDS`, so that it follows
what happens now; latencies are of the last `LATENCIES` epochs, so that a run of weeks keeps no more
than one of minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slipstream.epoch.report import EpochReport, percentile

PACE_SECONDS = 10.0
LATENCIES = 1000


@dataclass(frozen=True)
class Backlog:
    """How much of a source's input is there and not yet taken. unit: bytes or rows."""

    amount: int
    unit: str


@dataclass(frozen=True)
class Progress:
    """What is known after some epochs. recent: (ended, rows) of the last seconds. most: the largest backlog that each
    source was seen to have.
    """

    started: float
    epoch: int = 0
    epochs: int = 0
    rows: int = 0
    rejected: int = 0
    late: int = 0
    ended: float | None = None
    recent: tuple[tuple[float, int], ...] = ()
    latencies: tuple[float, ...] = ()
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)

    def waiting(self, backlog: Mapping[str, Backlog]) -> Progress:
        """The progress with a backlog that was just looked at."""
        most = {name: max(each.amount, self.most.get(name, 0)) for name, each in backlog.items()}
        return replace(self, backlog=backlog, most={**self.most, **most})

    def after(self, report: EpochReport, backlog: Mapping[str, Backlog] | None = None) -> Progress:
        """The progress with one more epoch; without a new backlog, the last one known stands."""
        kept = tuple(each for each in self.recent if each[0] > report.ended - PACE_SECONDS)
        known = self if backlog is None else self.waiting(backlog)
        return replace(
            known,
            epoch=report.epoch,
            epochs=self.epochs + 1,
            rows=self.rows + report.rows,
            rejected=self.rejected + sum(report.rejected.values()),
            late=self.late + sum(report.late.values()),
            ended=report.ended,
            recent=(*kept, (report.ended, report.rows)),
            latencies=(*self.latencies[1 - LATENCIES :], report.seconds),
        )

    def pace(self, now: float) -> float:
        """Rows per second over the last seconds."""
        rows = sum(rows for ended, rows in self.recent if ended > now - PACE_SECONDS)
        return rows / max(min(PACE_SECONDS, now - self.started), 1e-3)

    @property
    def p50(self) -> float:
        return percentile(self.latencies, 50)

    @property
    def p99(self) -> float:
        return percentile(self.latencies, 99)

    @property
    def fraction(self) -> float | None:
        """How much of what waited is taken, from 0 to 1, each source with input counting the same; None if nothing is
        known to have waited.
        """
        left = [self.backlog[name].amount / most for name, most in self.most.items() if most]
        return 1 - sum(left) / len(left) if left else None

    @property
    def behind(self) -> dict[str, Backlog]:
        """The sources with input that was not taken yet."""
        return {name: backlog for name, backlog in self.backlog.items() if backlog.amount}
