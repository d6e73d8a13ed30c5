"""The table that is written: read from the catalog, made, compared with a view's columns, and given those it lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from slipstream.sinks.postgres.connecting import Connection
from slipstream.sinks.postgres.types import fits, type_of

_LONGEST = 63  # bytes of a name; the rest would be cut off

_TABLE = """
    SELECT c.oid::bigint, c.relkind IN ('r', 'p') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = '',
        attgenerated <> ''
    FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_UNIQUE = """
    SELECT i.relname, ARRAY(
        SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey[0:x.indnkeyatts - 1])
    ) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
    WHERE x.indrelid = %s AND x.indisunique AND x.indisvalid AND x.indpred IS NULL AND x.indexprs IS NULL
"""


@dataclass(frozen=True)
class Column:
    """A column that is there. must: whether rows need a value for it. computed: by the server alone."""

    type: str
    must: bool = False
    computed: bool = False


@dataclass(frozen=True)
class Table:
    """A table that is there. real: whether rows can be written to it. unique: indexes, and the columns of each."""

    schema: str
    name: str
    real: bool
    columns: Mapping[str, Column]
    unique: Mapping[str, frozenset[str]]

    @property
    def quoted(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def keyed_by(self, key: Sequence[str]) -> set[str]:
        """The indexes that keep one row for each key."""
        return {name for name, columns in self.unique.items() if columns == set(key)}

    def lacking(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Columns that are not there."""
        return {name: type_ for name, type_ in wanted.items() if name not in self.columns}

    def unfit(self, wanted: Mapping[str, str]) -> str | None:
        """Why rows of such columns cannot be put there, apart from what is lacking; None if they can."""
        for name, type_ in wanted.items():
            there = self.columns.get(name)
            if there is not None and there.computed:
                return f"its column '{name}' is computed by the server"
            if there is not None and not fits(there.type, type_):
                return f"its column '{name}' is {there.type}, and the view's is {type_}"
        for name, there in self.columns.items():
            if name not in wanted and there.must:
                return f"its column '{name}', which the view does not have, is NOT NULL without a default"
        return None


def wanted(schema: pa.Schema) -> dict[str, str] | str:
    """The columns of rows, as a table has them; or why none can."""
    found = {}
    for each in schema:
        type_ = type_of(each.type)
        if type_ is None:
            return f"column '{each.name}' has the type {each.type}, for which PostgreSQL has none"
        if len(each.name.encode()) > _LONGEST:
            return f"the name of column '{each.name}' has more than {_LONGEST} bytes"
        found[each.name] = type_
    return found


def read_table(connection: Connection, schema: str, name: str) -> Table | None:
    """What the catalog says of a table; None if there is none."""
    found = connection.execute(_TABLE, [schema, name]).fetchone()
    if found is None:
        return None
    columns = connection.execute(_COLUMNS, [found[0]]).fetchall()
    unique = connection.execute(_UNIQUE, [found[0]]).fetchall()
    return Table(
        schema,
        name,
        real=bool(found[1]),
        columns={each[0]: Column(*each[1:]) for each in columns},
        unique={each[0]: frozenset(each[1]) for each in unique},
    )


def is_empty(connection: Connection, table: Table) -> bool:
    query = sql.SQL("SELECT NOT EXISTS (SELECT FROM {})").format(table.quoted)
    return connection.execute(query).fetchone() == (True,)


def make_table(
    connection: Connection, schema: str, name: str, columns: Mapping[str, str], key: Sequence[str]
) -> None:
    parts = _defined(columns)
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(listed(key)))
    query = sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(schema, name), sql.SQL(", ").join(parts))
    connection.execute(query)


def add_columns(connection: Connection, table: Table, columns: Mapping[str, str]) -> None:
    added = [sql.SQL("ADD COLUMN ") + each for each in _defined(columns)]
    connection.execute(sql.SQL("ALTER TABLE {} {}").format(table.quoted, sql.SQL(", ").join(added)))


def listed(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _defined(columns: Mapping[str, str]) -> list[sql.Composable]:
    """Names and types; the types are ours (`types`), and go into a statement as they are."""
    return [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_)) for name, type_ in columns.items()]
