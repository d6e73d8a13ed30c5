"""Pictures of an app and of what was declared, views that are watched, and bars."""

from __future__ import annotations

import io
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import slipstream as sl
from slipstream.app import screens, watching
from slipstream.app.catching import CatchingUp
from slipstream.app.declared import Declared
from slipstream.app.screens import Lines, in_notebook, progress_line, screen, view_table
from slipstream.core.clock import ManualClock
from slipstream.core.errors import EpochFailed, UnknownView
from slipstream.observe import Backlog, EpochReport, Progress
from slipstream.observe.pictures import Sample, ViewPicture
from slipstream.testing.oracle import rows_of

Opened = Callable[[], sl.App]


@pytest.fixture
def opened(spark: SparkSession, tmp_path: Path) -> Iterator[Opened]:
    apps: list[sl.App] = []

    def made() -> sl.App:
        apps.append(sl.App("shop", store=tmp_path / "shop", spark=spark, shards=1, history=None))
        return apps[-1]

    yield made
    for app in apps:
        app.close()


class Screens:
    """A screen that remembers."""

    def __init__(self) -> None:
        self.views: list[ViewPicture] = []
        self.bars: list[Progress] = []

    def view(self, picture: ViewPicture) -> None:
        self.views.append(picture)

    def progress(self, name: str, progress: Progress, now: float) -> None:
        self.bars.append(progress)


@pytest.mark.spark
def test_what_was_declared_has_a_picture_and_is_a_dataframe(opened: Opened) -> None:
    app, t = opened(), sl.memory("k string, v long")
    source = app.source("t", t)
    totals = app.view("totals", "SELECT k, sum(v) s FROM t GROUP BY k ORDER BY k")
    assert isinstance(source, Declared)
    assert isinstance(totals, Declared)
    assert (repr(source), repr(totals)) == (
        "source 't' [k: string, v: bigint]",
        "view 'totals' [k: string, s: bigint]",
    )
    assert "a source: its rows are in the views" in source._repr_html_()
    assert "computed when the app runs" in totals._repr_html_()
    assert app._assembly is None, "a picture makes nothing ready"
    app.view("doubled", lambda: totals.join(source, "k").select("k", (totals.s * 2).alias("d")))
    t.append([("a", 1), ("<script>", 2)])
    app.run(until="caught_up")
    html = totals._repr_html_()
    assert "as of epoch 1" in html
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert "Accumulate" in html, "the plan"
    assert sorted(rows_of(app.read("doubled"))) == [("<script>", 4), ("a", 2)]
    app.close()
    assert "the app is closed" in totals._repr_html_()


@pytest.mark.spark
def test_a_view_without_rows_and_one_with_more_than_are_shown(opened: Opened) -> None:
    app, t = opened(), sl.memory("v long")
    app.source("t", t)
    many, none = (
        app.view("many", "SELECT v FROM t ORDER BY v"),
        app.view("none", "SELECT v FROM t WHERE v < 0"),
    )
    t.append([(i,) for i in range(30)])
    app.run(until="caught_up")
    assert isinstance(many, Declared)
    assert isinstance(none, Declared)
    html = many._repr_html_()
    assert html.count('<td class="ss-number">') == 20
    assert "and more rows" in html
    assert "no rows" in none._repr_html_()


@pytest.mark.spark
def test_the_picture_of_an_app_before_during_and_after(opened: Opened) -> None:
    app, t = opened(), sl.memory("v long")
    app.source("t", t)
    app.view("shares", "SELECT 12 DIV v s FROM t")
    app.view("later", "SELECT * FROM unknown")
    told = app._repr_html_()
    assert "not run yet" in told
    assert told.count("not computed yet") == 1
    assert "waits for &#x27;unknown&#x27;" in told
    assert app._assembly is None, "a picture makes nothing ready"
    app.view("unknown", "SELECT v FROM t")
    t.append([(1,)])
    app.run(until="caught_up")
    t.append([(0,)])
    told = app._repr_html_()
    assert "not running" in told
    assert "waiting: t 1 row" in told
    with pytest.raises(EpochFailed):
        app.run(until="caught_up")
    assert "epoch 2 failed in view &#x27;shares&#x27;" in app._repr_html_()
    app.close()
    assert ">closed<" in app._repr_html_()


@pytest.mark.spark
def test_the_picture_of_an_app_that_runs_in_the_background(opened: Opened) -> None:
    app = opened()
    app.source("t", sl.memory("v long"))
    app.view("all", "SELECT * FROM t")
    app.start()
    assert ">running<" in app._repr_html_()
    app.stop()
    assert ">not running<" in app._repr_html_()


