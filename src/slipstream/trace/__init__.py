"""Traces: collections of updates kept as immutable, sorted, memory-mapped layers."""

from slipstream.trace.away import bring, is_away, leave_note, register_bringer
from slipstream.trace.cover import Piece, cover, history_reach, readable_from, tile
from slipstream.trace.layer import (
    Layer,
    check_layer,
    epoch_layers,
    layer_digest,
    list_all,
    list_layers,
    open_layer,
)
from slipstream.trace.merge import as_flat, carry_out, layer_stats, merge_flat, pack_log
from slipstream.trace.naming import (
    PLACES,
    Fence,
    LayerName,
    Span,
    checked_trace,
    damaged,
    places,
    shard_span,
)
from slipstream.trace.policy import LayerStat, Merge, Pack, Remove, Upkeep, plan_upkeep
from slipstream.trace.reader import TraceReader, TraceStats
from slipstream.trace.rows import Groups, collapse_keyed, consolidate, equal, group_rows, layer_schema
from slipstream.trace.sealing import write_layer
from slipstream.trace.validate import problem_of, validate
from slipstream.trace.writer import TraceWriter

__all__ = [
    "PLACES",
    "Fence",
    "Groups",
    "Layer",
    "LayerName",
    "LayerStat",
    "Merge",
    "Pack",
    "Piece",
    "Remove",
    "Span",
    "TraceReader",
    "TraceStats",
    "TraceWriter",
    "Upkeep",
    "as_flat",
    "bring",
    "carry_out",
    "check_layer",
    "checked_trace",
    "collapse_keyed",
    "consolidate",
    "cover",
    "damaged",
    "epoch_layers",
    "equal",
    "group_rows",
    "history_reach",
    "is_away",
    "layer_digest",
    "layer_schema",
    "layer_stats",
    "leave_note",
    "list_all",
    "list_layers",
    "merge_flat",
    "open_layer",
    "pack_log",
    "places",
    "plan_upkeep",
    "problem_of",
    "readable_from",
    "register_bringer",
    "shard_span",
    "tile",
    "validate",
    "write_layer",
]
