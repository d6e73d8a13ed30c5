"""An app that several threads ask first."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.app.assembly import Assembly

pytestmark = pytest.mark.spark


def test_there_is_one_loop_whoever_asks_first(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, rows = [], sl.memory("k string")
    real = Assembly.started

    def begun(*given: Any) -> Any:
        started.append(threading.current_thread().name)
        return real(*given)

    monkeypatch.setattr(Assembly, "started", begun)
    with sl.App("shop", store=tmp_path, spark=spark, shards=1) as app:
        app.source("orders", rows)
        app.view("keys", "SELECT k FROM orders")
        together, found = threading.Barrier(3), []

        def ask() -> None:
            together.wait()
            found.append(app.read("keys").count())

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (found, len(started)) == ([0, 0, 0], 1)
        rows.append([("a",)])
        app.run(until="caught_up")
        assert app.read("keys").count() == 1
