"""Files in a folder: each format, exactly once, the same rows again, and what goes wrong with files."""

from __future__ import annotations

import datetime
import errno
import json
import os
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructField, StructType

from slipstream.core.clock import ManualClock
from slipstream.core.errors import (
    BadSourceOption,
    ColumnOfAnotherType,
    DamagedSummary,
    FileChanged,
    FileMissing,
    MissingColumn,
    NotOfTheFormat,
    UnreadableName,
)
from slipstream.sources import bundle, files
from slipstream.sources.operations import BEFORE_IMAGES, hint, hinted

pytestmark = pytest.mark.spark

Attach = Callable[..., Any]
Put = Callable[..., Path]
Rows = Callable[..., list[tuple[Any, ...]]]


def test_json_rows(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    put("a.json", '{"id": 1, "name": "x"}\n{"id": 2}\n')
    source = attach(files(landing, "json", "id long, name string"))
    cut = source.cut(None)
    assert cut.range == {"files": [["a.json", 33, 1_700_000_000_000_000_000]]}
    assert (cut.amount, cut.rows, source.unit) == (33, None, "bytes")
    assert rows(source.frame(cut.range)) == [(1, "x", None), (2, None, None)]


def test_csv_without_a_header_goes_by_position(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    put("a.csv", '1,"x, y"\n2,z\n')
    source = attach(files(landing, "csv", "id long, name string"))
    assert rows(source.frame(source.cut(None).range), "id", "name") == [(1, "x, y"), (2, "z")]


def test_csv_with_a_header_goes_by_name_in_each_file(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    put("a.csv", "name,id\nx,1\n")
    put("b.csv", "id,note,name\n2,ignored,y\n")
    put("c.csv", "name,id\nz,3\n")
    source = attach(files(landing, "csv", "id long, name string", options={"header": True}))
    assert rows(source.frame(source.cut(None).range)) == [(1, "x", None), (2, "y", None), (3, "z", None)]


@pytest.mark.parametrize(
    "text", ["\nt,s\n1,2\n", " \r\n\rt,s\r1,2", "t,more\x0b\u2028\x85,s\n1,0,2\n", "\x01\nt,s\n1,2\n"]
)
def test_the_header_is_the_line_that_spark_takes_for_it(
    landing: Path, attach: Attach, put: Put, rows: Rows, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a.csv", text)
    made = files(landing, "csv", "s string, t string", options={"header": "true"}, missing="null")
    source = attach(made)
    range_ = source.cut(None).range
    assert rows(source.frame(range_)) == [("2", "1", None)]
    monkeypatch.setattr(bundle, "MANY", 1)
    assert rows(source.frame(range_)) == [("2", "1", None)]


def test_a_header_that_is_not_found_is_never_taken_to_be_as_declared(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    put("a.csv", "\n" * (1 << 17) + "t,s\n1,2\n")
    put("b.csv", "\n\n")
    made = files(landing, "csv", "s string, t string", options={"header": "true"}, missing="null")
    source = attach(made)
    cut = source.cut(None)
    assert rows(source.frame(cut.range).where("_slipstream_bad IS NULL")) == []
    assert [file for (file,) in rows(source.rejected(cut.range), "file")] == [str(landing / "a.csv")]


def test_text_rows(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    put("a.txt", "one\ntwo\n")
    source = attach(files(landing, "text"))
    assert not source.can_reject
    assert rows(source.frame(source.cut(None).range)) == [("one",), ("two",)]


@pytest.mark.parametrize(
    ("schema", "given", "goes"),
    [
        ("id long, at timestamp", {}, True),
        ("id long, both struct<at: timestamp>", {}, True),
        ("id long, at timestamp_ntz, d date", {}, False),
        ("id long, at timestamp", {"TimeZone": "UTC"}, False),
    ],
)
def test_timestamps_that_are_text_go_by_the_time_zone(
    landing: Path, attach: Attach, schema: str, given: dict[str, str | bool | int], goes: bool
) -> None:
    for format_ in ("json", "csv"):
        assert attach(files(landing, format_, schema, options=given)).goes_by_zone == goes
    assert not attach(files(landing, "parquet", "id long, at timestamp")).goes_by_zone


def test_parquet_and_orc_rows(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    table = pa.table({"name": ["x", "y"], "more": [0, 0], "id": pa.array([1, 2], pa.int64())})
    pyarrow.parquet.write_table(table, landing.parent / "p")
    pyarrow.orc.write_table(table, landing.parent / "o")
    put("a.parquet", landing.parent / "p")
    put("a.orc", landing.parent / "o")
    for format_ in ("parquet", "orc"):
        source = attach(files(landing, format_, "id long, name string", pattern=f"*.{format_}"))
        assert rows(source.frame(source.cut(None).range)) == [(1, "x", None), (2, "y", None)]


def test_names_with_odd_characters(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    odd = [
        "a,b.json",
        "a b.json",
        "a%20b.json",
        "a+b.json",
        "a\\b.json",
        "é.json",
        "x=1.json",
        "[a]*{b}?.json",
    ]
    for i, name in enumerate(odd):
        put(name, f'{{"id": {i}}}\n{{bad\n')
    source = attach(files(landing, "json", "id long", max_files_per_epoch=4))
    found, rejected = [], []
    while cut := source.cut(None):
        found += rows(source.frame(cut.range).where("_slipstream_bad IS NULL"), "id")
        rejected += rows(source.rejected(cut.range), "file", "line")
    assert sorted(found) == [(i,) for i in range(len(odd))]
    assert sorted(rejected) == sorted((str(landing / name), 2) for name in odd)


def test_a_budget_in_bytes_takes_at_least_one_file(landing: Path, attach: Attach, put: Put) -> None:
    for i in range(4):
        put(f"{i}.json", '{"id": 1}\n', 1_700_000_000 + i)
    source = attach(files(landing, "json", "id long"))
    assert source.backlog() == 40
    assert [name for name, *_ in source.cut(25).range["files"]] == ["0.json", "1.json"]
    assert [name for name, *_ in source.cut(1).range["files"]] == ["2.json"]
    assert source.backlog() == 10


def test_a_limit_of_files(landing: Path, attach: Attach, put: Put) -> None:
    for i in range(3):
        put(f"{i}.json", '{"id": 1}\n')
    source = attach(files(landing, "json", "id long", max_files_per_epoch=2))
    sizes = [len(cut.range["files"]) for cut in (source.cut(None), source.cut(None))]
    assert sizes == [2, 1]
    assert source.cut(None) is None


def test_each_file_is_read_once_across_a_restart(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    put("a.json", '{"id": 1}\n')
    put("b.json", '{"id": 2}\n')
    before = attach(files(landing, "json", "id long", max_files_per_epoch=1))
    recorded = before.cut(None).range
    before.cut(None)  # cut, but the process ended before it was recorded
    after = attach(files(landing, "json", "id long"), consumed=[recorded])
    put("c.json", '{"id": 3}\n')
    assert rows(after.frame(after.cut(None).range), "id") == [(2,), (3,)]
    assert after.cut(None) is None
    assert rows(after.frame(recorded), "id") == [(1,)], "and a replay has the rows of then"


def test_the_folder_may_be_moved(tmp_path: Path, landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    put("a.json", '{"id": 1}\n')
    recorded = attach(files(landing, "json", "id long")).cut(None).range
    landing.rename(tmp_path / "moved")
    after = attach(files(tmp_path / "moved", "json", "id long"), consumed=[recorded])
    assert after.cut(None) is None
    assert rows(after.frame(recorded), "id") == [(1,)]


def test_a_file_written_in_place_waits(landing: Path, attach: Attach) -> None:
    path = landing / "a.json"
    path.write_text('{"id": 1}\n')
    clock = ManualClock(path.stat().st_mtime)
    source = attach(files(landing, "json", "id long", settle="5s", clock=clock))
    assert source.cut(None) is None
    assert source.backlog() == 10, "so that nobody thinks that all was read"
    clock.advance(6)
    assert source.cut(None).amount == 10


def test_folders_with_characters_of_patterns(
    spark: SparkSession, landing: Path, put: Put, tmp_path: Path, rows: Rows
) -> None:
    put("a.json", '{"id": 1}\n')
    strange = landing.rename(tmp_path / "in*[x]{y}")
    source = files(strange, "json", "id long")
    source.attach("s", spark, tmp_path / "store?[z]", [])
    cut = source.cut(None)
    assert cut is not None
    assert rows(source.frame(cut.range), "id") == [(1,)]


def test_a_folder_that_does_not_exist_is_waited_for(tmp_path: Path, attach: Attach) -> None:
    source = attach(files(tmp_path / "later", "json", "id long"))
    assert source.cut(None) is None
    assert source.backlog() == 0


def test_a_file_that_changed_is_an_error(landing: Path, attach: Attach, put: Put) -> None:
    put("a.json", '{"id": 1}\n')
    source = attach(files(landing, "json", "id long"), name="orders")
    recorded = source.cut(None).range
    put("a.json", '{"id": 10}\n')
    expected = (
        f"Source 'orders': the file {landing / 'a.json'} changed after it was taken as input (it had 10 bytes, "
        "written at 1700000000.000, now it has 11 bytes, written at 1700000000.000). A file is read once"
    )
    with pytest.raises(FileChanged, match=re.escape(expected)):
        source.frame(recorded)
    with pytest.raises(FileChanged, match="Put new rows into a file of another name"):
        source.cut(None)


def test_a_file_touched_without_change_of_size_is_an_error(landing: Path, attach: Attach, put: Put) -> None:
    path = put("a.json", '{"id": 1}\n')
    source = attach(files(landing, "json", "id long"))
    recorded = source.cut(None).range
    os.utime(path, (1, 1))
    with pytest.raises(FileChanged):
        source.frame(recorded)


def test_a_file_that_is_gone_is_an_error_only_if_it_is_needed(
    landing: Path, attach: Attach, put: Put
) -> None:
    path = put("a.json", '{"id": 1}\n')
    source = attach(files(landing, "json", "id long"), name="orders")
    recorded = source.cut(None).range
    path.unlink()
    assert source.cut(None) is None
    expected = (
        f"Source 'orders': the file {path} is recorded as input of an epoch that must be read again, and it"
    )
    with pytest.raises(FileMissing, match=re.escape(expected)):
        source.frame(recorded)


def of_each_format(landing: Path, put: Put) -> list[tuple[str, dict[str, str] | None]]:
    """Files that lack a column, one a format, and one of the format that has it, two seconds later."""
    for stem, table in (("a", pa.table({"id": [1]})), ("b", pa.table({"name": ["y"], "id": [2]}))):
        pyarrow.parquet.write_table(table, landing.parent / f"{stem}.p")
        pyarrow.orc.write_table(table, landing.parent / f"{stem}.o")
        put(f"{stem}.parquet", landing.parent / f"{stem}.p")
        put(f"{stem}.orc", landing.parent / f"{stem}.o")
    put("a.csv", "id\n1\n")
    put("b.csv", "name,id\ny,2\n")
    return [("parquet", None), ("orc", None), ("csv", {"header": "true"})]


def test_a_file_that_lacks_a_column_is_rejected_as_a_whole(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    for format_, options in of_each_format(landing, put):
        source = attach(
            files(landing, format_, "id long, name string", pattern=f"*.{format_}", options=options),
            name=format_,
        )
        assert source.can_reject
        cut = source.cut(None)
        frame = source.frame(cut.range)
        assert rows(frame.where("_slipstream_bad IS NULL"), "id", "name") == [(2, "y")]
        assert frame.where("_slipstream_bad IS NOT NULL").count() == 1
        why = "it has no column 'name'; it has 'id'"
        assert rows(source.rejected(cut.range)) == [(format_, str(landing / f"a.{format_}"), None, None, why)]
        again = attach(
            files(landing, format_, "id long, name string", pattern=f"*.{format_}", options=options),
            [cut.range],
            format_,
        )
        assert rows(again.frame(cut.range)) == rows(frame), "the same range gives the same rows"


OF_TYPES = {
    "text": pa.array(["x"]),
    "bytes": pa.array([b"x"]),
    "long": pa.array([1], pa.int64()),
    "int": pa.array([1], pa.int32()),
    "short": pa.array([1], pa.int16()),
    "double": pa.array([1.5]),
    "date": pa.array([datetime.date(2020, 1, 1)]),
    "timestamp": pa.array([datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)], pa.timestamp("us", "UTC")),
    "nanos": pa.array([datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)], pa.timestamp("ns", "UTC")),
    "decimal": pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
    "array": pa.array([["x"]]),
    "struct": pa.array([{"a": 1}]),
}


@pytest.mark.parametrize("format_", ["parquet", "orc"])
@pytest.mark.parametrize("declared", ["int", "string", "timestamp", "decimal(10,2)", "struct<a:int>"])
def test_a_file_is_rejected_for_its_types_where_spark_cannot_read_it(
    landing: Path, attach: Attach, put: Put, rows: Rows, spark: SparkSession, format_: str, declared: str
) -> None:
    read, refused = [], []
    for found, column in OF_TYPES.items():
        outside = landing.parent / "outside"
        table = pa.table({"ID": column, "at": [found]})
        (pyarrow.parquet if format_ == "parquet" else pyarrow.orc).write_table(table, outside)
        path = put(f"{found}.{format_}", outside)
        try:
            frame = spark.read.schema(f"id {declared}, at string").format(format_).load(str(path))
            read += [tuple(row) for row in frame.collect()]
        except Exception:
            refused.append(found)
    source = attach(files(landing, format_, f"id {declared}, at string"))
    range_ = source.cut(None).range
    assert sorted(range_["bad"]) == sorted(f"{found}.{format_}" for found in refused)
    frame = source.frame(range_).where("_slipstream_bad IS NULL")
    assert sorted(rows(frame, "at", "id")) == sorted((at, value) for value, at in read)
    ending = f", and declared as {DataType.fromDDL(declared).simpleString().upper()}"
    reasons = [told[-1] for told in rows(source.rejected(range_))]
    assert len(reasons) == len(refused)
    assert all(why.startswith("its column 'id' is of type ") and why.endswith(ending) for why in reasons)


def test_a_type_that_cannot_be_read_is_an_error_where_asked_for(
    landing: Path, attach: Attach, put: Put
) -> None:
    for name, column in (("a", pa.array([1], pa.int16())), ("b", pa.array(["x"]))):
        pyarrow.parquet.write_table(pa.table({"id": column}), landing.parent / "p")
        put(f"{name}.parquet", landing.parent / "p")
    source = attach(
        files(landing, "parquet", "id int, name string", on_bad="fail", missing="null"), name="people"
    )
    expected = (
        f"Source 'people': the file {landing / 'b.parquet'} cannot be read with this schema=: its column 'id' is of "
        "type STRING, and declared as INT. Correct the schema=, take the file out of the folder, or declare "
        "on_bad='reject' to have it named in the view 'people_rejected'."
    )
    for _ in range(2):
        with pytest.raises(ColumnOfAnotherType, match=re.escape(expected)):
            source.cut(None)


def test_a_column_that_a_file_lacks_is_null_if_asked_for(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    for format_, options in of_each_format(landing, put):
        made = files(
            landing,
            format_,
            "id long, name string",
            pattern=f"*.{format_}",
            options=options,
            missing="null",
        )
        source = attach(made, name=format_)
        frame = source.frame(source.cut(None).range)
        assert rows(frame.where("_slipstream_bad IS NULL"), "id", "name") == [(1, None), (2, "y")]


def test_keyed_files_that_are_bad_as_a_whole_change_nothing(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    put("a.csv", "id,op\n1,insert\n")
    made = files(landing, "csv", "id long, op string, v long", op="op", key="id", options={"header": "true"})
    source = attach(made)
    range_ = source.cut(None).range
    assert rows(source.frame(range_)) == [
        (None, None, False, None, None, None, None, "it has no column 'v'; it has 'id', 'op'")
    ]


def test_a_file_of_another_format_is_rejected_as_a_whole(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    path = put("a.parquet", "this is no Parquet")
    source = attach(files(landing, "parquet", "id long"))
    range_ = source.cut(None).range
    assert rows(source.frame(range_), "id") == [(None,)]
    ((_, where, line, _, why),) = rows(source.rejected(range_))
    assert (where, line) == (str(path), None)
    assert why.startswith("not a file of the format parquet: ")
    with pytest.raises(NotOfTheFormat, match="declare on_bad='reject'"):
        attach(files(landing, "parquet", "id long", on_bad="fail"), name="other").cut(None)


@pytest.mark.parametrize(
    ("format_", "name", "data"),
    [
        ("orc", "a.orc", b"this is no ORC"),
        ("parquet", "a.parquet", b"PAR1" + b"\xff" * 64 + b"\x40\0\0\0PAR1"),
        ("csv", "a.csv.gz", b"id\n1\n"),
    ],
    ids=["orc", "parquet", "gzip"],
)
def test_what_a_reader_calls_an_error_of_input_is_a_bad_file(
    landing: Path, attach: Attach, put: Put, rows: Rows, tmp_path: Path, format_: str, name: str, data: bytes
) -> None:
    (tmp_path / "x").write_bytes(data)
    put(name, tmp_path / "x")
    source = attach(files(landing, format_, "id long", options={"header": "true"}))
    ((_, where, _, _, why),) = rows(source.rejected(source.cut(None).range))
    assert where == str(landing / name)
    assert why.startswith(f"not a file of the format {format_}: ")


def test_a_file_that_cannot_be_opened_is_not_called_bad(
    landing: Path, attach: Attach, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    put("a.parquet", "x")
    source = attach(files(landing, "parquet", "id long"))
    monkeypatch.setattr(pyarrow.parquet, "read_schema", fails)
    with pytest.raises(PermissionError):
        source.cut(None)


def test_columns_of_parquet_are_found_whatever_their_case_as_spark_finds_them(
    landing: Path, attach: Attach, put: Put, rows: Rows
) -> None:
    pyarrow.parquet.write_table(pa.table({"ID": [1]}), landing.parent / "p")
    put("a.parquet", landing.parent / "p")
    source = attach(files(landing, "parquet", "id long"))
    assert rows(source.frame(source.cut(None).range), "id", "_slipstream_bad") == [(1, None)]


def test_a_missing_column_is_an_error_before_the_file_is_recorded(
    landing: Path, attach: Attach, put: Put
) -> None:
    table = pa.table({"id": [1], "nmae": ["x"]})
    pyarrow.parquet.write_table(table, landing.parent / "p")
    pyarrow.orc.write_table(table, landing.parent / "o")
    put("a.parquet", landing.parent / "p")
    put("a.orc", landing.parent / "o")
    put("a.csv", "id,nmae\n1,x\n")
    for format_ in ("parquet", "orc", "csv"):
        options = {"header": "true"} if format_ == "csv" else None
        made = files(
            landing, format_, "id long, name string", pattern=f"*.{format_}", options=options, on_bad="fail"
        )
        source = attach(made, name="people")
        expected = f"the file {landing / ('a.' + format_)} has no column 'name'; it has 'id', 'nmae'. Correct"
        for _ in range(2):
            with pytest.raises(MissingColumn, match=re.escape(expected)):
                source.cut(None)


def test_a_name_that_spark_cannot_read_is_an_error(landing: Path, attach: Attach, put: Put) -> None:
    path = put("10:30.json", '{"id": 1}\n')
    source = attach(files(landing, "json", "id long"), name="orders")
    expected = (
        f"Source 'orders': Spark cannot read the file {path}, because its name has a colon in it. Rename it"
    )
    with pytest.raises(UnreadableName, match=re.escape(expected)):
        source.cut(None)


def test_unknown_formats_and_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadSourceOption, match="format='xml' is not one of 'csv', 'json', 'orc', 'parquet', 'text'"
    ):
        files(tmp_path, "xml", "id long")
    with pytest.raises(BadSourceOption, match="on_bad='drop' is not one of 'fail', 'reject'"):
        files(tmp_path, "json", "id long", on_bad="drop")  # type: ignore[arg-type]
    with pytest.raises(BadSourceOption, match="options= has 'Mode', which the source sets itself"):
        files(tmp_path, "json", "id long", options={"Mode": "FAILFAST"})
    with pytest.raises(BadSourceOption, match="max_files_per_epoch=0 is less than 1"):
        files(tmp_path, "json", "id long", max_files_per_epoch=0)
    with pytest.raises(BadSourceOption, match="is not on a file system of this machine"):
        files("s3://bucket/folder", "json", "id long")


def test_text_has_one_column(tmp_path: Path, attach: Attach) -> None:
    with pytest.raises(BadSourceOption, match="declare one STRING column"):
        attach(files(tmp_path, "text", "a string, b string"))


def test_a_count_comes_as_diff(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    put("a.json", '{"id": 1, "n": 2}\n{"id": 2, "n": -1}\n{"id": 3}\n')
    source = attach(files(landing, "json", "id long, n int", diff="n"))
    frame = source.frame(source.cut(None).range)
    assert frame.columns == ["id", "_slipstream_diff", "_slipstream_bad"]
    assert rows(frame) == [(1, 2, None), (2, -1, None), (3, None, "the diff column 'n' is NULL")]


FEEDS = {
    "delta": ["insert", "update_preimage", "update_postimage", "delete"],
    "debezium": ["r", "c", "u", "d"],
    "flink": ["+I", "-U", "+U", "-D"],
    "others": ["UPSERT", "read", "update_before", "update_after"],
}


@pytest.mark.parametrize("feed", FEEDS)
def test_the_words_of_other_feeds_are_understood(
    landing: Path, attach: Attach, put: Put, rows: Rows, feed: str
) -> None:
    words = FEEDS[feed]
    put("a.json", "".join(json.dumps({"id": i, "op": word}) + "\n" for i, word in enumerate(words)))
    source = attach(files(landing, "json", "id long, op string", op="op", key="id"))
    frame = source.frame(source.cut(None).range)
    kept = [i for i, word in enumerate(words) if word.lower() not in BEFORE_IMAGES]
    assert rows(frame, "id", "_slipstream_delete", "_slipstream_bad") == [
        (i, words[i].lower() in ("d", "-d", "delete"), None) for i in kept
    ]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("del", "did you mean 'delete'?"),
        ("Updte", "did you mean 'update'?"),
        ("remove", "did you mean 'delete'?"),
        (" insert", "did you mean 'insert'?"),
        ("t", "it empties the table, and has no key: delete the rows by key"),
        ("TRUNCATE", "it empties the table, and has no key: delete the rows by key"),
        ("zap", "known are insert, update, upsert, delete and what feeds write for these"),
    ],
)
def test_an_unknown_word_is_answered_with_what_to_write(word: str, said: str) -> None:
    assert hint(word) == said
    assert hinted(f"unknown operation '{word}'") == f"unknown operation '{word}': {said}"


def test_operations(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    words = ["insert", "i", "c", "create", "r", "+I", "UPDATE", "u", "+U", "delete", "D", "-D", "-U", "zap"]
    put(
        "a.json", "".join(f'{{"id": {i}, "op": "{word}"}}\n' for i, word in enumerate(words)) + '{"id": 14}\n'
    )
    source = attach(files(landing, "json", "id long, op string", op="op", key="id"))
    cut = source.cut(None)
    frame = source.frame(cut.range)
    assert frame.columns == [
        "id",
        "_slipstream_delete",
        *(f"_slipstream_order{i}" for i in range(4)),
        "_slipstream_bad",
    ]
    assert sorted(rows(frame, "id", "_slipstream_delete", "_slipstream_bad")) == [
        *((i, False, None) for i in range(9)),
        *((i, True, None) for i in range(9, 12)),
        (13, False, "unknown operation 'zap'"),
        (14, False, "unknown operation NULL"),
    ]
    assert rows(source.rejected(cut.range), "line", "reason") == [
        (
            14,
            "unknown operation 'zap': known are insert, update, upsert, delete and what feeds write for these",
        ),
        (15, "unknown operation NULL"),
    ]


def test_changes_of_a_key_are_ordered_by_file_then_line(landing: Path, attach: Attach, put: Put) -> None:
    put("z.json", "".join(f'{{"id": 1, "n": {n}}}\n' for n in range(20)), 1_700_000_000)
    put("b.json", '{"id": 1, "n": 22}\n', 1_700_000_001)
    put("a.json", '{"id": 1, "n": 20}\n{"id": 1, "n": 21}\n', 1_700_000_001)
    source = attach(files(landing, "json", "id long, n long", key="id"))
    frame = source.frame(source.cut(None).range)
    ordered = frame.orderBy(
        *(name for name in frame.columns if name.startswith("_slipstream_order"))
    ).collect()
    assert [row.n for row in ordered] == list(range(23))


def test_a_later_range_reads_its_own_files(landing: Path, attach: Attach, put: Put, rows: Rows) -> None:
    source = attach(files(landing, "json", "id long", key="id"))
    frames = []
    for i in range(3):
        put(f"{i}.json", f'{{"id": {i}}}\n{{"id": {i + 10}}}\n')
        frames.append(source.frame(source.cut(None).range))
    assert [rows(frame, "id") for frame in frames] == [[(0,), (10,)], [(1,), (11,)], [(12,), (2,)]]
    assert all(frame.schema == frames[0].schema for frame in frames)
    joined = frames[1].alias("a").join(frames[2].alias("b"), F.col("a.id") == F.col("b.id") - 1)
    assert rows(joined, "a.id") == [(1,), (11,)], "frames of one template can meet in one query"


def test_a_large_file_is_split_and_small_ones_are_not(
    spark: SparkSession, landing: Path, attach: Attach, put: Put
) -> None:
    line = '{"id": 1, "name": "' + "x" * 80 + '"}\n'
    put("big.json", line * 100_000, 1_700_000_000)
    for i in range(10):
        put(f"{i}.json", line * 10, 1_700_000_001)
    source = attach(files(landing, "json", "id long, name string"))
    partitions = [source.frame(source.cut(1).range).rdd.getNumPartitions()]
    partitions.append(source.frame(source.cut(1).range).rdd.getNumPartitions())
    partitions.append(source.frame(source.cut(None).range).rdd.getNumPartitions())
    assert partitions[:2] == [2, 1]
    assert partitions[2] <= 2


@pytest.mark.parametrize(
    ("after_safe", "left"), [("keep", {"a", "b"}), ("delete", {"b"}), ("archive", {"b"})]
)
def test_files_that_are_safe_are_kept_deleted_or_archived(
    tmp_path: Path, after_safe: Any, left: set[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("{}")
    source = files(
        tmp_path, format="json", schema=StructType([StructField("k", LongType())]), after_safe=after_safe
    )
    taken = [["a", 2, (tmp_path / "a").stat().st_mtime_ns]]
    for _ in range(2):  # told twice, as after a restart
        source.forget({"files": taken})
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == left
    assert (tmp_path / "_archive" / "a").exists() is (after_safe == "archive")


@pytest.mark.parametrize("after_safe", ["delete", "archive"])
@pytest.mark.parametrize(("text", "age"), [("{} ", 0), ("{}", 1)], ids=["another size", "another time"])
def test_a_file_that_came_under_a_name_that_was_read_is_never_removed_unread(
    tmp_path: Path, after_safe: Any, text: str, age: int
) -> None:
    path = tmp_path / "a"
    path.write_text("{}")
    read = path.stat().st_mtime_ns
    source = files(tmp_path, format="json", schema="k long", after_safe=after_safe)
    path.write_text(text)
    os.utime(path, ns=(read + age, read + age))
    source.forget({"files": [["a", 2, read]]})
    assert path.read_text() == text


def test_what_to_do_with_safe_files_is_checked(tmp_path: Path) -> None:
    with pytest.raises(BadSourceOption) as error:
        files(tmp_path, format="json", schema="k long", after_safe="burn")  # type: ignore[arg-type]
    assert str(error.value) == (
        "A source cannot be made: after_safe='burn' is not one of 'archive', 'delete', 'keep'. "
        "To do: choose one of these."
    )


def test_files_of_a_summary_are_not_read_again(
    attach: Attach, put: Put, landing: Path, tmp_path: Path
) -> None:
    source = attach(files(landing, "text"))
    ranges = []
    for name in "abcd":
        put(f"{name}.txt", "x")
        ranges.append(source.cut(None).range)
    base = source.folded(source.folded(None, ranges[:2]), ranges[2:3])
    assert {name: base[name] for name in ("epochs", "files", "bytes")} == {
        "epochs": 3,
        "files": 3,
        "bytes": 3,
    }
    again = attach(files(landing, "text"), ranges[3:], base=base)
    assert again.cut(None) is None
    put("e.txt", "x")
    assert [file[0] for file in again.cut(None).range["files"]] == ["e.txt"]
    assert source.cut(None).range["files"][0][0] == "e.txt", "it went on with what it had summed up"
    put("a.txt", "other", second=1_700_000_100)
    with pytest.raises(FileChanged, match=r"a\.txt changed after it was taken as input"):
        attach(files(landing, "text"), ranges[3:], base=base).cut(None)


def test_a_damaged_summary_is_refused_and_all_ranges_put_it_right(
    attach: Attach, put: Put, landing: Path, tmp_path: Path
) -> None:
    source = attach(files(landing, "text"))
    put("a.txt", "x")
    taken = source.cut(None).range
    base = source.folded(None, [taken])
    (segment,) = (tmp_path / "store" / "input").glob("taken-*")
    segment.write_bytes(b"\0" * segment.stat().st_size)
    again = files(landing, "text")
    with pytest.raises(DamagedSummary, match="its index is not what was written"):
        attach(again, base=base)
    attach(again, [taken])
    assert again.cut(None) is None
    assert again.folded(None, [taken]) == base, "made anew, it is the same"
    assert attach(files(landing, "text"), base=base).cut(None) is None


def test_ranges_that_are_one_keep_what_is_bad_and_the_order_of_epochs(
    landing: Path, attach: Attach, put: Put
) -> None:
    made = {
        key: attach(files(landing, "csv", "k long, v long", key=key), name=str(key)) for key in (None, "k")
    }
    ranges: list[dict[str, Any]] = [
        {"files": [["b", 1, 2_000_000]]},
        {"files": [["c", 1, 2_000_000], ["a", 1, 3_000_000]], "bad": {"a": "why"}},
        {"files": [["d", 1, 1_000_000]], "bad": {"d": "also"}},
    ]
    assert made[None].together(ranges) == [
        {"files": [file for each in ranges for file in each["files"]], "bad": {"a": "why", "d": "also"}}
    ]
    assert made["k"].together(ranges) == [
        {"files": [*ranges[0]["files"], *ranges[1]["files"]], "bad": {"a": "why"}},
        ranges[2],
    ]
    tied = [{"files": [[name, 1, 2_000_000]]} for name in ("a b", "a!b")]
    assert made["k"].together(tied) == tied, "to Spark, the name is a%20b"
    assert made["k"].together(ranges[:1]) == ranges[:1]
    assert made["k"].together([]) == []
