"""How a run is shown: a line, a picture, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from slipstream.cli.displays import JsonDisplay, LineDisplay, line, picture
from slipstream.observe import Backlog, EpochReport, Progress

REPORT = EpochReport(12, 3000, {"orders": 2}, 100.0, 101.0, 0.25, {"cut": 0.01, "run": 0.2})
WAITING = {"orders": Backlog(2_500_000, "bytes"), "ticks": Backlog(0, "rows")}


def after_one_epoch() -> Progress:
    return Progress(started=99.0).after(REPORT, WAITING)


def test_a_line_while_there_is_input_and_when_there_is_none() -> None:
    text = "shop: epoch 12, 3,000 rows, 1,500 rows/s, p50 250 ms, p99 250 ms, 2 rejected, "
    assert line("shop", after_one_epoch(), 101.0) == text + "left: orders 2.5 MB"
    assert line("shop", Progress(99.0).after(REPORT, {}), 101.0) == text + "caught up"


def test_rows_that_came_late_are_told() -> None:
    report = replace(REPORT, rejected={}, late={"sums_late": 3, "counts_late": 1})
    assert ", 4 late, caught up" in line("shop", Progress(99.0).after(report, {}), 101.0)


def test_lines_come_at_most_once_a_second_and_only_with_news(capsys: pytest.CaptureFixture[str]) -> None:
    shown = LineDisplay("shop")
    progress = after_one_epoch()
    for now in (101.0, 101.1, 105.0):
        shown.tick(progress, now)
    assert capsys.readouterr().out.count("\n") == 1
    shown.tick(progress.after(REPORT), 106.0)
    assert capsys.readouterr().out.count("\n") == 1


def test_a_line_of_json_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    JsonDisplay().epoch(REPORT, after_one_epoch())
    said = json.loads(capsys.readouterr().out)
    assert (said["epoch"], said["rows"], said["seconds"], said["rejected"]) == (12, 3000, 0.25, {"orders": 2})
    assert said["backlog"]["orders"] == {"amount": 2_500_000, "unit": "bytes"}


def test_the_picture_before_the_first_epoch_and_after() -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(picture("shop", Progress(99.0), 105.0))
        console.print(picture("shop", after_one_epoch(), 131.0))
    lines = [" ".join(each.split()) for each in capture.get().splitlines()]
    assert lines == [
        "shop running for 6 s preparing, or waiting for input",
        "shop running for 32 s last epoch 30 s ago",
        "epoch rows rows/s epoch p50 p99 rejected",
        "12 3,000 0 250 ms 250 ms 2",
        "left: orders 2.5 MB",
    ]
    half = after_one_epoch().waiting({"orders": Backlog(1_250_000, "bytes")})
    with console.capture() as capture:
        console.print(picture("shop", half, 131.0))
    assert " ".join(capture.get().split()).endswith(f"left: orders 1.2 MB {'━' * 15}")
