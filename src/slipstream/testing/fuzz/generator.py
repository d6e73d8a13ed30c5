"""Random queries: each form reads relations that are tables, views or queries again.

What is generated has one right answer. Windows and top-k order by every column in scope, so that rows that tie are
equal rows; and what depends on a row's position goes by one order in all of a query, because of equal rows either may
be the first in one order and the second in another. What depends on the order of doubles in a sum, or comes out of a
division, is `shown` and read by nothing further: a last digit must not decide which rows there are. Queries whose text
has one of `INEXACT` are compared with a tolerance. Maps have no order, so they are shown, and nothing goes by them. Of
strings that a collation takes for equal either may be shown, so they are compared in lower case. What is `listed` in an
order that Spark leaves open is compared sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from slipstream.testing.fuzz.expressions import COMPARABLE, LITERALS, Expressions
from slipstream.testing.fuzz.query import (
    Column,
    Kind,
    Part,
    Pivot,
    Query,
    Select,
    SetOperation,
    With,
    outputs,
)
from slipstream.testing.fuzz.tables import TABLES, columns

INEXACT = ("avg(", "stddev_pop(", "percent_rank(", "kurtosis(", "skewness(")

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

    def __init__(self, random: Random, views: Mapping[str, Query], lenient: bool = False) -> None:
        self._random = random
        self._views = views
        self._make = Expressions(random, lenient)
        self._aliases = 0

    def query(self, depth: int | None = None) -> Query:
        """A query with others nested in it up to a depth; if it is not said, seldom deeper than one."""
        depth = self._random.choice((0, 1, 1, 1, 2)) if depth is None else depth
        forms = (
            *(self._plain, self._plain, self._aggregate, self._aggregate, self._window, self._top),
            *(self._set_operation, self._with, self._rolled_up_union, self._pivot, self._firsts),
        )
        return self._random.choice(forms)(depth)

    # Forms

    def _plain(self, depth: int) -> Query:
        random = self._random
        parts, scope = self._from(depth)
        shown = self._columns(scope)
        if random.random() < 0.3 and any(column.kind == "map" for column in scope):
            return Select((*shown, Column(self._make.of("map", scope), "map")), parts, self._where(scope))
        if random.random() < 0.15:
            shown += self._values_of_one_table()
        if random.random() < 0.15:
            shown += (self._correlated_value(scope),)
        return Select(shown, parts, self._where(scope), distinct=random.random() < 0.2)

    def _aggregate(self, depth: int) -> Query:
        random = self._random
        parts, scope = self._from(depth)
        kinds = [self._make.kind_in(scope) for _ in range(random.choice((0, 1, 1, 2)))]
        keys = [Column(self._make.of(kind, scope), kind) for kind in kinds]
        found = [self._aggregate_of(scope) for _ in range(random.randint(0 if keys else 1, 3))]
        having = (
            (self._make.condition(known, 0),) if (known := _known(found)) and random.random() < 0.25 else ()
        )
        grouping = random.choice(("ROLLUP({})", "CUBE({})")) if keys and random.random() < 0.15 else "{}"
        group = tuple(dict.fromkeys(key.sql for key in keys))
        if grouping == "{}" and random.random() < 0.15:
            window = self._sliding(scope)
            keys, group = [*keys, Column(f"unix_micros({window}.start)", "number")], (*group, window)
        return Select((*keys, *found), parts, self._where(scope), group, grouping, having)

    def _sliding(self, scope: Sequence[Column]) -> str:
        """A window over some number as a time, that slides."""
        time = f"timestamp_seconds(pmod({self._make.of('number', scope, 0)}, 20) - 5)"
        length, slide, offset = self._random.choice(((4, 1, 0), (6, 4, 1), (5, 5, 2), (7, 3, -2)))
        return f"window({time}, '{length} seconds', '{slide} seconds', '{offset} seconds')"

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
        one, other = (self._side(*self._from(depth), kinds) for _ in range(2))
        return SetOperation(random.choice(_SET_OPERATORS), one, other)

    def _side(self, parts: tuple[Part, ...], scope: Sequence[Column], kinds: Sequence[Kind]) -> Select:
        """A query with columns of these kinds."""
        shown = tuple(Column(self._make.of(kind, scope), kind) for kind in kinds)
        return Select(shown, parts, self._where(scope))

    def _with(self, depth: int) -> Query:
        """A query with a name that is read twice."""
        random = self._random
        named = random.choice((self._aggregate, self._decimal_sums, self.query))(max(depth - 1, 0))
        name, one, other = (self._alias(letter) for letter in "wtt")
        scope = outputs(one, named)
        if not _known(scope):
            return named
        if random.random() < 0.5:
            kinds = [self._make.kind_in(scope) for _ in range(random.randint(1, 3))]
            kinds += ["decimal"] if any(column.kind == "decimal" for column in scope) else []
            sides = (self._side((Part(name, alias),), outputs(alias, named), kinds) for alias in (one, other))
            return With(name, named, SetOperation(random.choice(_SET_OPERATORS), *sides))
        scope += outputs(other, named)
        on = self._on(outputs(one, named), outputs(other, named))
        parts = (Part(name, one), Part(name, other, f" {random.choice(_JOINS[:5])}", on))
        return With(name, named, Select(self._columns(scope), parts, self._where(scope)))

    def _decimal_sums(self, depth: int) -> Query:
        """Sums of decimal columns of a table, which Spark adds up as whole numbers where they are narrow."""
        random = self._random
        alias, table = self._alias("t"), random.choice(("a", "b", "b"))
        scope = columns(table, alias)
        keys = random.sample(
            [column for column in _known(scope) if column.kind != "decimal"], random.randint(1, 2)
        )
        summed = next(column for column in scope if column.kind == "decimal")
        totals = [Column(f"sum({summed.sql})", "decimal"), Column(f"sum({summed.sql} * 2)", "decimal")]
        found = (*totals[: random.randint(1, 2)], Column("count(*)", "number"))
        group = tuple(key.sql for key in keys)
        return Select((*keys, *found), (Part(table, alias),), self._where(scope), group)

    def _rolled_up_union(self, depth: int) -> Query:
        """Totals of totals, by ROLLUP or CUBE, of two inputs."""
        random = self._random
        kinds = [random.choice(COMPARABLE) for _ in range(2)]
        summed: Kind = random.choice(("number", "decimal", "decimal"))
        sides = []
        for _ in range(2):
            parts, scope = self._from(depth - 1)
            keys = tuple(Column(self._make.of(kind, scope), kind) for kind in kinds)
            total = Column(f"sum({self._make.of(summed, scope)})", summed)
            group = tuple(dict.fromkeys(key.sql for key in keys))
            sides.append(Select((*keys, total), parts, self._where(scope), group))
        alias, union = self._alias("t"), SetOperation("UNION ALL", sides[0], sides[1])
        *by, total = outputs(alias, union)
        shown = (*by, Column(f"sum({total.sql})", summed), Column("count(*)", "number"))
        group = tuple(key.sql for key in by)
        grouping = random.choice(("ROLLUP({})", "CUBE({})"))
        return Select(shown, (Part(union, alias),), group=group, grouping=grouping)

    def _pivot(self, depth: int) -> Query:
        random = self._random
        parts, scope = self._from(depth)
        by: Kind = random.choice(("number", "string", "date", "struct"))
        kinds = [by, *(self._make.kind_in(scope) for _ in range(random.choice((1, 2))))]
        values = tuple(random.sample(LITERALS[by], 2))
        found = random.choice(
            (Column("max({})", kinds[1]), Column("min({})", kinds[1]), Column("count({})", "number"))
        )
        return Pivot(self._side(parts, scope, kinds), found, values)

    def _firsts(self, depth: int) -> Query:
        """For each row of a relation the first rows of another that match it, or a value of the first."""
        random = self._random
        relation, alias, scope = self._relation(depth)
        parts, shown = (Part(relation, alias),), self._columns(scope)
        rows, matched, inner = self._matching(scope)
        order = self._ordering(inner)
        if random.random() < 0.5:
            first = Select((random.choice(inner),), (rows,), matched, order=order, limit=1)
            return Select((*shown, Column(f"({first.sql()})", first.kinds[0])), parts)
        firsts = Select(self._columns(inner), (rows,), matched, order=order, limit=random.randint(1, 2))
        lateral = Part(
            firsts, self._alias("t"), random.choice((" JOIN LATERAL", " LEFT JOIN LATERAL")), ("true",)
        )
        return Select((*shown, *outputs(lateral.alias, firsts)), (*parts, lateral))

    # Pieces

    def _from(self, depth: int) -> tuple[tuple[Part, ...], list[Column]]:
        """Joined relations, and the columns that can be named after them."""
        random = self._random
        relation, alias, scope = self._relation(depth)
        parts = [Part(relation, alias)]
        for _ in range(random.choice((0, 0, 0, 1, 1, 1, 2))):
            if random.random() < 0.1:
                part, mine = self._lateral(scope)
                parts.append(part)
                scope = scope + mine
                continue
            relation, alias, mine = self._relation(depth - 1)
            how = random.choice(_JOINS)
            on = () if how == "CROSS JOIN" else self._on(scope, mine)
            parts.append(Part(relation, alias, f" {how}", on))
            scope = scope if "SEMI" in how or "ANTI" in how else scope + mine
        return tuple(parts), scope

    def _relation(self, depth: int) -> tuple[str | Query, str, list[Column]]:
        random = self._random
        alias = self._alias("t")
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

    def _alias(self, letter: str) -> str:
        self._aliases += 1
        return f"{letter}{self._aliases}"

    def _lateral(self, scope: Sequence[Column]) -> tuple[Part, list[Column]]:
        """A relation that is another for each row before it: the elements of an array, or the first rows or the totals
        of those that match.
        """
        random = self._random
        alias, how = self._alias("t"), random.choice((" JOIN LATERAL", " LEFT JOIN LATERAL"))
        on = ("true",) if "LEFT" in how else ()
        if any(column.kind == "array" for column in scope) and random.random() < 0.5:
            elements = f"explode({self._make.of('array', scope)})"
            return Part(elements, f"{alias}(c0)", how, on), [Column(f"{alias}.c0", "number")]
        rows, matched, inner = self._matching(scope)
        if random.random() < 0.5:
            found = tuple(self._aggregate_of(inner) for _ in range(2))
            query = Select(found, (rows,), matched)
        else:
            order = self._ordering(_known(inner))
            query = Select(self._columns(inner), (rows,), matched, order=order, limit=random.randint(1, 2))
        return Part(query, alias, how, on), outputs(alias, query)

    def _matching(self, scope: Sequence[Column]) -> tuple[Part, tuple[str, ...], list[Column]]:
        """A relation in a query that is inside another, the condition by which it matches a row of that, and its
        columns: a table, or its distinct rows.
        """
        random = self._random
        alias, table = self._alias("s"), random.choice(list(TABLES))
        part, inner = Part(table, alias), _known(columns(table, alias))
        if random.random() < 0.3:
            inside = self._alias("s")
            chosen = tuple(random.sample(_known(columns(table, inside)), 2))
            query = Select(chosen, (Part(table, inside),), distinct=True)
            part, inner = Part(query, alias), outputs(alias, query)
        pairs = [(one, other) for one in scope for other in inner if one.kind == other.kind]
        if not pairs:
            return part, (), inner
        one, other = random.choice(pairs)
        return part, (f"{other.sql} = {one.sql}",), inner

    def _correlated_value(self, scope: Sequence[Column]) -> Column:
        """The one value of a query for each row of another: a total of the rows that match, or the first of them."""
        random = self._random
        rows, matched, inner = self._matching(scope)
        if random.random() < 0.6:
            found = Column(*random.choice((("count(*)", "number"), (f"count({inner[0].sql})", "number"))))
            return Column(f"({Select((found,), (rows,), matched).sql()})", "number")
        shown = random.choice(inner)
        first = Select((shown,), (rows,), matched, order=self._ordering(inner), limit=1)
        return Column(f"({first.sql()})", shown.kind)

    def _values_of_one_table(self) -> tuple[Column, ...]:
        """Several queries of one value each, over the same rows."""
        random = self._random
        alias, table = self._alias("s"), random.choice(list(TABLES))
        inner = columns(table, alias)
        where = (self._make.condition(inner, 0),) if random.random() < 0.7 else ()
        found = [self._aggregate_of(inner) for _ in range(random.choice((2, 3)))]
        one = [Select((each,), (Part(table, alias),), where) for each in found]
        return tuple(Column(f"({query.sql()})", each.kind) for query, each in zip(one, found, strict=True))

    def _on(self, left: Sequence[Column], right: Sequence[Column]) -> tuple[str, ...]:
        random = self._random
        pairs = [(one, other) for one in _known(left) for other in right if one.kind == other.kind]
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
        alias, table = self._alias("s"), random.choice(list(TABLES))
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
        listed = self._make.of("number", scope) if kind == "collated" else value
        summed: Kind = random.choice(
            [c.kind for c in scope if c.kind in ("number", "double", "decimal")] or ["number"]
        )
        term = self._make.of(summed, scope)
        small = self._make.of("number", scope, 0)
        template, kind = random.choice(
            (
                ("count(*){}", "number"),
                (f"count({value}){{}}", "number"),
                (f"count(DISTINCT {value}){{}}", "number"),
                (f"count(DISTINCT {value}, {term}){{}}", "number"),
                (f"listagg(DISTINCT {self._make.of('string', scope, 0)}, '|'){{}}", "listed"),
                (f"{random.choice(('kurtosis', 'skewness'))}(pmod({small}, 7)){{}}", "shown"),
                (f"sum({term}){{}}", summed),
                (f"sum({term}){{}}", summed),
                (f"avg({term}){{}}", "decimal" if summed == "decimal" else "shown"),
                (f"min({value}){{}}", kind),
                (f"max({value}){{}}", kind),
                (f"sum(DISTINCT {term}){{}}", summed),
                (f"stddev_pop({small}){{}}", "shown"),
                (f"sort_array(collect_list({listed}){{}})", "shown"),
                (f"sort_array(collect_set({listed}){{}})", "shown"),
            )
        )
        only = f" FILTER (WHERE {self._make.condition(scope, 0)})" if random.random() < 0.15 else ""
        return Column(template.format(only), kind)


def _known(scope: Sequence[Column]) -> list[Column]:
    """Columns that can be compared."""
    return [column for column in scope if column.kind in COMPARABLE]
