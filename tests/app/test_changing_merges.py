"""A merge that is under way in a view's traces while these are replaced: nothing of before comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.durability.fsck import check_store
from slipstream.testing.merging import upkeep
from slipstream.trace import write_layer

pytestmark = pytest.mark.spark
LONG = 60.0
MERGER = "merger"


class Stopped:
    """Merges wait in their middle: what they read is open, and nothing of what they make is there yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.may = threading.Event(), threading.Event()

        def waiting(*given: Any, **more: Any) -> int:
            if threading.current_thread().name == MERGER:
                self.reached.set()
                assert self.may.wait(LONG)
            return write_layer(*given, **more)

        monkeypatch.setattr("slipstream.trace.merge.write_layer", waiting)

    @contextmanager
    def merging(self, traces: list[Path], epoch: int) -> Iterator[None]:
        """While this is open, all traces are being merged."""

        def work() -> None:
            for trace in traces:
                with suppress(FileNotFoundError):  # as the agent does
                    upkeep(trace, epoch, None)

        merger = threading.Thread(target=work, name=MERGER)
        merger.start()
        assert self.reached.wait(LONG)
        yield
        self.may.set()
        merger.join(LONG)


def rebuilt(app: sl.App, declare: Callable[[], None]) -> None:
    app.rebuild("sums")
    assert app.await_views()


def dropped_and_declared(app: sl.App, declare: Callable[[], None]) -> None:
    app.drop("sums")
    assert app.await_views()
    declare()
    assert app.await_views()


@pytest.mark.parametrize("change", [rebuilt, dropped_and_declared])
def test_what_was_merged_of_a_trace_before_is_not_seen_in_what_took_its_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[..., None]
) -> None:
    factor, store = tmp_path / "factor", tmp_path / "store"
    factor.write_text("666")
    times = F.udf(lambda v: v * int(factor.read_text()), "long")

    def sums(orders: DataFrame) -> DataFrame:
        return orders.groupBy("k").agg(F.sum(times("v")).alias("s"))

    with sl.App("shop", store=store, spark=spark, shards=2) as app:
        orders = sl.memory("k string, v long")
        app.source("orders", orders)
        app.view("plain", "SELECT v FROM orders")
        app.view("sums", sums)
        for v in range(1, 5):
            orders.append([("a", v)])
            app.run(until="caught_up")
        traces = [store / trace for trace in app._claim.store.traces() if "/sums/" in trace]
        assert traces
        factor.write_text("1")
        with Stopped(monkeypatch).merging(traces, app.epoch):
            change(app, lambda: app.view("sums", sums))
        for trace in {*(store / "traces" / "sums").iterdir()}:
            upkeep(trace, app.epoch, None)
        assert [tuple(row) for row in app.read("sums").collect()] == [("a", 10)]
        orders.append([("a", 5)])
        app.run(until="caught_up")
        assert [tuple(row) for row in app.read("sums").collect()] == [("a", 15)]
    assert check_store(store).findings == ()
