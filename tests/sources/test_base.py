"""What every source declares: schema, and how its rows are to be understood."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slipstream.core.errors import BadSourceOption, SourceNotAttached, UnknownColumn
from slipstream.sources import Changes, Source, changes, files, memory, ranged, rate
from slipstream.sources.memory import Memory

SCHEMA = StructType(
    [StructField("id", LongType()), StructField("op", StringType()), StructField("n", LongType())]
)


def test_modes_follow_from_the_options() -> None:
    assert changes(SCHEMA) == Changes("append")
    assert changes(SCHEMA, diff="n") == Changes("diff", diff="n")
    assert changes(SCHEMA, key="id") == Changes("keyed", key=("id",))
    assert changes(SCHEMA, op="op", key=["id", "n"]) == Changes("keyed", op="op", key=("id", "n"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"diff": "n", "key": "id"}, "diff= was given together with op= or key=. To do: use diff= for rows"),
        ({"diff": "n", "op": "op"}, "diff= was given together with op= or key="),
        ({"op": "op"}, "op='op' was given without key=. To do: name the columns that identify a row"),
        (
            {"diff": "op"},
            "diff='op' is of type STRING. To do: declare it as TINYINT, SMALLINT, INT or BIGINT",
        ),
        ({"op": "n", "key": "id"}, "op='n' is of type BIGINT. To do: declare it as STRING"),
        ({"op": "op", "key": "op"}, "'op' is both op= and in key="),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(BadSourceOption, match=re.escape(text)):
        changes(SCHEMA, **options)


def test_unknown_columns_are_named_with_those_that_exist() -> None:
    expected = "names 'd', 'x', but its schema has only 'id', 'n', 'op'. Declare the column in schema="
    with pytest.raises(UnknownColumn, match=re.escape(expected)):
        changes(SCHEMA, key=["x", "d"])


def test_reserved_names_are_refused() -> None:
    with pytest.raises(BadSourceOption, match="'_slipstream_diff' is one that Slipstream uses itself"):
        changes(StructType([StructField("_slipstream_diff", LongType())]))
    assert changes(StructType([StructField("_diff", LongType())]), diff="_diff").hidden == ("_diff",)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(BadSourceOption, match="two columns named 'id'"):
        changes(StructType([StructField("id", LongType()), StructField("id", LongType())]))


def test_two_fields_of_one_name_are_refused_when_declared() -> None:
    with pytest.raises(BadSourceOption, match="a struct in the column 's' has two fields named 'x'"):
        changes(StructType().add("s", StructType().add("x", LongType()).add("x", LongType())))


def test_types_that_a_source_cannot_have_are_refused(spark: SparkSession) -> None:
    for kind in ("char(5)", "array<varchar(3)>"):
        with pytest.raises(
            BadSourceOption, match=r"the column 'c' is of type .*CHAR.*To do: declare it as STRING"
        ):
            memory(f"id long, c {kind}")
    for kind in ("interval year", "variant", "interval"):
        with pytest.raises(BadSourceOption, match=r"the column 'c' is of type .* cast it in the view"):
            memory(f"id long, c {kind}")


def test_views_do_not_see_the_operation(spark: SparkSession) -> None:
    source = memory("id long, op string, n long", op="op", key="id")
    assert source.row_schema.fieldNames() == ["id", "n"]
    assert source.schema.fieldNames() == ["id", "op", "n"]


def test_a_mistake_in_the_schema_is_reported_when_the_source_is_made(spark: SparkSession) -> None:
    with pytest.raises(UnknownColumn):
        files("nowhere", "json", "id long", key="other")
    with pytest.raises(BadSourceOption, match="is no list of columns"):
        memory("array<int>")


@pytest.mark.parametrize("name", ["files", "memory", "rate", "ranged"])
def test_order_fields_are_those_of_the_frame(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a").write_text('{"value": 1, "word": "x"}\n')
    os.utime(tmp_path / "a", (1, 1))
    (tmp_path / "a").rename(tmp_path / "in" / "a")
    schema = "value long, word string"
    made: dict[str, Callable[..., Source]] = {
        "files": lambda **key: files(tmp_path / "in", "json", schema, **key),
        "memory": lambda **key: memory(schema, **key),
        "rate": lambda **key: rate(None, rows_per_epoch=2, **key),
        "ranged": lambda **key: ranged(
            lambda spark, start: 1,
            lambda spark, start, end: spark.sql("SELECT 1 AS value, 'x' AS word, 2 AS at"),
            schema,
            order=["at", "word"],
            **key,
        ),
    }
    source = made[name](key="value")
    source.attach(name, spark, tmp_path / "store", [])
    if isinstance(source, Memory):
        source.append([(1, "x")])
    cut = source.cut(None)
    assert cut is not None
    fields = [field for field in source.frame(cut.range).schema if field.name.startswith("_slipstream_order")]
    assert [(f.name, f.dataType) for f in fields] == [(f.name, f.dataType) for f in source.order_fields]
    assert made[name]().order_fields == ()


def test_a_source_outside_an_app_says_so(spark: SparkSession) -> None:
    with pytest.raises(SourceNotAttached, match=re.escape("Add it first: app.source('name', source).")):
        rate().frame({"start": 0, "end": 1, "from": 0})
