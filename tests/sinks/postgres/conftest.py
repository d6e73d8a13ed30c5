"""One server for all tests of these, and for each test a schema of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest

from slipstream.testing.postgres import Server, missing, postgres_server

_NUMBERS = count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    reason = missing()
    if reason is not None and not os.environ.get("CI"):
        pytest.skip(reason)
    with postgres_server() as running:
        yield running


@pytest.fixture
def schema() -> str:
    return f"s{next(_NUMBERS)}"


@pytest.fixture
def dsn(server: Server, schema: str) -> str:
    """A connection string of an empty schema; with a password, which the server does not ask for."""
    import psycopg

    with psycopg.connect(server.dsn) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{server.dsn} password=hunter2 options='-c search_path={schema}'"
