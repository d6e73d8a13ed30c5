"""A connection that notices when its server is gone, and transactions that say how they are to be read and kept.

A server that does not answer is given up by whoever waits: connecting ends after some seconds, and the operating
system ends a connection over which nothing comes back. The server does the same with an engine that is gone, as fast:
what that one had begun ends, and lets go of the table. Each transaction sets what it needs for itself alone, so that a
pool between the two may give it any session.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

LOCK_WITHIN = 30
"""Seconds for which somebody else's work on the table is waited for."""

_PATIENCE = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds
}

_BEGIN = """
    SELECT set_config('lock_timeout', %s, true), set_config('DateStyle', 'ISO, YMD', true),
        set_config('IntervalStyle', 'postgres', true), set_config('tcp_keepalives_idle', '20', true),
        set_config('tcp_keepalives_interval', '5', true), set_config('tcp_keepalives_count', '3', true),
        CASE WHEN current_setting('synchronous_commit') = 'off'
            THEN set_config('synchronous_commit', 'on', true) END
"""


def connect(dsn: str, sink: str) -> Connection:
    """Connect, with what the user has not chosen chosen well."""
    given = conninfo_to_dict(dsn)
    chosen: dict[str, Any] = {"application_name": f"slipstream sink {sink}", **_PATIENCE}
    lacking = {name: value for name, value in chosen.items() if name not in given}
    connection = psycopg.connect(
        make_conninfo(dsn, client_encoding="utf8", **lacking),
        prepare_threshold=None,  # pools give each transaction another session
    )
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


def begin(connection: Connection) -> None:
    """The first statement of a transaction."""
    connection.execute(_BEGIN, [f"{LOCK_WITHIN}s"])


def lock(connection: Connection, name: str) -> None:
    """Wait for whoever works under this name, and let nobody else until the end of the transaction."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def holder(connection: Connection, name: str) -> tuple[int, str] | None:
    """Who works under a name: the process of the server, and what it says it is."""
    found = connection.execute(
        """
        SELECT a.pid, a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database() AND l.objsubid = 1
            AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended(%s, 0)
        """,
        [name],
    ).fetchone()
    return None if found is None else (int(found[0]), str(found[1]))
