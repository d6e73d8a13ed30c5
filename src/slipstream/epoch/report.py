"""What is said of an epoch, and of a run of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EpochReport:
    """One computed epoch. steps: seconds spent in each step, in order. late: rows that came too late, by view of late
    rows. watermarks: those of the epoch, in milliseconds since 1970.
    """

    epoch: int
    rows: int
    rejected: Mapping[str, int]
    started: float
    ended: float
    seconds: float
    steps: Mapping[str, float]
    stats: tuple[Mapping[str, int | str], ...] = ()
    late: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Summary:
    """What `run` did. held: the views that are held at its end."""

    epochs: int = 0
    rows: int = 0
    seconds: float = 0.0
    rejected: int = 0
    late: int = 0
    latencies: list[float] = field(default_factory=list)
    held: tuple[str, ...] = ()

    def add(self, report: EpochReport) -> None:
        self.epochs += 1
        self.rows += report.rows
        self.rejected += sum(report.rejected.values())
        self.late += sum(report.late.values())
        self.latencies.append(report.seconds)

    @property
    def p50(self) -> float:
        return percentile(self.latencies, 50)

    @property
    def p99(self) -> float:
        return percentile(self.latencies, 99)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In a notebook a summary is its text."""
        printer.text(str(self))

    def __str__(self) -> str:
        pace = self.rows / self.seconds if self.seconds else 0.0
        text = (
            f"{self.epochs} epochs, {self.rows:,} rows in {self.seconds:.1f} s ({pace:,.0f} rows/s), "
            f"epoch p50 {self.p50 * 1000:.0f} ms, p99 {self.p99 * 1000:.0f} ms"
        )
        text += f", {self.rejected:,} rows rejected" if self.rejected else ""
        text += f", {self.late:,} rows late" if self.late else ""
        return f"{text}, held: {', '.join(self.held)}" if self.held else text


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of the values do not exceed; 0 where there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(percent) // 100) - 1)]
