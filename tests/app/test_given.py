"""Whether two sources were made with the same: only then is the second the first, declared once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

import slipstream as sl
from slipstream.app.definitions import given_as
from slipstream.sources import Source


def files(**more: Any) -> Source:
    return sl.files(**{"path": "in", "format": "json", "schema": StructType().add("k", "long"), **more})


@pytest.mark.parametrize(
    "other",
    [
        {"path": "out"},
        {"pattern": "*.new"},
        {"settle": "10 s"},
        {"missing": "null"},
        {"key": "k"},
        {"after_safe": "delete"},
        {"options": {"timeZone": "UTC"}},
        {"max_files_per_epoch": 1},
        {"schema": StructType().add("k", "string")},
    ],
)
def test_another_option_makes_another_source_of_files(other: dict[str, object]) -> None:
    assert given_as(files()) == given_as(files(path=Path("in")))
    assert given_as(files()) != given_as(files(**other))


def test_another_watermark_does() -> None:
    assert given_as(files(), ("ts", "1 s")) != given_as(files(), ("ts", "2 s"))


def reading(rows: int) -> type[DataSource]:
    """A class that is made anew each time, as by a cell that is run twice."""

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
            return {"at": rows}

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (rows,)

    class Rows(DataSource):
        def schema(self) -> StructType:
            return StructType().add("k", "long")

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return Reader()

    return Rows


def test_a_reader_is_known_by_its_code_and_its_options() -> None:
    one = given_as(sl.stream(reading(1)))
    assert one == given_as(sl.stream(reading(1)))
    assert one != given_as(sl.stream(reading(2)))
    assert one != given_as(sl.stream(reading(1), topic="t"))


def test_functions_are_known_by_their_code() -> None:
    def latest(spark: SparkSession, after: Any) -> int:
        return 1

    def ranged(read: Callable[..., Any]) -> tuple[object, ...]:
        return given_as(sl.ranged(latest=latest, read=read, schema=StructType().add("k", "long"), start=0))

    assert ranged(lambda spark, a, b: a) == ranged(lambda spark, a, b: a)
    assert ranged(lambda spark, a, b: a) != ranged(lambda spark, a, b: b)


@pytest.mark.spark
def test_frames_are_known_by_what_they_mean(spark: SparkSession) -> None:
    assert given_as(sl.table(spark.range(3))) == given_as(sl.table(spark.range(3)))
    assert given_as(sl.table(spark.range(3))) != given_as(sl.table(spark.range(4)))
