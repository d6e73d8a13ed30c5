"""What is lost of what views were: before they took their present form, or as of when they were held.

That is in the store that it was computed in, and never on replicas: so a start fetches none of it. It says what is
lost, and says it once: what was told is noted, and told again only where more is lost, or where the note cannot be
read. The present is whole, so that keeps no app from going on; whoever reads such an epoch is told, too
(`timetravel`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass

from slipstream.core.errors import MissingLayer
from slipstream.store import documents
from slipstream.store.catalog import Catalog
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.layout import LOST
from slipstream.store.shapes import checked
from slipstream.trace import LayerName, Span, cover, readable_from


@dataclass(frozen=True)
class Past:
    """What a view was from one epoch to another, read from a trace as of `shown` at the latest. held: it still is."""

    view: str
    trace: str
    since: int
    upto: int
    shown: int
    held: bool = False


@dataclass(frozen=True)
class LostPast:
    """What a view was from one epoch to another, and is nowhere."""

    view: str
    trace: str
    first: int
    last: int

    def __str__(self) -> str:
        epochs = (
            f"at epoch {self.last}" if self.first == self.last else f"from epoch {self.first} to {self.last}"
        )
        return (
            f"what '{self.view}' was {epochs} is lost: it is in the store that it ran in, never on replicas"
        )

    def is_in(self, known: Collection[LostPast]) -> bool:
        """Whether it is known to be lost."""
        return any(
            (each.view, each.trace) == (self.view, self.trace)
            and each.first <= self.first
            and self.last <= each.last
            for each in known
        )


def pasts_of(catalog: Catalog) -> list[Past]:
    """What views were that are read from traces to which nothing is added any more."""
    found = []
    for name, view in sorted(catalog.readable.items()):
        for was in view.past:
            shown = was.upto if was.last is None else min(was.upto, was.last)
            found.append(Past(name, was.trace, was.since, was.upto, shown))
        if view.held is not None and view.last is not None:
            found.append(Past(name, view.trace, view.since, view.last, view.last, held=True))
    return [each for each in found if each.shown]


def lost_of(past: Past, names: Sequence[LayerName], kept: int) -> list[LostPast]:
    """What is lost of a past of which there are these layers. kept: the epoch before which history was let go; what a
    held view shows is kept for as long as it is held.
    """
    first = max(past.since, kept, 1)
    ends = {past.shown, *(name.hi for name in names if name.hi < past.shown)}
    newest = next((end for end in sorted(ends, reverse=True) if _is_covered(names, end)), 0)
    found = []
    if newest:
        found.append((first, min(readable_from(names, newest, Span.whole()) - 1, past.upto)))
    if newest < past.shown:
        first = max(first, newest + 1)
        found.append((min(first, past.upto) if past.held else first, past.upto))
    return [LostPast(past.view, past.trace, *epochs) for epochs in found if epochs[0] <= epochs[1]]


def _is_covered(names: Sequence[LayerName], epoch: int) -> bool:
    try:
        cover(names, epoch, Span.whole())
    except MissingLayer:
        return False
    return True


def lost_pasts(
    catalog: Catalog,
    layers: Mapping[str, Sequence[LayerName]],
    epoch: int,
    kept: int,
    rebuild: Collection[str] = (),
) -> tuple[LostPast, ...]:
    """What is lost of what views were, where a store goes on from an epoch with these layers. rebuild: held views that
    are about to be computed anew.
    """
    return tuple(
        each
        for past in pasts_of(catalog)
        if past.upto <= epoch and not (past.held and past.view in rebuild)
        for each in lost_of(past, layers.get(past.trace, ()), kept)
    )


def read_told(disk: Disk) -> frozenset[LostPast] | None:
    """What a start has said to be lost; None where that cannot be read."""
    try:
        found = documents.decode(disk.read(LOST), LOST)
    except FileNotFoundError:
        return frozenset()
    except IsADirectoryError:
        return None
    try:
        return (
            None if isinstance(found, str) else frozenset(checked(LostPast(*each)) for each in found["told"])
        )
    except (KeyError, TypeError, ValueError):
        return None


def write_told(disk: WritableDisk, lost: Collection[LostPast]) -> None:
    """Note what a start says to be lost; nothing, where nothing is."""
    known = read_told(disk) if lost else None
    if lost and (known is None or not all(each.is_in(known) for each in lost)):
        told = [list(astuple(each)) for each in sorted(lost, key=astuple)]
        disk.replace(LOST, documents.encode({"told": told}, LOST), flushed=True)
    elif not lost and disk.exists(LOST):
        disk.remove(LOST)
