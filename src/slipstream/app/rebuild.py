"""Changed views: what may go on, what must be computed anew, and computing it.

State of one query is never used for another. A view that means something else than it did, or that is new on a store
that has epochs, is an error unless its rebuilding was asked for; what reads such a view is rebuilt with it. Unchanged
views go on. What a view means is its query, the settings that the query goes by and the code of its functions
(`plan/meaning.py`).

A rebuild is one epoch in a store of its own, over all the input that was consumed so far, which the sources must still
be able to give. All views are computed, because views share what they have in common, and then only the traces of
those that are rebuilt take the place of the old ones, as flat layers up to the newest epoch: time travel in a rebuilt
view begins there. A trace that an unchanged view has too stays as it is: its name says that it holds the same. A view
that keeps other traces than before, though nothing that it reads changed, counts as changed: but for traces of a kind
that no operator keeps any more (`_REMOVED`), if they are the view's own and hold no rows. The catalog loses the
views before their traces are touched and has them again afterwards, so a rebuild that is cut short is asked for
again, and nobody reads half of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from slipstream.core.errors import MissingLayer, UnknownView, ViewChanged
from slipstream.core.permissions import make_folders
from slipstream.dataflow.task import EpochProperty
from slipstream.epoch import Planned
from slipstream.plan import differences
from slipstream.sources import Source
from slipstream.store.catalog import Catalog, ViewEntry, owner_of
from slipstream.store.history import History
from slipstream.store.layout import REBUILD
from slipstream.store.store import Claim
from slipstream.trace import (
    PLACES,
    LayerName,
    Span,
    TraceReader,
    as_flat,
    cover,
    layer_schema,
    list_layers,
    write_layer,
)

_REMOVED = ("aside",)
"""Kinds of traces that operators of earlier versions kept: rows that a join had put aside while its other input did not
change.
"""


@dataclass(frozen=True)
class Rebuild:
    """views: to be computed anew. reused: those that go on."""

    views: tuple[str, ...]
    reused: tuple[str, ...]


def plan_rebuild(
    store: str,
    known: Mapping[str, ViewEntry],
    declared: Mapping[str, ViewEntry],
    inputs: Mapping[str, Iterable[str]],
    asked: Collection[str],
    idle: Collection[str] = (),
) -> Rebuild:
    """Compare the catalog's views with those declared; an error if one changed and its rebuilding was not asked for.
    idle: traces that a view may do without.
    """
    own = {name: view for name, view in declared.items() if view.role == "view"}
    for name in asked:
        if name not in own:
            raise UnknownView(name, own)
    added = {name for name in own if name not in known}
    both = {name: (known[name], own[name]) for name in own if name in known}
    changed = {name for name, (before, now) in both.items() if _meaning(before) != _meaning(now)}
    anew = with_readers(added | changed | set(asked), inputs)
    changed |= {name for name in both.keys() - anew if not _goes_on(name, *both[name], idle)}
    anew = with_readers(anew | changed, inputs)
    reused = tuple(name for name in own if name not in anew)
    if not (added | changed) <= set(asked):
        reasons = {name: differences(*both[name]) for name in changed}
        raise ViewChanged(store, reasons, added, anew - changed - added, reused)
    return Rebuild(tuple(name for name in own if name in anew), reused)


def idle_traces(root: Path, known: Mapping[str, ViewEntry], epoch: int) -> set[str]:
    """The traces of a removed kind that hold no rows as of an epoch, so that all there is lies in the others."""
    removed = {trace for view in known.values() for trace in view.traces if _kind(trace) in _REMOVED}
    return {trace for trace in removed if _is_empty(root / trace, epoch)}


def _is_empty(directory: Path, epoch: int) -> bool:
    try:
        rows = TraceReader(directory, epoch, Span.whole()).snapshot(["diff"])
        return not any(part.num_rows for part in rows)
    except MissingLayer:
        return False


def _kind(trace: str) -> str:
    """What a trace is to its operator."""
    return trace.rpartition("/")[2].partition("-")[0]


def _goes_on(name: str, before: ViewEntry, now: ViewEntry, idle: Collection[str]) -> bool:
    """Whether a view of the same meaning finds its state in the traces that it had. One that shared a join with another
    view may have recorded its rows in the order of other hashes while the join put rows aside, so it does not.
    """
    gone = set(before.traces) - set(now.traces)
    may_go = {trace for trace in gone if trace in idle and owner_of(trace) == name}
    return set(now.traces) <= set(before.traces) and gone == may_go


def with_readers(views: set[str], inputs: Mapping[str, Iterable[str]]) -> set[str]:
    """Views, and all that read them, directly or not."""
    found = set(views)
    while more := {name for name, read in inputs.items() if name not in found and found & set(read)}:
        found |= more
    return found


def carry_out(
    spark: SparkSession,
    claim: Claim,
    planned: Planned,
    sources: Mapping[str, Source],
    past: History,
    rebuild: Rebuild,
    declared: Catalog,
    rejects: Mapping[str, pa.Schema],
) -> None:
    """Compute everything anew with the app's template, and put the traces of the rebuilt views in place. declared: the
    catalog as it is to be.
    """
    root, scratch = claim.store.root, claim.store.root / f"{REBUILD}-{claim.incarnation}"
    shutil.rmtree(scratch, ignore_errors=True)
    claim.store.disk.make_folder(scratch.name)
    frames = {}
    for name, source in sources.items():
        ranges = [source.frame(taken) for taken in past.consumed(name)]
        if ranges:
            frames[name] = reduce(DataFrame.unionByName, ranges)
    planned.template.run(spark, frames, EpochProperty(str(scratch), 1, claim.incarnation, planned.shards))
    left = claim.store.catalog().without(set(rebuild.views))
    claim.write_catalog(left)
    traces = declared.traces()
    stay = Catalog(views={name: left.views[name] for name in rebuild.reused}).traces()
    for trace in traces:
        replaced = owner_of(trace) in rebuild.views and trace not in stay
        if replaced or not _whole(root / trace, past.frontier):
            claim.check_ours()
            shutil.rmtree(root / trace, ignore_errors=True)
            for layer in list_layers(scratch / trace):
                as_flat(scratch / trace, layer, root / trace, past.frontier)
    for name in rebuild.views:
        for folder in (root / "traces" / name).glob("*"):
            if f"traces/{name}/{folder.name}" not in (*traces, *stay):
                claim.check_ours()
                shutil.rmtree(folder)
    for trace, schema in rejects.items():
        if not _whole(root / trace, past.frontier):  # of a source that no view has read before
            make_folders(root / trace, root)
            nothing = LayerName(claim.incarnation, 1, past.frontier, 0, PLACES, "flat")
            write_layer(root / trace, nothing, layer_schema(schema), ())
    shutil.rmtree(scratch)


def _whole(directory: Path, epoch: int) -> bool:
    try:
        return bool(cover(list_layers(directory), epoch, Span.whole()))
    except MissingLayer:
        return False


def _meaning(view: ViewEntry) -> tuple[str, list[str]]:
    """What a view's own query means, and where its columns are found. Its traces say what it reads, too."""
    return view.fingerprint, view.contents["columns"]
