"""Random expressions over columns in scope, of a wanted kind.

Nothing that is made here can fail: numbers stay far from overflow, nothing is divided, and nothing is cast that may
not fit. Where Spark is told to give NULL in place of an error (`lenient`), all of that is done too.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from slipstream.testing.fuzz.query import Column, Kind

COMPARABLE: tuple[Kind, ...] = (
    *("number", "number", "double", "decimal", "string", "collated", "date", "timestamp"),
    *("interval", "struct", "array", "nested"),
)
LITERALS: dict[Kind, tuple[str, ...]] = {
    "number": ("0", "1", "2", "-3"),
    "double": ("0.0D", "-0.0D", "1.5D", "double('NaN')"),
    "decimal": ("0.0", "1.5", "-2.125"),
    "string": ("'x'", "''", "'zz'", "'q'"),
    "collated": tuple(f"'{text}' COLLATE UTF8_LCASE" for text in ("X", "y", "", "Zz")),
    "date": ("DATE '2024-01-01'", "DATE '2000-01-01'"),
    "timestamp": ("TIMESTAMP '2024-03-10 06:30:00Z'", "TIMESTAMP '1969-12-31 23:00:00Z'"),
    "interval": ("INTERVAL '1 02:03:04' DAY TO SECOND", "INTERVAL '0 00:00:00' DAY TO SECOND"),
    "struct": ("named_struct('x', 1, 'y', 'x')", "named_struct('x', int(NULL), 'y', 'zz')"),
    "array": ("array(1, 2)", "array(int(NULL))", "CAST(array() AS array<int>)"),
    "nested": (
        "array(named_struct('x', 1, 'y', 'x'))",
        "CAST(array() AS array<struct<x:int,y:string>>)",
        "array(named_struct('x', int(NULL), 'y', 'zz'), CAST(NULL AS struct<x:int,y:string>))",
    ),
    "map": ("map('x', 1)", "map('x', int(NULL), 'y', 2)"),
}
_OF_TWO: dict[Kind, tuple[str, ...]] = {
    "number": ("({} + {})", "({} - {})", "coalesce({}, {})", "nullif({}, {})", "greatest({}, {})"),
    "double": ("({} + {})", "coalesce({}, {})", "least({}, {})"),
    "decimal": ("({} + {})", "({} - {})", "coalesce({}, {})"),
    "string": ("concat({}, {})", "coalesce({}, {})"),
    "collated": ("concat({}, {})", "coalesce({}, {})", "greatest({}, {})", "nullif({}, {})"),
    "date": ("coalesce({}, {})", "greatest({}, {})"),
    "timestamp": ("coalesce({}, {})", "least({}, {})"),
    "interval": ("({} + {})", "coalesce({}, {})", "least({}, {})"),
    "struct": ("coalesce({}, {})", "nullif({}, {})", "named_struct('x', ({}).x, 'y', ({}).y)"),
    "array": ("concat({}, {})", "coalesce({}, {})", "array_union({}, {})"),
    "nested": ("concat({}, {})", "coalesce({}, {})"),
    "map": ("coalesce({}, {})",),
}
_OF_ONE: dict[Kind, tuple[str, ...]] = {
    "number": ("({} * 2)", "pmod({}, 3)", "- {}"),
    "double": ("({} * 2)", "- {}", "abs({})"),
    "decimal": ("({} * 2)", "- {}"),
    "string": ("upper({})", "substring({}, 1, 1)", "trim({})"),
    "collated": ("substring({}, 1, 1)", "trim({})"),
    "date": ("date_add({}, 1)", "last_day({})"),
    "timestamp": ("date_trunc('DAY', {})", "({} + INTERVAL '1' DAY)", "({} - INTERVAL '36' HOUR)"),
    "interval": ("({} * 2)", "- {}"),
    "struct": ("named_struct('x', 7, 'y', ({}).y)",),
    "array": ("sort_array({})", "array_distinct({})", "transform({}, e -> e * 2)"),
    "nested": ("array_sort({})", "filter({}, e -> e.x > 0)"),
    "map": ("map_filter({}, (p, q) -> q > 1)",),
}
_TO_NUMBER: dict[Kind, str] = {
    "string": "length({})",
    "collated": "length({})",
    "date": "year({})",
    "timestamp": "hour({})",
    "interval": "extract(DAY FROM {})",
    "struct": "({}).x",
    "array": "size({})",
    "nested": "size({})",
}
_LENIENT: dict[Kind, tuple[str, ...]] = {
    "number": ("CAST({} * 300 AS TINYINT)", "(7 div {})", "(10 % {})", "CAST(CAST({} AS STRING) AS INT)"),
    "double": ("({} / 0)", "CAST(CAST({} AS STRING) AS DOUBLE)"),
    "decimal": ("({} * 99999999999999999999999.5)", "CAST({} AS DECIMAL(4,3))"),
    "string": ("CAST(CAST({} AS INT) AS STRING)",),
    "date": ("CAST(CAST({} AS STRING) AS DATE)",),
    "array": ("array({}[7])",),
}
"""What may fail, or does not fit, or is not there."""


class Expressions:
    """Makes expressions out of a random number generator."""

    def __init__(self, random: Random, lenient: bool = False) -> None:
        self._random = random
        self._lenient = lenient

    def of(self, kind: Kind, scope: Sequence[Column], depth: int = 1) -> str:
        """An expression of a kind: most often a column, where there is one."""
        random = self._random
        named = [column.sql for column in scope if column.kind == kind]
        if depth == 0 or random.random() < 0.5:
            return random.choice(named) if named and random.random() < 0.9 else random.choice(LITERALS[kind])
        shape = random.randrange(5)
        if shape == 0:
            chosen = f"THEN {self.of(kind, scope, 0)} ELSE {self.of(kind, scope, 0)}"
            return f"CASE WHEN {self.condition(scope, 0)} {chosen} END"
        if shape == 1 and kind == "number":
            other = random.choice(list(_TO_NUMBER))
            return _TO_NUMBER[other].format(self.of(other, scope, 0))
        if shape == 3 and self._lenient and kind in _LENIENT:
            return random.choice(_LENIENT[kind]).format(self.of(kind, scope, depth - 1))
        if shape <= 2 and kind == "date" and random.random() < 0.3:
            return f"CAST({self.of('timestamp', scope, depth - 1)} AS DATE)"
        if shape <= 2:
            return random.choice(_OF_ONE[kind]).format(self.of(kind, scope, depth - 1))
        return random.choice(_OF_TWO[kind]).format(self.of(kind, scope, depth - 1), self.of(kind, scope, 0))

    def kind_in(self, scope: Sequence[Column]) -> Kind:
        """A kind that the scope has a column of, and whose values can be compared."""
        return self._random.choice([c.kind for c in scope if c.kind in COMPARABLE] or ["number"])

    def condition(self, scope: Sequence[Column], depth: int = 1) -> str:
        random = self._random
        kind = self.kind_in(scope)
        value = self.of(kind, scope, depth)
        match random.randrange(8):
            case 0:
                return f"{value} IS {random.choice(('', 'NOT '))}NULL"
            case 1:
                listed = ", ".join(random.choices(LITERALS[kind], k=2))
                return f"{value} {random.choice(('', 'NOT '))}IN ({listed})"
            case 2:
                return f"{value} BETWEEN {self.of(kind, scope, 0)} AND {self.of(kind, scope, 0)}"
            case 3 if depth:
                either = (
                    f"{self.condition(scope, 0)} {random.choice(('OR', 'AND'))} {self.condition(scope, 0)}"
                )
                return f"{random.choice(('', 'NOT '))}({either})"
            case 4 if kind == "string":
                return f"{value} LIKE '{random.choice(('%z%', 'x%', '_'))}'"
        return (
            f"{value} {random.choice(('=', '<>', '<', '<=', '>', '>=', '<=>'))} {self.of(kind, scope, depth)}"
        )
