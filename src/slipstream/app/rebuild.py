"""What changed between what a store has and what is declared, what that takes, and what the catalog then says.

State of one query is never used for another. A view that is new is computed over the input that was consumed so far,
and so is one that means something else than it did, with all that read it; the others go on. What a view means is its
query, the settings that the query goes by and the code of its functions (`plan/meaning.py`).

**Consent.** A new view asks for none: nothing is lost by it. A view that is not declared any more is dropped, and what
reads it would not be declared without it. A view that means something else is replaced only if that was asked for
(`app.view(..., replace=True)`, `--replace`, or its name in `--rebuild`): an upgrade of a library may have changed a
function, and what comes of it is a day of computing and a difference to whoever follows the view. What reads it is
replaced with it. A view of the same meaning that must keep other traces than before, because another view now shares
what it had alone or no longer does, is computed anew without being asked: no answer changes.

**Generations.** A replaced view is what it was up to the newest epoch, and is what the new query says from the next
one on (`store/catalog.py: Generation`). A view that was computed anew by request, or dropped and declared again, has
lost its history, whatever it means now.

A view that is held goes on in nothing, so it is computed anew whatever it means by then, and nobody is asked; what it
was up to then is a generation of its, shown as of its last epoch.

A trace that a view keeps for an operator of a kind that exists no more (`_REMOVED`) may be missing, if it is the view's
own and holds no rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from slipstream.core.errors import MissingLayer, UnknownView, ViewChanged
from slipstream.dataflow.contents import Contents
from slipstream.plan import differences
from slipstream.store.catalog import Catalog, Generation, ViewEntry, owner_of
from slipstream.trace import Span, TraceReader

_REMOVED = ("aside",)
"""Kinds of traces that operators of earlier versions kept: rows that a join had put aside while its other input did not
change.
"""


@dataclass(frozen=True)
class Rebuild:
    """views: to be computed anew. reused: those that go on. Of the first, added: those that are new; changed: those
    that mean something else, themselves or through what they read; forced: those that were asked for, which lose their
    history. dropped: known, and not declared any more.
    """

    views: tuple[str, ...]
    reused: tuple[str, ...]
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    forced: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def plan_rebuild(
    store: str,
    known: Mapping[str, ViewEntry],
    declared: Mapping[str, ViewEntry],
    inputs: Mapping[str, Iterable[str]],
    asked: Collection[str],
    idle: Collection[str] = (),
    replacing: Collection[str] | None = (),
    beside: Collection[str] = (),
) -> Rebuild:
    """Compare the catalog's views with those declared. asked: views to be computed anew in any case. idle: traces that
    a view may do without. replacing: views that may be replaced, None for any; an error if another one changed. beside:
    traces that epochs have kept for views that are none of these.
    """
    own = {name: view for name, view in declared.items() if view.role == "view"}
    for name in asked:
        if name not in own:
            raise UnknownView(name, own)
    added = {name for name in own if name not in known}
    both = {name: (known[name], own[name]) for name in own if name in known}
    changed = {name for name, (before, now) in both.items() if _meaning(before) != _meaning(now)}
    forced = with_readers(set(asked) & both.keys(), inputs) - added
    replaced = with_readers(added | changed, inputs) - added
    anew = added | replaced | forced
    there, wanted = {*_kept(known), *beside}, _kept(declared)
    moved = {name for name in both.keys() - anew if not _goes_on(name, *both[name], idle, there, wanted)}
    anew = with_readers(anew | moved, inputs)
    reused = tuple(name for name in own if name not in anew)
    if replacing is not None and not changed <= {*asked, *replacing}:
        reasons = {name: differences(*both[name]) for name in changed}
        raise ViewChanged(store, reasons, added, anew - changed - added, reused)
    return Rebuild(
        views=tuple(name for name in own if name in anew),
        reused=reused,
        added=tuple(name for name in own if name in added),
        changed=tuple(name for name in own if name in replaced),
        forced=tuple(name for name in own if name in forced),
        dropped=tuple(name for name, view in known.items() if view.role == "view" and name not in own),
    )


def succeeding(
    declared: Catalog,
    known: Mapping[str, ViewEntry],
    rebuild: Rebuild,
    incarnation: int,
    epoch: int,
    kept: int,
    held: Mapping[str, ViewEntry] = MappingProxyType({}),
) -> Catalog:
    """The catalog as it is to be once views are computed anew up to an epoch. kept: the epoch before which history was
    let go. held: views that were, and can be read as they were.
    """
    views = {}
    for name, view in declared.views.items():
        before = known.get(name)
        was = held.get(name)
        if was is not None:
            shown = Generation(was.since, epoch, was.schema, was.contents, was.order, was.last)
            past = (*_still_there(was.past, kept), shown)
            views[name] = replace(view, rebuilt=max(incarnation, was.rebuilt + 1), since=epoch + 1, past=past)
            continue
        if before is None:
            rebuilt = incarnation if name in rebuild.views else 0
            views[name] = replace(view, rebuilt=rebuilt, since=epoch)
            continue
        past = _still_there(before.past, kept)
        anew = name in rebuild.views or before.trace != view.trace
        rebuilt = max(incarnation, before.rebuilt + 1) if anew else before.rebuilt
        if (owner_of(view.trace) if view.role == "late" else name) in rebuild.forced:
            views[name] = replace(view, rebuilt=rebuilt, since=epoch)
        elif _reading(before) == _reading(view):
            views[name] = replace(view, rebuilt=rebuilt, since=before.since, past=past)
        else:
            gave = Generation(before.since, epoch, before.schema, before.contents, before.order)
            past = (*past, gave) if before.since <= epoch else past
            views[name] = replace(view, rebuilt=rebuilt, since=epoch + 1, past=past)
    return replace(declared, views=views)


def _still_there(past: tuple[Generation, ...], kept: int) -> tuple[Generation, ...]:
    """What a view was before, from where on it can be read without a gap."""
    found: list[Generation] = []
    for each in reversed(past):
        if each.upto < kept:
            break
        found.insert(0, each)
    return tuple(found)


def _reading(view: ViewEntry) -> tuple[object, ...]:
    """How a view is read, but for the names of its columns."""
    contents = Contents.described(json.loads(json.dumps(dict(view.contents))))
    return replace(contents, schema=contents.stored), contents.schema.types


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


def _goes_on(
    name: str,
    before: ViewEntry,
    now: ViewEntry,
    idle: Collection[str],
    there: Collection[str],
    wanted: Collection[str],
) -> bool:
    """Whether a view of the same meaning finds its state in traces that are there, its own or another's: what is shared
    is listed with the view that comes to it first. One that shared a join may have recorded its rows in the order of
    other hashes while the join put rows aside, so then it does not. wanted: all that is to be kept from now on.
    """
    gone = set(before.traces) - set(now.traces) - set(wanted)
    may_go = {trace for trace in gone if trace in idle and owner_of(trace) == name}
    return set(now.traces) <= set(there) and gone == may_go


def _kept(views: Mapping[str, ViewEntry]) -> set[str]:
    return {trace for view in views.values() for trace in view.traces}


def with_readers(views: set[str], inputs: Mapping[str, Iterable[str]]) -> set[str]:
    """Views, and all that read them, directly or not."""
    found = set(views)
    while more := {name for name, read in inputs.items() if name not in found and found & set(read)}:
        found |= more
    return found


def _meaning(view: ViewEntry) -> tuple[str, list[str]]:
    """What a view's own query means, and where its columns are found. Its traces say what it reads, too."""
    return view.fingerprint, view.contents["columns"]
