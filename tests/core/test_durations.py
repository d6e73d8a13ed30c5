"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slipstream.core.durations import seconds
from slipstream.core.errors import BadDuration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1s", 1.0),
        ("100ms", 0.1),
        ("7 days", 604800.0),
        ("1h 30m", 5400.0),
        ("1.5 Minutes", 90.0),
        ("2w", 1209600.0),
        ("3", 3.0),
        (0.25, 0.25),
        (2, 2.0),
        (timedelta(minutes=1), 60.0),
    ],
)
def test_durations_are_seconds(text: str | float, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["", "soon", "5 parsecs", "s", "1s x", -1, "-1s", float("nan"), float("inf"), True]
)
def test_anything_else_is_an_error_that_shows_how(text: str | float) -> None:
    with pytest.raises(BadDuration, match=r"is no duration\. Write a number and a unit, such as '100ms'"):
        seconds(text)


def test_none_is_no_duration() -> None:
    with pytest.raises(BadDuration, match="None is no duration"):
        seconds(None)  # type: ignore[arg-type]
