"""Carrying out upkeep: making merged layers, and removing layers that are no longer needed.

Merging reads ranges of `h` from all inputs side by side and writes them out part by part, so memory is
bounded (see `scan`). The result is a function of the rows alone, so every host and every replica can merge
for itself.

A bag's part in its epoch checksums is the same before and after a merge: that is checked, row group by row group.

A merge only adds a file that offers a shorter cover. Removing is a step of its own, decided only once the
merged layer is there, so a crash between the two costs disk space and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from slipstream.crashing import crash_point, crash_points
from slipstream.errors import BadLayer
from slipstream.trace import rows as _rows
from slipstream.trace.cover import Piece, tile
from slipstream.trace.layer import Accept, list_layers, open_layer, table_batches, write_layer
from slipstream.trace.naming import LayerName
from slipstream.trace.policy import LayerStat, Merge, Pack, Remove, Upkeep, plan_upkeep
from slipstream.trace.scan import OpenPiece, chunk_rows, chunks, gather

crash_points(
    upkeep__before_merge="layers are due to be merged or packed, and nothing is done",
    upkeep__after_merge="a merged layer is there beside those that it replaces",
    upkeep__before_remove="a layer is due to be removed and is still there",
    upkeep__after_remove="a layer is removed, and others like it are not yet",
)


def merge_flat(directory: Path, inputs: Sequence[LayerName], output: LayerName) -> int:
    """Collapse the epochs of `output` into one flat layer; returns its size in bytes.

    A merge from epoch 1 on drops what is not there any more. Any other must keep tombstones, because they
    hide older layers.
    """

    def collapse(table: pa.Table) -> pa.Table:
        if _rows.is_bag(table.schema):
            return _rows.consolidate(table)
        return _rows.collapse_keyed(table, keep_tombstones=output.lo > 1)

    return _merge(directory, inputs, output, collapse, whole=True)


def as_flat(directory: Path, name: LayerName, to: Path, hi: int) -> int:
    """Write what a layer of epoch 1 holds as everything up to epoch `hi`, in another trace; its size in bytes."""
    layer = open_layer(directory, name)
    table = pa.Table.from_batches([part.batch for part in layer.parts], layer.schema).combine_chunks()
    bag = _rows.is_bag(layer.schema)
    table = _rows.consolidate(table) if bag else _rows.collapse_keyed(table, keep_tombstones=False)
    to.mkdir(parents=True, exist_ok=True)
    output = replace(name, lo=1, hi=hi, kind="log" if hi == 1 else "flat")
    return write_layer(to, output, layer.schema, table_batches(table))


def pack_log(directory: Path, inputs: Sequence[LayerName], output: LayerName) -> int:
    """Put the logs of several epochs into one file, every update kept; returns its size in bytes."""
    return _merge(directory, inputs, output, _rows.ordered_log, whole=False)


def carry_out(directory: Path, step: Upkeep) -> None:
    """Do one step of upkeep. Doing it twice does no harm."""
    match step:
        case Merge():
            merge_flat(directory, step.inputs, step.output)
        case Pack():
            pack_log(directory, step.inputs, step.output)
        case Remove():
            with suppress(FileNotFoundError):
                (directory / step.name.filename).unlink()


def upkeep(
    directory: Path,
    computed: int,
    keep_from: int | None,
    *,
    barriers: Iterable[int] = (),
    check: Callable[[LayerName], None] | None = None,
    accept: Accept | None = None,
) -> list[Upkeep]:
    """Merge and pack what is due, then remove what that made superfluous; returns what was done.

    `check` is called with each layer that is about to be merged, and raises if it is damaged: damage must not
    spread.
    """
    making: list[Upkeep] = [
        step
        for step in _plan(directory, computed, keep_from, barriers, accept)
        if not isinstance(step, Remove)
    ]
    for step in making:
        if check is not None and not isinstance(step, Remove):
            for name in step.inputs:
                check(name)
        crash_point("upkeep.before_merge")
        carry_out(directory, step)
        crash_point("upkeep.after_merge")
    removing: list[Upkeep] = [
        step for step in _plan(directory, computed, keep_from, barriers, accept) if isinstance(step, Remove)
    ]
    for step in removing:
        crash_point("upkeep.before_remove")
        carry_out(directory, step)
        crash_point("upkeep.after_remove")
    return [*making, *removing]


def layer_stats(directory: Path, *, accept: Accept | None = None) -> list[LayerStat]:
    """The layers of a trace with their sizes."""
    layers = [open_layer(directory, name) for name in list_layers(directory, accept)]
    return [LayerStat(layer.name, layer.rows, layer.bytes) for layer in layers]


def _plan(
    directory: Path, computed: int, keep_from: int | None, barriers: Iterable[int], accept: Accept | None
) -> list[Upkeep]:
    return plan_upkeep(layer_stats(directory, accept=accept), computed, keep_from, barriers)


def _merge(
    directory: Path,
    inputs: Sequence[LayerName],
    output: LayerName,
    combine: Callable[[pa.Table], pa.Table],
    *,
    whole: bool,
) -> int:
    chosen: list[Piece] = tile(
        inputs, output.lo, output.hi, output.span, whole=whole, directory=str(directory)
    )
    pieces = [OpenPiece.open(directory, piece) for piece in chosen]
    schema = pieces[0].layer.schema

    def merged() -> Iterator[pa.RecordBatch]:
        for taken in chunks(pieces, chunk_rows(pieces)):
            before = gather(taken, schema.names)
            after = combine(before).combine_chunks()
            if _rows.is_bag(schema) and _rows.weights(before).sum() != _rows.weights(after).sum():
                problem = "its rows do not add up to those that it is merged from"
                raise BadLayer(output.filename, problem, "Those are left as they are; please report this.")
            yield from after.to_batches()

    return write_layer(directory, output, schema, merged())
