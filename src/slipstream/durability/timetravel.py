"""What `as_of` means: an epoch, a point in time, or now."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from slipstream.durability.lineage import computed_frontier, read_history
from slipstream.errors import UnknownEpoch


def resolve_epoch(root: Path, asked: int | str | datetime | None) -> int:
    """The epoch that is asked for: a number, the last one computed at a timestamp, or the newest."""
    if asked is None:
        return computed_frontier(root)
    if isinstance(asked, str) and asked.strip().lstrip("-").isdigit():
        asked = int(asked)
    if isinstance(asked, int):
        newest = computed_frontier(root)
        if not 0 <= asked <= newest:
            raise UnknownEpoch.beyond(asked, newest)
        return asked
    if isinstance(asked, str):
        try:
            asked = datetime.fromisoformat(asked)
        except ValueError:
            raise UnknownEpoch(
                f"'{asked}' is neither an epoch nor a time. Give a number, or a time such as 2026-01-31T12:00:00."
            ) from None
    return read_history(root).at(asked.timestamp())
