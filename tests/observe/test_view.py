"""Reading a view without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.errors import NotAStore, UnknownEpoch, UnknownView


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three epochs; its engine is gone."""
    root = tmp_path_factory.mktemp("view") / "store"
    with sl.App("shop", store=root, spark=spark, shards=2) as app:
        orders = sl.memory("k string, v long")
        app.source("orders", orders)
        app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
        app.view("rows", "SELECT upper(k) k, v FROM orders")
        for v in (1, 2):
            orders.append([("a", v), ("b", v), ("b", v)])
            app.run(until="caught_up")
        orders.retract([("a", 1), ("a", 2)])
        app.run(until="caught_up")
    return root


@pytest.mark.spark
@pytest.mark.parametrize(
    ("view", "as_of", "rows"),
    [
        ("sums", None, [("b", 6)]),
        ("sums", 1, [("a", 1), ("b", 2)]),
        ("sums", 0, []),
        ("rows", None, [("B", 1), ("B", 1), ("B", 2), ("B", 2)]),
        ("rows", "1", [("A", 1), ("B", 1), ("B", 1)]),
    ],
)
def test_a_view_is_an_arrow_table(
    store: Path, view: str, as_of: int | str | None, rows: list[object]
) -> None:
    table = sl.read_view(store, view, as_of)
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == rows
    assert table.column_names == (["k", "s"] if view == "sums" else ["k", "v"])


@pytest.mark.spark
def test_what_is_not_there_is_named(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownView, match="sums"):
        sl.read_view(store, "sum")
    with pytest.raises(UnknownEpoch):
        sl.read_view(store, "sums", 9)
    with pytest.raises(NotAStore):
        sl.read_view(tmp_path, "sums")
