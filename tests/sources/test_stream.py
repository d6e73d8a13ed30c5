"""PySpark's own streaming data sources, and batch readers by offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from slipstream.core.errors import BadSourceOption, MissingColumn
from slipstream.sources import ranged, stream
from slipstream.sources.operations import hint

pytestmark = pytest.mark.spark

Attach = Callable[..., Any]
Rows = Callable[..., list[tuple[Any, ...]]]

CALLS: list[Any] = []
UPTO = {"n": 0}


def counter(paced: bool = False) -> type[DataSource]:
    """A data source that counts; its classes are local, so that tasks get them by value."""
    calls, upto = CALLS, UPTO
    calls.clear()
    upto["n"] = 0

    class Part(InputPartition):
        def __init__(self, start: int, end: int) -> None:
            self.start, self.end = start, end

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            return ReadMaxRows(100) if paced else ReadAllAvailable()

        def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
            end = upto["n"]
            return {"at": min(end, start["at"] + limit.max_rows) if isinstance(limit, ReadMaxRows) else end}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
            middle = (start["at"] + end["at"]) // 2
            return [Part(start["at"], middle), Part(middle, end["at"])]

        def read(self, partition: Any) -> Iterator[tuple[int, str]]:
            return ((i, "delete" if i % 5 == 4 else "insert") for i in range(partition.start, partition.end))

        def commit(self, end: dict[str, int]) -> None:
            calls.append(("commit", end))

        def stop(self) -> None:
            calls.append("stop")

    class Counter(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counter"

        def schema(self) -> str:
            return "id long, op string"

        def streamReader(self, schema: StructType) -> Reader:  # noqa: N802
            return Reader()

    return Counter


def simple() -> type[DataSource]:
    calls, upto = CALLS, UPTO
    calls.clear()
    upto["n"] = 0

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int, ...]], dict[str, int]]:
            calls.append("read")
            return iter([(i,) for i in range(start["at"], upto["n"])]), {"at": upto["n"]}

        def readBetweenOffsets(  # noqa: N802
            self, start: dict[str, int], end: dict[str, int]
        ) -> Iterator[tuple[int, ...]]:
            calls.append("again")
            return iter([(i,) for i in range(start["at"], end["at"])])

    class Simple(DataSource):
        def schema(self) -> str:
            return "id long"

        def simpleStreamReader(self, schema: StructType) -> Reader:  # noqa: N802
            return Reader()

    return Simple


def test_ranges_of_offsets(attach: Attach, rows: Rows) -> None:
    source = attach(stream(counter()))
    assert source.cut(None) is None
    assert source.backlog() == 0
    UPTO["n"] = 6
    assert source.backlog() == 1
    first = source.cut(None)
    assert (first.range, first.rows) == ({"start": {"at": 0}, "end": {"at": 6}}, None)
    UPTO["n"] = 8
    second = source.cut(None)
    assert rows(source.frame(second.range), "id") == [(6,), (7,)]
    assert rows(source.frame(first.range), "id") == [(i,) for i in range(6)], "a replay reads the same"
    assert source.frame(first.range).columns == ["id", "op"]


def test_a_restart_goes_on_from_the_last_recorded_offset(attach: Attach) -> None:
    made = counter()
    UPTO["n"] = 9
    source = attach(stream(made), consumed=[{"start": {"at": 0}, "end": {"at": 4}}])
    assert source.cut(None).range == {"start": {"at": 4}, "end": {"at": 9}}


def test_operations_by_key_are_ordered_by_partition_then_row(attach: Attach) -> None:
    source = attach(stream(counter(), op="op", key="id"))
    UPTO["n"] = 10
    frame = source.frame(source.cut(None).range)
    assert frame.columns == [
        "id",
        "_slipstream_delete",
        "_slipstream_order0",
        "_slipstream_order1",
        "_slipstream_bad",
    ]
    ordered = frame.orderBy("_slipstream_order0", "_slipstream_order1").collect()
    assert [row.id for row in ordered] == list(range(10))
    assert [row.id for row in ordered if row._slipstream_delete] == [4, 9]


def test_a_reader_that_counts_rows_hears_of_the_budget(attach: Attach) -> None:
    source = attach(stream(counter(paced=True)))
    UPTO["n"] = 500
    ends = [source.cut(budget).range["end"]["at"] for budget in (30, None, 1000)]
    assert ends == [30, 130, 230]


def test_forget_commits_and_close_stops(attach: Attach) -> None:
    source = attach(stream(counter()))
    source.forget({"start": {"at": 0}, "end": {"at": 3}})
    source.close()
    assert CALLS == [("commit", {"at": 3}), "stop"]
    with pytest.raises(BadSourceOption, match="the stream is closed"):
        source.cut(None)


def test_a_registered_name(spark: SparkSession, attach: Attach, rows: Rows) -> None:
    spark.dataSource.register(counter())
    source = attach(stream("counter"))
    assert source.row_schema.fieldNames() == ["id", "op"]
    assert rows(source.frame({"start": {"at": 2}, "end": {"at": 4}}), "id") == [(2,), (3,)]


def test_an_unknown_name_says_what_to_do(attach: Attach) -> None:
    with pytest.raises(BadSourceOption, match="no Python data source is registered as 'nothing'"):
        attach(stream("nothing"))


def test_a_source_that_is_no_stream(attach: Attach) -> None:
    class Plain(DataSource):
        def schema(self) -> str:
            return "id long"

    with pytest.raises(BadSourceOption, match="the data source 'Plain' cannot be read as a stream"):
        attach(stream(Plain))


def test_a_simple_reader_reads_ahead_once_and_again_only_on_replay(attach: Attach, rows: Rows) -> None:
    source = attach(stream(simple()))
    assert source.cut(None) is None
    UPTO["n"] = 3
    assert source.backlog() == 3
    first = source.cut(None)
    assert (first.rows, first.amount) == (3, 3)
    assert rows(source.frame(first.range)) == [(0,), (1,), (2,)]
    assert CALLS == ["read", "read"]
    UPTO["n"] = 4
    second = source.cut(None)
    assert rows(source.frame(second.range)) == [(3,)]
    assert rows(source.frame(first.range)) == [(0,), (1,), (2,)]
    assert CALLS == ["read", "read", "read", "again"]


def numbers(upto: list[int]) -> tuple[Callable[..., Any], Callable[..., DataFrame]]:
    def latest(spark: SparkSession, start: Any) -> Any:
        return upto[0]

    def read(spark: SparkSession, start: Any, end: Any) -> DataFrame:
        return spark.range(start or 0, end).selectExpr(
            "CAST(id AS INT) AS id", "id AS offset", "id % 2 AS k", "'x' AS op"
        )

    return latest, read


def test_ranged_reads_by_offset(attach: Attach, rows: Rows) -> None:
    upto = [3]
    source = attach(ranged(*numbers(upto), schema="id long, k long"))
    first = source.cut(None)
    assert first.range == {"start": None, "end": 3}
    assert source.cut(None) is None
    assert source.backlog() == 0
    upto[0] = 5
    assert source.backlog() == 1
    assert rows(source.frame(source.cut(None).range)) == [(3, 1), (4, 0)]
    assert rows(source.frame(first.range)) == [(0, 0), (1, 1), (2, 0)]
    again = attach(ranged(*numbers([7]), schema="id long, k long"), consumed=[{"start": 3, "end": 5}])
    assert again.cut(None).range == {"start": 5, "end": 7}


def test_ranged_by_key_needs_an_order(attach: Attach) -> None:
    with pytest.raises(BadSourceOption, match="name the columns that order the changes of one key"):
        ranged(*numbers([1]), schema="id long", key="id")
    source = attach(ranged(*numbers([3]), schema="id long, k long", key="k", order="offset"))
    frame = source.frame(source.cut(None).range)
    assert frame.columns == ["id", "k", "_slipstream_delete", "_slipstream_order0"]
    assert [row.id for row in frame.orderBy("_slipstream_order0").collect()] == [0, 1, 2]


def test_ranged_rejects_unknown_operations(attach: Attach, rows: Rows) -> None:
    made = ranged(*numbers([1]), schema="id long, op string", op="op", key="id", order="offset")
    source = attach(made, name="feed")
    rejected = rows(source.rejected(source.cut(None).range))
    assert rejected == [("feed", None, None, '{"id":0}', f"unknown operation 'x': {hint('x')}")]


def test_ranged_names_the_columns_that_are_missing(attach: Attach) -> None:
    source = attach(ranged(*numbers([1]), schema="id long, nope string"), name="feed")
    expected = "Source 'feed': what its read function returned has no column 'nope'; it has 'id', 'k', 'offset', 'op'"
    with pytest.raises(MissingColumn, match=expected):
        source.frame(source.cut(None).range)


def test_a_summary_of_old_ranges_is_enough_to_go_on(attach: Attach) -> None:
    ranges = [{"start": 1, "end": 3}, {"start": 3, "end": 5}]
    source = ranged(*numbers([7]), schema="id long, k long")
    base = source.folded(source.folded(None, ranges[:1]), ranges[1:])
    assert base == {"last": ranges[1], "epochs": 2}
    assert attach(source, base=base).cut(None).range == {"start": 5, "end": 7}
