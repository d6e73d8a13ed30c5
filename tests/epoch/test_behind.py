"""What follows from the safe frontier: sources forget, and input waits where the user has set a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipstream.durability.board import Board, Progress
from slipstream.durability.frontiers import Watching, safe_epoch
from slipstream.durability.lineage import Cut
from slipstream.epoch.behind import Behind
from slipstream.errors import BadDurability
from slipstream.settings import Durability, Exposure


class Source:
    def __init__(self, forgets_each: bool) -> None:
        self.forgets_each = forgets_each
        self.forgotten: list[Any] = []

    def forget(self, upto: Any) -> None:
        self.forgotten.append(upto)


@pytest.mark.parametrize(
    ("durable", "safe_on", "safe"),
    [([], 1, 0), ([5], 1, 5), ([5, 3], 1, 5), ([5, 3], 2, 3), ([2, 9, 4], 2, 4), ([5, 3], 0, 0)],
)
def test_safe_is_what_enough_replicas_hold(durable: list[int], safe_on: int, safe: int) -> None:
    assert safe_epoch(durable, safe_on) == safe


def test_sources_forget_what_is_safe(tmp_path: Path) -> None:
    board = Board(tmp_path, 1, ("a", "b"))
    each, last = Source(True), Source(False)
    behind = Behind(Durability(("a", "b"), 2), Watching(tmp_path), {"each": each, "last": last}, [])
    for epoch in range(1, 6):
        behind.computed(Cut(epoch, 0.0, {"each": epoch, "last": epoch}), float(epoch))
    assert each.forgotten == []
    board.post("a", Progress(5))
    board.post("b", Progress(3))
    behind.computed(Cut(6, 0.0, {"each": 6}), 6.0)
    assert (each.forgotten, last.forgotten) == ([1, 2, 3], [3])


@pytest.mark.parametrize(("limit", "held"), [("10s", True), ("100s", False), ("1 KB", True), ("1 MB", False)])
def test_input_waits_while_too_much_is_unsafe(tmp_path: Path, limit: str, held: bool) -> None:
    board = Board(tmp_path, 1, ("a",))
    behind = Behind(Durability(("a",), 1, Exposure.parse(limit)), Watching(tmp_path), {}, [])
    for epoch in (1, 2):
        behind.computed(Cut(epoch, 0.0, {}), float(epoch))
    board.post("a", Progress(1, behind=5000))
    assert behind.exposure(50.0) == Exposure(48.0, 5000)

    def replica_catches_up() -> bool:
        board.post("a", Progress(2))
        return False

    assert behind.hold(lambda: 50.0, replica_catches_up) is held


def test_a_stopped_run_does_not_wait_on(tmp_path: Path) -> None:
    Board(tmp_path, 1, ("a",)).post("a", Progress())
    behind = Behind(Durability(("a",), 1, Exposure(seconds=1.0)), Watching(tmp_path), {}, [])
    behind.computed(Cut(1, 0.0, {}), 1.0)
    assert behind.hold(lambda: 50.0, lambda: True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((("a", "a"),), "replicas= names one replica twice. To do: name each once."),
        (
            (("a",), 2),
            "safe_on=2 with 1 replica(s). To do: let an epoch be safe on at most as many replicas as there are.",
        ),
        (
            ((), 1, Exposure(seconds=1.0)),
            "max_unsafe= was given without replicas=. To do: name a replica, or leave it out.",
        ),
    ],
)
def test_settings_that_make_no_sense(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(BadDurability) as error:
        Durability(*arguments)
    assert str(error.value) == text


def test_a_limit_that_is_none() -> None:
    with pytest.raises(BadDurability) as error:
        Exposure.parse("much")
    assert str(error.value) == (
        "max_unsafe='much' is neither a duration nor an amount. To do: write '30s' or '200 MB'."
    )
