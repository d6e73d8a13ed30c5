"""Parts of what was read of a table: on disk before anybody names them. Without Spark."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from slipstream.core.parts import named, problem_of
from slipstream.sources import table
from slipstream.sources.parts import Writing

SCHEMA = pa.schema([("v", pa.int64()), ("diff", pa.int64())])
ROWS = pa.record_batch([[1, 2], [1, 1]], schema=SCHEMA)


@dataclass(frozen=True)
class Flushed:
    """What was flushed: which file or folder, of how many bytes, and what was in its folder by then."""

    inode: int
    size: int
    there: tuple[str, ...]


@pytest.fixture
def flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Flushed]:
    found: list[Flushed] = []
    fsync = os.fsync

    def noted(number: int) -> None:
        said = os.fstat(number)
        there = tuple(sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")))
        found.append(Flushed(said.st_ino, said.st_size, there))
        fsync(number)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_a_part_is_flushed_whole_before_it_has_its_name(tmp_path: Path, flushed: list[Flushed]) -> None:
    (said,) = Writing(str(tmp_path), 3, SCHEMA)(iter([ROWS]))
    (name,) = said.column(0).to_pylist()
    part = named(name)
    assert part is not None
    assert (part.read, part.rows, problem_of(tmp_path / name)) == (3, 2, None)
    there = (tmp_path / name).stat()
    assert flushed == [Flushed(there.st_ino, there.st_size, ())]


class Written:
    """A DataFrame whose rows are written by one task, here."""

    def __init__(self) -> None:
        self.sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
        self._names: list[str] = []

    def coalesce(self, parts: int) -> Written:
        return self

    def mapInArrow(self, writing: Writing, schema: str) -> Written:  # noqa: N802 (Spark's)
        self._names = [name for said in writing(iter([ROWS])) for name in said.column(0).to_pylist()]
        return self

    def collect(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self._names]


def test_the_names_of_parts_are_flushed_before_a_range_says_them(
    tmp_path: Path, flushed: list[Flushed], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = table("rates")
    source._folder = tmp_path
    stored = StructType([StructField(name, LongType()) for name in ("v", "diff")])
    monkeypatch.setattr(source, "_stored", lambda: stored)
    names = source._written(cast("DataFrame", Written()), 0)
    assert [(each.inode, each.there) for each in flushed[-1:]] == [(tmp_path.stat().st_ino, tuple(names))]
