"""A view that is added later has what the views beside it have, whatever the epochs before were."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

import slipstream as sl
from slipstream.app.backfill import remove_trace
from slipstream.store.store import Claim
from slipstream.testing.oracle import rows_of

pytestmark = pytest.mark.spark


def put(folder: Path, name: str, rows: list[dict[str, Any]], second: int) -> None:
    folder.mkdir(exist_ok=True)
    outside = folder.parent / name
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), outside)
    os.utime(outside, (second, second))
    outside.rename(folder / name)


def test_a_file_that_was_bad_as_a_whole_is_bad_to_a_view_that_is_added(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    put(folder, "a.parquet", [{"id": 1, "amount": 10}], 100)
    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=1) as app:
        app.source("orders", sl.files(folder, "parquet", "id long, amount long"))
        app.view("first", "SELECT id, amount FROM orders")
        app.run(until="caught_up")
        put(folder, "b.parquet", [{"id": 2}], 101)
        assert app.run(until="caught_up").rejected == 1
        app.view("added", "SELECT id, amount, id + 1 AS more FROM orders")
        assert rows_of(app.read("first")) == [(1, 10)]
        assert rows_of(app.read("added")) == [(1, 10, 2)]


def test_a_later_epoch_wins_in_a_view_that_is_added_whatever_the_order_within_epochs(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    asked = [0]

    def read(spark: SparkSession, start: Any, end: int) -> DataFrame:
        """Each range begins to count anew, as the batches of a stream do; the second says less than the first."""
        rows = [[("a", "new", 9), ("b", "new", 8)], [("a", "old", 0)]]
        chosen = [row for each in rows[start or 0 : end] for row in each]
        return spark.createDataFrame(chosen, "k string, v string, n long")

    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=2) as app:
        made = sl.files(folder, "parquet", "k long, v string, op string", key="k", op="op")
        app.source("moved", made)
        app.source(
            "counted", sl.ranged(lambda *_: asked[0] or None, read, "k string, v string", order="n", key="k")
        )
        app.view("first_moved", "SELECT k, v FROM moved")
        app.view("first_counted", "SELECT k, v FROM counted")
        epochs: list[tuple[int, list[tuple[Any, ...]]]] = [
            (100, [(1, "new", "insert"), (2, "new", "insert"), (None, "new", "insert")]),
            (50, [(1, "old", "update"), (2, "old", "delete"), (3, "old", "zap"), (None, "old", "update")]),
            (60, [(3, "x", "insert"), (3, "y", "update")]),
        ]
        for number, (second, rows) in enumerate(epochs):
            named = [dict(zip(("k", "v", "op"), row, strict=True)) for row in rows]
            put(folder, f"{number}.parquet", named, second)
            asked[0] = min(number + 1, 2)
            app.run(until="caught_up")
        assert sorted(rows_of(app.read("first_moved")), key=repr) == [(1, "old"), (3, "y"), (None, "old")]
        assert sorted(rows_of(app.read("first_counted"))) == [("a", "old"), ("b", "new")]
        for name in ("moved", "counted"):
            app.view(f"added_{name}", f"SELECT v, k FROM {name}")
            added, first = app.read(f"added_{name}"), app.read(f"first_{name}")
            assert sorted(rows_of(added.select("k", "v")), key=repr) == sorted(rows_of(first), key=repr)


def test_what_is_removed_of_a_trace_is_nothing_that_came_after_it_was_asked_whose_it_is(
    tmp_path: Path,
) -> None:
    """An engine that is stopped in the middle of it, succeeded, and woken."""
    trace = tmp_path / "traces" / "sums" / "accumulate-0"
    trace.mkdir(parents=True)
    (trace / "ours").touch()

    def stopped() -> None:
        (trace / "theirs").touch()

    claim = cast(Claim, SimpleNamespace(check_ours=stopped, store=SimpleNamespace(root=tmp_path)))
    remove_trace(claim, "traces/sums/accumulate-0")
    assert [path.name for path in trace.iterdir()] == ["theirs"]
