"""What queries compare columns with: read from their text, as far as it is plain.

`column = 5`, `column IN ('a', 'b')`, `column BETWEEN 1 AND 1 + 20`, `column LIKE 'a%'`; a year by whatever name.
Nothing depends on all being found: rows are made that some queries find.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa

Constant: TypeAlias = tuple[str, str]
"""The least and the greatest value, as SQL writes them."""

_VALUE = r"('[^']*'|-?\d+(?:\.\d+)?)"
_SUM = re.compile(r"(?<![\w.'])(\d+)\s*\+\s*(\d+)(?![\w.'])")
_EQUAL = re.compile(rf"(\w+)\s*=\s*{_VALUE}(?![\w.])(?!\s*[-+*/(])")
_LIKE = re.compile(r"(\w+)\s+like\s+'([^'%]*)%'", re.IGNORECASE)
_RANGE = re.compile(
    rf"(\w+)\s+between\s+(?:cast\()?{_VALUE}(?:\s+as\s+date\))?\s+and\s+(?:cast\()?{_VALUE}", re.IGNORECASE
)
_LISTED = re.compile(r"(?:substring\()?\b(\w+)(?:,\s*\d+,\s*\d+\))?\s+in\s*\(([^()]*)\)", re.IGNORECASE)


def compared(text: str) -> dict[str, list[Constant]]:
    """The constants that a query compares columns with, by the columns' names."""
    found: dict[str, set[Constant]] = {}
    text = _SUM.sub(lambda sum_: str(int(sum_[1]) + int(sum_[2])), text)

    def note(name: str, low: str, high: str) -> None:
        column = "d_year" if name.lower().endswith("year") else name.lower()
        found.setdefault(column, set()).add((low, high))

    for name, value in _EQUAL.findall(text):
        note(name, value, value)
    for name, value in _LIKE.findall(text):
        note(name, f"'{value}'", f"'{value}'")
    for name, low, high in _RANGE.findall(text):
        note(name, low, high)
    for name, listed in _LISTED.findall(text):
        for value in re.findall(_VALUE, listed):
            note(name, value, value)
    return {name: sorted(values) for name, values in found.items()}


def drawn(constants: list[Constant], kind: pa.DataType, random: Random) -> Any:
    """A value of a type that is equal to one of the constants, or between two; None if there is none."""
    texts = pa.types.is_string(kind) or pa.types.is_date(kind)
    low, high = random.choice(constants)
    if low.startswith("'") != texts:
        return None
    if pa.types.is_string(kind):
        return low.strip("'")
    if pa.types.is_date(kind):
        first, last = (date.fromisoformat(each.strip("'")).toordinal() for each in (low, high))
        return date.fromordinal(random.randint(first, max(first, last)))
    first, last = int(Decimal(low)), int(Decimal(high))
    value = random.randint(first, max(first, last))
    return value if pa.types.is_integer(kind) else Decimal(value)
