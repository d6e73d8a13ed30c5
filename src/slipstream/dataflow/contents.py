"""What a view holds, read from its trace: the one description of it that readers, in any process, need.

A view is kept in one of two ways. *Recorded*: a bag trace with a column for each of the view's. *Direct*: the
keyed trace of an Accumulate, whose totals are turned into the view's columns as they are read; where that is by pane,
into windows first (`panes`). A description is plain JSON, in the store's catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from slipstream.core.columns import beside
from slipstream.dataflow.accumulate import load_totals, show
from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.extreme import seen
from slipstream.dataflow.formulas import buffers_of, evaluate
from slipstream.dataflow.panes import Windows, window_array
from slipstream.dataflow.task import prefixed
from slipstream.trace import Span, TraceReader, consolidate, layer_schema, shard_span
from slipstream.trace.rows import Ints, column, integers, is_bag, key_columns, value_columns


@dataclass(frozen=True)
class Contents:
    """How a view is read from a trace.

    columns: for each column of the view where it comes from: `v3` or `k0` a column of the trace, `k0.1` a part of the
    window in it, `b1` a buffer over the totals, `f1:avg` an aggregate of the buffers from there on. whole: the names of
    all of the view's columns, where these are some of them. windows: how they are made, where the trace is by pane.
    """

    trace: str
    schema: pa.Schema  # of the view
    stored: pa.Schema  # of the trace
    columns: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    whole: tuple[str, ...] = ()
    windows: Windows | None = None

    @property
    def beside(self) -> dict[str, str]:
        """The columns that changes have beside the view's, and what they are. A view of late rows has the epoch."""
        names = self.whole or tuple(self.schema.names)
        is_late = self.trace.rpartition("/")[2].startswith("late-")
        added = ("diff",) if is_late and "_epoch" in self.schema.names else ("epoch", "diff")
        return {beside(names, f"_{each}"): each for each in added}

    def describe(self) -> dict[str, Any]:
        """This description as JSON."""
        return {
            "trace": self.trace,
            "columns": list(self.columns),
            "arguments": [asdict(argument) for argument in self.arguments],
            "buffers": [{"show": b.show, "argument": b.argument, "ansi": b.ansi} for b in self.buffers],
            "schema": self.schema.serialize().to_pybytes().hex(),
            "stored": self.stored.serialize().to_pybytes().hex(),
            "types": pa.schema([(f"b{i}", b.type) for i, b in enumerate(self.buffers)])
            .serialize()
            .to_pybytes()
            .hex(),
            **({} if self.windows is None else {"windows": self.windows.describe()}),
        }

    @staticmethod
    def described(said: Mapping[str, Any]) -> Contents:
        schema, stored, types = (
            pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(said[name])))
            for name in ("schema", "stored", "types")
        )
        arguments = tuple(Argument(**argument) for argument in said["arguments"])
        buffers = tuple(Buffer(type=types.field(i).type, **each) for i, each in enumerate(said["buffers"]))
        windows = Windows.described(said["windows"], arguments, buffers) if "windows" in said else None
        columns = tuple(said["columns"])
        return Contents(said["trace"], schema, stored, columns, arguments, buffers, windows=windows)

    @property
    def is_bag(self) -> bool:
        """Whether the trace holds rows and how often each is there; else, of each key the newest version."""
        return is_bag(self.stored)

    def count(self, root: Path, as_of: int) -> int:
        """How many rows the view has as of an epoch."""
        if self.windows is not None:
            return self.windows.count(TraceReader(root / self.trace, as_of, Span.whole(), schema=self.stored))
        first = replace(self, schema=pa.schema([*self.schema][:1]), columns=self.columns[:1])
        return sum(table.num_rows for table in first.now(root, as_of, Span.whole()))

    def only(self, wanted: Sequence[str]) -> Contents:
        """Some of the view's columns."""
        by_name = dict(zip(self.schema.names, self.columns, strict=True))
        schema = pa.schema([self.schema.field(name) for name in wanted])
        columns, whole = tuple(by_name[name] for name in wanted), tuple(self.schema.names)
        return replace(self, schema=schema, columns=columns, whole=whole)

    def now(self, root: Path, as_of: int, span: Span) -> Iterator[pa.Table]:
        """The view's rows as of an epoch, those of a span of hashes."""
        if as_of == 0:
            return
        for shown, times in self.held(root, as_of, span):
            there = np.maximum(times, 0)
            if (there != 1).any():
                yield shown.take(pa.array(np.repeat(np.arange(shown.num_rows), there))).combine_chunks()
            else:
                yield shown

    def held(self, root: Path, as_of: int, span: Span) -> Iterator[tuple[pa.Table, Ints]]:
        """The same, each row once, and how often it is there: below zero where it is owed."""
        if as_of == 0:
            return
        reader = TraceReader(root / self.trace, as_of, span, schema=self.stored)
        if self.windows is not None:
            for table in map(self._shown, self.windows.now(reader)):
                yield table, np.ones(table.num_rows, dtype=np.int64)
            return
        own = self.columns if self.is_bag else (*key_columns(self.stored), *value_columns(self.stored))
        for chunk in reader.snapshot(
            list(dict.fromkeys([*own, "diff"]))
        ):  # a key may be shown under two names
            rows = chunk.combine_chunks()
            yield self._shown(rows), integers(rows, "diff")

    def changes(self, root: Path, since: int, until: int, span: Span) -> pa.Table:
        """The updates after `since` up to `until`: the view's columns, and those beside."""
        reader = TraceReader(root / self.trace, until, span, schema=self.stored)
        if self.windows is not None:
            updates = self.windows.changes(*reader.versions(since, until))
        else:
            updates = reader.changes(since, until).combine_chunks()
        shown = self._shown(updates)
        for name, what in self.beside.items():
            shown = shown.append_column(name, column(updates, what))
        return shown

    def moves(self, root: Path, since: int, until: int, span: Span) -> pa.Table:
        """By how much more often each row is shown as of `until` than as of `since`, in the form of changes. Rows that
        are owed are not shown, so this is not what the updates come to where there are any.
        """
        if not self.is_bag:
            return self.changes(root, since, until, span)
        reader = TraceReader(root / self.trace, until, span, schema=self.stored)
        touched = np.unique(integers(reader.log(since, until, ["h"]), "h"))
        parts = [layer_schema(self.stored).empty_table()]
        for epoch, sign in ((since, -1), (until, 1)):
            if epoch:
                there = TraceReader(root / self.trace, epoch, span, schema=self.stored)
                rows = consolidate(there.matches(touched, [])[1])
                times = sign * np.maximum(integers(rows, "diff"), 0)
                for name, values in (("diff", times), ("epoch", np.full(len(times), until))):
                    at = rows.schema.get_field_index(name)
                    rows = rows.set_column(at, rows.schema.field(at), pa.array(values, pa.int64()))
                parts.append(rows)
        moved = consolidate(pa.concat_tables(parts).combine_chunks())
        shown = self._shown(moved)
        for name, what in self.beside.items():
            shown = shown.append_column(name, column(moved, what))
        return shown

    def _shown(self, rows: pa.Table) -> pa.Table:
        made: dict[str, pa.Array] = {}
        if not self.is_bag:
            values = prefixed(rows, "v")
            group_rows = values[0].to_numpy(zero_copy_only=False)
            made = {name: seen(column(rows, name), group_rows) for name in self.columns if name[0] == "v"}
        if any(name[0] in "bf" for name in self.columns):
            totals = load_totals(self.arguments, values)
            buffers = show(self.arguments, self.buffers, group_rows, totals)
            made |= {f"b{i}": buffer for i, buffer in enumerate(buffers)}
            for name in (each for each in self.columns if each[0] == "f"):
                first, _, formula = name[1:].partition(":")
                own = buffers[int(first) :][: buffers_of(formula)]
                made[name] = evaluate(formula, own)
        if self.windows is not None:
            made |= self._windows(self.windows, rows)
        arrays = [made[name] if name in made else column(rows, name) for name in self.columns]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _windows(self, windows: Windows, rows: pa.Table) -> dict[str, pa.Array]:
        """The columns that are windows, or a part of them."""
        own = f"k{windows.at}"
        number = integers(rows, own)
        made = {}
        for name, kind in zip(self.columns, self.schema.types, strict=True):
            if name == own:
                made[name] = window_array(windows.sliding, number, kind)
            elif name.startswith(f"{own}."):
                made[name] = pa.array(windows.sliding.bounds(number)[int(name[-1])]).cast(kind)
        return made


