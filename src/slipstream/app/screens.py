"""Where pictures are shown: in a notebook, in a terminal, or line by line.

IPython is optional, and never imported unless this process runs in a notebook already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slipstream.observe import wording
from slipstream.observe.pictures import (
    LONGEST,
    WIDEST,
    ViewPicture,
    progress_html,
    told_of,
    view_html,
)
from slipstream.observe.progress import Progress


class Screen(Protocol):
    """Shows one picture after another in one place."""

    def view(self, picture: ViewPicture) -> None: ...
    def progress(self, name: str, progress: Progress, now: float) -> None: ...


class Notebook:
    """One output of a notebook's cell, updated in place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def view(self, picture: ViewPicture) -> None:
        self._show(view_html(picture))

    def progress(self, name: str, progress: Progress, now: float) -> None:
        self._show(progress_html(name, progress, now))

    def _show(self, html: str) -> None:
        shown = import_module("IPython.display")
        if self._handle is None:
            self._handle = shown.display(shown.HTML(html), display_id=True)
        else:
            self._handle.update(shown.HTML(html))


class Terminal:
    """Some lines of a terminal, drawn anew."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def view(self, picture: ViewPicture) -> None:
        self._live.update(view_table(picture), refresh=True)

    def progress(self, name: str, progress: Progress, now: float) -> None:
        self._live.update(progress_line(name, progress, now), refresh=True)


class Lines:
    """One picture below the other, in what is no terminal; no bars."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def view(self, picture: ViewPicture) -> None:
        self._console.print(view_table(picture))

    def progress(self, name: str, progress: Progress, now: float) -> None:
        return


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


@contextmanager
def screen(console: Console | None = None, *, kept: bool = True) -> Iterator[Screen]:
    """The screen that this process has. kept: whether the last picture stays, in a terminal."""
    console = console or Console(highlight=False)
    if in_notebook():
        yield Notebook()
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=not kept) as live:
            yield Terminal(live)
    else:
        yield Lines(console)


def can_animate(console: Console) -> bool:
    """Whether a bar can be drawn over and over in one place."""
    return in_notebook() or console.is_terminal


def view_table(picture: ViewPicture) -> RenderableType:
    """A view's rows in a terminal."""
    sample = picture.sample
    title = Text.assemble((picture.name, "bold cyan"), (f"  as of epoch {picture.epoch:,}", "dim"))
    made = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    for name, _ in sample.columns[:WIDEST]:
        made.add_column(Text(name))
    for i, row in enumerate(sample.rows):
        cells = [Text(wording.cell(value)[:LONGEST]) for value in row[:WIDEST]]
        made.add_row(*cells, style="green" if i in sample.fresh else "")
    said = [text for text in (picture.note, "and more rows" if sample.more else None) if text]
    return Group(title, made, *[Text(text, "dim") for text in said])


def progress_line(name: str, progress: Progress, now: float) -> RenderableType:
    """A run that catches up, in a terminal."""
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=1.0, completed=progress.fraction or 0.0, width=30)
    grid.add_row(Text(name, "bold cyan"), bar, Text(", ".join(told_of(progress, now)), "dim"))
    return grid
