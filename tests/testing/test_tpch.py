"""TPC-H's tables and queries."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slipstream.core.errors import ToolMissing
from slipstream.testing.tpch import NUMBERS, TABLES, generate, query


@pytest.mark.spark
def test_generated_tables_have_the_declared_columns_and_unique_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    generate(tmp_path, 0.01)
    for table in TABLES.values():
        rows = table.rows(tmp_path)
        assert rows.column_names == table.schema.fieldNames()
        assert len(rows.group_by(list(table.key)).aggregate([])) == rows.num_rows > 0


def test_without_the_generator_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(ToolMissing) as error:
        generate(tmp_path, 0.001)
    assert str(error.value) == (
        "the program 'tpchgen-cli' is neither beside this Python nor on the PATH: TPC-H tables are made by it. "
        "Run `pip install tpchgen-cli`."
    )


def test_there_are_22_queries_and_no_other() -> None:
    assert len({query(number) for number in NUMBERS}) == 22
    with pytest.raises(ValueError, match="TPC-H has no query 23: its queries are 1 to 22"):
        query(23)


def test_what_query_11_calls_important_depends_on_the_scale() -> None:
    assert "* 0.0001000000" in query(11)
    assert "* 0.0100000000" in query(11, scale=0.01)
