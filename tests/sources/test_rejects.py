"""Bad rows: found whatever a query uses, with file, line and reason."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from slipstream.sources import files
from slipstream.sources.operations import hint
from slipstream.sources.rejects import Bad, TextLayout, locate, reason

Attach = Callable[..., Any]
Put = Callable[..., Path]
Rows = Callable[..., list[tuple[Any, ...]]]

COLUMNS = (("id", "BIGINT"), ("amount", "DOUBLE"))
JSON = TextLayout("json", COLUMNS, {}, None)
CSV = TextLayout("csv", COLUMNS, {"nullValue": "-"}, None)


@pytest.mark.parametrize(
    ("layout", "raw", "nulls", "expected"),
    [
        (JSON, '{"id": ', {"id", "amount"}, "not valid JSON"),
        (JSON, "[1, 2", {"id", "amount"}, "not valid JSON"),
        (JSON, "17", {"id", "amount"}, "not a JSON object"),
        (JSON, '{"id": 1, "amount": "abc"}', {"amount"}, "amount: cannot be read as DOUBLE from 'abc'"),
        (JSON, '{"id": {"x": 1}}', {"id", "amount"}, "id: cannot be read as BIGINT from '{\"x\": 1}'"),
        (JSON, '{"id": 1, "amount": 2}', set(), "does not fit the schema"),
        (CSV, "1", {"amount"}, "1 values for 2 columns"),
        (CSV, "1,2,3", set(), "3 values for 2 columns"),
        (CSV, "-,abc", {"id", "amount"}, "amount: cannot be read as DOUBLE from 'abc'"),
        (CSV, f"{'9' * 99},1", {"id"}, f"id: cannot be read as BIGINT from '{'9' * 57}...'"),
    ],
)
def test_reasons(layout: TextLayout, raw: str, nulls: set[str], expected: str) -> None:
    assert reason(layout, Bad(raw, frozenset(nulls), None, None)) == expected


def test_equal_lines_are_found_one_after_another() -> None:
    bad = [Bad(raw, frozenset(), None, None) for raw in ("x", "y", "x", "gone")]
    lines = ["x", "fine", "y", " x", "z"]
    assert list(locate(lines, bad, JSON)) == [(1, "x"), (3, "y"), (4, " x"), (None, "gone")]


@pytest.mark.spark
def test_json_rejects(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    path = put(
        "a.json",
        '{"id": 1, "amount": 1.5, "note": "a"}\n'
        "\n"
        '{"id": 2, "amount": "abc", "note": "b"}\n'
        "{broken\n"
        '{"id": "x", "amount": 2, "note": "c"}\n'
        "{broken\n",
    )
    source = attach(files(landing, "json", "id long, amount double, note string"), name="orders")
    cut = source.cut(None)
    assert rows(source.frame(cut.range).where("_slipstream_bad IS NULL"), "id", "amount", "note") == [
        (1, 1.5, "a")
    ]
    rejected = source.rejected(cut.range)
    assert rejected.columns == ["source", "file", "line", "raw", "reason"]
    expected = [
        (3, '{"id": 2, "amount": "abc", "note": "b"}', "amount: cannot be read as DOUBLE from 'abc'"),
        (4, "{broken", "not valid JSON"),
        (5, '{"id": "x", "amount": 2, "note": "c"}', "id: cannot be read as BIGINT from 'x'"),
        (6, "{broken", "not valid JSON"),
    ]
    assert rows(rejected) == [("orders", str(path), *row) for row in expected]


@pytest.mark.spark
def test_csv_rejects_count_the_header_as_a_line(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    put("a.csv", "note,amount,id\na,1.5,1\nb,abc,2\nc,3\n,,\nd,1,2,3\n")
    source = attach(files(landing, "csv", "id long, amount double, note string", options={"header": "true"}))
    cut = source.cut(None)
    good = source.frame(cut.range).where("_slipstream_bad IS NULL")
    assert rows(good, "id", "amount", "note") == [(1, 1.5, "a"), (None, None, None)]
    assert rows(source.rejected(cut.range), "line", "raw", "reason") == [
        (3, "b,abc,2", "amount: cannot be read as DOUBLE from 'abc'"),
        (4, "c,3", "2 values for 3 columns"),
        (6, "d,1,2,3", "4 values for 3 columns"),
    ]


@pytest.mark.spark
@pytest.mark.parametrize("format_", ["json", "csv"])
def test_what_is_bad_does_not_depend_on_the_query(
    landing: Path, attach: Attach, put: Put, rows: Rows, format_: str
) -> None:
    if format_ == "json":
        put(
            "a",
            '{"id": 1, "amount": 1}\n{"id": 2, "amount": "abc"}\n{"id": "x", "amount": 3}\n{"amount": 4}\n',
        )
    else:
        put("a", "1,1\n2,abc\nx,3\n,4\n")
    source = attach(files(landing, format_, "id long, amount double"))
    range_ = source.cut(None).range
    for _ in ("built", "from the template"):
        frame = source.frame(range_)
        good = frame.where("_slipstream_bad IS NULL")
        assert good.count() == 2
        assert frame.where("_slipstream_bad IS NOT NULL").count() == 2
        assert rows(good, "id") == [(1,), (None,)]
        assert rows(good, "amount") == [(1.0,), (4.0,)]
        assert rows(good.where("id = 1"), "id") == [(1,)]
        assert rows(good.where("id = 2"), "id") == []
        assert rows(frame.where("id = 2"), "_slipstream_bad") == [("unreadable",)]
        assert rows(frame.where("id IS NULL").select("_slipstream_bad")) == [("unreadable",), (None,)]


@pytest.mark.spark
def test_bad_values_inside_of_structures_are_found(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    put("a.json", '{"id": 1, "s": {"a": 1, "b": [1]}}\n{"id": 2, "s": {"a": 1, "b": ["x"]}}\n')
    source = attach(files(landing, "json", "id long, s struct<a: int, b: array<int>>"))
    range_ = source.cut(None).range
    assert rows(source.frame(range_).where("_slipstream_bad IS NULL"), "s.a") == [(1,)]
    ((line, why),) = rows(source.rejected(range_), "line", "reason")
    assert line == 2
    assert why.startswith(("s: cannot be read as STRUCT", "does not fit"))


@pytest.mark.spark
def test_compressed_files_have_lines_too(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    outside = landing.parent / "a.gz"
    outside.write_bytes(gzip.compress(b'{"id": 1}\n{"id": "x"}\n'))
    put("a.json.gz", outside)
    source = attach(files(landing, "json", "id long"))
    range_ = source.cut(None).range
    assert rows(source.rejected(range_), "line", "raw") == [(2, '{"id": "x"}')]


@pytest.mark.spark
def test_rows_spread_over_several_lines_have_no_line_number(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    put("a.json", '[{"id": 1},\n {"id": "x"}]\n')
    source = attach(files(landing, "json", "id long", options={"multiLine": "true"}))
    range_ = source.cut(None).range
    assert {line for (line,) in rows(source.rejected(range_), "line")} == {None}


@pytest.mark.spark
def test_binary_formats_reject_unknown_operations(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    pyarrow.parquet.write_table(pa.table({"id": [1, 2], "op": ["i", "zap"]}), landing.parent / "p")
    path = put("a.parquet", landing.parent / "p")
    source = attach(files(landing, "parquet", "id long, op string", op="op", key="id"), name="feed")
    range_ = source.cut(None).range
    assert source.can_reject
    assert rows(source.rejected(range_)) == [
        ("feed", str(path), None, '{"id":2,"op":"zap"}', f"unknown operation 'zap': {hint('zap')}")
    ]


BYTES = b'{"id":1,"s":"x"}\n{"id":12,"s":"caf\xe9"}\n{"id":3,"s":"\xc3\xa9"}\n{"id": \xff\n{"id":4,"s":"y"}\n'


def test_a_row_that_is_not_utf_8_is_rejected(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    (landing.parent / "a").write_bytes(BYTES)
    path = put("a.json", landing.parent / "a")
    source = attach(files(landing, "json", "id long, s string"))
    range_ = source.cut(None).range
    batch = source.spark.read.option("mode", "DROPMALFORMED").schema("id long, s string").json(str(path))
    good = source.frame(range_).where("_slipstream_bad IS NULL")
    assert rows(good, "id", "s") == rows(batch) == [(1, "x"), (3, "é"), (4, "y")]
    assert rows(source.rejected(range_)) == [
        ("input", str(path), 2, '{"id":12,"s":"caf\ufffd"}', "not valid UTF-8"),
        ("input", str(path), 4, '{"id": \ufffd', "not valid UTF-8"),
    ]


@pytest.mark.parametrize("format_", ["csv", "text"])
def test_bytes_that_are_not_utf_8_are_taken_as_spark_takes_them(
    landing: Path, attach: Attach, put: Put, rows: Rows, format_: str
) -> None:
    (landing.parent / "a").write_bytes(b"1,caf\xe9\nx\xff,2\n")
    path = put("a", landing.parent / "a")
    schema = "id long, s string" if format_ == "csv" else "value string"
    source = attach(files(landing, format_, schema))
    range_ = source.cut(None).range
    frame = source.frame(range_)
    good = frame.where("_slipstream_bad IS NULL") if format_ == "csv" else frame
    batch = source.spark.read.schema(schema).option("mode", "DROPMALFORMED").format(format_).load(str(path))
    assert rows(good, *source.row_schema.names) == rows(batch)
    if format_ == "csv":
        why = "id: cannot be read as BIGINT from 'x\ufffd'"
        assert rows(source.rejected(range_)) == [("input", str(path), 2, "x\ufffd,2", why)]
