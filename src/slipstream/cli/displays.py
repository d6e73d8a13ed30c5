"""The three ways to show a run: a live picture in a terminal, a line now and then elsewhere, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slipstream.observe import EpochReport, Progress, wording

LINE_EVERY = 1.0
REFRESH_EVERY = 0.25
QUIET = 2.0  # seconds without an epoch after which a run with nothing to do says so


class LiveDisplay:
    """A picture that is drawn anew four times a second."""

    def __init__(self, name: str, live: Live) -> None:
        self._name, self._live = name, live
        self._drawn = 0.0

    def epoch(self, report: EpochReport, progress: Progress) -> None:
        return

    def tick(self, progress: Progress, now: float) -> None:
        if now - self._drawn >= REFRESH_EVERY:
            self._drawn = now
            self._live.update(picture(self._name, progress, now), refresh=True)

    def say(self, text: str) -> None:
        self._live.console.print(f"[yellow]{escape(text)}[/]")


class LineDisplay:
    """A line about once a second, while there are epochs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told = (0.0, 0)

    def epoch(self, report: EpochReport, progress: Progress) -> None:
        return

    def tick(self, progress: Progress, now: float) -> None:
        when, epochs = self._told
        if progress.epochs > epochs and now - when >= LINE_EVERY:
            self._told = (now, progress.epochs)
            print(line(self._name, progress, now), flush=True)

    def say(self, text: str) -> None:
        print(f"{self._name}: {text}", file=sys.stderr, flush=True)


class JsonDisplay:
    """A line of JSON an epoch."""

    def epoch(self, report: EpochReport, progress: Progress) -> None:
        said = {
            "epoch": report.epoch,
            "rows": report.rows,
            "seconds": round(report.seconds, 6),
            "started": report.started,
            "ended": report.ended,
            "rejected": dict(report.rejected),
            "late": dict(report.late),
            "steps": {name: round(seconds, 6) for name, seconds in report.steps.items()},
            "backlog": {name: asdict(each) for name, each in progress.backlog.items()},
        }
        print(json.dumps(said), flush=True)

    def tick(self, progress: Progress, now: float) -> None:
        return

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def display(name: str, console: Console, as_json: bool) -> Iterator[LiveDisplay | LineDisplay | JsonDisplay]:
    """The display that fits what stdout is."""
    if as_json:
        yield JsonDisplay()
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            shown = LiveDisplay(name, live)
            shown.tick(Progress(started=time.time()), time.time())
            yield shown
    else:
        yield LineDisplay(name)


def line(name: str, progress: Progress, now: float) -> str:
    """A run in one line."""
    parts = [
        f"{name}: epoch {progress.epoch}",
        f"{progress.rows:,} rows",
        f"{progress.pace(now):,.0f} rows/s",
        f"p50 {wording.latency(progress.p50)}",
        f"p99 {wording.latency(progress.p99)}",
    ]
    if progress.rejected:
        parts.append(f"{progress.rejected:,} rejected")
    if progress.late:
        parts.append(f"{progress.late:,} late")
    waiting = wording.backlog(progress.behind)
    parts.append(f"left: {waiting}" if waiting else "caught up")
    return ", ".join(parts)


def picture(name: str, progress: Progress, now: float) -> RenderableType:
    """A run as it is shown in a terminal."""
    heading = Text.assemble(
        (name, "bold cyan"),
        f"  running for {wording.span(now - progress.started)}  ",
        (state(progress, now), "dim"),
    )
    if not progress.epochs:
        return heading
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    cells = {
        "epoch": f"{progress.epoch:,}",
        "rows": f"{progress.rows:,}",
        "rows/s": f"{progress.pace(now):,.0f}",
        "epoch p50": wording.latency(progress.p50),
        "p99": wording.latency(progress.p99),
        "rejected": f"{progress.rejected:,}" if progress.rejected else "",
        "late": f"{progress.late:,}" if progress.late else "",
    }
    shown = {column: text for column, text in cells.items() if text}
    for column in shown:
        table.add_column(column, justify="right", style="red" if column == "rejected" else "")
    table.add_row(*shown.values())
    return Group(heading, table, left(progress))


def left(progress: Progress) -> RenderableType:
    """How much input is left, and how much of what waited is taken."""
    waiting = wording.backlog(progress.behind)
    if not waiting:
        return Text("caught up", "green")
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=1.0, completed=progress.fraction or 0.0, width=30)
    grid.add_row(Text(f"left: {waiting}", "yellow"), bar)
    return grid


def state(progress: Progress, now: float) -> str:
    """What the engine is doing, as far as can be told from outside."""
    if progress.ended is None:
        return "preparing, or waiting for input"
    quiet = now - progress.ended
    return f"last epoch {wording.span(quiet)} ago" if quiet >= QUIET else ""
