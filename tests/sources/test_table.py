"""Tables: read once, or read again and compared; what was read is there again after a restart."""

from __future__ import annotations

import datetime
import stat
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import slipstream as sl
from slipstream.core.clock import ManualClock
from slipstream.core.errors import BadSourceOption, InputLost, TableChanged, TableMoved, TableUnreadable
from slipstream.sources.parts import FEW, joined_from
from slipstream.sources.table import Table, table
from slipstream.spark.netting import difference, netted

Attach = Callable[..., Any]
Rows = Callable[..., list[tuple[Any, ...]]]

MINUTE = 60.0


@pytest.fixture
def rates(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Makes the table `rates` of a query, in a database that is not the current one; its name."""
    spark.sql(f"CREATE DATABASE bank LOCATION '{tmp_path / 'bank'}'")

    def made(query: str) -> str:
        spark.sql("DROP TABLE IF EXISTS bank.rates")
        spark.sql(f"CREATE TABLE bank.rates USING parquet AS {query}")
        return "bank.rates"

    yield made
    spark.sql("DROP DATABASE bank CASCADE")


@pytest.mark.spark
def test_a_table_is_read_once(rates: Callable[[str], str], attach: Attach, rows: Rows) -> None:
    source = attach(table(rates("SELECT 'a' k, 1 v UNION ALL SELECT 'a', 1 UNION ALL SELECT NULL, 2")))
    cut = source.cut(None)
    assert (cut.amount, cut.rows) == (3, 3)
    assert (source.changes.mode, source.cut(None), source.backlog(), source.exhausted) == (
        "append",
        None,
        0,
        True,
    )
    assert rows(source.frame(cut.range)) == [("a", 1), ("a", 1), (None, 2)]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (source._home(), *source._home().iterdir())}
    assert modes == {0o700, 0o600}, "as private as the folder that it is in"


@pytest.mark.spark
@pytest.mark.parametrize("refresh", [None, "1 minute"])
def test_an_app_reads_a_table_by_its_name(
    spark: SparkSession, rates: Callable[[str], str], tmp_path: Path, refresh: str | None
) -> None:
    name = rates("SELECT 'a' k, 1 v")
    for _ in range(2):
        with sl.App("shop", store=tmp_path / "store", spark=spark, shards=1) as app:
            with pytest.raises(
                TableUnreadable, match=r"Source 'none': its table .*`no`.`such` cannot be found"
            ):
                app.source("none", sl.table("no.such", refresh=refresh))
            app.source("none", sl.memory("k string"))
            app.source("rates", sl.table(name, refresh=refresh))
            app.view("all", "SELECT * FROM rates")
            app.run(until="caught_up")
            assert app.read("all").collect() == [("a", 1)]


@pytest.mark.spark
def test_what_was_read_stays_whatever_becomes_of_the_table(
    spark: SparkSession, rates: Callable[[str], str], attach: Attach, rows: Rows
) -> None:
    name = rates("SELECT 1 v")
    cut = attach(table(name)).cut(None)
    rates("SELECT 2 v")
    with pytest.warns(
        TableMoved, match=r"source 'input': the files of its table are others than when it was read"
    ):
        again = attach(table(name), [cut.range])
    assert again.cut(None) is None
    assert rows(again.frame(cut.range)) == [(1,)]


@pytest.mark.spark
def test_a_table_that_has_not_changed_is_not_talked_about(
    rates: Callable[[str], str], attach: Attach
) -> None:
    name = rates("SELECT 1 v")
    cut = attach(table(name)).cut(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attach(table(name), [cut.range])


@pytest.mark.spark
def test_a_refresh_gives_the_difference(rates: Callable[[str], str], attach: Attach, rows: Rows) -> None:
    clock = ManualClock(1000.0)
    name = rates("SELECT * FROM VALUES ('a', 1), ('b', 2), ('b', 2), ('c', 3) t(k, v)")
    source = attach(table(name, refresh="10 minutes", clock=clock))
    first = source.cut(None).range
    assert (source.changes.mode, source.exhausted) == ("diff", False)
    assert rows(source.frame(first)) == [("a", 1, 1), ("b", 2, 1), ("b", 2, 1), ("c", 3, 1)]
    rates("SELECT * FROM VALUES ('a', 9), ('b', 2), ('c', 3), (NULL, 4), ('c', 3) t(k, v)")
    clock.advance(9 * MINUTE)
    assert (source.cut(None), source.backlog()) == (None, 0)
    clock.advance(MINUTE)
    assert source.backlog() == 1
    cut = source.cut(None)
    assert cut.rows == 5
    expected = [("a", 1, -1), ("a", 9, 1), ("b", 2, -1), ("c", 3, 1), (None, 4, 1)]
    assert rows(source.frame(cut.range)) == expected
    clock.advance(10 * MINUTE)
    assert source.cut(None) is None, "nothing changed"
    assert source.backlog() == 0


@pytest.mark.spark
def test_a_read_that_no_epoch_took_is_read_anew(
    rates: Callable[[str], str], attach: Attach, rows: Rows, tmp_path: Path
) -> None:
    clock = ManualClock(1000.0)
    name = rates("SELECT 1 v")
    source = attach(table(name, refresh=60, clock=clock))
    first = source.cut(None).range
    clock.advance(MINUTE)
    rates("SELECT 2 v")
    lost = source.cut(None).range
    (tmp_path / "store" / "input" / ".half.tmp").write_bytes(b"x")
    rates("SELECT 3 v")
    again = attach(table(name, refresh=60, clock=clock), [first])
    there = {path.name for path in (tmp_path / "store" / "input").iterdir()}
    assert there == set(first["parts"]), "what no epoch took is removed"
    assert lost["parts"]
    assert rows(again.frame(again.cut(None).range)) == [(1, -1), (3, 1)]


@pytest.mark.spark
def test_who_was_succeeded_removes_nothing_that_its_successor_read(
    rates: Callable[[str], str], tmp_path: Path, spark: SparkSession
) -> None:
    """An engine that is stopped at its start, succeeded, and woken."""
    folder = tmp_path / "kept"
    folder.mkdir()
    left, theirs = (folder / f"{number:09d}-1-0000000000000000.arrow" for number in (0, 1))
    left.touch()
    source = table(rates("SELECT 1 v"))

    def stopped() -> None:
        theirs.touch()

    source.check_ours = stopped
    source.attach("rates", spark, folder, ())
    assert (left.exists(), theirs.exists()) == (False, True)


@pytest.mark.spark
def test_a_restart_goes_on_from_the_last_range_or_the_summary(
    rates: Callable[[str], str], attach: Attach, rows: Rows
) -> None:
    clock = ManualClock(1000.0)
    name = rates("SELECT 1 v")
    source = attach(table(name, refresh=60, clock=clock))
    first = source.cut(None).range
    base = source.folded(None, [first])
    assert (base["epochs"], base["rows"]) == (1, 1)
    again = attach(table(name, refresh=60, clock=clock), base=base)
    assert again.cut(None) is None, "not due yet"
    rates("SELECT 2 v")
    clock.advance(MINUTE)
    cut = again.cut(None)
    assert rows(again.frame(cut.range)) == [(1, -1), (2, 1)]
    assert source.folded(base, [cut.range])["rows"] == 3


@pytest.mark.spark
def test_an_empty_table_is_read_and_grows(rates: Callable[[str], str], attach: Attach, rows: Rows) -> None:
    clock = ManualClock(1000.0)
    name = rates("SELECT 1 v WHERE false")
    source = attach(table(name, refresh=60, clock=clock))
    cut = source.cut(None)
    assert (cut.rows, rows(source.frame(cut.range))) == (0, [])
    rates("SELECT 1 v")
    clock.advance(MINUTE)
    assert rows(source.frame(source.cut(None).range)) == [(1, 1)]


@pytest.mark.spark
def test_many_reads_are_joined(spark: SparkSession, attach: Attach, rows: Rows) -> None:
    clock = ManualClock(1000.0)
    spark.range(1).createOrReplaceTempView("counted")
    source = attach(table("counted", refresh=1, clock=clock))
    taken = []
    reads = FEW + 4
    for number in range(1, reads):
        taken.append(source.cut(None).range)
        clock.advance(1)
        spark.range(number, number + 3).createOrReplaceTempView("counted")
    last = source.cut(None).range
    assert len(last["contents"]) <= FEW + 2
    home = source._home()
    assert all((home / name).exists() for each in [*taken, last] for name in each["parts"])
    kept = rows(netted(source._rows_of(spark, last["contents"])))
    assert kept == [(number, 1) for number in range(reads - 1, reads + 2)]


@pytest.mark.spark
def test_every_type_is_compared_exactly(spark: SparkSession, attach: Attach, rows: Rows) -> None:
    clock = ManualClock(1000.0)
    schema = (
        "i int, d double, f float, s string, c string collate utf8_lcase, b binary, n decimal(38,10), t timestamp, "
        "z timestamp_ntz, day date, a array<double>, m map<string, array<float>>, "
        "r struct<x: double, y: struct<z: string>>"
    )
    noon = datetime.datetime(2024, 5, 6, 12, tzinfo=datetime.UTC)
    naive = datetime.datetime(1801, 5, 6, 7, 8, 9, 10)  # noqa: DTZ001
    day = datetime.date(1, 1, 1)

    def row(zero: float, letter: str) -> tuple[Any, ...]:
        nested = Row(x=zero, y=Row(z=letter))
        number = Decimal("1.0000000001")
        times = (noon, naive, day)
        return (
            1,
            zero,
            zero,
            letter,
            letter,
            b"\0\xff",
            number,
            *times,
            [zero, None],
            {letter: [zero]},
            nested,
        )

    nan, nulls = row(float("nan"), "n"), (None,) * 13
    held = {"now": [row(0.0, "a"), row(0.0, "a"), nan, nulls, nulls]}

    def show() -> None:
        spark.createDataFrame(held["now"], schema).createOrReplaceTempView("odd")

    show()
    source = attach(table("odd", refresh=1, clock=clock))
    first = source.frame(source.cut(None).range)
    assert sorted(map(repr, first.drop("_slipstream_diff").collect())) == sorted(
        map(repr, spark.table("odd").collect())
    )
    clock.advance(1)
    assert source.cut(None) is None, "NaN and NULL are what they were"
    held["now"] = [row(-0.0, "a"), row(0.0, "A"), nan, nulls]
    show()
    clock.advance(1)
    found = [(repr(each.d), each.c, each[-1]) for each in source.frame(source.cut(None).range).collect()]
    assert sorted(found) == [("-0.0", "a", 1), ("0.0", "A", 1), ("0.0", "a", -2), ("None", None, -1)]


@pytest.mark.spark
def test_a_dataframe_is_read_anew_over_the_files_that_there_are(
    spark: SparkSession, attach: Attach, rows: Rows, tmp_path: Path
) -> None:
    clock, folder = ManualClock(1000.0), str(tmp_path / "ds")
    spark.range(2).write.parquet(folder)
    source = attach(table(spark.read.parquet(folder).where("id > 0"), refresh=60, clock=clock))
    assert rows(source.frame(source.cut(None).range)) == [(1, 1)]
    spark.range(7, 8).write.mode("append").parquet(folder)
    clock.advance(MINUTE)
    assert rows(source.frame(source.cut(None).range)) == [(7, 1)]


@pytest.mark.spark
def test_a_column_that_is_added_is_left_out_and_one_that_is_gone_is_an_error(
    rates: Callable[[str], str], attach: Attach, rows: Rows
) -> None:
    clock = ManualClock(1000.0)
    name = rates("SELECT 1 k, 2 v")
    source = attach(table(name, refresh=60, clock=clock))
    source.cut(None)
    rates("SELECT 1 k, 3 v, 4 w")
    clock.advance(MINUTE)
    assert rows(source.frame(source.cut(None).range)) == [(1, 2, -1), (1, 3, 1)]
    rates("SELECT 1 k")
    clock.advance(MINUTE)
    with pytest.raises(TableChanged) as error:
        source.cut(None)
    assert str(error.value) == (
        "Source 'input': its table has no column 'v' any more. Nothing was taken of it. To do: bring the column back "
        "as it was, or give sl.table a DataFrame with the columns that the views read."
    )
    rates("SELECT 1 k, 'x' v")
    with pytest.raises(TableChanged, match=r"has a column 'v' of type STRING, which was INT"):
        source.cut(None)


@pytest.mark.spark
@pytest.mark.parametrize("refresh", [None, 60])
def test_what_was_read_is_there_after_the_table_is_gone(
    spark: SparkSession, rates: Callable[[str], str], attach: Attach, rows: Rows, refresh: float | None
) -> None:
    clock = ManualClock(1000.0)
    source = attach(table(rates("SELECT 'a' k, 1 v"), refresh=refresh, clock=clock))
    first = source.cut(None).range
    spark.sql("DROP TABLE bank.rates")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableMoved)
        again = attach(table("bank.rates", refresh=refresh, clock=clock), [first])
        summed = attach(table("bank.rates", refresh=refresh, clock=clock), base=source.folded(None, [first]))
    assert (
        rows(again.frame(first).select("k", "v")) == rows(summed.frame(first).select("k", "v")) == [("a", 1)]
    )
    if refresh is not None:
        clock.advance(MINUTE)
        with pytest.raises(TableUnreadable):
            again.cut(None)


@pytest.mark.spark
@pytest.mark.parametrize("as_frame", [False, True])
def test_a_restart_has_the_columns_that_were_read(
    spark: SparkSession, rates: Callable[[str], str], attach: Attach, rows: Rows, as_frame: bool
) -> None:
    clock = ManualClock(1000.0)
    name = rates("SELECT 1 a, 2 b, 'x' COLLATE utf8_lcase c")
    source = attach(table(name, refresh=60, clock=clock))
    first = source.cut(None).range
    rates(
        "SELECT 'new' w, 2 b, 1 a, 'x' COLLATE utf8_lcase c UNION ALL SELECT 'new', 4, 3, 'y' COLLATE utf8_lcase"
    )
    given = spark.table(name) if as_frame else name
    again = attach(table(given, refresh=60, clock=clock), [first])
    assert again.schema == source.schema
    assert rows(again.frame(first)) == [(1, 2, "x", 1)]
    clock.advance(MINUTE)
    assert rows(again.frame(again.cut(None).range)) == [(3, 4, "y", 1)]
    rates("SELECT 1 a, 'x' COLLATE utf8_lcase c")
    given = spark.table(name) if as_frame else name
    clock.advance(MINUTE)
    with pytest.raises(TableChanged, match=r"has no column 'b' any more"):
        attach(table(given, refresh=60, clock=clock), [first]).cut(None)


@pytest.mark.spark
def test_a_table_that_is_read_once_and_lost_a_column_is_only_talked_about(
    spark: SparkSession, rates: Callable[[str], str], attach: Attach, rows: Rows
) -> None:
    name = rates("SELECT 1 a, 2 b")
    first = attach(table(name)).cut(None).range
    rates("SELECT 1 a")
    for given in (name, spark.table(name)):
        with pytest.warns(TableMoved):
            again = attach(table(given), [first])
        assert rows(again.frame(first)) == [(1, 2)]


@pytest.mark.spark
def test_a_process_that_stood_by_with_other_columns_takes_nothing(
    spark: SparkSession, rates: Callable[[str], str], attach: Attach, tmp_path: Path
) -> None:
    name = rates("SELECT 1 a, 2 b")
    first = attach(table(name, refresh=60)).cut(None).range
    rates("SELECT 2 b, 1 a")
    other = table(name, refresh=60)
    other.stand_by("input", spark, tmp_path / "store" / "input")
    with pytest.raises(TableChanged, match=r"has other columns than when it was first read \(a INT, b INT\)"):
        attach(other, [first])


@pytest.mark.spark
def test_parts_that_are_gone_or_damaged(rates: Callable[[str], str], attach: Attach, rows: Rows) -> None:
    source = attach(table(rates("SELECT 1 v")))
    range_ = source.cut(None).range
    assert source.left(range_) == (range_, ())
    path = source._home() / range_["parts"][0]
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(
        InputLost, match=r"was read of the table, but this file in .* is damaged. To do: put the file"
    ):
        source.frame(range_)
    path.unlink()
    with pytest.raises(InputLost, match=r"is gone"):
        source.frame(range_)
    left, gone = source.left(range_)
    assert (left["parts"], left["contents"], gone) == ([], [], (f"{path.name} of the table",))
    assert rows(source.frame(left)) == []


@pytest.mark.spark
def test_a_table_that_is_not_there(attach: Attach, rates: Callable[[str], str], spark: SparkSession) -> None:
    with pytest.raises(
        TableUnreadable, match=r"Source 'input': its table cannot be read: \[TABLE_OR_VIEW_NOT_FOUND\]"
    ):
        attach(table("bank.nothing"))
    clock = ManualClock(1000.0)
    source = attach(table(rates("SELECT 1 v"), refresh=60, clock=clock))
    source.cut(None)
    spark.sql("DROP TABLE bank.rates")
    clock.advance(MINUTE)
    with pytest.raises(TableUnreadable, match=r"To do: see that the table is there"):
        source.cut(None)


@pytest.mark.spark
def test_what_cannot_be_a_table(spark: SparkSession, attach: Attach) -> None:
    with pytest.raises(BadSourceOption, match=r"sl.table was given a int. To do: give the name of a table"):
        table(5)  # type: ignore[arg-type]
    with pytest.raises(BadSourceOption, match=r"the DataFrame is a stream"):
        table(spark.readStream.format("rate").load())
    with pytest.raises(BadSourceOption, match=r"column 'm' is of type INTERVAL MONTH"):
        attach(table(spark.sql("SELECT INTERVAL '1' MONTH m")))


@pytest.mark.spark
def test_one_table_in_two_apps(spark: SparkSession, attach: Attach) -> None:
    source = attach(table(spark.range(1).toDF("v")))
    with pytest.raises(BadSourceOption, match=r"give each source of each app a table of its own"):
        attach(source, name="other")


@pytest.mark.parametrize(
    ("rows", "at"),
    [
        ([], 0),
        ([5] * FEW, FEW),
        ([1000] + [1] * FEW, 1),
        ([5] * (FEW + 1), 0),
        ([1000, 100, 10, *[1] * FEW], 2),
        ([8**each for each in range(FEW + 1, 0, -1)], FEW + 1),
    ],
)
def test_which_parts_are_joined(rows: list[int], at: int) -> None:
    assert joined_from(parts_of(*([each] for each in rows))) == at


def parts_of(*reads: list[int]) -> list[str]:
    """The names of parts of so many rows, by the read that wrote them."""
    return [f"{read:09d}-{rows}-{0:016x}.arrow" for read, each in enumerate(reads) for rows in each]


def test_the_parts_of_one_read_are_joined_or_left_together() -> None:
    """A read has as many parts as there are cores, all of one size."""
    table, change = [1000] * 2 * FEW, [1] * 2 * FEW
    assert joined_from(parts_of(table)) == 2 * FEW
    assert joined_from(parts_of(table, change)) == 4 * FEW
    assert joined_from(parts_of(table, change, change)) == 2 * FEW
    assert joined_from(parts_of(table, [3000] * 2 * FEW)) == 0


@pytest.mark.spark
def test_a_double_comes_back_as_it_was(spark: SparkSession) -> None:
    values = [
        0.1,
        -0.0,
        0.0,
        5e-324,
        1.7976931348623157e308,
        float("inf"),
        float("-inf"),
        float("nan"),
        None,
        1 / 3,
    ]
    frame = spark.createDataFrame(
        [(each, each, 1) for each in values], "d double, f float, _slipstream_diff long"
    )
    assert sorted(map(repr, netted(frame).collect())) == sorted(map(repr, frame.collect()))
    assert "SortAggregate" not in netted(frame)._jdf.queryExecution().toString()


@pytest.mark.spark
def test_a_difference_counts_duplicates(spark: SparkSession, rows: Rows) -> None:
    before = spark.sql("SELECT * FROM VALUES (1, 2L), (2, 1L), (3, 1L) t(v, _slipstream_diff)")
    now: DataFrame = spark.sql("SELECT * FROM VALUES (1), (2), (2), (4) t(v)")
    assert rows(difference(before, now)) == [(1, -1), (2, 1), (3, -1), (4, 1)]
    assert isinstance(table(now), Table)
