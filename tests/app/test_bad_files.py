"""Files that are bad as a whole, and files that are not finished, under a running app."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.sources.files import Files
from slipstream.testing.oracle import rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str, pa.Table], Path]:
    folder = tmp_path / "in"
    folder.mkdir()

    def write(name: str, table: pa.Table) -> Path:
        pyarrow.parquet.write_table(table, tmp_path / "file.tmp")
        return (tmp_path / "file.tmp").rename(folder / name)

    return write


def shop(spark: SparkSession, folder: Path) -> sl.App:
    app = sl.App("shop", store=folder / "store", spark=spark, shards=1)
    app.source("people", sl.files(folder / "in", "parquet", "id long, name string"))
    app.view("names", "SELECT id, name FROM people")
    return app


def test_a_file_that_lacks_a_column_stops_nothing(
    spark: SparkSession, tmp_path: Path, put: Callable[[str, pa.Table], Path]
) -> None:
    bad = put("a.parquet", pa.table({"id": [1]}))
    good = put("b.parquet", pa.table({"id": [2], "name": ["y"]}))
    with shop(spark, tmp_path) as app:
        other = sl.memory("x int")
        app.source("other", other)
        app.view("count", "SELECT count(*) n FROM other")
        other.append([(1,)])
        assert app.run(until="caught_up").rejected == 1
        assert rows_of(app.read("names")) == rows_of(spark.read.parquet(str(good)))
        assert rows_of(app.read("count")) == [(1,)]
        assert rows_of(app.read("people_rejected")) == [
            ("people", str(bad), None, None, "it has no column 'name'; it has 'id'")
        ]
    with shop(spark, tmp_path) as app:
        other = sl.memory("x int")
        app.source("other", other)
        app.view("count", "SELECT count(*) n FROM other")
        put("c.parquet", pa.table({"id": [3], "name": ["z"]}))
        app.run(until="caught_up")
        assert sorted(rows_of(app.read("names"))) == [(2, "y"), (3, "z")]
        assert app.read("people_rejected").count() == 1


def test_a_file_with_a_column_of_another_type_stops_nothing(
    spark: SparkSession, tmp_path: Path, put: Callable[[str, pa.Table], Path]
) -> None:
    bad = put("a.parquet", pa.table({"id": ["x"], "name": ["x"]}))
    put(
        "b.parquet", pa.table({"id": pa.array([2], pa.int32()), "name": [b"y"]})
    )  # Spark reads these as declared
    with shop(spark, tmp_path) as app:
        assert app.run(until="caught_up").rejected == 1
        assert rows_of(app.read("names")) == [(2, "y")]
        assert rows_of(app.read("people_rejected")) == [
            ("people", str(bad), None, None, "its column 'id' is of type STRING, and declared as BIGINT")
        ]


def test_a_store_from_when_such_sources_rejected_nothing_goes_on(
    spark: SparkSession,
    tmp_path: Path,
    put: Callable[[str, pa.Table], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put("a.parquet", pa.table({"id": [1], "name": ["x"]}))
    with monkeypatch.context() as before:
        before.setattr(Files, "can_reject", False)
        with shop(spark, tmp_path) as app:
            app.run(until="caught_up")
    put("b.parquet", pa.table({"id": [2]}))
    with shop(spark, tmp_path) as app:
        assert rows_of(app.read("people_rejected")) == []
        app.run(until="caught_up")
        assert app.read("people_rejected").count() == 1
        assert rows_of(app.read("people_rejected", as_of=1)) == []
        assert rows_of(app.read("names")) == [(1, "x")]


@pytest.mark.parametrize("how", ["renamed", "in place"])
def test_to_catch_up_is_to_have_what_was_there(spark: SparkSession, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(20):
        text = json.dumps({"k": number}) + "\n"
        if how == "renamed":
            (tmp_path / "x").write_text(text)
            (tmp_path / "x").rename(folder / f"{number}.json")
        else:
            (folder / f"{number}.json").write_text(text)
    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=1) as app:
        app.source("t", sl.files(folder, format="json", schema="k long"))
        app.view("v", "SELECT k FROM t")
        app.run(until="caught_up")
        assert sorted(rows_of(app.read("v"))) == [(number,) for number in range(20)]
        (tmp_path / "x").write_text('{"k":20}\n')
        (tmp_path / "x").rename(folder / "20.json")
        app.run(until="caught_up")
        assert app.read("v").count() == 21
