"""How much of a source was consumed, told from the ranges that the lineage log recorded.

A range is the source's own JSON, and the sources that come with Slipstream have five shapes of it. What
can be added up is added up; of any other range only the last is shown, as it is. Ranges of long ago are in
a summary that the source made of them (`Source.folded`), which has the same amounts. Nothing is looked up:
the numbers are those of the log, not of the input as it is today.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


def consumed(ranges: Sequence[JSON], before: JSON = None) -> Consumed:
    """Add up the ranges of one source, oldest first, after others of which `before` is the summary."""
    if before is None:
        return _added(ranges)
    new = _added(ranges)
    told = Consumed(
        epochs=before["epochs"] + new.epochs,
        files=_sum(before.get("files"), new.files),
        bytes=_sum(before.get("bytes"), new.bytes),
        rows=_sum(before.get("rows"), new.rows),
        appends=_sum(before.get("appends"), new.appends),
    )
    if any(amount is not None for amount in (told.files, told.rows, told.appends)):
        return told
    return replace(told, upto=new.upto or _upto(before.get("last")))


def _added(ranges: Sequence[JSON]) -> Consumed:
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
    if all(_has(each, "read", "rows") for each in ranges):
        return Consumed(epochs, rows=sum(each["rows"] for each in ranges))
    if all(_has(each, "start", "end", "from") for each in ranges):
        return Consumed(epochs, rows=sum(each["end"] - each["start"] for each in ranges))
    return Consumed(epochs, upto=_upto(ranges[-1]))


def _upto(last: JSON) -> str:
    return json.dumps(last["end"] if _has(last, "end") else last)


def _sum(before: int | None, new: int | None) -> int | None:
    return None if before is None and new is None else (before or 0) + (new or 0)


def _has(range_: JSON, *names: str) -> bool:
    return isinstance(range_, Mapping) and all(name in range_ for name in names)
