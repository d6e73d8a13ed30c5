"""What follows from the safe frontier: sources forget, and limits that make no sense are refused."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.core.errors import BadDurability
from slipstream.core.settings import Durability, Exposure
from slipstream.durability.board import safe_epoch
from slipstream.epoch.behind import Behind
from slipstream.store.records import Cut


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


def test_sources_forget_what_is_safe() -> None:
    each, last = Source(True), Source(False)
    behind = Behind({"each": each, "last": last}, [Cut(1, 0.0, {"each": 1, "last": 1, "gone": 1})])
    for epoch in range(2, 6):
        behind.computed(Cut(epoch, 0.0, {"each": epoch, "last": epoch}))
    behind.forget(0)
    assert each.forgotten == []
    behind.forget(3)
    assert (each.forgotten, last.forgotten) == ([1, 2, 3], [3])
    behind.forget(3)
    assert (each.forgotten, last.forgotten) == ([1, 2, 3], [3])


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
