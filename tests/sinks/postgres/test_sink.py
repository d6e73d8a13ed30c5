"""What is declared: options, what is shown of them, and what never is."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import psycopg
import pytest

import slipstream as sl
from slipstream.core.errors import BadSinkOption, MissingLibrary

URL = "postgresql://me:hunter2@db.example:5433/shop"


def test_what_is_shown_has_no_password() -> None:
    for dsn in (URL, "host=db.example port=5433 dbname=shop user=me password=hunter2"):
        sink = sl.to_postgres(dsn, "public.sums", mode="upsert", key="id")
        assert sink.shown == "table public.sums of database shop on db.example"
        assert "hunter2" not in repr(sink)
        assert (sink.kind, sink.key, sink.exactly_once) == ("postgres", ("id",), True)
    assert sl.to_postgres("user=me", "t").shown.startswith("table t of database me on ")


@pytest.mark.parametrize(
    "dsn",
    [
        "hunter2",
        "postgresql://me:hunter2@db:port/x?y",
        "host=x password=hunter2 'odd",
        "password=hunter2 nonsense=1",
    ],
)
def test_what_is_no_connection_string_is_not_repeated(dsn: str) -> None:
    with pytest.raises(BadSinkOption) as error:
        sl.to_postgres(dsn, "t")
    assert str(error.value) == (
        "A sink cannot be made: to_postgres(dsn): it is no connection string. To do: give "
        "'postgresql://user@host/database' or 'host=... dbname=... user=...'."
    )
    assert error.value.__suppress_context__


@pytest.mark.parametrize(
    "other", ["user=nobody_here", "dbname=none", "host=/nowhere", "host=127.0.0.1 port=1"]
)
def test_a_server_that_does_not_let_us_in_is_an_ordinary_error_without_a_password(
    dsn: str, other: str
) -> None:
    sink = sl.to_postgres(f"{dsn} {other}", "t")
    with closing(sink.opened("sink")) as target, pytest.raises(psycopg.OperationalError) as error:
        target.stamp()
    assert "hunter2" not in f"{error.value}{error.value.__cause__}{error.value.__context__}"


@pytest.mark.parametrize(
    "table", ["", "a.b.c", ".t", "s.", "slipstream_sinks", "s.slipstream_sinks", "t" * 64, "ü" * 32, "a\0"]
)
def test_names_that_no_table_can_have(table: str) -> None:
    with pytest.raises(BadSinkOption):
        sl.to_postgres(URL, table)


def test_a_key_is_for_one_mode() -> None:
    with pytest.raises(BadSinkOption, match="mode='upsert' without key="):
        sl.to_postgres(URL, "t", mode="upsert")
    with pytest.raises(BadSinkOption, match="key= with mode='replace'"):
        sl.to_postgres(URL, "t", mode="replace", key="id")


def test_without_the_library_the_sink_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingLibrary) as error:
        sl.to_postgres(URL, "t")
    assert str(error.value) == (
        "to_postgres needs the library 'psycopg[binary]'. To do: pip install 'slipstream[postgres]', or "
        "'psycopg[binary]' alone."
    )


def test_slipstream_is_imported_without_the_library() -> None:
    code = "import sys, slipstream; slipstream.to_postgres; assert 'psycopg' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
