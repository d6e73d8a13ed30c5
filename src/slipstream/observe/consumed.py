"""How much of a source was consumed, told from the ranges that the lineage log recorded.

A range is the source's own JSON, and the sources that come with Slipstream have four shapes of it. What
can be added up is added up; of any other range only the last is shown, as it is. Nothing is looked up:
the numbers are those of the log, not of the input as it is today.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

JSON = Any


@dataclass(frozen=True)
class Consumed:
    """What computed epochs took of one source. An amount that its ranges do not tell is None."""

    epochs: int
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    appends: int | None = None
    upto: str | None = None


def consumed(ranges: Sequence[JSON]) -> Consumed:
    """Add up the ranges of one source, oldest first."""
    epochs = len(ranges)
    if not ranges:
        return Consumed(0)
    if all(_has(each, "files") for each in ranges):
        files = [file for each in ranges for file in each["files"]]
        return Consumed(epochs, files=len(files), bytes=sum(int(file[1]) for file in files))
    if all(_has(each, "appends") for each in ranges):
        return Consumed(
            epochs, appends=sum(last - first + 1 for first, last in (r["appends"] for r in ranges))
        )
    if all(_has(each, "start", "end", "from") for each in ranges):
        return Consumed(epochs, rows=sum(each["end"] - each["start"] for each in ranges))
    last = ranges[-1]
    return Consumed(epochs, upto=json.dumps(last["end"] if _has(last, "end") else last))


def _has(range_: JSON, *names: str) -> bool:
    return isinstance(range_, Mapping) and all(name in range_ for name in names)
