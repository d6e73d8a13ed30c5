"""Durations as people write them: "1s", "100ms", "7 days", or a number of seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from slipstream.core.errors import BadDuration

_UNITS = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_NAMES = {
    **dict.fromkeys(("milli", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "w"),
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def seconds(duration: str | float | timedelta) -> float:
    """The duration in seconds. Parts add up: "1h 30m" is 5400."""
    if isinstance(duration, timedelta):
        return _checked(duration.total_seconds(), duration)
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        return _checked(float(duration), duration)
    if not isinstance(duration, str):
        raise BadDuration(duration)
    text = duration.strip().lower()
    try:
        return _checked(float(text), duration)
    except ValueError:
        pass
    total, position = 0.0, 0
    while position < len(text):
        part = _PART.match(text, position)
        unit = part and _UNITS.get(_NAMES.get(part[2], part[2]))
        if part is None or unit is None:
            raise BadDuration(duration)
        total += float(part[1]) * unit
        position = part.end()
    if not text:
        raise BadDuration(duration)
    return total


def _checked(value: float, given: object) -> float:
    if value < 0 or not math.isfinite(value):
        raise BadDuration(given)
    return value
