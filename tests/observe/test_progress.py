"""Progress is folded from reports and needs no clock."""

from __future__ import annotations

from slipstream.observe import Backlog, EpochReport, Progress
from slipstream.observe.progress import LATENCIES, PACE_SECONDS


def report(epoch: int, rows: int, ended: float, seconds: float = 0.1, bad: int = 0) -> EpochReport:
    rejected = {"orders": bad} if bad else {}
    return EpochReport(epoch, rows, rejected, ended - seconds, ended, seconds, {})


def test_totals_are_of_the_whole_run() -> None:
    progress = Progress(started=100.0).after(report(7, 10, 101.0, bad=2)).after(report(8, 5, 102.0))
    assert (progress.epoch, progress.epochs, progress.rows, progress.rejected) == (8, 2, 15, 2)


def test_the_pace_is_of_the_last_seconds() -> None:
    progress = Progress(started=0.0).after(report(1, 1_000_000, 1.0))
    assert progress.pace(2.0) == 500_000
    late = progress.after(report(2, 50, 100.0))
    assert late.pace(100.0) == 50 / PACE_SECONDS
    assert late.pace(200.0) == 0


def test_latencies_kept_are_bounded() -> None:
    progress = Progress(started=0.0)
    for epoch in range(1, LATENCIES + 10):
        progress = progress.after(report(epoch, 1, float(epoch), seconds=float(epoch)))
    assert len(progress.latencies) == LATENCIES
    assert progress.latencies[-1] == LATENCIES + 9


def test_the_last_backlog_known_stands_until_there_is_a_new_one() -> None:
    waiting = {"orders": Backlog(10, "bytes"), "customers": Backlog(0, "rows")}
    progress = Progress(started=0.0).after(report(1, 1, 1.0), waiting).after(report(2, 1, 2.0))
    assert progress.behind == {"orders": Backlog(10, "bytes")}
    assert progress.after(report(3, 1, 3.0), {}).behind == {}


def test_how_much_of_what_waited_is_taken() -> None:
    progress = Progress(started=0.0)
    assert progress.fraction is None
    progress = progress.waiting(
        {"a": Backlog(100, "rows"), "b": Backlog(8, "bytes"), "c": Backlog(0, "rows")}
    )
    assert progress.fraction == 0.0
    progress = progress.after(report(1, 1, 1.0), {"a": Backlog(50, "rows"), "b": Backlog(0, "bytes")})
    assert progress.fraction == 0.75
    assert progress.waiting({"a": Backlog(200, "rows"), "b": Backlog(0, "bytes")}).fraction == 0.5, (
        "more has come"
    )
