"""How numbers, times and values are written: for people, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from slipstream.observe.consumed import Consumed
from slipstream.observe.progress import Backlog
from slipstream.observe.sinks import SinkStatus
from slipstream.store.catalog import HeldSince

JSON = Any
_SIZES = ("B", "KB", "MB", "GB", "TB")
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def size(count: int) -> str:
    """Bytes, in the unit that gives at most four digits."""
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(_SIZES) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.1f} {_SIZES[unit]}" if unit and amount < 100 else f"{amount:.0f} {_SIZES[unit]}"


def number(count: int, noun: str) -> str:
    """A count and what is counted: 1 epoch, 2 epochs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def latency(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def span(seconds: float) -> str:
    """A stretch of time in its two largest units: 2 h 5 min."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for length, unit in _SPANS:
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length} {unit}")
            left %= length
        elif parts:
            break
    return " ".join(parts[:2])


def held(why: HeldSince) -> str:
    """Why a view is held."""
    last = f"held at epoch {why.last:,}" if why.last else "held before its first epoch"
    if why.because:
        return f"{last} because '{why.because}' is, which it reads"
    return f"{last}: {' '.join(f'{why.cause} {why.row}'.split())}"


def sink_trouble(sink: SinkStatus) -> str:
    """What is wrong with a sink, in a line; nothing where nothing is."""
    if sink.error is None:
        return ""
    tried = "stopped" if sink.stopped else f"failed {sink.failures} times" if sink.failures > 1 else "failed"
    return f"{tried}: {' '.join(sink.error.split())}"


def moment(clock: float) -> str:
    return datetime.fromtimestamp(clock).astimezone().isoformat(sep=" ", timespec="seconds")


def backlog(waiting: Mapping[str, Backlog]) -> str:
    """What waits in each source."""
    return ", ".join(
        f"{name} {size(each.amount) if each.unit == 'bytes' else number(each.amount, 'row')}"
        for name, each in waiting.items()
    )


def consumed(said: Consumed) -> str:
    """What was taken of a source."""
    amounts: list[str] = []
    if said.files is not None:
        amounts.append(number(said.files, "file"))
    if said.bytes is not None:
        amounts.append(size(said.bytes))
    if said.rows is not None:
        amounts.append(number(said.rows, "row"))
    if said.appends is not None:
        amounts.append(number(said.appends, "append"))
    if said.upto is not None:
        amounts.append(f"up to {said.upto}")
    return ", ".join(amounts) or "nothing yet"


def cell(value: object) -> str:
    """A value of a query's result, for a table."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes | bytearray):
        return f"X'{bytes(value).hex().upper()}'"
    if isinstance(value, list | dict | tuple):
        return str(plain(value))
    return str(value)


def plain(value: object) -> JSON:
    """A value of a query's result, for JSON. What JSON has no form for becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "asDict"):  # a struct is a Row
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    return str(value)


def distinct(names: Iterable[str]) -> list[str]:
    """Names for the fields of a JSON object: a second `x` becomes `x_2`."""
    made: list[str] = []
    for name in names:
        given, count = name, 1
        while given in made:
            count += 1
            given = f"{name}_{count}"
        made.append(given)
    return made
