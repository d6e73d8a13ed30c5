"""Fixtures for tests against the batch oracle."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.store.store import Store
from slipstream.trace import validate

OpenApp = Callable[..., sl.App]


@pytest.fixture
def open_app(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OpenApp]:
    """Opens apps on one store, one after another; at the end they are closed, and their traces looked through. By the
    test's name epochs are computed by shards, by one task, or by either, as much input as there is.
    """
    little = (0, sl.Settings.little, 4)[zlib.crc32(request.node.nodeid.encode()) % 3]
    opened: list[sl.App] = []

    def made(
        *,
        shards: int = 2,
        hash_bits: int = 64,
        partial: bool | None = None,
        little: int = little,
        store: str = "store",
        **options: Any,
    ) -> sl.App:
        settings = sl.Settings(hash_bits=hash_bits, partial=partial, little=little)
        given = {"spark": spark, "shards": shards, "settings": settings, **options}
        opened.append(sl.App("oracle", store=tmp_path / store, **given))
        return opened[-1]

    yield made
    for app in opened:
        app.close()
        catalog = Store.at(app.store).catalog()
        for trace in {*catalog.traces()} - {*catalog.past_traces()}:
            validate(app.store / trace, app.epoch)
