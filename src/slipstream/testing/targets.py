"""For tests of sinks: deliveries that are made by hand, a target in memory that fails when it is told to, and what a
target must have after them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from slipstream.core.errors import TargetFenced
from slipstream.sinks import Append, Delivery, Replace, Sink, Stamp, Upsert, by_key

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
LOG = SCHEMA.append(pa.field("_epoch", pa.int64())).append(pa.field("_diff", pa.int64()))
Row = tuple[Any, ...]


def stamped(epoch: int, incarnation: int = 1, sink: str = "sink", **others: Any) -> Stamp:
    """A stamp of an app called app."""
    return Stamp("app", sink, epoch, incarnation, **others)


def table(rows: Iterable[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows as a table."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def append(before: Stamp | None, after: Stamp, rows: Iterable[Row], schema: pa.Schema = LOG) -> Delivery:
    """Updates, each with its epoch and diff."""
    given = table(rows, schema)
    return Delivery(before, after, schema, Append(lambda: iter([given])))


def replace(before: Stamp | None, after: Stamp, rows: Iterable[Row], schema: pa.Schema = SCHEMA) -> Delivery:
    """All there is; a log's, if it has the columns of one."""
    given = table(rows, schema)
    return Delivery(before, after, schema, Replace(lambda: iter([given]), "_diff" in schema.names))


def upsert(
    before: Stamp | None,
    after: Stamp,
    changes: Mapping[Row, int],
    key: Sequence[str] = ("k",),
    schema: pa.Schema = SCHEMA,
) -> Delivery:
    """By key; changes: how much more often each row is there."""
    rows = table(changes, schema).append_column("diff", pa.array(list(changes.values()), pa.int64()))
    return Delivery(before, after, schema, by_key(rows, key, sink=after.sink, view="view"))


def only_stamped(before: Stamp | None, after: Stamp, schema: pa.Schema = SCHEMA) -> Delivery:
    """Nothing but another stamp."""
    return Delivery(before, after, schema)


@dataclass
class Memory:
    """What a target in memory has, across connections. failing: errors that the next calls raise, None for none; "lost"
    for a delivery that is done and whose answer is lost.
    """

    stamp: Stamp | None = None
    rows: Counter[Row] = field(default_factory=Counter)
    failing: list[Exception | str | None] = field(default_factory=list)
    opened: int = 0
    deliveries: list[Delivery] = field(default_factory=list)


class MemoryTarget:
    """One connection to it."""

    def __init__(self, name: str, memory: Memory) -> None:
        self._name, self._memory = name, memory
        memory.opened += 1

    def stamp(self) -> Stamp | None:
        self._raise()
        return self._memory.stamp

    def deliver(self, delivery: Delivery) -> None:
        told = self._raise()
        if self._memory.stamp != delivery.before:
            raise TargetFenced(self._name, "memory", str(self._memory.stamp))
        self._memory.rows = self._after(delivery)
        self._memory.stamp = delivery.after
        self._memory.deliveries.append(delivery)
        if told == "lost":
            raise ConnectionError("the answer was lost")

    def close(self) -> None:
        pass

    def _after(self, delivery: Delivery) -> Counter[Row]:
        match delivery.work:
            case Append(tables=tables):
                return self._memory.rows + Counter(_rows(tables()))
            case Replace(tables=tables):
                return Counter(_rows(tables()))
            case Upsert(inserted=inserted, updated=updated, deleted=deleted):
                width = deleted.num_columns
                gone = {*_rows([deleted]), *(row[:width] for row in _rows([updated]))}
                kept = {row: n for row, n in self._memory.rows.items() if row[:width] not in gone}
                return Counter(kept) + Counter(_rows([inserted, updated]))
        return self._memory.rows

    def _raise(self) -> str | None:
        told = self._memory.failing.pop(0) if self._memory.failing else None
        if isinstance(told, Exception):
            raise told
        return told


@dataclass(frozen=True)
class MemorySink(Sink):
    """Writes to a `Memory`. Keys are its first columns."""

    memory: Memory = field(default_factory=Memory, compare=False)
    kind: str = field(default="memory", init=False)

    @property
    def shown(self) -> str:
        return "memory"

    def opened(self, name: str) -> MemoryTarget:
        return MemoryTarget(name, self.memory)


def _rows(tables: Iterable[pa.Table]) -> Iterator[Row]:
    for each in tables:
        yield from zip(*(column.to_pylist() for column in each.columns), strict=True)
