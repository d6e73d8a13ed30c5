"""Fixtures and helpers for sources: a folder, files put there as writers do, a source in the place of an app's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slipstream.sources import Source

Attach = Callable[..., Any]
Put = Callable[..., Path]
Rows = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def attach(spark: SparkSession, tmp_path: Path) -> Iterator[Attach]:
    """Give a source its place in an app; `consumed` and `base` as after a restart. It is closed at the end: a process
    may watch so many folders, and no more.
    """
    made: list[Source] = []

    def attached(
        source: Source, consumed: Sequence[Any] = (), name: str = "input", base: Any = None
    ) -> Source:
        recorded = [json.loads(json.dumps(range_)) for range_ in consumed]
        source.attach(name, spark, tmp_path / "store" / name, recorded, json.loads(json.dumps(base)))
        made.append(source)
        return source

    yield attached
    for source in made:
        source.close()


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


@pytest.fixture
def put(landing: Path) -> Put:
    """Put a file into the folder as a careful writer does, by renaming it there; `second` is its mtime."""

    def renamed(name: str, text: str | Path, second: int = 1_700_000_000) -> Path:
        if isinstance(text, Path):
            outside = text
        else:
            outside = landing.parent / f"{name}.outside"
            outside.write_text(text)
        os.utime(outside, (second, second))
        return outside.rename(landing / name)

    return renamed


@pytest.fixture
def rows() -> Rows:
    """The rows of a frame, sorted, as tuples."""

    def collected(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
        chosen = frame.select(*columns) if columns else frame
        return sorted((tuple(row) for row in chosen.collect()), key=repr)

    return collected
