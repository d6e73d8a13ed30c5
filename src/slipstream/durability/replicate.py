"""Deciding what a replica gets: pure, names in, instructions out.

A replica holds, for each trace, layers that cover the epochs up to its commit's. An *increment* is what it lacks up to
a later epoch: the fewest layers that tile the epochs in between. Where it is far behind, these are merged layers, and
the single ones that went into them are never sent. History is sent as logs, as far back as it is wanted.

Where no such tiling is to be had (the trace is new to the replica, or layers were merged across its frontier while
nobody knew of it), the increment is the whole trace, and takes the place of what was there.

The replica's own upkeep is `trace.policy` over the names in its commit: the same merges, by the same rule, as a
host's. A commit drops what a merge replaced, and objects that nothing is in any more are garbage once the commit
before it is, too, no longer of use to a reader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slipstream.core.errors import MissingLayer
from slipstream.durability.manifest import ClaimName, CommitName, Kept, Manifest, Segment
from slipstream.trace import (
    LayerName,
    LayerStat,
    Piece,
    Remove,
    Span,
    Upkeep,
    cover,
    plan_upkeep,
    readable_from,
    tile,
)

COMMITS_KEPT = 3
SEGMENTS_JOINED = 16
SEGMENT_BYTES = 1 << 14


@dataclass(frozen=True)
class Increment:
    """Layers of a trace for a replica. whole: they replace all that it has of the trace."""

    trace: str
    layers: tuple[LayerName, ...]
    whole: bool


def plan_increment(
    trace: str,
    names: Iterable[LayerName],
    since: int | None,
    until: int,
    keep_from: int | None,
    directory: str = "",
) -> Increment:
    """What a replica that has a trace up to `since` (None: not at all) needs to have it up to `until`.

    `keep_from` is the epoch that time travel reaches back to, None for no history.
    """
    present = [name for name in names if name.hi <= until]
    start = until if keep_from is None else min(max(keep_from, 0), until)
    if since is not None:
        try:
            pieces = _tiled(present, since, max(start, since), until)
        except MissingLayer:
            pieces = None
        if pieces is not None and all(piece.layer.lo > since for piece in pieces):
            return Increment(trace, _layers(pieces), whole=False)
    now = cover(present, until, Span.whole(), directory=directory)
    first = max(start, readable_from(present, until, Span.whole()))
    history = [
        *cover(present, first, Span.whole()),
        *tile(present, first + 1, until, Span.whole(), whole=False),
    ]
    return Increment(trace, _layers([*now, *history]), whole=True)


def _tiled(names: list[LayerName], since: int, start: int, until: int) -> list[Piece]:
    return [
        *tile(names, since + 1, min(start, until), Span.whole()),
        *tile(names, start + 1, until, Span.whole(), whole=False),
    ]


def _layers(pieces: Iterable[Piece]) -> tuple[LayerName, ...]:
    return tuple(sorted({piece.layer for piece in pieces}))


def plan_replica_upkeep(
    manifest: Manifest, histories: Collection[str], keep_from: int
) -> dict[str, list[Upkeep]]:
    """What to merge and to drop on a replica, by trace, for traces that need it."""
    plans = {}
    for trace in manifest.layers:
        steps = _plan(manifest, trace, histories, keep_from)
        if steps:
            plans[trace] = steps
    return plans


def _plan(manifest: Manifest, trace: str, histories: Collection[str], keep_from: int) -> list[Upkeep]:
    stats = [LayerStat(kept.layer, kept.rows, kept.bytes) for kept in manifest.layers[trace]]
    return plan_upkeep(stats, manifest.epoch, keep_from if trace in histories else None)


def after_upkeep(
    manifest: Manifest,
    plans: Mapping[str, Sequence[Upkeep]],
    made: Mapping[str, Sequence[Kept]],
    histories: Collection[str],
    keep_from: int,
) -> Manifest:
    """The manifest with merged layers added and dropped what was planned to be, or what they made superfluous."""
    layers = {trace: (*kept, *made.get(trace, ())) for trace, kept in manifest.layers.items()}
    grown = replace(manifest, layers=layers)
    for trace, plan in plans.items():
        steps = _plan(grown, trace, histories, keep_from) if trace in made else plan
        dropped = {step.name for step in steps if isinstance(step, Remove)}
        layers[trace] = tuple(kept for kept in layers[trace] if kept.layer not in dropped)
    return replace(manifest, layers=layers)


def joinable(lineage: Sequence[Segment]) -> tuple[Segment, ...]:
    """Segments of one log to put into one: neighbours of about one length, the newest first, if there are many."""
    for log in sorted({segment.log for segment in lineage}):
        tiers: dict[int, list[Segment]] = {}
        level = 0
        for segment in sorted((each for each in lineage if each.log == log), key=lambda each: -each.start):
            tier = 0
            while SEGMENT_BYTES * SEGMENTS_JOINED**tier <= segment.stop - segment.start:
                tier += 1
            level = max(level, tier)
            tiers.setdefault(level, []).insert(0, segment)
        for group in tiers.values():
            if len(group) >= SEGMENTS_JOINED:
                return tuple(group)
    return ()


@dataclass(frozen=True)
class Garbage:
    """Objects that nobody reads any more: commits first, then what only they named."""

    commits: tuple[str, ...]
    objects: tuple[str, ...]


def plan_garbage(
    listed: Iterable[str], commits: Iterable[str], kept: Sequence[Manifest], incarnation: int
) -> Garbage:
    """What may be deleted, given the objects and commits that are there and the newest commits, which stay.

    Only what this incarnation or an earlier one wrote is looked at: whoever came later looks after the rest. Lineage
    runs ahead of commits, so of that only goes what the newest commit has by other names.
    """
    stay = {manifest.object for manifest in kept}
    needed = {name for manifest in kept for name in manifest.referred()}
    oldest = min((manifest.sequence for manifest in kept), default=0)
    old = [
        name
        for name in commits
        if (commit := CommitName.parse(name)) is not None
        and name not in stay
        and (
            commit.incarnation < incarnation
            or (commit.incarnation == incarnation and commit.sequence < oldest)
        )
    ]
    newest = max(kept, key=lambda manifest: (manifest.incarnation, manifest.sequence), default=None)
    named = newest.lineage if newest is not None else ()
    reached = {
        log: max(each.stop for each in named if each.log == log) for log in {each.log for each in named}
    }

    def ahead(name: str) -> bool:
        segment = Segment.parse(name)
        return segment is not None and segment.stop > reached.get(segment.log, 0)

    objects = [
        name
        for name in listed
        if name not in needed and _incarnation(name) <= incarnation and not ahead(name)
    ]
    return Garbage(tuple(sorted(old)), tuple(sorted(objects)))


def superseded(claims: Iterable[str], incarnation: int, token: str) -> ClaimName | None:
    """The claim that this one must give way to, if there is one: of a later incarnation, or, where two processes
    have claimed one incarnation at the same moment, of a smaller token.
    """
    parsed = [claim for name in claims if (claim := ClaimName.parse(name)) is not None]
    later = [claim for claim in parsed if claim.incarnation > incarnation]
    rivals = [claim for claim in parsed if claim.incarnation == incarnation and claim.token < token]
    return max((*later, *rivals), key=lambda claim: claim.incarnation, default=None)


def without(manifest: Manifest, lost: Collection[str]) -> Manifest:
    """What is left of a replica without some objects: a trace that lacks a layer is not there at all, and of lineage
    there is what can be listed.
    """
    layers = {
        trace: kept
        for trace, kept in manifest.layers.items()
        if not any(each.object in lost for each in kept)
    }
    identities = {trace: identity for trace, identity in manifest.identities.items() if trace in layers}
    return replace(
        manifest,
        layers=layers,
        identities=identities,
        lineage=tuple(each for each in manifest.lineage if each.object not in lost),
        sums="" if manifest.sums in lost else manifest.sums,
        catalog=tuple(each for each in manifest.catalog if each not in lost),
    )


def _incarnation(name: str) -> int:
    """The incarnation that wrote an object, by its name; one that no name of ours is like is left alone."""
    digits = name.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdecimal() else 1 << 62