@dataclass(frozen=True)
class Reading:
    """A read of a view as a Spark stage: one task a span, numbered by the column `id`. `since` asks for changes; for
    what they come to of what is shown, where it is `net`. Columns are named by their places.
    """

    contents: Contents
    root: str
    spans: int
    as_of: int
    since: int | None = None
    net: bool = False

    def span(self, number: int) -> Iterator[pa.Table]:
        """One span of what is read: the view's columns, then those beside if it is changes."""
        span = shard_span(number, self.spans)
        if self.since is not None:
            asked = self.contents.moves if self.net else self.contents.changes
            yield asked(Path(self.root), self.since, self.as_of, span)
        else:
            yield from self.contents.now(Path(self.root), self.as_of, span)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_places(self, batches)


class BySpan(Protocol):
    """What is read span by span."""

    def span(self, number: int) -> Iterator[pa.Table]: ...


def in_places(reading: BySpan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The spans whose numbers are in the column `id`, with columns named by their places."""
    for batch in batches:
        for number in batch.column("id").to_pylist():
            for table in reading.span(number):
                yield from table.rename_columns(places(len(table.schema))).combine_chunks().to_batches()


def places(columns: int) -> list[str]:
    """Names for columns by their places: those of a view may not tell them apart."""
    return [f"c{i}" for i in range(columns)]


def recorded(trace: str, schema: pa.Schema, stored: pa.Schema) -> Contents:
    """A view with a bag trace of its own."""
    names = tuple(f"v{i}" for i in range(len(schema)))
    return Contents(trace, schema, layer_schema(stored), names)
