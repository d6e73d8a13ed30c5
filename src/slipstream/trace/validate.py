"""The invariants of a trace, as code. Tests call it last; an operator of a store can call it any time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from slipstream.trace import rows as _rows
from slipstream.trace.cover import cover
from slipstream.trace.layer import Layer, list_layers, open_layer
from slipstream.trace.naming import Span, damaged


def validate(
    directory: Path,
    computed: int,
    *,
    keep_from: int | None = None,
    span: Span | None = None,
) -> None:
    """Raise unless every layer is well formed and every epoch from `keep_from` to `computed` can be read."""
    names = list_layers(directory)
    for name in names:
        problem = problem_of(open_layer(directory, name))
        if problem is not None:
            raise damaged(directory / name.filename, problem)
    for epoch in range(computed if keep_from is None else keep_from, computed + 1):
        cover(names, epoch, span or Span.whole(), directory=str(directory))


def problem_of(layer: Layer) -> str | None:
    """What is wrong with a layer, or None."""
    if not layer.parts:
        return None
    table = pa.Table.from_batches([part.batch for part in layer.parts]).combine_chunks()
    bag = _rows.is_bag(table.schema)
    h, epochs, diffs = (_rows.integers(table, name) for name in ("h", "epoch", "diff"))
    if bool((h[1:] < h[:-1]).any()):
        return "hashes are not in order"
    if any(a.last == b.first for a, b in pairwise(layer.parts)):
        return "a run of equal hashes reaches over two parts"
    if layer.name.span.bounds(h) != (0, len(h)):
        return "rows lie outside the layer's places"
    if bool(((epochs < layer.name.lo) | (epochs > layer.name.hi)).any()):
        return "rows lie outside the layer's epochs"
    if bag and not _rows.says_something(table).all():
        return "a bag holds an update of multiplicity 0"
    if not bag and not bool(np.isin(diffs, (0, 1, _rows.OWING)).all()):
        return "a keyed layer holds a diff other than 0, 1 and -1"
    if not bag and layer.name.kind == "flat" and layer.name.lo == 1 and not diffs.all():
        return "a layer from epoch 1 on holds tombstones"
    if not _rows.in_order(table):
        return "rows are not in canonical order"
    hashes = [h, _rows.integers(table, "r")] if bag else [h]
    keys, values = _rows.identity(table)
    if layer.name.kind == "log":
        keys.append(_rows.column(table, "epoch"))
    if not _rows.group_rows(hashes, keys, stored=values).distinct:
        return "a row or key is there twice"
    return None
