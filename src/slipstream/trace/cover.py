"""Choosing layers: which of the layers present add up to the contents of a trace as of an epoch.

The span asked for is cut at the borders of layers into strips. In each strip a chain of layers must follow
one another without a gap or an overlap from the first epoch to the last:

- a `flat` layer (or one of a single epoch) stands for all its epochs, so it fits only where it begins
  exactly at the next epoch and does not reach past the last;
- a `log` can be filtered by epoch, so any stretch of it may be taken.

Among the chains that reach, the cheapest is taken. A flat layer costs one lookup; a stretch of a log costs
one more for each of its epochs, because a key's versions of every one of them may have to be read. When the
log itself is wanted (`whole=False`) each file costs the same.

The same stretch written by several incarnations is taken from the highest: the caller passes only layers
that are valid. If no chain reaches, that is an error that names the gap. A trace is empty at epoch 0 and
only there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from slipstream.core.errors import MissingLayer
from slipstream.trace.naming import LayerName, Span, by_order


@dataclass(frozen=True)
class Piece:
    """The part of a layer that a cover takes: the places in `span`, the updates of epochs `first` to
    `last`.
    """

    layer: LayerName
    span: Span
    first: int
    last: int

    @property
    def exact(self) -> bool:
        """Every row of the layer's places is taken: no filter by epoch is needed."""
        return self.first == self.layer.lo and self.last == self.layer.hi


def cover(names: Iterable[LayerName], as_of: int, span: Span, *, directory: str = "") -> list[Piece]:
    """The pieces that make up the contents as of an epoch, oldest first."""
    return tile(names, 1, as_of, span, directory=directory)


def tile(
    names: Iterable[LayerName], first: int, last: int, span: Span, *, whole: bool = True, directory: str = ""
) -> list[Piece]:
    """The pieces that make up epochs `first` to `last`, oldest first; from logs only unless `whole`."""
    return [*_tile(tuple(names), first, last, span, whole, directory)] if first <= last else []


@lru_cache(maxsize=1 << 10)
def _tile(
    names: tuple[LayerName, ...], first: int, last: int, span: Span, whole: bool, directory: str
) -> tuple[Piece, ...]:
    """`tile`, remembered: traces that grow together have layers of the same names, and are asked for one after
    another.
    """
    start, stop = span.start, span.stop
    wanted = [
        n
        for n in names
        if n.lo <= last and n.hi >= first and n.start < stop and start < n.stop and (whole or n.is_log)
    ]
    if all(n.start <= start and stop <= n.stop for n in wanted):  # one strip, and nothing to be joined
        return tuple(_chain(_newest_incarnations(wanted), first, last, span, whole, directory)[::-1])
    by_span: dict[Span, list[LayerName]] = {}
    for name in wanted:
        by_span.setdefault(name.span, []).append(name)
    pieces: list[Piece] = []
    for strip in strips(by_span, span):
        present = [name for owner, held in by_span.items() if owner.contains(strip) for name in held]
        pieces += _chain(_newest_incarnations(present), first, last, strip, whole, directory)
    return tuple(_joined(pieces))


def strips(spans: Iterable[Span], span: Span) -> list[Span]:
    """`span`, cut wherever one of `spans` begins or ends inside it."""
    cuts = {span.start, span.stop}
    for other in spans:
        cuts.update(cut for cut in (other.start, other.stop) if span.start < cut < span.stop)
    ordered = sorted(cuts)
    return [Span(a, b) for a, b in pairwise(ordered)]


def history_reach(names: Sequence[LayerName], until: int, span: Span) -> int:
    """The earliest epoch after which every update up to `until` is still kept one by one."""
    logs = [name for name in names if name.is_log and name.span.touches(span)]
    reach = 0
    for strip in strips((name.span for name in logs), span):
        epoch = until
        while epoch > reach:
            starts = [n.lo for n in logs if n.lo <= epoch <= n.hi and n.span.contains(strip)]
            if not starts:
                reach = epoch
                break
            epoch = min(starts) - 1
    return reach


def readable_from(names: Sequence[LayerName], until: int, span: Span) -> int:
    """The earliest epoch from which on every epoch up to `until` can be read, and the updates in between one by one.
    The layers must cover `until` itself.
    """
    low, high = history_reach(names, until, span), until
    while low < high:  # where an epoch is covered, so is every later one: the updates in between are there
        middle = (low + high) // 2
        low, high = (low, middle) if _covered(names, middle, span) else (middle + 1, high)
    return low


def _covered(names: Sequence[LayerName], as_of: int, span: Span) -> bool:
    try:
        cover(names, as_of, span)
    except MissingLayer:
        return False
    return True


def _newest_incarnations(names: Iterable[LayerName]) -> list[LayerName]:
    best: dict[tuple[int, int, str], LayerName] = {}
    for name in sorted(names, key=by_order):
        best[name.lo, name.hi, name.kind] = name
    return list(best.values())


def _chain(
    names: list[LayerName], first: int, last: int, strip: Span, whole: bool, directory: str
) -> list[Piece]:
    """The cheapest chain through one strip, newest piece first: costs are settled in the order of epochs, since
    every step goes forward.
    """
    flats: dict[int, list[LayerName]] = {}
    logs = [name for name in names if name.is_log and not name.single]
    for name in names:
        if name.is_flat and name.hi <= last:
            flats.setdefault(name.lo, []).append(name)
    best: dict[int, tuple[int, int, LayerName | None]] = {first: (0, first, None)}
    waiting = {first}
    epoch = first
    while waiting:
        epoch = min(waiting)
        waiting.remove(epoch)
        if epoch > last:
            break
        spent = best[epoch][0]
        steps = [(1, name.hi, name) for name in flats.get(epoch, ())]
        for name in logs:
            if name.lo <= epoch <= name.hi:
                reach = min(name.hi, last)
                steps.append((1 + (reach - epoch + 1 if whole else 0), reach, name))
        for cost, reach, name in steps:
            if reach + 1 not in best or spent + cost < best[reach + 1][0]:
                best[reach + 1] = (spent + cost, epoch, name)
                waiting.add(reach + 1)
    if last + 1 not in best:
        following = [name.lo for name in names if name.lo > epoch]
        gap_end = min(min(following) - 1 if following else last, last)
        collapsed = min((n.hi for n in names if n.is_flat and n.lo <= epoch and n.hi > last), default=None)
        raise MissingLayer(directory, epoch, gap_end, strip.start, strip.stop, collapsed)
    chain: list[Piece] = []
    at = last + 1
    while at != first:
        _, begin, layer = best[at]
        assert layer is not None
        chain.append(Piece(layer, strip, begin, at - 1))
        at = begin
    return chain


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Stretches of one layer taken in neighbouring strips, as one piece."""
    joined: list[Piece] = []
    for piece in sorted(pieces, key=lambda p: (p.first, p.last, by_order(p.layer), p.span.start)):
        before = joined[-1] if joined else None
        if (
            before is not None
            and before.span.stop == piece.span.start
            and (before.layer, before.first, before.last) == (piece.layer, piece.first, piece.last)
        ):
            joined[-1] = replace(piece, span=Span(before.span.start, piece.span.stop))
        else:
            joined.append(piece)
    return joined
