"""The base of all errors, and how they name things."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime


class SlipstreamError(Exception):
    """Base of all errors that Slipstream raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of the calls that led here: the message."""
        return [f"{type(self).__name__}: {self}"]


def listed(names: Iterable[str]) -> str:
    """Names for an error message: sorted, quoted, or "none"."""
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"


def first_line(text: str) -> str:
    """What somebody else says, in one line: the rest is for whoever reads the cause."""
    return text.strip().partition("\n")[0].rstrip(";. ") + "."


def when(clock: float) -> str:
    return datetime.fromtimestamp(clock).astimezone().isoformat(sep=" ", timespec="milliseconds")
