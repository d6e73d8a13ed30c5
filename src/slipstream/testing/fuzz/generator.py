"""Random queries: each form reads relations that are tables, views or queries again.

What is generated has one right answer. Windows and top-k order by every column in scope, so that rows that tie are
equal rows; and what depends on a row's position goes by one order in all of a query, because of equal rows either may
be the first in one order and the second in another. What depends on the order of doubles in a sum, or comes out of a
division, is `shown` and read by nothing further: a last digit must not decide which rows there are. Queries whose text
has one of `INEXACT` are compared with a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from slipstream.testing.fuzz.expressions import COMPARABLE, Expressions
from slipstream.testing.fuzz.query import Column, Kind, Part, Query, Select, SetOperation, outputs
from slipstream.testing.fuzz.tables import TABLES, columns

INEXACT = ("avg(", "stddev_pop(", "percent_rank(")

_JOINS = (
    "JOIN",
    "JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
    "CROSS JOIN",
)
_SET_OPERATORS = ("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
_FRAMES = (
    "",
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING",
)


class Generator:
    """Makes queries over the tables and over views by name, out of a random number generator."""

    def __init__(self, random: Random, views: Mapping[str, Query]) -> None:
        self._random = random
        self._views = views
        self._make = Expressions(random)
        self._aliases = 0

    def query(self, depth: int | None = None) -> Query:
        """A query with others nested in it up to a depth; if it is not said, seldom deeper than one."""
        depth = self._random.choice((0, 1, 1, 1, 2)) if depth is None else depth
        forms = (self._plain, self._aggregate, self._aggregate, self._window, self._top, self._set_operation)
        return self._random.choice(forms)(depth)

    # Forms

    def _plain(self, depth: int) -> Query:
        parts, scope = self._from(depth)
        return Select(self._columns(scope), parts, self._where(scope), distinct=self._random.random() < 0.2)

    def _aggregate(self, depth: int) -> Query:
        random = self._random
        parts, scope = self._from(depth)
        kinds = [self._make.kind_in(scope) for _ in range(random.choice((0, 1, 1, 2)))]
        keys = [Column(self._make.of(kind, scope), kind) for kind in kinds]
        found = [self._aggregate_of(scope) for _ in range(random.randint(0 if keys else 1, 3))]
        having = (
            (self._make.condition(known, 0),) if (known := _known(found)) and random.random() < 0.25 else ()
        )
        grouping = (
            random.choice(("ROLLUP({})", "CUBE({})")) if len(keys) == 2 and random.random() < 0.2 else "{}"
        )
        group = tuple(dict.fromkeys(key.sql for key in keys))
        return Select((*keys, *found), parts, self._where(scope), group, grouping, having)

    def _window(self, depth: int) -> Query:
        random = self._random
        parts, scope = self._from(depth)
        usable = _known(scope)
        found = []
        positions: str | None = None
        for _ in range(random.randint(1, 2)):
            by = ", ".join(column.sql for column in random.sample(usable, random.choice((0, 1, 1))))
            order = ", ".join(self._ordering(usable))
            kind = self._make.kind_in(scope)
            value = self._make.of(kind, scope, 0)
            number = self._make.of("number", scope, 0)
            function, kind, framed, positional = random.choice(
                (
                    ("row_number()", "number", False, True),
                    ("dense_rank()", "number", False, False),
                    ("percent_rank()", "shown", False, False),
                    (f"lag({value})", kind, False, True),
                    (f"lead({value}, 2)", kind, False, True),
                    (f"sum({number})", "number", True, False),
                    (f"max({value})", kind, True, False),
                    (f"first_value({value})", kind, True, False),
                    ("count(*)", "number", True, False),
                )
            )
            frame = random.choice(_FRAMES) if framed else ""
            over = " ".join(filter(None, (by and f"PARTITION BY {by}", f"ORDER BY {order}")))
            if positional or frame:
                over = positions = positions or over
            found.append(Column(f"{function} OVER ({' '.join(filter(None, (over, frame)))})", kind))
        return Select((*self._columns(scope), *found), parts, self._where(scope))

    def _top(self, depth: int) -> Query:
        parts, scope = self._from(depth)
        usable = _known(scope)
        shown = tuple(self._random.sample(usable, min(len(usable), 3)))
        order = self._ordering(usable)
        return Select(shown, parts, self._where(scope), order=order, limit=self._random.randint(1, 5))

    def _set_operation(self, depth: int) -> Query:
        random = self._random
        kinds = [random.choice(COMPARABLE) for _ in range(random.randint(1, 3))]
        sides = []
        for _ in range(2):
            parts, scope = self._from(depth)
            shown = tuple(Column(self._make.of(kind, scope), kind) for kind in kinds)
            sides.append(Select(shown, parts, self._where(scope)))
        return SetOperation(random.choice(_SET_OPERATORS), sides[0], sides[1])

    # Pieces

    def _from(self, depth: int) -> tuple[tuple[Part, ...], list[Column]]:
        """Joined relations, and the columns that can be named after them."""
        random = self._random
        relation, alias, scope = self._relation(depth)
        parts = [Part(relation, alias)]
        for _ in range(random.choice((0, 0, 0, 1, 1, 1, 2))):
            relation, alias, mine = self._relation(depth - 1)
            how = random.choice(_JOINS)
            on = () if how == "CROSS JOIN" else self._on(scope, mine)
            parts.append(Part(relation, alias, f" {how}", on))
            scope = scope if "SEMI" in how or "ANTI" in how else scope + mine
        return tuple(parts), scope

    def _relation(self, depth: int) -> tuple[str | Query, str, list[Column]]:
        random = self._random
        self._aliases += 1
        alias = f"t{self._aliases}"
        if depth > 0 and random.random() < 0.25:
            query = self.query(depth - 1)
            if _known(outputs(alias, query)):
                return query, alias, outputs(alias, query)
        usable = [name for name, view in self._views.items() if _known(outputs(alias, view))]
        if usable and random.random() < 0.15:
            name = random.choice(usable)
            return name, alias, outputs(alias, self._views[name])
        table = random.choice(list(TABLES))
        return table, alias, columns(table, alias)

    def _on(self, left: Sequence[Column], right: Sequence[Column]) -> tuple[str, ...]:
        random = self._random
        pairs = [(one, other) for one in left for other in right if one.kind == other.kind != "shown"]
        equal = [
            f"{one.sql} {random.choice(('=', '=', '=', '<=>'))} {other.sql}"
            for one, other in random.sample(pairs, min(len(pairs), random.choice((1, 1, 2))))
        ]
        if not equal or random.random() < 0.25:
            equal.append(self._make.condition([*left, *right], 0))
        return tuple(equal if random.random() < 0.95 else equal[-1:])

    def _where(self, scope: Sequence[Column]) -> tuple[str, ...]:
        random = self._random
        found = [self._make.condition(scope) for _ in range(random.choice((0, 0, 1, 2)))]
        if random.random() < 0.2:
            found.append(self._subquery_condition(scope))
        return tuple(found)

    def _subquery_condition(self, scope: Sequence[Column]) -> str:
        """A condition with a query inside: of existence, of membership, or compared with its one value."""
        random = self._random
        self._aliases += 1
        alias, table = f"s{self._aliases}", random.choice(list(TABLES))
        inner = columns(table, alias)
        correlated = self._on(scope, inner) if random.random() < 0.7 else ("true",)
        kind = self._make.kind_in(inner)
        mine, theirs = self._make.of(kind, scope, 0), self._make.of(kind, inner, 0)
        rows = f"FROM {table} {alias} WHERE {' AND '.join(correlated)}"
        maybe_not = random.choice(("", "NOT "))
        return random.choice(
            (
                f"{maybe_not}EXISTS (SELECT 1 {rows})",
                f"({self._make.condition(scope, 0)} OR EXISTS (SELECT 1 {rows}))",
                f"{mine} {maybe_not}IN (SELECT {theirs} {rows})",
                f"{mine} >= (SELECT {random.choice(('max', 'min'))}({theirs}) {rows})",
                f"1 < (SELECT count(*) {rows})",
            )
        )

    def _columns(self, scope: Sequence[Column]) -> tuple[Column, ...]:
        kinds = [self._make.kind_in(scope) for _ in range(self._random.randint(1, 3))]
        return tuple(Column(self._make.of(kind, scope), kind) for kind in kinds)

    def _ordering(self, scope: Sequence[Column]) -> tuple[str, ...]:
        random = self._random
        directions = ("", " DESC", " NULLS LAST", " DESC NULLS FIRST")
        return tuple(
            f"{column.sql}{random.choice(directions)}" for column in random.sample(scope, len(scope))
        )

    def _aggregate_of(self, scope: Sequence[Column]) -> Column:
        random = self._random
        kind = self._make.kind_in(scope)
        value = self._make.of(kind, scope)
        summed: Kind = random.choice(
            [c.kind for c in scope if c.kind in ("number", "double", "decimal")] or ["number"]
        )
        term = self._make.of(summed, scope)
        template, kind = random.choice(
            (
                ("count(*){}", "number"),
                (f"count({value}){{}}", "number"),
                (f"count(DISTINCT {value}){{}}", "number"),
                (f"sum({term}){{}}", summed),
                (f"sum({term}){{}}", summed),
                (f"avg({term}){{}}", "decimal" if summed == "decimal" else "shown"),
                (f"min({value}){{}}", kind),
                (f"max({value}){{}}", kind),
                (f"sum(DISTINCT {term}){{}}", summed),
                (f"stddev_pop({self._make.of('number', scope, 0)}){{}}", "shown"),
                (f"sort_array(collect_list({value}){{}})", "shown"),
                (f"sort_array(collect_set({value}){{}})", "shown"),
            )
        )
        only = f" FILTER (WHERE {self._make.condition(scope, 0)})" if random.random() < 0.15 else ""
        return Column(template.format(only), kind)


def _known(scope: Sequence[Column]) -> list[Column]:
    return [column for column in scope if column.kind != "shown"]
