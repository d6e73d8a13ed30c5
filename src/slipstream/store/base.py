"""The base of a store's lineage: when it moves on, and what it then holds.

A base is what all records up to an epoch add up to (`lineage.Base`). So a start, a status and a look into the past cost
what was logged since, whatever the age of the store. When it moves on:
- to an epoch that is a multiple of `EVERY`, whose line's place is known;
- not beyond `upto`, which is the caller's: what is flushed and, where there are replicas, what is safe and what the
  sources were told to forget. Going back there needs the records themselves, and so does forgetting;
- not nearer to the newest epoch than `BEHIND`: the latest epochs are what a status shows and what a start may step
  back over.

Ranges of input are the sources' own. Each makes a summary of those that go behind the base, from the summary that it
made before (`Foldable`). Where a source cannot use that one any more, it makes another from all ranges there ever were.
Ranges of a source that is not there, or that makes none, stay in the base as they are.

Every base that was ever made leaves a mark: the place of its epoch and the latest time until then. Marks are what time
travel looks for a time in, without reading logs.

Not promised: a base at all. Where replicas cannot be reached, it stays where it is, and a start costs what is unsafe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from slipstream.core.errors import DamagedSummary
from slipstream.store.disk import Disk, raise_named
from slipstream.store.history import Base, History, Mark, Place
from slipstream.store.lineage import LineageWriter, read_whole, write_base
from slipstream.store.records import JSON
from slipstream.store.store import Claim

BEHIND = 1024
MARKS = 8192


class Foldable(Protocol):
    """What a source has to offer for a base."""

    def folded(self, before: JSON, ranges: Sequence[JSON]) -> JSON:
        """A summary of ranges that come after others, of which `before` is the summary; None where it makes none."""


def due(places: Sequence[Place], frontier: int, upto: int) -> list[Place]:
    """The places that go behind the base now, oldest first; the last is where it will stand."""
    last = min(upto, frontier - BEHIND)
    return [place for place in places if place.epoch <= last]


def ranges_behind(history: History, upto: int) -> dict[str, list[JSON]]:
    """By source, the ranges of epochs up to one that are in no summary yet, oldest first."""
    found = {name: list(ranges) for name, ranges in history.base.unfolded.items()}
    for cut in history.cuts:
        if cut.epoch <= upto:
            for name, taken in cut.ranges.items():
                found.setdefault(name, []).append(taken)
    return found


def fold(history: History, app: str | None, places: Sequence[Place], summaries: Mapping[str, JSON]) -> Base:
    """The base as of the last of some places, given what sources made of the ranges behind it."""
    before, at = history.base, places[-1]
    done = [each for each in history.computed if each.epoch <= at.epoch]
    rejected, late = Counter(before.rejected), Counter(before.late)
    for each in done:
        rejected.update(each.rejected)
        late.update(each.late)
    watermarks = next(cut.watermarks for cut in history.cuts if cut.epoch == at.epoch)
    ranges = ranges_behind(history, at.epoch)
    return Base(
        epoch=at.epoch,
        clock=done[-1].clock,
        log=at.log,
        end=at.end,
        digest=at.digest,
        app=app,
        rows=before.rows + sum(each.rows for each in done),
        safe=max(before.safe, *(each.safe for each in done)),
        kept=max(before.kept, history.let_go),
        rejected=dict(rejected),
        late=dict(late),
        latest=dict(done[-1].latest),
        watermarks=dict(watermarks),
        sources={**before.sources, **summaries},
        unfolded={name: taken for name, taken in ranges.items() if name not in summaries},
        marks=_thinned((*before.marks, *_marks(history, places))),
    )


def _marks(history: History, places: Sequence[Place]) -> list[Mark]:
    wanted = {place.epoch: place for place in places}
    latest = history.base.latest_clock
    marks = []
    for done in history.computed:
        latest = max(latest, done.clock)
        if done.epoch in wanted:
            marks.append(Mark(wanted[done.epoch], latest))
    return marks


def _thinned(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Marks, or every second of them where there are too many, and always the last."""
    return marks if len(marks) <= MARKS else marks[-1::-2][::-1]


def move_base(claim: Claim, writer: LineageWriter, sources: Mapping[str, Foldable], upto: int) -> Base | None:
    """Move the base of a store on if that is due; the new one. Costs nothing where it is not due."""
    places = due(writer.places, writer.frontier, upto)
    if not places:
        return None
    claim.check_ours()
    history, app = writer.history()
    try:
        summaries = _summaries(claim.store.disk, history, sources, places[-1].epoch)
    except OSError as error:
        raise_named(error, claim.store.root)
        raise
    base = fold(history, app, places, summaries)
    write_base(claim.owned, base, history.base)
    writer.rebase(base)
    return base


def _summaries(disk: Disk, history: History, sources: Mapping[str, Foldable], upto: int) -> dict[str, JSON]:
    """What the sources that are there make of the ranges that go behind the base."""
    made = {}
    for name, ranges in ranges_behind(history, upto).items():
        if name in sources:
            try:
                made[name] = sources[name].folded(history.summary(name), ranges)
            except DamagedSummary:
                made[name] = sources[name].folded(None, ranges_behind(read_whole(disk), upto)[name])
    return {name: summary for name, summary in made.items() if summary is not None}
