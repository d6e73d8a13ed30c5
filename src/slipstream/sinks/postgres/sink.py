"""What a user declares: which server and table, and how rows get there. Nothing of the server is known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slipstream.core.errors import BadSinkOption, MissingLibrary
from slipstream.sinks.base import Mode, Sink, keys_of

if TYPE_CHECKING:
    from slipstream.sinks.postgres.target import PostgresTarget

STAMPS = "slipstream_sinks"
"""The table of stamps, in the schema of the tables that they are of."""
LONGEST = 63
"""Bytes of a name; PostgreSQL cuts off the rest."""


@dataclass(frozen=True)
class PostgresSink(Sink):
    """See `target`; made by `to_postgres`. dsn: has a password perhaps, so it is not shown."""

    dsn: str = field(default="", repr=False)
    table: str = ""
    kind: str = field(default="postgres", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _settings(self.dsn)
        parts = self.table.split(".")
        if len(parts) > 2 or not all(parts):
            raise BadSinkOption(f"to_postgres(table={self.table!r})", "give 'table' or 'schema.table'")
        if parts[-1] == STAMPS:
            raise BadSinkOption(
                f"to_postgres(table={self.table!r}): sinks keep their stamps there", "give it another name"
            )
        for name in (*parts, *self.key):
            if len(name.encode()) > LONGEST or "\0" in name:
                raise BadSinkOption(
                    f"to_postgres: the name {name!r} is none for PostgreSQL", f"use at most {LONGEST} bytes"
                )

    @property
    def shown(self) -> str:
        settings = _settings(self.dsn)
        where = settings.get("host") or settings.get("hostaddr") or "localhost"
        database = settings.get("dbname") or settings.get("user") or "postgres"
        return f"table {self.table} of database {database} on {where}"

    def opened(self, name: str) -> PostgresTarget:
        from slipstream.sinks.postgres.target import PostgresTarget

        schema, _, table = self.table.rpartition(".")
        return PostgresTarget(name, self.shown, self.dsn, schema or None, table, self.key)


def _settings(dsn: str) -> dict[str, str]:
    """What a connection string says, with what libpq adds to it. Errors do not repeat it: it may have a password."""
    try:
        from psycopg import ProgrammingError, pq
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise MissingLibrary("to_postgres", "psycopg[binary]", "postgres") from None
    try:
        given = conninfo_to_dict(dsn)
    except (ProgrammingError, TypeError, AttributeError):
        raise BadSinkOption(
            "to_postgres(dsn): it is no connection string",
            "give 'postgresql://user@host/database' or 'host=... dbname=... user=...'",
        ) from None
    usual = {each.keyword.decode(): each.val.decode() for each in pq.Conninfo.get_defaults() if each.val}
    return {**usual, **{name: str(value) for name, value in given.items()}}


def to_postgres(
    dsn: str, table: str, mode: Mode = "changes", key: str | Sequence[str] | None = None
) -> PostgresSink:
    """A table of PostgreSQL's, which is made if it is not there. dsn: a connection string, as a URL or `host=...`.

    mode: "changes" adds every change, with the columns `_epoch` and `_diff`; "upsert" keeps one row for each `key`;
    "replace" keeps the whole view, written anew with each change.
    """
    return PostgresSink(mode=mode, key=keys_of(key), dsn=dsn, table=table)
