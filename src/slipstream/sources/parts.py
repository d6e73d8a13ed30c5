"""Parts: files of rows with a diff, that Spark's tasks write and read.

A part is an Arrow IPC stream, flushed, and named for its contents (`core.parts`): one that rotted is never taken for
what was written, and two attempts of a task do no harm.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from slipstream.core.parts import digest_of, named
from slipstream.core.permissions import make_empty

FEW = 8
"""So many parts are never joined."""


def rows_in(names: Sequence[str]) -> list[int]:
    """How many rows each of some parts has."""
    return [part.rows for part in map(named, names) if part is not None]


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
                name = f"{self.read:09d}-{rows}-{digest_of(temporary)}.arrow"
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
