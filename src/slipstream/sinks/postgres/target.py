"""A table of PostgreSQL's that one sink writes: rows and stamp in one transaction.

The stamp is a row of `slipstream_sinks`, in the schema of the table. Whoever reads or writes it holds a lock until the
end of the transaction, which is by the table's name, so it is there before either table is. So who asks how far the
table is waits for what is on its way: an engine may be dead while its COMMIT is not done yet. The stamp speaks of rows,
so where the table is gone there is none.

Nothing blocks readers: all rows are replaced by DELETE and COPY, under the snapshots of whoever reads, and columns are
added in a transaction of their own, because that alone waits for readers, and they for it.

An error of the server's about what a row is (a value out of range, a constraint) comes again however often it is
tried, so it stops the sink. All others do not. After any error the connection is closed, and made anew when it is
wanted: what was begun on it is undone by the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psycopg
from psycopg import errors, sql

from slipstream.core.errors import (
    KeyNotUnique,
    TargetBusy,
    TargetColumns,
    TargetFenced,
    TargetNotOurs,
    TargetRefuses,
)
from slipstream.core.errors.base import first_line
from slipstream.sinks.base import Append, Delivery, Stamp, told
from slipstream.sinks.postgres.connecting import Connection, begin, connect, holder, lock
from slipstream.sinks.postgres.table import (
    Table,
    add_columns,
    is_empty,
    make_table,
    read_table,
    wanted,
)
from slipstream.sinks.postgres.writing import rows_of, with_nul, write

_STAMPS = "slipstream_sinks"
_BESIDE = ("_epoch", "_diff")
_ABOUT_ROWS = ("22", "23", "54")  # classes of errors: data, constraints, limits
_ABOUT_NUL = ("22021", "22P05")


class PostgresTarget:
    """See the module's docstring. shown: what it is called in errors. schema: None for the first that is searched."""

    def __init__(
        self, name: str, shown: str, dsn: str, schema: str | None, table: str, key: Sequence[str]
    ) -> None:
        self._name, self._shown, self._dsn = name, shown, dsn
        self._given, self._table, self._key = schema, table, tuple(key)
        self._connection: Connection | None = None
        self._key_indexes: set[str] = set()

    def stamp(self) -> Stamp | None:
        with self._transaction(None) as (connection, schema):
            table, found = self._found(connection, schema)
            if found is None and table is not None:
                self._check_empty(connection, table)
            connection.commit()
            return found

    def deliver(self, delivery: Delivery) -> None:
        while not self._delivered(delivery):
            pass

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # Inside

    def _delivered(self, delivery: Delivery) -> bool:
        """One transaction; whether that was all of it."""
        with self._transaction(delivery) as (connection, schema):
            table, found = self._found(connection, schema)
            if (found and found.encode()) != (delivery.before and delivery.before.encode()):
                raise TargetFenced(self._name, self._shown, _told(table, found))
            if not _exists(connection, schema, _STAMPS):
                connection.rollback()
                self._make_stamps(connection, schema)
                return False
            if delivery.work is not None or table is None or found is None:
                if self._fitted(connection, schema, table, found, delivery):
                    connection.commit()
                    return False
                table = read_table(connection, schema, self._table)
            if delivery.work is not None:
                assert table is not None, "it was made"
                self._key_indexes = table.keyed_by(self._key)
                write(connection, table, delivery.schema, self._key, delivery.work)
            self._write_stamp(connection, schema, delivery.after)
            connection.commit()
            return True

    def _fitted(
        self,
        connection: Connection,
        schema: str,
        table: Table | None,
        found: Stamp | None,
        delivery: Delivery,
    ) -> bool:
        """Have a table that takes a delivery's rows; whether one that was there has columns more now."""
        columns = wanted(delivery.schema)
        if isinstance(columns, str):
            raise TargetColumns(self._name, self._shown, columns)
        if table is None:
            make_table(connection, schema, self._table, columns, self._key)
            return False
        lacking, unfit = table.lacking(columns), table.unfit(columns)
        if found is None:
            self._check_empty(connection, table)
            for name, type_ in lacking.items():
                unfit = unfit or f"it lacks the view's column '{name}' ({type_})"
            if unfit is not None:
                raise TargetNotOurs(self._name, self._shown, unfit)
        if unfit is not None:
            raise TargetColumns(self._name, self._shown, unfit)
        if self._key and not table.keyed_by(self._key):
            key = ", ".join(self._key)
            raise TargetNotOurs(
                self._name,
                self._shown,
                f"no unique index is over exactly the key: CREATE UNIQUE INDEX ON {schema}.{self._table} ({key})",
            )
        if isinstance(delivery.work, Append) and lacking.keys() & set(_BESIDE):
            why = f"it was written in another mode, and has no column '{next(iter(lacking))}'"
            raise TargetColumns(self._name, self._shown, why)
        if lacking:
            add_columns(connection, table, lacking)
        return bool(lacking)

    def _found(self, connection: Connection, schema: str) -> tuple[Table | None, Stamp | None]:
        """The table and its stamp, after everybody else who works on it."""
        lock(connection, self._lock(schema))
        table = read_table(connection, schema, self._table)
        if table is None or not _exists(connection, schema, _STAMPS):
            return table, None
        query = sql.SQL("SELECT stamp FROM {} WHERE target = %s FOR UPDATE").format(
            sql.Identifier(schema, _STAMPS)
        )
        row = connection.execute(query, [self._table]).fetchone()
        return table, None if row is None else Stamp.decode(row[0], self._shown)

    def _check_empty(self, connection: Connection, table: Table) -> None:
        """Rows that no sink wrote are not mixed with those that one does."""
        if not table.real:
            raise TargetNotOurs(self._name, self._shown, "it is no table")
        if not is_empty(connection, table):
            raise TargetNotOurs(self._name, self._shown, "has rows that no sink wrote")

    def _make_stamps(self, connection: Connection, schema: str) -> None:
        """In a transaction of its own. Where several do that at once, IF NOT EXISTS is not enough."""
        query = sql.SQL("CREATE TABLE IF NOT EXISTS {} (target text PRIMARY KEY, stamp text NOT NULL)")
        begin(connection)
        with suppress(errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject):
            connection.execute(query.format(sql.Identifier(schema, _STAMPS)))
            connection.commit()
        connection.rollback()

    def _write_stamp(self, connection: Connection, schema: str, stamp: Stamp) -> None:
        query = sql.SQL(
            "INSERT INTO {} VALUES (%s, %s) ON CONFLICT (target) DO UPDATE SET stamp = excluded.stamp"
        )
        connection.execute(query.format(sql.Identifier(schema, _STAMPS)), [self._table, stamp.encode()])

    @contextmanager
    def _transaction(self, delivery: Delivery | None) -> Iterator[tuple[Connection, str]]:
        """A connection in a transaction, and the schema. What goes wrong is said in our words, and undone."""
        schema = self._given or "the first schema"
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._dsn, self._name)
            begin(self._connection)
            schema = self._given or _first_schema(self._connection)
            yield self._connection, schema
        except errors.LockNotAvailable as error:
            self.close()
            self._say_who(schema)
            raise error
        except psycopg.Error as error:
            self.close()
            self._say_which_row(error, delivery)
            raise
        except BaseException:
            self.close()
            raise

    def _lock(self, schema: str) -> str:
        return f"slipstream {schema}.{self._table}"

    def _say_who(self, schema: str) -> None:
        """Raise, naming who holds the table."""
        with connect(self._dsn, self._name) as connection:
            found = holder(connection, self._lock(schema))
        if found is not None:
            who = f"process {found[0]} of the server ({found[1]})"
            raise TargetBusy(self._name, self._shown, who, f"SELECT pg_terminate_backend({found[0]})")

    def _say_which_row(self, error: psycopg.Error, delivery: Delivery | None) -> None:
        """Raise if an error is about a row, naming it as far as that can be told."""
        if (error.sqlstate or "")[:2] not in _ABOUT_ROWS:
            return
        said = error.diag
        if isinstance(error, errors.UniqueViolation) and said.constraint_name in self._key_indexes:
            raise KeyNotUnique(self._name, None, _key_in(said.message_detail)) from error
        if error.sqlstate in _ABOUT_NUL and delivery is not None and delivery.work is not None:
            why = with_nul(rows_of(delivery.work), self._key)
            if why is not None:
                why = f"{why}, which PostgreSQL cannot store"
                raise TargetRefuses(self._name, self._shown, why) from error
        where = f" ({first_line(said.context).rstrip('.')[:200]})" if said.context else ""
        raise TargetRefuses(self._name, self._shown, f"{said.message_primary}{where}") from error


def _exists(connection: Connection, schema: str, name: str) -> bool:
    query = "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = %s AND relname = %s"
    return connection.execute(query, [schema, name]).fetchone() is not None


def _first_schema(connection: Connection) -> str:
    """Where a table is made whose schema is not given."""
    row = connection.execute("SELECT current_schema()").fetchone()
    return str(row[0]) if row and row[0] else "public"


def _told(table: Table | None, found: Stamp | None) -> str:
    return "it is gone" if table is None else told(found)


def _key_in(detail: str | None) -> str:
    """The values in what the server says of a key; the words around them are in its own language."""
    found = re.search(r"=\((.*)\)", detail or "", re.S)
    return found[1] if found else "that the server does not name"
