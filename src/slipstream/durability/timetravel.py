"""What `as_of` means: an epoch, a point in time, or now.

**A time** means the newest epoch such that neither it nor any epoch before it was computed later than that. As long as
the machine's clock goes forward, that is the last epoch computed by then. A clock may also be set back, so that epochs
are stamped with times that have been before. Then these belong to the latest time seen so far, as if the clock had
stood still until it caught up: a time that has passed means the same epoch today and tomorrow, whatever is computed in
between, and a later time never means an earlier epoch. (The last epoch whose own stamp is not later than the time has
neither property.) The price: epochs after one that was stamped far ahead by a wrong clock cannot be asked for by time
until that time has come. They have their numbers.

A time is looked for in the marks that the base of the lineage has, and then in the records between two of them: what
that costs does not depend on the age of the store. The records prove themselves as they do at a start.

A past that is asked for and not there was either let go, or is lost. The lineage and the catalog tell which
(`check_there`), and a reader is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime

from slipstream.core.errors import (
    EndsBeforeItBegins,
    HeldElsewhere,
    HistoryBegins,
    HistoryLetGo,
    HistoryLost,
    MissingLayer,
    PastGone,
    UnknownEpoch,
)
from slipstream.durability.newest import newest_epoch
from slipstream.store.catalog import ViewEntry
from slipstream.store.disk import Disk
from slipstream.store.lineage import computed_frontier, read_base, read_history, read_lineage, read_stretch
from slipstream.store.store import Store
from slipstream.trace import LayerName, Span, cover, readable_from, tile

_ATTEMPTS = 3


def resolve_epoch(
    store: Store, asked: int | str | datetime | None, traces: Iterable[str] | None = None
) -> int:
    """The epoch that is asked for: a number, the last one computed at a timestamp, or the newest. traces: those that
    are to be read; all of them unless given.
    """
    if isinstance(asked, bool) or not isinstance(asked, int | str | datetime | None):
        raise UnknownEpoch(
            f"{asked!r} is neither an epoch nor a time. Give a number, or a time such as 2026-01-31T12:00:00."
        )
    if isinstance(asked, str) and asked.strip().lstrip("-").isdecimal():
        asked = int(asked)
    if isinstance(asked, int) and 0 <= asked <= computed_frontier(store.disk):
        return asked
    newest = newest_epoch(store, traces)
    if asked is None:
        return newest
    if isinstance(asked, int):
        if not 0 <= asked <= newest:
            raise UnknownEpoch.beyond(asked, newest)
        return asked
    if isinstance(asked, str):
        try:
            asked = datetime.fromisoformat(asked)
        except ValueError:
            raise UnknownEpoch(
                f"'{asked}' is neither an epoch nor a time. Give a number, or a time such as 2026-01-31T12:00:00."
            ) from None
    return epoch_at(store.disk, asked.timestamp())


def check_there(store: Store, view: str, as_of: int, since: int | None, *, base: bool) -> None:
    """Raise `HistoryLost` where a past epoch of a view, or the updates after `since`, should be there and are not,
    `HistoryLetGo` for one that was let go, and `HistoryBegins` for one before the view was added or computed anew.
    base: updates are made of what was there before them. A present that is not whole is for the reader to say.
    """
    if since is not None and since > as_of:
        raise EndsBeforeItBegins(view, since, as_of)
    entry = store.view(view)
    was = entry.at(as_of)
    stretches = [(was, 0, was.shown(as_of))] if since is None else entry.between(since, as_of)
    for was, after, upto in stretches:
        past = next((each for each in entry.past if each.since == was.since), None)
        later = None if past is None else (past.upto + 1, entry.since)
        _check_stretch(store, view, was, upto, None if since is None else after, later, base=base)


def _check_stretch(
    store: Store,
    view: str,
    entry: ViewEntry,
    as_of: int,
    since: int | None,
    later: tuple[int, int] | None,
    *,
    base: bool,
) -> None:
    """The same of a view as it was from one epoch to another. later: when it became another, and since when it is what
    it is now, if this is its past: that is not on replicas.
    """
    asked = as_of if since is None else since
    if asked < entry.since <= entry.shown(computed_frontier(store.disk)):
        # its layers may reach back further: to where it was computed, but not shown
        raise HistoryBegins(view, asked, entry.since)
    for _ in range(_ATTEMPTS):  # a merger may be quicker
        names = store.valid_layers(entry.trace)
        if _is_there(names, as_of, since, base=base):
            return
    history = read_lineage(store.disk).history
    frontier = entry.shown(history.frontier)
    if later is not None and asked < history.kept:
        return
    if later is not None:
        raise PastGone(str(store.root), view, asked, *later, part=bool(names))
    if entry.last is not None and not _is_there(names, entry.last, None, base=False):
        raise HeldElsewhere(str(store.root), view, entry.last, part=bool(names))
    kept = min(max(history.kept, entry.since), frontier)
    left = readable_from(names, frontier, Span.whole())
    if asked < left and _is_there(names, frontier, None, base=False):
        if kept <= asked:
            raise HistoryLost(str(store.root), view, asked, kept, left)
        raise HistoryLetGo(view, asked, left)


def _is_there(names: list[LayerName], as_of: int, since: int | None, *, base: bool) -> bool:
    try:
        if since is not None:
            tile(names, since + 1, as_of, Span.whole(), whole=False)
        if since is None or base:
            cover(names, as_of if since is None else since, Span.whole())
    except MissingLayer:
        return False
    return True


def epoch_at(disk: Disk, clock: float) -> int:
    """The epoch that a time means."""
    marks = read_base(disk).marks
    after = bisect_right(marks, clock, key=lambda mark: mark.clock)
    if after == len(marks):
        return read_history(disk).at(clock)
    before = marks[after - 1].place if after else None
    return read_stretch(disk, before, marks[after].place).at(clock)
