"""A delivery's work, inside a transaction: rows added, put in the place of all others, or changed by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from slipstream.sinks.base import Append, Replace, Upsert
from slipstream.sinks.postgres.connecting import Connection
from slipstream.sinks.postgres.table import Table, listed
from slipstream.sinks.postgres.text import as_csv

_DELIVERY = sql.Identifier("pg_temp", "slipstream_delivery")
_WHAT = sql.Identifier("what")
_DELETED, _UPDATED, _INSERTED = range(3)


def write(
    connection: Connection,
    table: Table,
    schema: pa.Schema,
    key: Sequence[str],
    work: Append | Replace | Upsert,
) -> None:
    """Do it. Readers see nothing of it, and wait for nothing, until the transaction is committed."""
    match work:
        case Append(tables=tables):
            _copy(connection, table.quoted, schema.names, tables())
        case Replace(tables=tables):
            connection.execute(sql.SQL("DELETE FROM {}").format(table.quoted))
            _copy(connection, table.quoted, schema.names, tables())
        case Upsert():
            _by_key(connection, table, schema, key, work)


def rows_of(work: Append | Replace | Upsert) -> Iterator[pa.Table]:
    """All rows that a delivery writes, once more."""
    match work:
        case Append(tables=tables) | Replace(tables=tables):
            yield from tables()
        case Upsert():
            yield from (work.deleted, work.updated, work.inserted)


def _copy(
    connection: Connection, into: sql.Identifier, columns: Sequence[str], tables: Iterable[pa.Table]
) -> None:
    query = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(into, listed(columns))
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for table in tables:
            for piece in as_csv(table.select(columns)):
                copy.write(memoryview(piece))


def _by_key(
    connection: Connection, table: Table, schema: pa.Schema, key: Sequence[str], work: Upsert
) -> None:
    """By way of a temporary table. Rows go before others come, so that a value that is unique may wander."""
    names = {name: f"c{number}" for number, name in enumerate(schema.names)}
    columns = [
        sql.SQL("{} AS {}").format(sql.Identifier(name), sql.Identifier(own)) for name, own in names.items()
    ]
    parts: dict[str, Any] = {
        "table": table.quoted,
        "delivery": _DELIVERY,
        "what": _WHAT,
        "columns": sql.SQL(", ").join(columns),
        "all": listed(list(names)),
        "own": listed(list(names.values())),
        "same": sql.SQL(" AND ").join(
            sql.SQL("t.{} = d.{}").format(sql.Identifier(name), sql.Identifier(names[name])) for name in key
        ),
        "values": sql.SQL(", ").join(
            sql.SQL("{} = d.{}").format(sql.Identifier(name), sql.Identifier(own))
            for name, own in names.items()
            if name not in key
        ),
        "deleted": _DELETED,
        "updated": _UPDATED,
        "inserted": _INSERTED,
    }

    def run(query: str) -> int:
        return connection.execute(sql.SQL(query).format(**parts)).rowcount

    run(
        "CREATE TEMPORARY TABLE slipstream_delivery ON COMMIT DROP AS "
        "SELECT {columns}, 0::smallint AS {what} FROM {table} WITH NO DATA"
    )
    _copy(connection, _DELIVERY, [*names.values(), "what"], [_marked(work, schema, names)])
    if work.deleted.num_rows:
        run("DELETE FROM {table} t USING {delivery} d WHERE d.{what} = {deleted} AND {same}")
    if work.updated.num_rows and len(key) < len(names):
        found = run("UPDATE {table} t SET {values} FROM {delivery} d WHERE d.{what} = {updated} AND {same}")
        if found < work.updated.num_rows:  # somebody has deleted some
            run(
                "INSERT INTO {table} ({all}) SELECT {own} FROM {delivery} d WHERE d.{what} = {updated} "
                "AND NOT EXISTS (SELECT FROM {table} t WHERE {same})"
            )
    if work.inserted.num_rows:
        run("INSERT INTO {table} ({all}) SELECT {own} FROM {delivery} d WHERE d.{what} = {inserted}")


def _marked(work: Upsert, schema: pa.Schema, names: dict[str, str]) -> pa.Table:
    """All rows of a delivery, each with what it is; of those that go, there are only the keys."""
    found = []
    for rows, what in ((work.deleted, _DELETED), (work.updated, _UPDATED), (work.inserted, _INSERTED)):
        columns = [
            rows.column(each.name).cast(each.type)
            if each.name in rows.column_names
            else pa.nulls(rows.num_rows, each.type)
            for each in schema
        ]
        mark = pa.repeat(pa.scalar(what, pa.int16()), rows.num_rows)
        found.append(pa.table([*columns, mark], [*names.values(), "what"]))
    return pa.concat_tables(found)


def with_nul(tables: Iterable[pa.Table], key: Sequence[str]) -> str | None:
    """Where the first text is with the one character that PostgreSQL has no place for, in words."""
    for table in tables:
        for name, column in zip(table.column_names, table.columns, strict=True):
            there = _has_nul(column)
            if there is None:
                continue
            keys = ", ".join(f"{each}={table.column(each)[there].as_py()!r}" for each in key)
            return f"column '{name}' has a text with a NUL character" + (
                f" in the row with {keys}" if keys else ""
            )
    return None


def _has_nul(column: pa.ChunkedArray) -> int | None:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        found = pc.index(pc.match_substring(column, "\0"), pa.scalar(True)).as_py()
        return None if found < 0 else int(found)
    if (
        pa.types.is_nested(column.type)
        or pa.types.is_string_view(column.type)
        or pa.types.is_dictionary(column.type)
    ):
        return next((number for number, value in enumerate(column.to_pylist()) if _deep(value)), None)
    return None


def _deep(value: object) -> bool:
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(_deep(each) for pair in value.items() for each in pair)
        case list() | tuple():
            return any(_deep(each) for each in value)
    return False
