"""Deciding upkeep: what to merge, what to pack and what to remove. Pure: names and sizes in, instructions
out.

Two things are kept apart. *Merging* makes lookups as of now short: neighbouring stretches of a cover are
collapsed into flat layers, size-tiered, `FAN_IN` at a time, so a row is rewritten O(log n) times and a key
is in O(log n) layers. *Forgetting* is removing layers. History that is still wanted is not merged but
packed: logs of single epochs become logs of many, `PACK_FAN_IN` at a time, so that the number of files
stays O(log) too.

A reader as of `t` needs a cover of `1..t`. What is kept is the cheapest cover as of `computed` and, where
history is wanted back to `keep_from`, the cheapest cover as of `keep_from` and the logs from there on: a
base, and every update after it, serve each epoch in between. By induction that stays true as `keep_from`
moves on. Everything else that ends by `computed` goes. Only layers that are there already count; a merge
that is planned in the same breath counts the next time. Where history does not reach back to `keep_from` (it
began later, or something of it is lost) it is looked after from where it does, and what there is of it
before that stays: what is lost may come back.

Work is planned by span, the spans being those of the newest layers. After a change of the number of shards,
these may take slices of wider or narrower layers: a merge then spans the epochs at which the old chains all
have a joint. Where a follower, such as a replica, has everything up to an epoch and will ask for what came
after it, that epoch is a *barrier*: nothing is merged across it, so that the increment can be had as whole
layers, however far behind the follower is. A span that cannot be covered is left alone altogether: nothing
of it is removed. Layers that reach past `computed` are never touched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import log

from slipstream.core.errors import MissingLayer
from slipstream.trace.cover import Piece, cover, readable_from, strips, tile
from slipstream.trace.naming import Kind, LayerName, Span, by_order

FAN_IN = 4
PACK_FAN_IN = 64
SMALLEST_TIER = 1 << 16


@dataclass(frozen=True)
class LayerStat:
    """A layer and its size."""

    name: LayerName
    rows: int
    bytes: int


@dataclass(frozen=True)
class Merge:
    """Collapse layers into one flat layer."""

    inputs: tuple[LayerName, ...]
    output: LayerName


@dataclass(frozen=True)
class Pack:
    """Put logs into one longer log."""

    inputs: tuple[LayerName, ...]
    output: LayerName


@dataclass(frozen=True)
class Remove:
    """Remove a layer that no reader needs."""

    name: LayerName


Upkeep = Merge | Pack | Remove


@dataclass(frozen=True)
class _Stretch:
    """Epochs between two joints of a chain, and what it takes to read them."""

    lo: int
    hi: int
    pieces: tuple[Piece, ...]


def plan_upkeep(
    layers: Sequence[LayerStat], computed: int, keep_from: int | None, barriers: Iterable[int] = ()
) -> list[Upkeep]:
    """What to do now, in order. `keep_from` is the epoch that time travel reaches back to, None for no
    history; nothing is merged across one of the `barriers`.
    """
    apart = frozenset(barriers)
    sizes = {layer.name: layer.bytes for layer in layers if layer.name.hi <= computed}
    names = sorted(sizes, key=by_order)
    steps: list[Upkeep] = []
    needed: set[LayerName] = set()
    handled: list[Span] = []
    for span in current_spans(names):
        last = max(name.hi for name in names if name.span.touches(span))
        since = last if keep_from is None else min(max(keep_from, 0), last)
        try:
            now = cover(names, last, span)
        except MissingLayer:
            continue
        handled.append(span)
        needed.update(piece.layer for piece in now)
        history, before = _kept(names, since, last, span) if keep_from is not None else ([], set())
        needed.update(piece.layer for piece in history)
        needed |= before
        for stretches in _segments(_stretches(now, span), apart):
            for group in _tiers(stretches, [_tier(s, sizes) for s in stretches], FAN_IN):
                steps.append(Merge(*_joined(group, span, "flat")))
        for stretches in _segments(_stretches(history, span), apart):
            lengths = [int(log(s.hi - s.lo + 1, PACK_FAN_IN) + 1e-9) for s in stretches]
            for group in _tiers(stretches, lengths, PACK_FAN_IN):
                steps.append(Pack(*_joined(group, span, "log")))
    free = (name for name in names if name not in needed and _inside(name.span, handled))
    return [*steps, *(Remove(name) for name in free)]


def _kept(names: list[LayerName], since: int, last: int, span: Span) -> tuple[list[Piece], set[LayerName]]:
    """The logs from an epoch on, or from the earliest after it that history reaches back to; and what is needed before
    them: a base, and whatever is left of the history in between.
    """
    try:
        base, history = cover(names, since, span), tile(names, since + 1, last, span, whole=False)
        return history, {piece.layer for piece in base}
    except MissingLayer:
        first = readable_from(names, last, span)
        needed = {piece.layer for piece in cover(names, first, span)}
        needed |= {name for name in names if name.is_log and since < name.hi <= first}
        with suppress(MissingLayer):
            needed |= {piece.layer for piece in cover(names, since, span)}
        return tile(names, first + 1, last, span, whole=False), needed


def current_spans(names: Sequence[LayerName]) -> list[Span]:
    """The spans of the newest layers, disjoint and in order: what later layers are likely to have too."""
    if not names:
        return []
    newest = max(name.hi for name in names)
    everything = {name.span for name in names}
    if len(everything) == 1:
        return [*everything]
    spans = sorted({name.span for name in names if name.hi == newest})
    apart = all(a.stop <= b.start for a, b in pairwise(spans))
    if apart and all(_inside(span, spans) for span in everything):
        return spans
    pieces = strips(everything, Span(min(s.start for s in everything), max(s.stop for s in everything)))
    return [piece for piece in pieces if any(span.contains(piece) for span in everything)]


def _stretches(pieces: Sequence[Piece], span: Span) -> list[_Stretch]:
    """The epochs of a cover, cut where the chains of all its strips have a joint."""
    if not pieces:
        return []
    joints: set[int] | None = None
    for strip in strips((piece.span for piece in pieces), span):
        firsts = {piece.first for piece in pieces if piece.span.contains(strip)}
        joints = firsts if joints is None else joints & firsts
    starts = sorted(joints or set())
    ends = [*(start - 1 for start in starts[1:]), max(piece.last for piece in pieces)]
    inside: list[list[Piece]] = [[] for _ in starts]
    for piece in pieces:
        if (at := bisect_right(starts, piece.first)) > 0:
            inside[at - 1].append(piece)
    return [_Stretch(lo, hi, tuple(held)) for lo, hi, held in zip(starts, ends, inside, strict=True)]


def _segments(stretches: list[_Stretch], barriers: frozenset[int]) -> list[list[_Stretch]]:
    """Stretches, cut where one ends at a barrier."""
    segments: list[list[_Stretch]] = [[]]
    for stretch in stretches:
        segments[-1].append(stretch)
        if stretch.hi in barriers:
            segments.append([])
    return [segment for segment in segments if segment]


def _tier(stretch: _Stretch, sizes: dict[LayerName, int]) -> int:
    size = sum(sizes[p.layer] * p.span.width / p.layer.span.width for p in stretch.pieces)
    return max(0, int(log(max(size, 1) / SMALLEST_TIER, FAN_IN)) + 1) if size > SMALLEST_TIER else 0


def _tiers(stretches: list[_Stretch], tiers: list[int], fan_in: int) -> Iterable[list[_Stretch]]:
    """Neighbours of one tier, where there are enough of them. A stretch is at least in the tier of any
    newer one.
    """
    level = 0
    groups: dict[int, list[_Stretch]] = {}
    for stretch, tier in zip(reversed(stretches), reversed(tiers), strict=True):
        level = max(level, tier)
        groups.setdefault(level, []).insert(0, stretch)
    return [group for group in groups.values() if len(group) >= fan_in]


def _joined(group: list[_Stretch], span: Span, kind: Kind) -> tuple[tuple[LayerName, ...], LayerName]:
    inputs = tuple(sorted({piece.layer for stretch in group for piece in stretch.pieces}, key=by_order))
    incarnation = max(name.incarnation for name in inputs)
    return inputs, LayerName(incarnation, group[0].lo, group[-1].hi, span.start, span.stop, kind)


def _inside(span: Span, handled: Iterable[Span]) -> bool:
    """Every place of `span` is in one of `handled`."""
    held = sum(
        min(span.stop, each.stop) - max(span.start, each.start) for each in handled if span.touches(each)
    )
    return held == span.width
