"""The base of all errors, and how they name things."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from difflib import get_close_matches


class SlipstreamError(Exception):
    """Base of all errors that Slipstream raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of the calls that led here: the message."""
        return [f"{type(self).__name__}: {self}"]


def listed(names: Iterable[str]) -> str:
    """Names for an error message: sorted, quoted, or "none"."""
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"


def nearest(name: str, known: Iterable[str]) -> str:
    """A name that somebody has written, and in brackets which of those that there are may be meant."""
    spelt = {each.lower(): each for each in known}
    alike = get_close_matches(name.lower(), spelt, n=1)
    return f"'{name}' (is it '{spelt[alike[0]]}'?)" if alike else f"'{name}'"


def first_line(text: str) -> str:
    """What somebody else says, in one line: the rest is for whoever reads the cause."""
    return text.strip().partition("\n")[0].rstrip(";. ") + "."


def when(clock: float) -> str:
    return datetime.fromtimestamp(clock).astimezone().isoformat(sep=" ", timespec="milliseconds")
