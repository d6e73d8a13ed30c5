"""What records add up to: a history, from a base on.

**Contiguous.** Epochs are computed one after another, each after its own cut. Anything else in a log that proves itself
was not written by this code, and is refused.

**Base.** What all records up to an epoch add up to, so that reading a history costs what was logged since. It names the
log, the byte and the digest at which reading goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slipstream.core.errors import DamagedLineage, UnknownEpoch
from slipstream.store import chain
from slipstream.store.records import JSON, Began, Computed, Cut, Dropped, Record
from slipstream.store.shapes import checked

EVERY = 2048
"""A base stands at an epoch that is a multiple of it: so readers and writers need to remember few places."""


@dataclass(frozen=True)
class Place:
    """Where in the logs an epoch was computed: the byte after that line, and its digest."""

    epoch: int
    log: int
    end: int
    digest: str


@dataclass(frozen=True)
class Mark:
    """A place, and the latest time at which an epoch up to it was computed."""

    place: Place
    clock: float


@dataclass(frozen=True)
class Base:
    """What the records up to an epoch add up to. log, end, digest: the line in which it was computed. app: the identity
    of the app that wrote them. sources: what each source made of the ranges that were taken of it (`Source.folded`).
    unfolded: those of sources that were not there to make something of them. marks: places behind the base, oldest
    first; the last is that of the base itself. kept: the epoch before which history was let go.
    """

    epoch: int = 0
    clock: float = 0.0
    log: int = 0
    end: int = 0
    digest: str = chain.START
    app: str | None = None
    rows: int = 0
    safe: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    latest: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, JSON] = field(default_factory=dict)
    unfolded: Mapping[str, Sequence[JSON]] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    kept: int = 0

    @staticmethod
    def standing_at(place: Place) -> Base:
        """One that says no more than where reading goes on."""
        return Base(epoch=place.epoch, log=place.log, end=place.end, digest=place.digest)

    @property
    def latest_clock(self) -> float:
        """The latest time at which an epoch up to the base was computed."""
        return self.marks[-1].clock if self.marks else self.clock

    def encode(self) -> dict[str, JSON]:
        body = {
            name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()
        }
        return {**body, "marks": [[*vars(mark.place).values(), mark.clock] for mark in self.marks]}

    @staticmethod
    def decode(body: Mapping[str, JSON]) -> Base:
        marks = (Mark(Place(*place), clock) for *place, clock in body["marks"])
        return checked(Base(**{"kept": body["epoch"], **body, "marks": tuple(marks)}))


@dataclass(frozen=True)
class History:
    """What the records after a base say. cuts: of the epochs after it, computed or pending, one after another.
    dropped: epochs that failed at least once. let_go: the epoch before which records, whether they still count or not,
    let history go.
    """

    base: Base = Base()
    cuts: tuple[Cut, ...] = ()
    computed: tuple[Computed, ...] = ()
    dropped: frozenset[int] = frozenset()
    let_go: int = 0

    @property
    def failing(self) -> bool:
        """Whether the next epoch to be computed has failed before."""
        return self.frontier + 1 in self.dropped

    @property
    def frontier(self) -> int:
        return self.computed[-1].epoch if self.computed else self.base.epoch

    @property
    def safe(self) -> int:
        """The newest epoch that was ever called safe."""
        return max(self.base.safe, max((done.safe for done in self.computed), default=0))

    @property
    def kept(self) -> int:
        """The epoch from which on the history of views must be there."""
        return min(max(self.base.kept, self.let_go), self.frontier)

    @property
    def clock(self) -> float | None:
        """When the newest epoch was computed."""
        return self.computed[-1].clock if self.computed else (self.base.clock if self.base.epoch else None)

    @property
    def pending(self) -> tuple[Cut, ...]:
        """The epochs that were cut and are still to be computed, as they were cut."""
        return tuple(cut for cut in self.cuts if cut.epoch > self.frontier)

    @property
    def watermarks(self) -> Mapping[str, int]:
        """The watermarks of the last computed epoch."""
        frontier = self.frontier
        return next((cut.watermarks for cut in self.cuts if cut.epoch == frontier), self.base.watermarks)

    @property
    def latest(self) -> Mapping[str, int]:
        """The latest event times that computed epochs have seen."""
        return self.computed[-1].latest if self.computed else self.base.latest

    def summary(self, source: str) -> JSON:
        """What a source made of the ranges that are behind the base; None where there are none."""
        return self.base.sources.get(source)

    def consumed(self, source: str) -> list[JSON]:
        """The ranges of a source that computed epochs took and its summary has not, oldest first."""
        return self._ranges(source, self.frontier)

    def taken(self, source: str) -> list[JSON]:
        """The ranges that are not to be cut again and not in the summary: of computed epochs and of pending ones."""
        return self._ranges(source, self.cuts[-1].epoch if self.cuts else 0)

    def _ranges(self, source: str, upto: int) -> list[JSON]:
        unfolded = self.base.unfolded.get(source, ())
        return [
            *unfolded,
            *(cut.ranges[source] for cut in self.cuts if source in cut.ranges and cut.epoch <= upto),
        ]

    def clocks(self) -> list[tuple[float, int]]:
        """When epochs were computed, (time, epoch), oldest first, of some that are behind the base and of all after it.
        Where the machine's clock went back, time stands still until it has caught up.
        """
        known = [(0.0, 0), *((mark.clock, mark.place.epoch) for mark in self.base.marks)]
        for done in self.computed:
            known.append((max(done.clock, known[-1][0]), done.epoch))
        return known

    def clock_of(self, epoch: int) -> float | None:
        """When an epoch was computed; behind the base, when one before it was. None where that is not known."""
        if epoch > self.base.epoch:
            at = epoch - self.base.epoch - 1
            return self.computed[at].clock if at < len(self.computed) else None
        before = [mark.clock for mark in self.base.marks if mark.place.epoch <= epoch]
        return before[-1] if before else None

    def after(self, record: Record) -> History:
        """With one more record; an error if it does not fit."""
        match record:
            case Began(after=after, upto=upto):
                if after > self.frontier or after < self.base.epoch:
                    raise DamagedLineage(f"an incarnation goes on from epoch {after}, and there is none such")
                return replace(
                    self,
                    cuts=tuple(cut for cut in self.cuts if cut.epoch <= upto),
                    computed=tuple(done for done in self.computed if done.epoch <= after),
                    dropped=frozenset(epoch for epoch in self.dropped if epoch <= max(upto, after + 1)),
                )
            case Cut(epoch=epoch):
                last = self.cuts[-1].epoch if self.cuts else self.base.epoch
                if not self.frontier < epoch <= max(last, self.frontier) + 1:
                    raise DamagedLineage(f"epoch {epoch} is cut after epoch {last}")
                kept = tuple(cut for cut in self.cuts if cut.epoch != epoch)
                return replace(self, cuts=tuple(sorted((*kept, record), key=lambda cut: cut.epoch)))
            case Computed(epoch=epoch):
                if epoch != self.frontier + 1 or not any(cut.epoch == epoch for cut in self.cuts):
                    raise DamagedLineage(
                        f"epoch {epoch} is computed after epoch {self.frontier}, or without a cut"
                    )
                let_go = max(self.let_go, record.lets_go)
                return replace(self, computed=(*self.computed, record), let_go=let_go)
            case Dropped(epoch=epoch):
                kept = tuple(cut for cut in self.cuts if cut.epoch < epoch)
                return replace(self, cuts=kept, dropped=self.dropped | {epoch})

    def at(self, clock: float) -> int:
        """The newest epoch, of those from the base on, such that neither it nor any before it was computed later than
        `clock`. Epochs that are computed afterwards never change the answer for a time that has passed by then.
        """
        found = self.base.epoch
        if self.base.latest_clock > clock:
            raise UnknownEpoch.before_first(clock, self.base.latest_clock)
        for done in self.computed:
            if done.clock > clock:
                break
            found = done.epoch
        if not found:
            raise UnknownEpoch.before_first(clock, self.computed[0].clock if self.computed else None)
        return found


def history_of(records: Iterable[Record], base: Base | None = None) -> History:
    """What records say, in the order of the logs; an error if they do not fit together."""
    folding = Folding(History(base or Base()))
    for record in records:
        folding.add(record)
    return folding.history


class Folding:
    """`History.after` for many records, without copying the history at each; and the places of some epochs."""

    def __init__(self, start: History, app: str | None = None, places: Iterable[Place] = ()) -> None:
        self._take(start)
        self.app = app
        self._places = {place.epoch: place for place in places}

    def _take(self, history: History) -> None:
        self._base = history.base
        self._cuts = {cut.epoch: cut for cut in history.cuts}
        self._computed = {done.epoch: done for done in history.computed}
        self._dropped = set(history.dropped)
        self._let_go = history.let_go
        self.frontier = history.frontier

    @property
    def history(self) -> History:
        return History(
            base=self._base,
            cuts=tuple(self._cuts[epoch] for epoch in sorted(self._cuts)),
            computed=tuple(self._computed[epoch] for epoch in sorted(self._computed)),
            dropped=frozenset(self._dropped),
            let_go=self._let_go,
        )

    @property
    def places(self) -> list[Place]:
        return [self._places[epoch] for epoch in sorted(self._places)]

    def check(self, record: Record) -> None:
        """Raise if a record does not fit."""
        match record:
            case Cut(epoch=epoch) if epoch == self.frontier + 1:
                pass
            case Computed(epoch=epoch) if epoch == self.frontier + 1 and epoch in self._cuts:
                pass
            case _:
                self.history.after(record)

    def add(self, record: Record, at: tuple[int, int, str] | None = None) -> None:
        """Take a record; `at`: its log, the byte after its line, and the line's digest."""
        match record:
            case Cut(epoch=epoch) if epoch == self.frontier + 1:
                self._cuts[epoch] = record
            case Computed(epoch=epoch) if epoch == self.frontier + 1 and epoch in self._cuts:
                self._computed[epoch] = record
                self._let_go = max(self._let_go, record.lets_go)
                self.frontier = epoch
                if at is not None and epoch % EVERY == 0:
                    self._places[epoch] = Place(epoch, *at)
            case _:
                self._take(self.history.after(record))
                if isinstance(record, Began):
                    self.app = record.app
                    self._places = {e: place for e, place in self._places.items() if e <= record.after}
