"""Small random tables: few distinct values, so that rows meet, and everything odd that a value can be.

Doubles are multiples of a quarter, infinity, NaN and -0.0. Sums of them are exact in any order, so what is
maintained must be equal to batch Spark to the last bit.

With debts, rows are taken away a step before they come.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from slipstream.testing.fuzz.query import Column, Kind
from slipstream.testing.scripted import Scripted

Row = tuple[Any, ...]

_VALUES: dict[str, tuple[Any, ...]] = {
    "string": ("x", "x", "y", "", "zz", "\u00e9", "a longer string", None),
    "int": (0, 1, 1, 2, 3, -2, None),
    "long": (0, 1, 2, 7, -3, 10**12, None),
    "double": (0.0, -0.0, 0.25, 1.5, -2.0, 3.0, float("nan"), float("inf"), None),
    "decimal(12,3)": (Decimal("0.000"), Decimal("1.500"), Decimal("-2.125"), Decimal("99999999.999"), None),
    "decimal(5,2)": (Decimal("0.00"), Decimal("1.50"), Decimal("-0.25"), None),
    "string collate utf8_lcase": ("x", "X", "y", "Y", "", "Zz", "zZ", None),
    "timestamp": (
        datetime(2024, 3, 10, 6, 30, tzinfo=UTC),
        datetime(2024, 3, 10, 20, tzinfo=UTC),
        datetime(1969, 12, 31, 23, tzinfo=UTC),
        None,
    ),
    "date": (date(2024, 1, 1), date(2024, 2, 29), date(1969, 12, 31), None),
    "interval day to second": (timedelta(0), timedelta(days=1, hours=2), timedelta(seconds=-5), None),
    "struct<x:int,y:string>": ((1, "x"), (1, None), (2, ""), (None, None), None),
    "array<int>": ([], [1, 2], [2, 1], [None], None),
    "array<struct<x:int,y:string>>": ([], [(1, "x")], [(None, "zz"), None], [(2, None), (1, "x")], None),
    "map<string,int>": ({}, {"x": 1}, {"x": None, "y": 2}, None),
}
_KINDS: dict[str, Kind] = {
    "int": "number",
    "long": "number",
    "decimal(12,3)": "decimal",
    "decimal(5,2)": "decimal",
    "string collate utf8_lcase": "collated",
    "interval day to second": "interval",
    "array<struct<x:int,y:string>>": "nested",
    "struct<x:int,y:string>": "struct",
    "array<int>": "array",
    "map<string,int>": "map",
}

TABLES: dict[str, dict[str, str]] = {
    "a": {
        "k": "string",
        "g": "int",
        "n": "long",
        "d": "double",
        "m": "decimal(12,3)",
        "e": "date",
        "o": "struct<x:int,y:string>",
        "r": "array<int>",
    },
    "b": {
        "k": "string",
        "g": "int",
        "v": "long",
        "x": "double",
        "p": "decimal(5,2)",
        "f": "date",
        "t": "timestamp",
        "c": "string collate utf8_lcase",
        "h": "interval day to second",
    },
    "c": {
        "g": "int",
        "v": "long",
        "s": "string",
        "c": "string collate utf8_lcase",
        "t": "timestamp",
        "o": "struct<x:int,y:string>",
        "q": "array<struct<x:int,y:string>>",
        "w": "map<string,int>",
    },
}
"""Columns and their types, by table."""


def columns(table: str, alias: str) -> list[Column]:
    """A table's columns, as expressions name them."""
    return [Column(f"{alias}.{name}", kind_of(each)) for name, each in TABLES[table].items()]


def kind_of(type_name: str) -> Kind:
    return _KINDS.get(type_name, type_name)  # type: ignore[arg-type]


def scripted() -> dict[str, Scripted]:
    """Sources for all tables, empty."""
    return {
        table: Scripted(", ".join(f"{name} {each}" for name, each in typed.items()))
        for table, typed in TABLES.items()
    }


def change(sources: dict[str, Scripted], random: Random) -> None:
    """One step: to each table that is not left alone rows are added, and of those that are there some are taken out;
    seldom, all.
    """
    for table, source in sources.items():
        if random.random() < 0.3:
            continue
        there = source.rows
        gone = len(there) if random.random() < 0.1 else random.randint(0, len(there) // 2)
        source.retract(random.sample(there, gone))
        source.append(_row(table, random) for _ in range(random.choice((0, 3, 6, 9))))
    if not any(source.rows for source in sources.values()):
        sources["a"].append([_row("a", random)])


class Debts:
    """Rows that are taken away a step before they come: some now, and all that are owed in the next step."""

    def __init__(self) -> None:
        self._owed: list[tuple[Scripted, list[Row]]] = []

    @property
    def some(self) -> bool:
        """Whether anything is owed."""
        return bool(self._owed)

    def pay(self) -> None:
        for source, rows in self._owed:
            source.source.append(rows)
        self._owed.clear()

    def owe(self, sources: dict[str, Scripted], random: Random) -> None:
        for table, source in sources.items():
            there = random.sample(source.rows, min(2, len(source.rows)))
            rows = [*(_row(table, random) for _ in range(random.randint(0, 3))), *there]
            if rows and random.random() < 0.7:
                source.source.retract(rows)
                self._owed.append((source, rows))


def _row(table: str, random: Random) -> Row:
    return tuple(random.choice(_VALUES[each]) for each in TABLES[table].values())
