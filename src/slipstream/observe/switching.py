"""A view that was replaced, read across the epoch at which the new query took over.

In that epoch the view's change is the difference: what the new query gives at it, less what the old one gave at the
epoch before. It is stored nowhere; it is made of the two when it is asked for. A row may lie elsewhere in one trace
than in the other, so each task reads both whole and keeps the rows whose hash is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from slipstream.core.errors import ColumnsReplaced
from slipstream.dataflow.contents import Contents, Reading, in_places
from slipstream.durability.hashing import row_hashes
from slipstream.trace import Span, consolidate, shard_span


@dataclass(frozen=True)
class Switch:
    """What a view came to be at an epoch, less what it was at the one before."""

    before: Contents
    after: Contents
    root: str
    spans: int
    epoch: int
    last: int
    """The epoch as of which it was what it was before: one that was held showed none between."""

    def span(self, number: int) -> Iterator[pa.Table]:
        taken = self._signed(self.before, self.last, -1, number)
        given = self._signed(self.after, self.epoch, 1, number)
        rows = [*taken, *given]
        if not rows:
            return
        changed = consolidate(pa.concat_tables(rows).combine_chunks())
        shown = pa.Table.from_arrays(
            [changed.column(f"v{i}") for i in range(len(self.after.schema))], schema=self.after.schema
        )
        for name, what in self.after.beside.items():
            shown = shown.append_column(name, changed.column(what))
        yield shown

    def _signed(self, contents: Contents, epoch: int, sign: int, number: int) -> Iterator[pa.Table]:
        """This task's rows as updates of a bag."""
        kinds = self.after.schema.types
        for table in contents.now(Path(self.root), epoch, Span.whole()):
            places = [f"v{i}" for i in range(len(kinds))]
            rows = table.rename_columns(places).combine_chunks()
            hashes = row_hashes(rows)
            own = hashes % np.uint64(self.spans) == np.uint64(number)
            rows, hashes = rows.filter(pa.array(own)), hashes[own].view(np.int64)
            columns = [rows.column(place).cast(kind) for place, kind in zip(places, kinds, strict=True)]
            hash_column = pa.array(hashes)
            epochs, diffs = np.full(len(hashes), self.epoch), np.full(len(hashes), sign)
            yield pa.table(
                [hash_column, hash_column, *columns, pa.array(epochs), pa.array(diffs)],
                names=["h", "r", *places, "epoch", "diff"],
            )


@dataclass(frozen=True)
class Standing:
    """All rows of a view as of an epoch, each once and with how often it is there: what all its changes add up to."""

    contents: Contents
    root: str
    spans: int
    as_of: int

    def span(self, number: int) -> Iterator[pa.Table]:
        own = shard_span(number, self.spans)
        for table, times in self.contents.held(Path(self.root), self.as_of, own):
            yield table.append_column("diff", pa.array(times, pa.int64()))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_places(self, batches)


@dataclass(frozen=True)
class Parts:
    """Several reads, one after another."""

    parts: tuple[Reading | Switch, ...]

    def span(self, number: int) -> Iterator[pa.Table]:
        for part in self.parts:
            yield from part.span(number)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_places(self, batches)


Stretch = tuple[Contents, int, int]
"""A description of a view, and the epochs between which it is that."""


def changes_of(
    view: str, stretches: Sequence[Stretch], root: str, spans: int, *, net: bool = False
) -> Reading | Parts:
    """The changes of a view over stretches that follow each other, each from the epoch after the last one's end. net:
    what they come to of what is shown.
    """
    check_columns(view, stretches)
    parts: list[Reading | Switch] = []
    for i, (contents, since, until) in enumerate(stretches):
        if i:
            before, _, last = stretches[i - 1]
            parts.append(Switch(before, contents, root, spans, since, last))
        if since < until or len(stretches) == 1:
            parts.append(Reading(contents, root, spans, until, since, net))
    return parts[0] if isinstance(parts[0], Reading) and len(parts) == 1 else Parts(tuple(parts))


def check_columns(view: str, stretches: Sequence[Stretch]) -> None:
    """Raise where the columns of a view became others."""
    now = stretches[-1][0].schema
    for contents, _, until in stretches[:-1]:
        if (contents.schema.names, contents.schema.types) != (now.names, now.types):
            raise ColumnsReplaced(view, until + 1)
