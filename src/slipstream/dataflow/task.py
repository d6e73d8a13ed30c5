"""What a Spark task knows when it runs one shard of one operator.

An operator's function is built once, when the app starts, and is the same for every epoch. What differs from
epoch to epoch (its number, the incarnation, where the store is, the watermarks) travels as a job-local property, so
that neither the pickled function nor the generated code changes. A shard is the partition's number modulo the
number of shards: Spark numbers the partitions of a union one after another, and every operator has exactly
one partition for each shard.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from slipstream.trace import Span, TraceReader, TraceWriter, places, shard_span
from slipstream.trace.rows import column

EPOCH_PROPERTY = "slipstream.epoch"
STATS_SCHEMA = pa.schema([("stats", pa.string())])
_ROWS_A_BATCH = 1 << 16


@dataclass(frozen=True)
class EpochProperty:
    """The job-local property of an epoch. watermarks: of this epoch and the one before it, milliseconds by name. token:
    by which the engine knows what its tasks say of themselves (`telling`).
    """

    root: str
    epoch: int
    incarnation: int
    shards: int
    watermarks: Mapping[str, int] = field(default_factory=dict)
    watermarks_before: Mapping[str, int] = field(default_factory=dict)
    token: str = ""

    def encode(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Task:
    """One shard of one epoch."""

    root: Path
    epoch: int
    incarnation: int
    shard: int
    shards: int
    watermarks: Mapping[str, int] = field(default_factory=dict)
    watermarks_before: Mapping[str, int] = field(default_factory=dict)
    token: str = ""

    @staticmethod
    def current() -> Task:
        _settle_in()
        context = TaskContext.get()
        assert context is not None
        sent = EpochProperty(**json.loads(context.getLocalProperty(EPOCH_PROPERTY) or "{}"))
        shard = context.partitionId() % sent.shards
        return Task(
            root=Path(sent.root),
            epoch=sent.epoch,
            incarnation=sent.incarnation,
            shard=shard,
            shards=sent.shards,
            watermarks=sent.watermarks,
            watermarks_before=sent.watermarks_before,
            token=sent.token,
        )

    @property
    def span(self) -> Span:
        return shard_span(self.shard, self.shards)

    def holds(self, h: int) -> bool:
        """Whether rows with this hash are this shard's."""
        (place,) = places(np.array([h]))
        return bool(self.span.start <= place < self.span.stop)

    def watermark(self, names: Iterable[str]) -> int | None:
        """The least of some watermarks, in microseconds since 1970; None until each of them is known."""
        return _least(self.watermarks, names)

    def watermark_before(self, names: Iterable[str]) -> int | None:
        """The same as it was in the epoch before."""
        return _least(self.watermarks_before, names)

    def before(self, trace: str, schema: pa.Schema) -> TraceReader:
        """The shard's part of a trace as it stood before this epoch."""
        return self.at(trace, schema, self.epoch - 1)

    def at(self, trace: str, schema: pa.Schema, epoch: int) -> TraceReader:
        """The shard's part of a trace as it stood after an epoch."""
        return TraceReader(self.root / trace, epoch, self.span, schema=schema)

    def write(self, trace: str, table: pa.Table, *, is_sorted: bool = True) -> int:
        """Write this epoch's layer of a trace; the number of bytes written."""
        writer = TraceWriter(self.root / trace, self.incarnation)
        return writer.write(self.epoch, self.span, table, is_sorted=is_sorted)


def _least(marks: Mapping[str, int], names: Iterable[str]) -> int | None:
    known = [marks.get(name) for name in names]
    return None if None in known else min(mark for mark in known if mark is not None) * 1000


def _settle_in() -> None:
    """In a worker's first tasks: what is loaded by now stays loaded. PySpark collects garbage after every task, and
    would otherwise look at every module's objects again each time, for longer than a small task takes.
    """
    if next(_first_tasks, None) is not None:
        gc.freeze()


_first_tasks = iter(range(3))  # the serializers load more modules at the end of the first


def gather(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """All the rows handed to a task, in one chunk, in the operator's own types (timestamps are in UTC)."""
    arrived = list(batches)
    if not arrived:
        return schema.empty_table()
    table = pa.Table.from_batches(arrived).combine_chunks()
    return table if table.schema.equals(schema) else table.cast(schema)


def with_diffs(table: pa.Table) -> pa.Table:
    """Rows with their diffs: a column that is not sent where every row is an insertion."""
    if "diff" in table.column_names:
        return table
    return table.append_column("diff", pa.array(np.ones(table.num_rows, dtype=np.int64)))


def emit(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows for the next node of the Spark plan."""
    yield from table.combine_chunks().to_batches(max_chunksize=_ROWS_A_BATCH)


def report(task: Task, name: str, **figures: int) -> pa.RecordBatch:
    """A terminal operator's only output: one row of statistics."""
    said = json.dumps({"operator": name, "shard": task.shard, **figures})
    return pa.RecordBatch.from_arrays([pa.array([said])], schema=STATS_SCHEMA)


def prefixed(table: pa.Table, prefix: str) -> list[pa.Array]:
    """The columns `prefix0`, `prefix1`, ... of a table, in order."""
    found: list[pa.Array] = []
    while (name := f"{prefix}{len(found)}") in table.column_names:
        found.append(column(table, name))
    return found
