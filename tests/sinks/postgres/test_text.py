"""Values there and back: what a table gives is what a view had."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
import pytest

import slipstream as sl
from slipstream.core.errors import TargetRefuses
from slipstream.sinks.base import Append, Delivery, Stamp, Upsert
from slipstream.sinks.postgres import text
from slipstream.sinks.postgres.types import fits, type_of

BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE = BEGIN.replace(tzinfo=None)
TEXTS = (
    "",
    " ",
    "NULL",
    '"',
    '""',
    "'",
    ",",
    "\\",
    "\\.",
    "\\N",
    "\n",
    "\r\n",
    "\t",
    "{}",
    "ünï",
    "🐦",
    "\x01",
    "\ufeff",
)
INSTANTS = [
    NAIVE + timedelta(microseconds=number)
    for number in (0, -1, 1, -62135596800 * 10**6, 253402300799999999, -(10**15) - 1, 1700000000123456)
]


def there(
    dsn: str, column: Any, query: LiteralString = "SELECT v FROM t ORDER BY n", table: str = "t"
) -> list[Any]:
    """What a table gives for a column. It is written in two parts, of which one begins in the middle of an array."""
    rows = pa.table({"n": range(len(column)), "v": column})
    stamp = Stamp("app", "sink", 1, 1)
    half = len(column) // 2

    def parts() -> Iterator[pa.Table]:
        yield rows.slice(0, half)
        yield rows.slice(half)

    with closing(sl.to_postgres(dsn, table).opened("sink")) as target:
        target.deliver(Delivery(None, stamp, rows.schema, Append(parts)))
    with psycopg.connect(dsn) as connection:
        connection.execute("SET timezone = 'UTC'")
        return [row[0] for row in connection.execute(query).fetchall()]


def same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert list(map(repr, found)) == list(map(repr, expected))


EXACT: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "bool": (pa.bool_(), "boolean", [True, False, None]),
    "int8": (pa.int8(), "smallint", [-128, 127, None]),
    "int16": (pa.int16(), "smallint", [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), "integer", [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), "bigint", [-(2**63), 2**63 - 1, None]),
    "float16": (pa.float16(), "real", [0.5, -2.0, None]),
    "float64": (
        pa.float64(),
        "double precision",
        [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 1e22, None],
    ),
    "text": (pa.string(), "text", [*TEXTS, None]),
    "large text": (pa.large_string(), "text", [*TEXTS, None]),
    "text view": (pa.string_view(), "text", [*TEXTS, "longer than what is kept in place", None]),
    "bytes": (pa.binary(), "bytea", [b"", None, b"\0\xff\\", bytes(range(256)), b'"']),
    "bytes view": (pa.binary_view(), "bytea", [b"", None, bytes(range(256))]),
    "large bytes": (pa.large_binary(), "bytea", [b"a", b"bc", b"", b"\0def"]),
    "bytes of a size": (pa.binary(2), "bytea", [b"ab", None, b"\0\\"]),
    "date": (
        pa.date32(),
        "date",
        [date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), date(1900, 2, 28), None],
    ),
    "date64": (pa.date64(), "date", [date(1, 1, 1), date(1969, 12, 31), None]),
    "time": (pa.time64("us"), "time without time zone", [time(0), time(23, 59, 59, 999999), None]),
    "instant": (pa.timestamp("us"), "timestamp without time zone", [*INSTANTS, None]),
    "seconds": (pa.timestamp("s"), "timestamp without time zone", [INSTANTS[0], INSTANTS[3], None]),
    "duration": (
        pa.duration("us"),
        "interval",
        [timedelta(microseconds=-1), timedelta(days=1, microseconds=5), timedelta(0), None],
    ),
    "decimal": (
        pa.decimal128(38, 10),
        "numeric(38,10)",
        [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), Decimal("0.0000000000"), None],
    ),
    "long decimal": (pa.decimal256(50, 0), "numeric(50,0)", [Decimal("-" + "9" * 50), None]),
    "nothing": (pa.null(), "text", [None, None]),
    "texts": (pa.list_(pa.string()), "text[]", [[*TEXTS, None], [], None, [None], ["NULL", ""]]),
    "numbers": (pa.large_list(pa.int32()), "integer[]", [[1, None, -(2**31)], [], None]),
    "doubles": (pa.list_(pa.float64()), "double precision[]", [[0.1, math.nan, -math.inf, None], [], None]),
    "two each": (pa.list_(pa.bool_(), 2), "boolean[]", [[True, None], [False, True]]),
    "blobs": (pa.list_(pa.binary()), "bytea[]", [[b'\\\0"', b"", None], None, []]),
    "dates": (pa.list_(pa.date32()), "date[]", [[date(1, 1, 1), None], None]),
    "decimals": (pa.list_(pa.decimal128(5, 2)), "numeric(5,2)[]", [[Decimal("-1.50"), None], []]),
    "spans": (pa.list_(pa.duration("us")), "interval[]", [[timedelta(microseconds=-7), None], []]),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_written_is_read(dsn: str, name: str) -> None:
    kind, type_, values = EXACT[name]
    same(there(dsn, pa.array(values, kind)), values)
    assert there(dsn, pa.array(values, kind), "SELECT DISTINCT pg_typeof(v)::text FROM u", "u") == [
        type_.split("(")[0] + ("[]" if "[]" in type_ and "(" in type_ else "")
    ]
    assert type_of(kind) == type_


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "+05:30"])
def test_instants_are_the_same_in_every_zone(dsn: str, zone: str) -> None:
    """Also those of a time in which offsets had seconds."""
    instants = [each.replace(tzinfo=UTC) for each in INSTANTS]
    column = pa.array(instants, pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    epochs = there(dsn, column, "SELECT (extract(epoch FROM v) * 1000000)::bigint FROM t ORDER BY n")
    assert epochs == column.cast(pa.int64()).to_pylist()


def test_years_before_christ_and_after_9999(dsn: str) -> None:
    days = [
        -719163,
        -719162,
        -719529,
        -1_000_000,
        2932897,
        None,
    ]  # 31 December of 1 BC is the day before 1 AD
    found = there(dsn, pa.array(days, pa.date32()), "SELECT v::text FROM t ORDER BY n")
    assert found == ["0001-12-31 BC", "0001-01-01", "0002-12-31 BC", "0769-02-04 BC", "10000-01-01", None]
    instants = pa.array(
        [None if day is None else day * 86400 * 10**6 + 1 for day in days], pa.timestamp("us", "UTC")
    )
    query: LiteralString = "SELECT (extract(epoch FROM v) * 1000000)::bigint FROM u ORDER BY n"
    assert there(dsn, instants, query, "u") == instants.cast(pa.int64()).to_pylist()


def test_what_is_finer_than_a_microsecond_is_cut_off(dsn: str) -> None:
    column = pa.array([1999, -1, None], pa.timestamp("ns"))
    assert there(dsn, column) == [NAIVE + timedelta(microseconds=1), NAIVE - timedelta(microseconds=1), None]


def test_floats_of_half_the_size_are_the_same_bits(dsn: str) -> None:
    values = pa.array([0.1, 3.4028235e38, 1e-45, math.nan, None], pa.float32())
    found = there(dsn, values)
    assert repr(pa.array(found, pa.float32()).to_pylist()) == repr(values.to_pylist())


def test_numbers_without_a_sign_and_codes(dsn: str) -> None:
    assert there(dsn, pa.array([0, 2**64 - 1, None], pa.uint64())) == [0, 2**64 - 1, None]
    assert there(
        dsn, pa.array(["x", None, "x"]).dictionary_encode(), table="u", query="SELECT v FROM u ORDER BY n"
    ) == ["x", None, "x"]


def test_decimals_with_zeros_for_digits(dsn: str) -> None:
    column = pa.array([Decimal("12300"), None], pa.decimal128(3, -2))
    assert there(dsn, column) == [12300, None]


@pytest.mark.parametrize("seed", range(3))
def test_random_values(dsn: str, seed: int) -> None:
    chance = random.Random(seed)
    doubles = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(500)]
    found = there(dsn, pa.array(doubles, pa.float64()))
    same(found, [math.nan if math.isnan(each) else each for each in doubles])
    alphabet = "".join(TEXTS) + "ab" + "".join(chr(chance.randrange(1, 0xD800)) for _ in range(20))
    texts = [
        None if chance.random() < 0.1 else "".join(chance.choices(alphabet, k=chance.randrange(12)))
        for _ in range(500)
    ]
    same(there(dsn, pa.array(texts), "SELECT v FROM b ORDER BY n", "b"), texts)
    lists = [
        None if chance.random() < 0.1 else chance.choices(texts, k=chance.randrange(5)) for _ in range(300)
    ]
    same(there(dsn, pa.array(lists), "SELECT v FROM c ORDER BY n", "c"), lists)
    blobs = [None if chance.random() < 0.1 else chance.randbytes(chance.randrange(9)) for _ in range(500)]
    same(there(dsn, pa.array(blobs, pa.binary()), "SELECT v FROM d ORDER BY n", "d"), blobs)
    micros = [chance.randrange(-62135596800 * 10**6, 253402300800 * 10**6) for _ in range(500)]
    query: LiteralString = "SELECT (extract(epoch FROM v) * 1000000)::bigint FROM e ORDER BY n"
    assert there(dsn, pa.array(micros, pa.timestamp("us", "Asia/Kolkata")), query, "e") == micros


def test_what_is_nested_is_json(dsn: str) -> None:
    inner = pa.struct(
        [
            ("n", pa.float64()),
            ("d", pa.decimal128(38, 20)),
            ("t", pa.timestamp("us", "Europe/Berlin")),
            ("b", pa.binary()),
            ('k"', pa.list_(pa.list_(pa.string()))),
            ("m", pa.map_(pa.int64(), pa.bool_())),
            ("w", pa.map_(pa.string(), pa.duration("us"))),
            ("day", pa.date32()),
        ]
    )
    values: list[Any] = [
        {
            "n": 0.1,
            "d": Decimal("123456789012345678.12345678901234567890"),
            "t": BEGIN,
            "b": b"\x01\xff",
            'k"': [['"quoted"', "ü\n", None], [], None],
            "m": [(-1, True), (2, None)],
            "w": [('"', timedelta(microseconds=-5))],
            "day": date(1, 1, 1),
        },
        {"n": math.nan, "d": None, "t": None, "b": None, 'k"': None, "m": [], "w": None, "day": None},
        None,
        {"n": -math.inf, "d": None, "t": None, "b": None, 'k"': None, "m": None, "w": None, "day": None},
    ]
    found = there(dsn, pa.array(values, inner), "SELECT v::text FROM t ORDER BY n")
    one, two, nothing, four = [json.loads(each or "0", parse_float=Decimal) for each in found]
    assert one == {
        "n": Decimal("0.1"),
        "d": Decimal("123456789012345678.12345678901234567890"),
        "t": "1970-01-01T00:00:00+00:00",
        "b": "01ff",
        'k"': [['"quoted"', "ü\n", None], [], None],
        "m": {"-1": True, "2": None},
        "w": {'"': "-5 microseconds"},
        "day": "0001-01-01",
    }
    assert (two["n"], two["m"], four["n"], nothing) == ("NaN", {}, "-Infinity", 0)


def test_a_piece_is_some_megabytes() -> None:
    table = pa.table({"v": ["x" * 100_000] * 400})
    pieces = list(text.as_csv(table))
    assert 2 < len(pieces) < 10
    assert b"".join(pieces) == b'"' + b'"\n"'.join([b"x" * 100_000] * 400) + b'"\n'
    assert len(list(text.as_csv(pa.table({"v": ["y" * (10 << 20)] * 2})))) == 2
    assert list(text.as_csv(table.slice(0, 0))) == []


# What cannot be stored


def refused(dsn: str, schema: pa.Schema, rows: list[dict[str, Any]], key: str | None = None) -> str:
    found = pa.Table.from_pylist(rows, schema)
    mode, stamp = ("upsert" if key else "changes"), Stamp("app", "sink", 1, 1)
    work = Upsert(found, found.slice(0, 0), found.slice(0, 0)) if key else Append(lambda: iter([found]))
    with closing(sl.to_postgres(dsn, "t", mode, key).opened("sink")) as target:  # type: ignore[arg-type]
        with pytest.raises(TargetRefuses) as raised:
            target.deliver(Delivery(None, stamp, schema, work))
        assert target.stamp() is None
    return str(raised.value)


def test_a_character_that_no_text_may_have(dsn: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    told = refused(dsn, schema, [{"id": 6, "word": "fine"}, {"id": 7, "word": "a\0b"}], "id")
    assert told.partition(" on /tmp/")[0] == "Sink 'sink': table t of database postgres"
    assert told.partition(" cannot take ")[2] == (
        "a row of the view: column 'word' has a text with a NUL character in the row with id=7, which PostgreSQL "
        "cannot store. Have the view's query give another value or leave the row out, or change the target; then "
        "call app.reset_sink('sink')."
    )
    assert "column 'word' has a text with a NUL character, which" in refused(dsn, schema, [{"word": "\0"}])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.string()), ["a", None, "\0"]),
        (pa.struct([("a", pa.map_(pa.string(), pa.string()))]), {"a": [("x", "\0")]}),
        (pa.dictionary(pa.int32(), pa.string()), "\0"),
        (pa.string_view(), "\0"),
    ],
)
def test_such_a_character_further_inside(dsn: str, kind: pa.DataType, value: Any) -> None:
    told = refused(dsn, pa.schema([("v", kind)]), [{"v": None}, {"v": value}])
    assert "column 'v' has a text with a NUL character" in told


def test_a_value_out_of_range(dsn: str) -> None:
    told = refused(dsn, pa.schema([("v", pa.timestamp("s"))]), [{"v": 2**43}])
    assert "column v: " in told
    assert "app.reset_sink('sink')" in told


def test_a_row_that_breaks_a_rule_of_the_table(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE t (v bigint CONSTRAINT few CHECK (v < 3))")
    told = refused(dsn, pa.schema([("v", pa.int64())]), [{"v": 7}])
    assert 'violates check constraint "few"' in told


def test_which_types_of_a_table_do_as_well() -> None:
    fine = [
        ("bigint", "smallint"),
        ("numeric", "bigint"),
        ("numeric", "numeric(10,2)"),
        ("numeric(12,3)", "numeric(10,2)"),
        ("character varying[]", "text[]"),
        ("json", "jsonb"),
    ]
    wrong = [
        ("smallint", "integer"),
        ("numeric(10,2)", "numeric"),
        ("numeric(10,3)", "numeric(10,2)"),
        ("numeric(12,1)", "numeric(10,2)"),
        ("double precision", "real"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("timestamp(3) without time zone", "timestamp without time zone"),
        ("text", "text[]"),
        ("text", "bigint"),
    ]
    assert [pair for pair in fine if not fits(*pair)] == []
    assert [pair for pair in wrong if fits(*pair)] == []
