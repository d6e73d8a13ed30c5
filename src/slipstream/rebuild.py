"""Changed views: what may go on, what must be computed anew, and computing it.

State of one query is never used for another. A view whose query changed, or that is new on a store that has epochs,
is an error unless its rebuilding was asked for; what reads such a view is rebuilt with it. Unchanged views go on.

A rebuild is one epoch in a store of its own, over all the input that was consumed so far, which the sources must still
be able to give. All views are computed, because views share what they have in common, and then only the traces of
those that are rebuilt take the place of the old ones, as flat layers up to the newest epoch: time travel in a rebuilt
view begins there. A view that finds a shared trace elsewhere than before counts as changed. The catalog loses the
views before their traces are touched and has them again afterwards, so a rebuild that is cut short is asked for
again, and nobody reads half of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from slipstream.dataflow.task import EpochProperty
from slipstream.durability.identity import owner_of
from slipstream.durability.lineage import History
from slipstream.durability.store import Claim
from slipstream.epoch import Template
from slipstream.errors import MissingLayer, UnknownView, ViewChanged
from slipstream.sources import Source
from slipstream.trace import PLACES, LayerName, Span, as_flat, cover, layer_schema, list_layers, write_layer


@dataclass(frozen=True)
class Rebuild:
    """views: to be computed anew. reused: those that go on."""

    views: tuple[str, ...]
    reused: tuple[str, ...]


def plan_rebuild(
    store: str,
    known: Mapping[str, Any],
    declared: Mapping[str, Any],
    inputs: Mapping[str, Iterable[str]],
    asked: Collection[str],
) -> Rebuild:
    """Compare the catalog's views with those declared; an error if one changed and its rebuilding was not asked for."""
    own = {name: view for name, view in declared.items() if not (view.get("rejected") or view.get("late"))}
    for name in asked:
        if name not in own:
            raise UnknownView(name, own)
    added = {name for name in own if name not in known}
    changed = {name for name in own if name in known and _meaning(known[name]) != _meaning(own[name])}
    anew = with_readers(added | changed | set(asked), inputs)
    reused = tuple(name for name in own if name not in anew)
    if not (added | changed) <= set(asked):
        raise ViewChanged(store, changed, added, anew - changed - added, reused)
    return Rebuild(tuple(name for name in own if name in anew), reused)


def with_readers(views: set[str], inputs: Mapping[str, Iterable[str]]) -> set[str]:
    """Views, and all that read them, directly or not."""
    found = set(views)
    while more := {name for name, read in inputs.items() if name not in found and found & set(read)}:
        found |= more
    return found


def carry_out(
    spark: SparkSession,
    claim: Claim,
    template: Template,
    sources: Mapping[str, Source],
    past: History,
    shards: int,
    rebuild: Rebuild,
    traces: Iterable[str],
    rejects: Mapping[str, pa.Schema],
) -> None:
    """Compute everything anew with the app's template, and put the traces of the rebuilt views in place."""
    root, scratch = claim.store.root, claim.store.root / ".rebuild"
    shutil.rmtree(scratch, ignore_errors=True)
    frames = {}
    for name, source in sources.items():
        ranges = [source.frame(taken) for taken in past.consumed(name)]
        if ranges:
            frames[name] = reduce(DataFrame.unionByName, ranges)
    template.run(spark, frames, EpochProperty(str(scratch), 1, claim.incarnation, shards))
    catalog = claim.store.catalog()
    left = {name: view for name, view in catalog["views"].items() if name not in rebuild.views}
    claim.store.write_catalog({**catalog, "views": left})
    for trace in sorted(traces):
        if owner_of(trace) in rebuild.views or not _whole(root / trace, past.frontier):
            shutil.rmtree(root / trace, ignore_errors=True)
            for layer in list_layers(scratch / trace):
                as_flat(scratch / trace, layer, root / trace, past.frontier)
    for trace, schema in rejects.items():
        if not _whole(root / trace, past.frontier):  # of a source that no view has read before
            (root / trace).mkdir(parents=True, exist_ok=True)
            nothing = LayerName(claim.incarnation, 1, past.frontier, 0, PLACES, "flat")
            write_layer(root / trace, nothing, layer_schema(schema), ())
    shutil.rmtree(scratch)


def _whole(directory: Path, epoch: int) -> bool:
    try:
        return bool(cover(list_layers(directory), epoch, Span.whole()))
    except MissingLayer:
        return False


def _meaning(view: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    return view["fingerprint"], view["contents"]["columns"], view["traces"]