@pytest.mark.spark
def test_a_view_is_watched_while_it_changes(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    app, t, shown = opened(), sl.memory("v long"), Screens()
    app.source("t", t)
    app.view("seen", "SELECT v, count(*) c FROM t GROUP BY v ORDER BY v")
    t.append([(1,), (2,)])
    app.run(until="caught_up")
    monkeypatch.setattr(screens, "Lines", lambda console: shown)
    threading.Timer(0.3, lambda: t.append([(2,), (3,)])).start()
    app.watch("seen", every="50ms", seconds=60, until=2)
    first, last = shown.views[0], shown.views[-1]
    assert (first.epoch, first.sample.rows, first.sample.fresh) == (1, ((1, 1), (2, 1)), frozenset())
    assert (last.epoch, last.sample.rows, last.sample.fresh) == (
        2,
        ((1, 1), (2, 2), (3, 1)),
        frozenset({1, 2}),
    )
    assert app._thread is None, "it ran only to be watched"
    with pytest.raises(UnknownView, match=r"no view named 'saen'"):
        app.watch("saen")


@pytest.mark.spark
def test_a_failure_ends_the_watching(opened: Opened) -> None:
    app, t = opened(), sl.memory("v long")
    app.source("t", t)
    app.view("shares", "SELECT 12 DIV v s FROM t")
    t.append([(0,)])
    with pytest.raises(EpochFailed):
        app.watch("shares", every="50ms", seconds=60)


@pytest.mark.spark
def test_a_bar_while_a_terminal_catches_up(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    app, t = opened(), sl.memory("v long", max_appends_per_epoch=1)
    app.source("t", t)
    app.view("seen", "SELECT v FROM t")
    for number in range(4):
        t.append([(number,)])
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    app.run(until="caught_up")
    assert "left: t 4 rows" in terminal.getvalue()
    assert "caught up" in terminal.getvalue()
    drawn = len(terminal.getvalue())
    t.append([(9,)])
    app.run(until="caught_up", progress=False)
    app.run(until=app.epoch)
    assert len(terminal.getvalue()) == drawn
    monkeypatch.setattr("sys.stderr", plain := io.StringIO())
    t.append([(10,)])
    app.run(until="caught_up")
    assert plain.getvalue() == "", "no terminal, no bar"


def picture(epoch: int, *rows: tuple[Any, ...]) -> ViewPicture:
    return ViewPicture("seen", "shop", epoch, Sample((("v", "bigint"),), rows))


def watched(clock: ManualClock, epochs: Iterator[int], **ends: Any) -> list[int]:
    shown = Screens()
    latest = [next(epochs)]

    def epoch() -> int:
        latest[0] = next(epochs, latest[0])
        return latest[0]

    watching.watch(shown, clock, epoch, lambda before: picture(latest[0]), every=1.0, **ends)
    return [each.epoch for each in shown.views]


def test_watching_shows_each_newer_epoch_until_it_ends() -> None:
    clock = ManualClock()
    assert watched(clock, iter([1, 1, 2, 2, 5]), seconds=10.5) == [1, 2, 5]
    assert clock.monotonic() == 10.5
    assert watched(ManualClock(), iter([1, 1, 2, 2, 5]), until=2) == [1, 2]
    assert watched(ManualClock(), iter([7]), until=2) == [7]


def test_an_interrupt_ends_watching_in_peace() -> None:
    class Interrupted(ManualClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    assert watched(Interrupted(), iter([1, 2])) == [1]


def test_a_bar_is_drawn_seldom_and_asks_seldom() -> None:
    clock, shown, asked = ManualClock(), Screens(), []

    def backlog() -> dict[str, Backlog]:
        asked.append(clock.monotonic())
        clock.advance(0.01)
        return {"t": Backlog(100 - len(asked), "rows")}

    bar = CatchingUp("shop", shown, clock, backlog)
    assert len(shown.bars) == 1, "at once, as something waits"
    for number in range(20):
        clock.advance(0.02)
        bar.epoch(EpochReport(number, 1, {}, 0.0, 0.0, 0.02, {}))
    assert len(shown.bars) <= 1 + 20 * 0.03 / 0.1
    assert len(asked) <= 4
    bar.end()
    assert shown.bars[-1].epochs == 20


def test_nothing_waits_and_nothing_is_drawn() -> None:
    shown = Screens()
    bar = CatchingUp("shop", shown, ManualClock(), lambda: {"t": Backlog(0, "rows")})
    bar.end()
    assert shown.bars == []


def test_a_notebook_has_one_output_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[str] = []
    handle = types.SimpleNamespace(update=lambda html: displayed.append(f"again {html}"))

    def display(html: str, display_id: bool) -> Any:
        displayed.append(html)
        return handle

    ipython = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(HTML=str, display=display))
    assert in_notebook()
    with screen() as shown:
        shown.view(picture(1, (5,)))
        shown.progress("shop", Progress(0.0), 1.0)
    assert len(displayed) == 2
    assert displayed[0].startswith("<style>")
    assert displayed[1].startswith("again <style>")
    ipython.get_ipython = lambda: None
    assert not in_notebook()


def test_a_terminal_shows_rows_and_bars() -> None:
    console = Console(width=80, file=io.StringIO())
    seen = ViewPicture("seen", "shop", 3, Sample((("[v]", "bigint"),), ((1,), (None,)), more=True))
    with console.capture() as capture:
        Lines(console).view(seen)
        console.print(view_table(seen))
        console.print(progress_line("shop", Progress(0.0).waiting({"t": Backlog(3, "rows")}), 1.0))
        Lines(console).progress("shop", Progress(0.0), 1.0)
    lines = [" ".join(each.split()) for each in capture.get().splitlines()]
    table = ["seen as of epoch 3", "[v]", "1", "NULL", "and more rows"]
    assert lines == [*table, *table, "shop epoch 0, 0 rows, 0 rows/s, left: t 3 rows"]


def test_no_frame_is_made_of_a_placeholder(spark: SparkSession) -> None:
    frame: DataFrame = spark.range(1)
    declared = Declared("t", "source", frame, lambda: "html")
    assert declared.select("id").count() == 1
    assert declared._repr_html_() == "html"
    assert declared.select("id").columns == ["id"]
