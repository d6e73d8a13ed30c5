"""Parts: files of rows with a diff, that Spark's tasks write and read.

A part is an Arrow IPC stream, flushed, named `READ-ROWS-DIGEST.arrow`: one that rotted is never taken for what was
written. Its name is that of its contents, so two attempts of a task do no harm.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import xxhash

from slipstream.core.permissions import make_empty

FEW = 8
"""So many parts are never joined."""

_NAME = re.compile(r"(\d{9,})-(\d+)-([0-9a-f]{16})\.arrow")


@dataclass(frozen=True)
class Named:
    """What the name of a part says: the number of the read that wrote it, its rows, its digest."""

    read: int
    rows: int
    digest: str


def named(name: str) -> Named | None:
    """What a name says, if it is that of a part."""
    found = _NAME.fullmatch(name)
    return None if found is None else Named(int(found[1]), int(found[2]), found[3])


def rows_in(names: Sequence[str]) -> list[int]:
    """How many rows each of some parts has."""
    return [part.rows for part in map(named, names) if part is not None]


def problem_of(path: Path) -> str | None:
    """What is wrong with a part, if anything."""
    part = named(path.name)
    try:
        return None if part is not None and _digest(path) == part.digest else "is damaged"
    except FileNotFoundError:
        return "is gone"


def joined_from(names: Sequence[str]) -> int:
    """From which part on parts are to be joined; the number of parts if they are not. Those of one read are joined or
    left together: they are as many as there are cores, and all of one size.
    """
    parts = [part for part in map(named, names) if part is not None]
    if len(parts) <= FEW:
        return len(names)
    reads = [[part.rows for part in read] for _, read in groupby(parts, key=lambda part: part.read)]
    at = len(reads) - 1
    after = sum(reads[at])
    while at and sum(reads[at - 1]) <= 2 * after:
        at -= 1
        after += sum(reads[at])
    return sum(map(len, reads[:at])) if at < len(reads) - 1 else len(names)


@dataclass(frozen=True)
class Writing:
    """Writes the rows that a task is given into one part, and gives its name."""

    folder: str
    read: int
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        temporary, rows = Path(self.folder) / f".{uuid.uuid4().hex}.tmp", 0
        make_empty(temporary)
        try:
            with temporary.open("r+b") as file:
                with pa.ipc.new_stream(file, self.schema) as writer:
                    for batch in batches:
                        rows += len(batch)
                        writer.write_table(pa.Table.from_batches([batch]).cast(self.schema))
                file.flush()
                os.fsync(file.fileno())
            if rows:
                name = f"{self.read:09d}-{rows}-{_digest(temporary)}.arrow"
                temporary.rename(Path(self.folder) / name)
                yield pa.RecordBatch.from_pydict({"name": [name]})
        finally:
            temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class Parts:
    """Reads the parts that a task is given the numbers of."""

    paths: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            with pa.memory_map(self.paths[number]) as file:
                yield from pa.ipc.open_stream(file)


def _digest(path: Path) -> str:
    if path.stat().st_size == 0:
        return xxhash.xxh3_64_hexdigest(b"")
    with pa.memory_map(str(path)) as file:
        return xxhash.xxh3_64_hexdigest(file.read_buffer())
