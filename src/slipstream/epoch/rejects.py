"""Bad rows: kept in a trace of their own, for each source that can have some."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from slipstream.core.errors import BadInput
from slipstream.core.permissions import make_folders
from slipstream.store.records import JSON, Cut
from slipstream.trace import PLACES, LayerName, Span, TraceWriter, layer_schema, list_layers, write_layer


class Judging(Protocol):
    """What this needs of a source: what it wants done about bad rows."""

    @property
    def on_bad(self) -> str: ...


@dataclass(frozen=True)
class Rejects:
    """Where the bad rows of a source go: its trace, and how to get them for a range."""

    trace: str
    schema: pa.Schema
    read: Callable[[JSON], pa.Table]


def write_rejects(
    cut: Cut,
    bad: Mapping[str, int],
    rejects: Mapping[str, Rejects],
    sources: Mapping[str, Judging],
    writer: Callable[[str], TraceWriter],
) -> None:
    """Keep the bad rows of an epoch, of which there are so many. Every epoch has a layer, so that the trace has no
    gap; an error if a source wants none.
    """
    for name, each in rejects.items():
        table = each.schema.empty_table()
        if name in bad:
            table = each.read(cut.ranges[name])
            if sources[name].on_bad == "fail":
                raise BadInput(name, bad[name], table.slice(0, 1).to_pylist())
        writer(each.trace).write(cut.epoch, Span.whole(), table)


def begin_rejects(
    root: Path, incarnation: int, rejects: Mapping[str, Rejects], known: Collection[str], epoch: int
) -> None:
    """Have nothing, up to an epoch, in the traces of sources that had none so far, and have that on disk: whoever
    flushes behind the computation takes these epochs for flushed already. known: the sources that had one.
    """
    for name, each in rejects.items() if epoch else ():
        if name not in known and not list_layers(root / each.trace):
            make_folders(root / each.trace, root)
            nothing = LayerName(incarnation, 1, epoch, 0, PLACES, "flat")
            write_layer(root / each.trace, nothing, layer_schema(each.schema), (), flushed=True)


def writer_in(root: Path, incarnation: int) -> Callable[[str], TraceWriter]:
    """The writer of each trace of a store."""
    return lambda trace: TraceWriter(root / trace, incarnation)
