"""Rows handed over by the program: taken whole or not at all, and there again after a restart."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import slipstream as sl
from slipstream.core.errors import BadRow, BadSourceOption, InputLost, Superseded
from slipstream.sources import memory

pytestmark = pytest.mark.spark

Attach = Callable[..., Any]
Rows = Callable[..., list[tuple[Any, ...]]]


def test_every_kind_of_rows(spark: SparkSession, attach: Attach, rows: Rows) -> None:
    source = attach(memory("id long, name string"))
    source.append([(1, "a"), {"id": 2}, Row(name="c", id=3)])
    source.append(pa.table({"name": ["d"], "id": [4]}))
    source.append(pd.DataFrame({"id": [5], "name": ["e"]}))
    source.append(spark.sql("SELECT 6L AS id, 'f' AS name"))
    source.append(iter([(7, "g")]))
    source.append([])
    cut = source.cut(None)
    assert (cut.range, cut.amount, cut.rows) == ({"appends": [0, 5]}, 7, 7)
    expected = [(1, "a", 1), (2, None, 1), (3, "c", 1), (4, "d", 1), (5, "e", 1), (6, "f", 1), (7, "g", 1)]
    assert rows(source.frame(cut.range)) == expected


def test_retracted_rows_have_a_negative_diff(attach: Attach, rows: Rows) -> None:
    source = attach(memory("id long"))
    source.append([(1,), (2,)])
    source.retract([(1,)])
    assert source.changes.mode == "diff"
    assert rows(source.frame(source.cut(None).range)) == [(1, -1), (1, 1), (2, 1)]


def test_types_survive(spark: SparkSession, attach: Attach) -> None:
    schema = (
        "d decimal(12,3), t timestamp, n timestamp_ntz, day date, b binary, s struct<x: int, y: array<string>>, "
        "m map<string, double>, f double, g float, i tinyint, yes boolean"
    )
    noon = datetime.datetime(2024, 5, 6, 12, tzinfo=datetime.UTC)
    naive = datetime.datetime(2024, 5, 6, 7, 8, 9, 10)  # noqa: DTZ001
    row = (
        decimal.Decimal("1.500"),
        noon,
        naive,
        datetime.date(2024, 5, 6),
        b"\x00\xff",
        Row(x=1, y=["a", None]),
        {"k": 0.5},
        math.nan,
        -0.0,
        -3,
        True,
    )
    source = attach(memory(schema))
    source.append([row, (None,) * 11])
    frame = source.frame(source.cut(None).range)
    assert frame.drop("_slipstream_diff").schema.simpleString() == source.schema.simpleString()
    expected = spark.createDataFrame([row, (None,) * 11], source.schema)
    assert repr(frame.drop("_slipstream_diff").collect()) == repr(expected.collect())
    assert frame.select("t").first()[0].astimezone(datetime.UTC) == noon


def test_naive_arrow_timestamps_are_in_the_sessions_zone(spark: SparkSession, attach: Attach) -> None:
    source = attach(memory("t timestamp"))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        noon = pa.array([datetime.datetime(2024, 1, 1, 12)], pa.timestamp("ns"))  # noqa: DTZ001
        source.append(pa.table({"t": noon}))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    frame = source.frame(source.cut(None).range)
    assert frame.selectExpr("unix_seconds(t)").first()[0] == 1_704_078_000


def test_whole_numbers_are_taken_for_fractions(attach: Attach, rows: Rows) -> None:
    source = attach(memory("x double, y decimal(5,1)"))
    source.append([(1, 2)])
    assert rows(source.frame(source.cut(None).range)) == [(1.0, decimal.Decimal("2.0"), 1)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            [(1, "a"), ("x", "b")],
            "row 1 does not fit the schema: id: 'x' is no BIGINT. Nothing of this call was taken.",
        ),
        ([(1,)], "row 0 does not fit the schema: it has 1 values for 2 columns"),
        ([{"id": 1, "nmae": "x"}], "row 0 does not fit the schema: it has the unknown column 'nmae'"),
        ([5], "row 0 does not fit the schema: it is of type int, not a tuple, a dict or a Row"),
        ({"id": 1}, "what was given does not fit the schema: it is of type dict, not a list of rows"),
        ("text", "what was given does not fit the schema: it is of type str, not a list of rows"),
        (pa.table({"id": [1]}), "the table does not fit the schema: it lacks the column 'name'"),
        (
            pa.table({"id": ["x"], "name": ["y"]}),
            "the table does not fit the schema: Failed to parse string: 'x'",
        ),
        (pd.DataFrame({"id": [1], "name": ["a"], "z": [1]}), "it has the unknown column 'z'"),
        ([(None, "a")], "row 0 does not fit the schema: id: NULL in a NOT NULL column"),
    ],
)
def test_rows_that_do_not_fit_are_refused_whole(attach: Attach, given: Any, text: str) -> None:
    source = attach(memory("id long NOT NULL, name string"), name="people")
    with pytest.raises(BadRow, match=re.escape(text)):
        source.append(given)
    assert source.cut(None) is None


def test_a_refusal_shows_the_schema(attach: Attach) -> None:
    source = attach(memory("id long, name string"), name="people")
    expected = r"Source 'people': .* The schema is: id BIGINT, name STRING\.$"
    with pytest.raises(BadRow, match=expected):
        source.append([("x", "y")])


def test_an_append_is_not_split_and_several_share_an_epoch(attach: Attach) -> None:
    source = attach(memory("id long"))
    for size in (3, 3, 10, 1):
        source.append([(i,) for i in range(size)])
    assert source.backlog() == 17
    cuts = [source.cut(6) for _ in range(4)]
    assert [cut and cut.range["appends"] for cut in cuts] == [[0, 1], [2, 2], [3, 3], None]


def test_a_limit_of_appends(attach: Attach) -> None:
    source = attach(memory("id long", max_appends_per_epoch=1))
    source.append([(1,)])
    source.append([(2,)])
    assert [source.cut(None).range["appends"] for _ in range(2)] == [[0, 0], [1, 1]]


def test_a_restart_replays_what_was_cut_and_takes_up_what_was_not(attach: Attach, rows: Rows) -> None:
    before = attach(memory("id long"))
    before.append([(1,)])
    first = before.cut(None).range
    before.append([(2,)])
    before.cut(None)  # cut, but never recorded
    after = attach(memory("id long"), consumed=[first])
    after.append([(3,)])
    assert rows(after.frame(first), "id") == [(1,)]
    assert after.backlog() == 2
    assert rows(after.frame(after.cut(None).range), "id") == [(2,), (3,)]


def test_rows_appended_before_attach_are_held(attach: Attach, rows: Rows) -> None:
    source = memory(StructType([StructField("id", LongType())]))
    source.append([(1,)])
    with pytest.raises(BadRow, match="id: 'x' is no BIGINT"):
        source.append([("x",)])
    attach(source)
    cut = source.cut(None)
    assert cut is not None
    assert rows(source.frame(cut.range), "id") == [(1,)]


def test_keyed_rows_are_ordered_by_append_then_place(attach: Attach) -> None:
    source = attach(memory("id long, n long, op string", op="op", key="id"))
    source.append([(1, 0, "I"), (1, -1, "-U"), (1, 1, "+U"), (2, 2, "insert")])
    source.append([(1, 3, "delete")])
    frame = source.frame(source.cut(None).range)
    assert frame.columns == ["id", "n", "_slipstream_delete", "_slipstream_order0", "_slipstream_order1"]
    assert not source.can_reject
    ordered = frame.orderBy("_slipstream_order0", "_slipstream_order1").collect()
    assert [(row.n, row._slipstream_delete) for row in ordered] == [
        (0, False),
        (1, False),
        (2, False),
        (3, True),
    ]


def test_keyed_rows_without_an_operation_replace(attach: Attach, rows: Rows) -> None:
    source = attach(memory("id long", key="id"))
    source.append([(1,)])
    assert rows(source.frame(source.cut(None).range), "id", "_slipstream_delete") == [(1, False)]


def test_a_declared_diff(attach: Attach, rows: Rows) -> None:
    source = attach(memory("id long, n int", diff="n"))
    source.append([(1, 5), (2, -2)])
    assert rows(source.frame(source.cut(None).range)) == [(1, 5), (2, -2)]
    with pytest.raises(BadRow, match="row 0 does not fit the schema: n: NULL is no diff"):
        source.append([(1, None)])


def test_unknown_operations_are_refused(attach: Attach) -> None:
    source = attach(memory("id long, op string", op="op", key="id"))
    with pytest.raises(BadRow, match="row 1 does not fit the schema: op: unknown operation 'zap'"):
        source.append([(1, "i"), (2, "zap")])
    with pytest.raises(BadRow, match="op: unknown operation None"):
        source.append([(1, None)])


def test_retract_is_for_plain_rows_only(attach: Attach) -> None:
    source = attach(memory("id long", key="id"))
    with pytest.raises(
        BadSourceOption, match="append a row with a negative diff, or with the operation 'delete'"
    ):
        source.retract([(1,)])


def test_forgotten_appends_are_removed_and_asking_for_them_is_an_error(
    tmp_path: Path, attach: Attach
) -> None:
    source = attach(memory("id long"), name="m")
    source.append([(1,)])
    first = source.cut(None).range
    source.append([(2,)])
    source.forget(first)
    assert len(list((tmp_path / "store" / "m").glob("*/*.arrow"))) == 1
    with pytest.raises(InputLost, match="Source 'm': append number 0 was taken as input, but its file"):
        source.frame(first)
    again = attach(memory("id long"), consumed=[first], name="m")
    assert again.cut(None).range == {"appends": [1, 1]}


def test_a_summary_of_old_appends_is_enough_to_go_on(
    tmp_path: Path, attach: Attach, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("slipstream.sources.memory"), "TOGETHER", 2)
    source = attach(memory("id long", max_appends_per_epoch=1), name="m")
    for number in range(7):
        source.append([(number,)])
    ranges = [source.cut(None).range for _ in range(6)]
    base = source.folded(source.folded(None, ranges[:2]), ranges[2:4])
    assert base == {"last": ranges[3], "epochs": 4, "appends": 4}
    again = attach(memory("id long", max_appends_per_epoch=1), consumed=ranges[4:], name="m", base=base)
    assert again.backlog() == 1
    assert again.cut(None).range == {"appends": [6, 6]}
    assert rows(again.frame({"appends": [1, 2]}), "id") == [(1,), (2,)], "old ones can still be read"
    again = attach(memory("id long"), name="m", base=base)
    assert again.cut(None).range == {"appends": [4, 6]}
    again.forget({"appends": [0, 4]})
    kept = sorted(path.stem.split("-")[0] for path in (tmp_path / "store" / "m").glob("*/*.arrow"))
    assert kept == ["000000000005", "000000000006"]
    assert sorted(path.name for path in (tmp_path / "store" / "m").iterdir()) == ["000000002", "000000003"]


@pytest.mark.parametrize("harm", ["flip", "cut", "zero", "delete"])
@pytest.mark.parametrize("number", [1, 2])
def test_appends_that_were_harmed_are_never_taken_for_what_was_appended(
    attach: Attach, tmp_path: Path, harm: str, number: int
) -> None:
    """Cut or not, one by one or several together, in this process or the next."""
    source = attach(memory("id long"), name="m")
    for value in range(4):
        source.append([(value,)])
    cut = source.cut(2)
    assert cut.range == {"appends": [0, 1]}
    file = next((tmp_path / "store" / "m").glob(f"*/{number:012d}-*.arrow"))
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    match harm:
        case "flip":
            file.write_bytes(body)
        case "cut":
            file.write_bytes(body[: len(body) // 2])
        case "zero":
            file.write_bytes(bytes(len(body)))
        case "delete":
            file.unlink()
    later = attach(memory("id long"), consumed=[cut.range], name="m")
    if (harm, number) == ("delete", 2):
        for ask in (later.backlog, lambda: later.cut(None)):
            with pytest.raises(InputLost, match=r"append number 2 .* is gone"):
                ask()
    for reader in (source, later):
        for taken in ([number, number], [1, 2]):
            with pytest.raises(InputLost, match=f"append number {number} .* is (gone|damaged)"):
                reader.frame({"appends": taken})


@pytest.mark.parametrize("left", ["nothing", "half", "zeros", "half zeros"])
def test_what_a_power_cut_leaves_of_the_newest_appends_is_left_out(
    attach: Attach, tmp_path: Path, rows: Rows, left: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = attach(memory("id long"), name="m")
    for value in range(4):
        source.append([(value,)])
    taken = source.cut(2).range
    for number in (2, 3):
        file = next((tmp_path / "store" / "m").glob(f"*/{number:012d}-*.arrow"))
        body = file.read_bytes()
        half = body[: len(body) // 2]
        file.write_bytes(
            {"nothing": b"", "half": half, "zeros": bytes(len(body)), "half zeros": half + bytes(len(half))}[
                left
            ]
        )
    later = attach(memory("id long"), consumed=[taken], name="m")
    assert later.backlog() == 0
    assert caplog.text.count("is left out: a power cut") == 2
    later.append([(7,)])
    assert rows(later.frame(later.cut(None).range)) == [(7, 1)]


def test_who_was_succeeded_appends_nothing(attach: Attach, rows: Rows, tmp_path: Path) -> None:
    source = attach(memory("id long"))
    source.append([(1,)])

    def taken() -> None:
        raise Superseded("store", 1)

    source.check_ours = taken
    with pytest.raises(Superseded):
        source.append([(2,)])
    assert [path.name[:12] for path in tmp_path.rglob("*.arrow")] == ["000000000000"]
    assert not list(tmp_path.rglob("*.tmp"))
    source.check_ours = lambda: None
    source.append([(3,)])
    assert rows(source.frame(source.cut(None).range)) == [(1, 1), (3, 1)]


def test_of_two_appends_of_one_number_neither_is_believed(attach: Attach, tmp_path: Path) -> None:
    source = attach(memory("id long"))
    for number in range(2):
        source.append([(number,)])
    one, two = sorted(tmp_path.rglob("*.arrow"))
    (two.parent / f"{two.name[:12]}{one.name[12:]}").write_bytes(one.read_bytes())
    again = attach(memory("id long"))
    with pytest.raises(InputLost, match=r"append number 1 .* is not the only one of that number"):
        again.frame({"appends": [0, 1]})
    assert again.left({"appends": [0, 1]})[1] == ("append number 1",)


def test_one_memory_is_one_source_of_one_app(spark: SparkSession, tmp_path: Path) -> None:
    shared = memory("id long")
    with (
        sl.App("a", store=tmp_path / "a", spark=spark) as a,
        sl.App("b", store=tmp_path / "b", spark=spark) as b,
    ):
        a.source("t", shared)
        a.view("v", "SELECT * FROM t")
        for app, name in ((b, "t"), (a, "again")):
            with pytest.raises(BadSourceOption, match="is a memory source that is 't' already"):
                app.source(name, shared)
        b.source("t", memory("id long"))
        shared.append([(1,)])
        a.run(until="caught_up")
        assert [tuple(row) for row in a.read("v").collect()] == [(1,)]
