"""A query as data: what can be rendered as SQL, and made smaller piece by piece.

A smaller query is one with a piece left out: a column, a condition, a join, a clause, or an inner query in the
place of the whole. Leaving a piece out may leave behind a name that means nothing any more; Spark refuses such a
query, and whoever shrinks passes it over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

_Piece = TypeVar("_Piece")
Kind = Literal[
    "number",
    "double",
    "decimal",
    "string",
    "collated",
    "listed",
    "date",
    "timestamp",
    "interval",
    "struct",
    "array",
    "nested",
    "map",
    "shown",
]
"""Kinds of values that can be compared with each other, but for maps. `collated`: strings that are equal in either
case. `shown`: what no further expression reads; `listed`: likewise, values with | between them, in any order.
"""


@dataclass(frozen=True)
class Column:
    """A column that expressions can name."""

    sql: str
    kind: Kind


@dataclass(frozen=True)
class Part:
    """One relation in FROM: a table or view by name, or a query; joined to those before it."""

    relation: str | Query
    alias: str
    join: str = ""
    on: tuple[str, ...] = ()

    def render(self) -> str:
        inner = self.relation if isinstance(self.relation, str) else f"({self.relation.sql()})"
        condition = f" ON {' AND '.join(self.on)}" if self.on else ""
        return f"{self.join} {inner} {self.alias}{condition}"


@dataclass(frozen=True)
class Select:
    """SELECT, with the output columns named c0, c1, ..."""

    columns: tuple[Column, ...]
    parts: tuple[Part, ...]
    where: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    grouping: str = "{}"
    having: tuple[str, ...] = ()
    distinct: bool = False
    order: tuple[str, ...] = ()
    limit: int | None = None

    def sql(self) -> str:
        shown = ", ".join(f"{column.sql} AS c{i}" for i, column in enumerate(self.columns))
        text = f"SELECT {'DISTINCT ' if self.distinct else ''}{shown} FROM{''.join(p.render() for p in self.parts)}"
        if self.where:
            text += f" WHERE {' AND '.join(self.where)}"
        if self.group:
            text += f" GROUP BY {self.grouping.format(', '.join(self.group))}"
        if self.having:
            text += f" HAVING {' AND '.join(self.having)}"
        if self.limit is not None:
            text += f" ORDER BY {', '.join(self.order)} LIMIT {self.limit}"
        return text

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(column.kind for column in self.columns)

    def smaller(self) -> Iterator[Query]:
        yield from (part.relation for part in self.parts if not isinstance(part.relation, str))
        yield from (replace(self, having=rest) for rest in _without_one(self.having))
        yield from (replace(self, where=rest) for rest in _without_one(self.where))
        yield from (replace(self, group=rest) for rest in _without_one(self.group))
        yield from (replace(self, parts=rest) for rest in _without_one(self.parts) if rest)
        yield from (replace(self, columns=rest) for rest in _without_one(self.columns) if rest)
        if self.distinct:
            yield replace(self, distinct=False)
        if self.limit is not None:
            yield replace(self, limit=None, order=())
        for i, part in enumerate(self.parts):
            if isinstance(part.relation, str):
                yield from (self._with(i, replace(part, on=on)) for on in _without_one(part.on) if on)
            else:
                yield from (self._with(i, replace(part, relation=each)) for each in part.relation.smaller())

    def _with(self, place: int, part: Part) -> Select:
        return replace(self, parts=(*self.parts[:place], part, *self.parts[place + 1 :]))


@dataclass(frozen=True)
class SetOperation:
    """Two queries with columns of the same kinds, put together."""

    operator: str
    left: Query
    right: Query

    def sql(self) -> str:
        return f"({self.left.sql()}) {self.operator} ({self.right.sql()})"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return self.left.kinds

    def smaller(self) -> Iterator[Query]:
        yield self.left
        yield self.right
        yield from (replace(self, left=each) for each in self.left.smaller())
        yield from (replace(self, right=each) for each in self.right.smaller())


@dataclass(frozen=True)
class With:
    """A query with a name, and one that reads it, mostly more than once."""

    name: str
    named: Query
    body: Query

    def sql(self) -> str:
        return f"WITH {self.name} AS ({self.named.sql()}) {self.body.sql()}"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return self.body.kinds

    def smaller(self) -> Iterator[Query]:
        yield self.named
        yield from (replace(self, body=each) for each in self.body.smaller())
        yield from (replace(self, named=each) for each in self.named.smaller())


@dataclass(frozen=True)
class Pivot:
    """A query's first column turned into columns, one for each of some values: the others go through an aggregate
    (`{}`: the second column) or are grouped by.
    """

    query: Query
    aggregate: Column
    values: tuple[str, ...]

    def sql(self) -> str:
        places = range(len(self.values))
        names = [*(f"c{i}" for i in range(2, len(self.query.kinds))), *(f"p{i}" for i in places)]
        shown = ", ".join(f"{name} AS c{i}" for i, name in enumerate(names))
        listed = ", ".join(f"{value} AS p{i}" for i, value in enumerate(self.values))
        found = self.aggregate.sql.format("c1")
        return f"SELECT {shown} FROM ({self.query.sql()}) PIVOT ({found} FOR c0 IN ({listed}))"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (*self.query.kinds[2:], *(self.aggregate.kind for _ in self.values))

    def smaller(self) -> Iterator[Query]:
        yield self.query
        yield from (replace(self, values=rest) for rest in _without_one(self.values) if rest)
        yield from (replace(self, query=each) for each in self.query.smaller() if len(each.kinds) > 1)


Query: TypeAlias = Select | SetOperation | With | Pivot


def parts_of(query: SetOperation | With | Pivot) -> tuple[Query, ...]:
    """The queries that another is put together from."""
    match query:
        case SetOperation(_, left, right):
            return left, right
        case With(_, named, body):
            return named, body
        case Pivot(inner):
            return (inner,)


def outputs(alias: str, query: Query) -> list[Column]:
    """A query's output columns as those around it name them."""
    return [Column(f"{alias}.c{i}", kind) for i, kind in enumerate(query.kinds)]


def _without_one(pieces: Sequence[_Piece]) -> Iterator[tuple[_Piece, ...]]:
    return ((*pieces[:i], *pieces[i + 1 :]) for i in range(len(pieces)))
