"""What the demo shows: figures, what happened, and the views as they are in the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from slipstream.epoch.report import percentile

Rows = list[dict[str, Any]]


@dataclass
class Board:
    """The epochs so far, the views as they were last read, and since when the engine is dead, if it is."""

    started: float = field(default_factory=time.monotonic)
    epoch: int = 0
    rows: int = 0
    latencies: list[float] = field(default_factory=list)
    views: dict[str, Rows] = field(default_factory=dict)
    killed: float | None = None

    def note(self, report: dict[str, Any]) -> None:
        """An epoch, as `slipstream run --json` tells it."""
        self.epoch = report["epoch"]
        self.rows += report["rows"]
        self.latencies.append(report["seconds"])

    def figures(self) -> dict[str, str]:
        seconds = time.monotonic() - self.started
        p50, p99 = percentile(self.latencies, 50), percentile(self.latencies, 99)
        down = "running" if self.killed is None else f"dead for {time.monotonic() - self.killed:.1f} s"
        return {
            "seconds": f"{seconds:.0f}",
            "engine": down,
            "epoch": f"{self.epoch}",
            "rows": f"{self.rows:,}",
            "rows/s": f"{self.rows / seconds:,.0f}",
            "latency p50": f"{p50 * 1000:.0f} ms",
            "latency p99": f"{p99 * 1000:.0f} ms",
        }

    def line(self) -> str:
        best = self.views.get("top_ten") or []
        leader = f", leader {best[0]['cid']} with {_money(best[0]['spend'])}" if best else ""
        return ", ".join(f"{name} {value}" for name, value in self.figures().items()) + leader

    def render(self) -> RenderableType:
        figures = Table(*self.figures(), title="the shop, live")
        figures.add_row(*self.figures().values())
        beside = Table.grid(padding=(0, 2))
        beside.add_row(*(_view_table(name, rows) for name, rows in self.views.items()))
        return Group(figures, beside)


@contextmanager
def screen(console: Console, board: Board) -> Iterator[Callable[[], None]]:
    """Yields what shows the board: a table that is redrawn on a terminal, a plain line anywhere else."""
    if not console.is_terminal:
        yield lambda: console.print(board.line(), highlight=False, soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda: live.update(board.render(), refresh=True)


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02d}"


def _view_table(name: str, rows: Rows) -> Table:
    table = Table(title=name)
    for column in rows[0] if rows else []:
        heading = "amount" if column == "cents" else column
        table.add_column(heading, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(_cell(column, value) for column, value in row.items()))
    return table


def _cell(column: str, value: str | int) -> str:
    return _money(int(value)) if column in ("cents", "spend") else str(value)
