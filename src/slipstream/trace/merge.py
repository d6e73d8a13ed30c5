"""Carrying out upkeep: making merged layers, and removing layers that are no longer needed.

Merging reads ranges of `h` from all inputs side by side and writes them out part by part, so memory is
bounded (see `scan`). The result is a function of the rows alone, so every host and every replica can merge
for itself.

A bag's part in its epoch checksums is the same before and after a merge: that is checked, row group by row group.

A merge only adds a file that offers a shorter cover. Removing is a step of its own, decided only once the
merged layer is there, so a crash between the two costs disk space and nothing else. Which step comes when, and that
nothing goes before what stands in for it is on disk, is the agent's part (`durability.agent.upkeep`).

Inputs check themselves as they are read (`layer`), so damage does not spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from slipstream.core.errors import BadLayer
from slipstream.core.permissions import make_folders
from slipstream.trace import rows as _rows
from slipstream.trace.cover import Piece, tile
from slipstream.trace.layer import list_layers, open_layer
from slipstream.trace.naming import LayerName, store_of
from slipstream.trace.policy import LayerStat, Merge, Pack, Remove, Upkeep
from slipstream.trace.scan import OpenPiece, chunk_rows, chunks, gather
from slipstream.trace.sealing import joined_tables, table_batches, write_layer


def merge_flat(
    directory: Path, inputs: Sequence[LayerName], output: LayerName, *, flushed: bool = True
) -> int:
    """Collapse the epochs of `output` into one flat layer; returns its size in bytes.

    A merge from epoch 1 on drops what is not there any more. Any other must keep tombstones, because they
    hide older layers.
    """

    def collapse(table: pa.Table) -> pa.Table:
        if _rows.is_bag(table.schema):
            return _rows.consolidate(table)
        return _rows.collapse_keyed(table, keep_tombstones=output.lo > 1)

    return _merge(directory, inputs, output, collapse, whole=True, flushed=flushed)


def as_flat(directory: Path, name: LayerName, to: Path, hi: int, lo: int = 1) -> int:
    """Write what a layer of one epoch holds as that of epochs `lo` to `hi`, in another trace and flushed; its bytes."""
    layer = open_layer(directory, name)
    table = pa.Table.from_batches([part.batch for part in layer.parts], layer.schema).combine_chunks()
    bag = _rows.is_bag(layer.schema)
    table = _rows.consolidate(table) if bag else _rows.collapse_keyed(table, keep_tombstones=lo > 1)
    if lo > 1:
        at = table.schema.get_field_index("epoch")
        epochs = pa.array([hi], table.schema.field(at).type).take(pa.array([0] * table.num_rows, pa.int64()))
        table = table.set_column(at, table.schema.field(at), epochs)
    make_folders(to, store_of(to))
    output = replace(name, lo=lo, hi=hi, kind="log" if hi == lo else "flat")
    return write_layer(to, output, layer.schema, table_batches(table), flushed=True)


def pack_log(directory: Path, inputs: Sequence[LayerName], output: LayerName, *, flushed: bool = True) -> int:
    """Put the logs of several epochs into one file, every update kept; returns its size in bytes."""
    return _merge(directory, inputs, output, _rows.ordered_log, whole=False, flushed=flushed)


def carry_out(directory: Path, step: Upkeep, *, flushed: bool = True) -> None:
    """Do one step of upkeep. Doing it twice does no harm. What is made is flushed, unless it is for the moment only."""
    match step:
        case Merge():
            merge_flat(directory, step.inputs, step.output, flushed=flushed)
        case Pack():
            pack_log(directory, step.inputs, step.output, flushed=flushed)
        case Remove():
            with suppress(FileNotFoundError):
                (directory / step.name.filename).unlink()


def layer_stats(directory: Path) -> list[LayerStat]:
    """The layers of a trace with their sizes."""
    layers = [open_layer(directory, name) for name in list_layers(directory)]
    return [LayerStat(layer.name, layer.rows, layer.bytes) for layer in layers]


def substitutes(present: Iterable[LayerName], removed: Sequence[LayerName]) -> list[LayerName]:
    """The layers that stay and hold some of the epochs and places of those that are removed."""
    gone = frozenset(removed)
    return [
        name
        for name in present
        if name not in gone
        and any(name.lo <= old.hi and old.lo <= name.hi and name.span.overlap(old.span) for old in removed)
    ]


def _merge(
    directory: Path,
    inputs: Sequence[LayerName],
    output: LayerName,
    combine: Callable[[pa.Table], pa.Table],
    *,
    whole: bool,
    flushed: bool,
) -> int:
    chosen: list[Piece] = tile(
        inputs, output.lo, output.hi, output.span, whole=whole, directory=str(directory)
    )
    pieces = [OpenPiece.open(directory, piece) for piece in chosen]
    schema = pieces[0].layer.schema

    def merged() -> Iterator[pa.Table]:
        for taken in chunks(pieces, chunk_rows(pieces)):
            before = gather(taken, schema.names)
            after = combine(before)
            if _rows.is_bag(schema) and _rows.weights(before).sum() != _rows.weights(after).sum():
                problem = "its rows do not add up to those that it is merged from"
                raise BadLayer(output.filename, problem, "Those are left as they are; please report this.")
            yield after

    batches = (batch for table in joined_tables(merged()) for batch in table_batches(table))
    return write_layer(directory, output, schema, batches, flushed=flushed)
