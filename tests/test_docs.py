"""The examples of docs run, each page as one program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slipstream.testing.oracle import rows_of

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.spark
def test_the_examples_of_tables(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "tables.md").read_text().replace("LOCATION 'bank'", f"LOCATION '{tmp_path / 'bank'}'")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark}
    try:
        for block in re.findall(r"```python\n(.*?)```", text, re.S):
            exec(block, names)
        app = names["app"]
        app.run(until="caught_up")
        assert rows_of(app.read("taxes")) == [(1, 95)]
    finally:
        if "app" in names:
            names["app"].close()
        spark.sql("DROP DATABASE IF EXISTS bank CASCADE")
        spark.sql("DROP TEMPORARY FUNCTION IF EXISTS words")


@pytest.mark.spark
def test_the_example_of_sinks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / "sinks.md").read_text()
    code, printed = re.search(r"```python\n(.*?)```.*?```\n(.*?)```", text, re.S).groups()  # type: ignore[union-attr]
    monkeypatch.chdir(tmp_path)
    exec(code.replace('store="shop"', 'store="shop", spark=spark'), {"__name__": "__main__", "spark": spark})
    assert capsys.readouterr().out == printed
