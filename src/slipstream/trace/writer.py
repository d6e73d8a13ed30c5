"""Writing one epoch's updates of one shard as a layer.

A layer is written in canonical order, so that its bytes are a function of its rows: a bag's updates are
added up, a keyed trace must have one version of a key. An epoch without updates still gets its layer, an
empty one, because a missing layer is an error.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from slipstream.core.errors import BadLayer
from slipstream.core.permissions import make_folders
from slipstream.trace import rows as _rows
from slipstream.trace.naming import LayerName, Span, store_of
from slipstream.trace.sealing import table_batches, write_layer


class TraceWriter:
    """Adds layers of an incarnation to the trace in `directory`."""

    def __init__(self, directory: Path, incarnation: int) -> None:
        self.directory, self.incarnation = Path(directory), incarnation
        make_folders(self.directory, store_of(self.directory))

    def write(self, epoch: int, span: Span, table: pa.Table, *, is_sorted: bool = False) -> int:
        """Write the updates of an epoch within a span and return the layer's size in bytes.

        The columns are `h`, `k0`.., `v0`.., `diff` and, if it is a bag, `r` and `s0`..; `epoch` is filled in. With
        `is_sorted` the rows are taken to be in canonical order and consolidated already.
        """
        name = LayerName(self.incarnation, epoch, epoch, span.start, span.stop)
        table = _shaped(table.combine_chunks(), epoch)
        if not is_sorted:
            table = _rows.consolidate(table) if _rows.is_bag(table.schema) else _one_version(table, name)
        hashes = _rows.integers(table, "h")
        if span.bounds(hashes) != (0, len(hashes)):
            raise BadLayer(
                name.filename,
                f"rows lie outside the places {span.start} to {span.stop}",
                "Route rows to shards by the expression that trace.naming gives.",
            )
        return write_layer(self.directory, name, table.schema, table_batches(table))


def _shaped(table: pa.Table, epoch: int) -> pa.Table:
    schema = _rows.layer_schema(table.schema)
    epochs = pa.array(np.full(table.num_rows, epoch, dtype=np.int64))
    arrays = [epochs if name == "epoch" else _rows.column(table, name) for name in schema.names]
    return pa.Table.from_arrays(arrays, schema=schema)


def _one_version(table: pa.Table, name: LayerName) -> pa.Table:
    collapsed = _rows.collapse_keyed(table, keep_tombstones=True)
    if collapsed.num_rows < table.num_rows:
        raise BadLayer(
            name.filename,
            f"{table.num_rows - collapsed.num_rows} keys have more than one version in epoch {name.lo}",
            "Give a keyed trace one row for each key and epoch.",
        )
    return collapsed
