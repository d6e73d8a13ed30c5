"""Lineage: what each epoch was made of, in the order in which it happened.

A log an incarnation, a chain of checked lines (`chain`), each one record:

- **Began** `{"began": 2, "after": 6, "upto": 7, "app": ID, "follows": [1, DIGEST]}`: incarnation 2 goes on from epoch
  6; cuts up to epoch 7 still count, and are computed again as they were.
- **Cut** `{"cut": 7, "clock": ..., "ranges": {...}, "watermarks": {...}}`: epoch 7 takes these ranges of input.
- **Computed** `{"computed": 7, "clock": ..., "seconds": ..., "rows": ..., "layers": {TRACE: DIGEST}, "safe": 5,
  "kept": 3}`: its layers are all there, and are these: readers may see it. Everything up to epoch 5 was safe by then.
  From now on the history of views before epoch 3 may be forgotten, and no other.
- **Dropped** `{"dropped": 7}`: it failed; unless it is cut again, its input is free.

**One history out of many logs.** A successor names the last line that it read (`follows`). So the history is found
from its end: the newest log, then the log that it follows up to the named line, and so on to a log that follows none,
or to the *base*. What a superseded process writes past the named line counts for nobody. A log that is missing, or
whose chain breaks before the named line, is a hole, and is found, however old it is.

**Contiguous.** Epochs are computed one after another, each after its own cut. Anything else in a log that proves
itself was not written by this code, and is refused.

**What history must be there.** Only what a record lets go (`kept`) is ever removed, and that record is flushed, or on
the replica, before. So a store or a replica that lacks history from there on has lost it. What was let go once stays
so, also where a successor goes back behind the record. A record without it lets everything before its epoch go.

Together with the plan, the ranges determine an epoch to the bit, so an epoch that was cut and not computed is run
again from its record. Nothing here is flushed on the epoch's path. A torn tail is what a crash left of the last
append: the history ends before it.

**Base.** What all records up to an epoch add up to (`Base`), so that reading a history costs what was logged since.
It names the log, the byte and the digest at which reading goes on, and counts only where the chain agrees: the log has
that line, and what follows it goes on from it. Else the base before it is tried, and then everything is read. A base is
a witness too. It is made of what was flushed, so where it is ahead of logs that nobody has gone on from since, those
have lost something. What is damaged *before* a base is found by whoever reads that: `fsck`, and time travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slipstream.errors import DamagedLineage, UnknownEpoch
from slipstream.store import chain, documents
from slipstream.store.disk import Disk
from slipstream.store.layout import BASE, EARLIER_BASE, LINEAGE, lineage_log, log_number
from slipstream.store.shapes import checked

JSON = Any
EVERY = 2048
"""A base stands at an epoch that is a multiple of it: so readers and writers need to remember few places."""
_TAIL = 1 << 16
_ANCHOR = 1 << 12
_LATEST = 250_000_000_000  # seconds: some time in the year 9892


@dataclass(frozen=True)
class Began:
    """An incarnation goes on. upto: the last epoch whose cut still counts. follows: the log and digest before it.
    brought: incarnations that never began, and whose layers belong to this history: they were brought from replicas.
    """

    incarnation: int
    after: int
    upto: int
    app: str
    follows: tuple[int, str] | None = None
    brought: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cut:
    """An epoch's input: a range for each source that has something new; its watermarks, in milliseconds."""

    epoch: int
    clock: float
    ranges: Mapping[str, JSON]
    watermarks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Computed:
    """An epoch that readers may see. late: rows, by view. latest: event times so far, by watermark, milliseconds.
    layers: by trace, one digest over the layers that the epoch made there. safe: the safe frontier by then. kept: the
    epoch from which on history is kept; None for no history.
    """

    epoch: int
    clock: float
    seconds: float
    rows: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    latest: Mapping[str, int] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    safe: int = 0
    kept: int | None = None

    @property
    def lets_go(self) -> int:
        """The epoch before which history may be forgotten."""
        return self.epoch if self.kept is None else self.kept


@dataclass(frozen=True)
class Dropped:
    """An epoch failed."""

    epoch: int


Record = Began | Cut | Computed | Dropped


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
    folding = _Folding(History(base or Base()))
    for record in records:
        folding.add(record)
    return folding.history


class _Folding:
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


@dataclass(frozen=True)
class Lineage:
    """What the logs of a store say. incarnation, digest: where the history ends, which a successor follows. app: the
    identity of the app that wrote it. torn: what is wrong with the end of the newest log. broken: what is wrong
    further back, so that more was known once than can be read now; the history is what is left before that. places:
    of the epochs after its base at which another may stand.
    """

    history: History = field(default_factory=History)
    incarnation: int = 0
    digest: str = chain.START
    app: str | None = None
    torn: str | None = None
    broken: str | None = None
    places: tuple[Place, ...] = ()


class LineageWriter:
    """Appends to the log of one incarnation. One that is told what was `known` before keeps the history since its base
    as it grows, and refuses a record that does not fit.
    """

    def __init__(self, disk: Disk, incarnation: int, known: Lineage | None = None) -> None:
        self._disk, self._log = disk, lineage_log(incarnation)
        self._incarnation = incarnation
        self._digest = chain.START
        self._end = 0
        self._in_doubt = False
        self._folding = None if known is None else _Folding(known.history, known.app, known.places)

    def began(self, record: Began) -> None:
        """Make the log. What it says is on the disk before anybody acts on it."""
        digest, line = chain.encode(chain.START, encode_record(record))
        if self._folding is not None:
            self._folding.check(record)
        if not self._disk.create(self._log, line):
            raise DamagedLineage(f"the log {self._log} is there already")
        self._wrote(record, digest, len(line))

    def append(self, record: Record) -> None:
        """Add a record. One that could not be added may be given again, and is then there once."""
        if self._in_doubt and self._settled(chain.encode(self._digest, encode_record(record))[0]):
            return
        digest, line = chain.encode(self._digest, encode_record(record))
        if self._folding is not None:
            self._folding.check(record)
        self._in_doubt = True
        self._disk.append(self._log, line)
        self._in_doubt = False
        self._wrote(record, digest, self._end + len(line))

    def _settled(self, digest: str) -> bool:
        """Look at what an append that failed has left: a whole line counts, a part of one is cut off. Whether it is the
        line with this digest.
        """
        found = chain.scan(self._disk.read(self._log, self._end), self._digest, self._end)
        if found.end != "whole":
            self._disk.truncate(self._log, found.lines[-1].end if found.lines else self._end)
        self._in_doubt = False
        for line in found.lines:
            self._wrote(decode_record(line.body), line.digest, line.end)
        return self._digest == digest

    def _wrote(self, record: Record, digest: str, end: int) -> None:
        self._digest, self._end = digest, end
        if self._folding is not None:
            self._folding.add(record, (self._incarnation, end, digest))

    @property
    def end(self) -> tuple[int, str]:
        """The byte after the last line, and its digest."""
        return self._end, self._digest

    @property
    def frontier(self) -> int:
        """The newest epoch that is computed, as far as is known here."""
        return 0 if self._folding is None else self._folding.frontier

    @property
    def places(self) -> list[Place]:
        """The places after the base at which another may stand, oldest first."""
        return [] if self._folding is None else self._folding.places

    def history(self) -> tuple[History, str | None]:
        """The history from its base on, and the identity of the app that wrote it."""
        assert self._folding is not None, "a writer that was not told what was known has no history"
        return self._folding.history, self._folding.app

    def rebase(self, base: Base) -> None:
        """Let go of what a base holds from now on."""
        history, app = self.history()
        later = replace(
            history,
            base=base,
            cuts=tuple(cut for cut in history.cuts if cut.epoch > base.epoch),
            computed=tuple(done for done in history.computed if done.epoch > base.epoch),
            dropped=frozenset(epoch for epoch in history.dropped if epoch > base.epoch),
        )
        self._folding = _Folding(later, app, [place for place in self.places if place.epoch > base.epoch])


def read_lineage(disk: Disk, *, whole: bool = False) -> Lineage:
    """The history that the logs of a store hold, from its base on; from the first record on if `whole`.

    Damage is told, never raised: what to do about it is for recovery to decide.
    """
    bases, problem = _read_bases(disk)
    found: Lineage | None = None
    for base in () if whole else bases:
        if _holds(disk, base):
            based = lineage_of(_Logs(disk), base)
            if based.broken is None and based.history.base == base:
                found = based
                break
    if found is None:
        found = lineage_of(_Logs(disk), None)
    if found.broken is None and bases and _lost(found, bases[0]):
        broken = (
            f"{lineage_log(bases[0].log)}: it does not hold epoch {bases[0].epoch}, which {BASE} says it had"
        )
        return replace(found, broken=broken)
    if found.broken is None and problem is not None:
        return replace(found, torn=found.torn or problem)
    return found


def read_base(disk: Disk) -> Base:
    """The base of the history that the logs of a store hold. What follows it is read only where another process has
    begun since, and may have gone back behind it.
    """
    bases, _ = _read_bases(disk)
    if bases and _Logs(disk).numbers[-1:] == [bases[0].log] and _holds(disk, bases[0]):
        return bases[0]
    return read_lineage(disk).history.base


def read_stretch(disk: Disk, since: Place | None, upto: Place) -> History:
    """What the logs say of the epochs between two places, from the first record on where there is no `since`."""
    found = lineage_of(_Logs(disk, upto), None if since is None else Base.standing_at(since))
    problem = found.broken or found.torn
    if problem is None and found.history.frontier != upto.epoch:
        problem = f"{lineage_log(upto.log)}: it does not hold epoch {upto.epoch}"
    if problem is not None:
        raise _unreadable(disk, problem)
    return found.history


def read_history(disk: Disk, *, whole: bool = False) -> History:
    """The history from its base on; from the first record on if `whole`. An error where some of it is gone, for it is
    never taken for all.
    """
    found = read_lineage(disk, whole=whole)
    if found.broken is not None:
        raise _unreadable(disk, found.broken)
    return found.history


def read_whole(disk: Disk) -> History:
    """All of the history, as `read_history` does."""
    return read_history(disk, whole=True)


def _unreadable(disk: Disk, problem: str) -> DamagedLineage:
    return DamagedLineage(
        f"the store '{disk.root}': {problem}. `slipstream fsck {disk.root} --repair` puts it back from a replica."
    )


class _Logs:
    """The logs of a store, read once each; up to a place, if one is given."""

    def __init__(self, disk: Disk, upto: Place | None = None) -> None:
        self._disk, self._upto = disk, upto
        names = (log_number(name) for name in disk.list(LINEAGE))
        numbers = sorted(number for number in names if number is not None)
        self.numbers = [number for number in numbers if upto is None or number <= upto.log]

    def read(self, number: int, offset: int = 0) -> bytes:
        last = self._upto is not None and number == self._upto.log
        length = max(0, self._upto.end - offset) if self._upto is not None and last else None
        try:
            return self._disk.read(lineage_log(number), offset, length)
        except (FileNotFoundError, IsADirectoryError):
            return b""


def lineage_of(logs: _Logs, base: Base | None) -> Lineage:
    """The history that logs hold, found from its end."""
    torn: str | None = None
    newest: chain.Scan | None = None
    number = 0
    scans: dict[int, chain.Scan] = {}

    def scanned(log: int) -> chain.Scan:
        if log not in scans:
            from_base = base is not None and log == base.log
            start = (base.digest, base.end) if from_base and base is not None else (chain.START, 0)
            scans[log] = chain.scan(logs.read(log, start[1]), *start)
        return scans[log]

    for number in reversed(logs.numbers):
        if base is not None and number < base.log:
            break
        newest = scanned(number)
        if newest.lines or (base is not None and number == base.log):
            break
        if newest.end != "whole":
            torn = f"{lineage_log(number)}: {newest.problem}"
        newest = None
    if newest is None:
        return Lineage(torn=torn)
    if newest.problem is not None:
        torn = f"{lineage_log(number)}: {newest.problem}"
    parts: list[tuple[int, tuple[chain.Line, ...]]] = [(number, newest.lines)]
    broken = torn if newest.end == "hole" else None
    at = number
    while base is None or at != base.log:
        first = parts[-1][1][0]
        follows = first.body.get("follows")
        if first.body.get("began") != at or not (follows is None or _is_link(follows, at)):
            broken = f"{lineage_log(at)}: it does not begin with the record of its beginning"
            break
        if follows is None:
            break
        before, digest = follows
        scan = scanned(before)
        ends = [i for i, line in enumerate(scan.lines) if line.digest == digest]
        if base is not None and before == base.log and digest == base.digest:
            parts.append((before, ()))
        elif ends:
            parts.append((before, scan.lines[: ends[0] + 1]))
        else:
            why = scan.problem or "it ends before that"
            broken = f"{lineage_log(before)} does not hold the line that {lineage_log(at)} follows: {why}"
            parts = [(before, scan.lines)] if scan.lines else []
            torn = None
            if not parts:
                return Lineage(torn=torn, broken=broken)
        at = before
        if base is not None and at < base.log:
            broken = broken or "the base is not in the history"
            break
    parts.reverse()
    return _folded(parts, base, torn, broken)


def _folded(
    parts: list[tuple[int, tuple[chain.Line, ...]]], base: Base | None, torn: str | None, broken: str | None
) -> Lineage:
    folding = _Folding(History(base or Base()), base.app if base is not None else None)
    incarnation, digest = (base.log, base.digest) if base is not None else (parts[0][0], chain.START)

    def found(broken: str | None) -> Lineage:
        return Lineage(
            history=folding.history,
            incarnation=incarnation,
            digest=digest,
            app=folding.app,
            torn=torn,
            broken=broken,
            places=tuple(folding.places),
        )

    for number, lines in parts:
        for line in lines:
            try:
                folding.add(decode_record(line.body), (number, line.end, line.digest))
            except DamagedLineage as error:
                return found(f"{lineage_log(number)}: {error}")
            incarnation, digest = number, line.digest
    return found(broken)


def _is_link(follows: JSON, at: int) -> bool:
    match follows:
        case [int(log), str()]:
            return 0 < log < at
    return False


def read_records(disk: Disk) -> list[tuple[int, str, Record]]:
    """Every record that counts, with the log and digest of its line, oldest first: to look through a whole store."""
    logs = _Logs(disk)
    found = lineage_of(logs, None)
    records: list[tuple[int, str, Record]] = []
    at: tuple[int, str] | None = (found.incarnation, found.digest)
    while at is not None and at[0]:
        number, digest = at
        lines = chain.scan(logs.read(number)).lines
        upto = next((i for i, line in enumerate(lines) if line.digest == digest), len(lines) - 1)
        part = [(number, line.digest, decode_record(line.body)) for line in lines[: upto + 1]]
        records = part + records
        first = part[0][2] if part else None
        at = first.follows if isinstance(first, Began) else None
    return records


@dataclass(frozen=True)
class LogEnd:
    """The end of the newest log that proves itself; log 0 where none does. frontier: how far the store is computed by
    it. in_hand: whether a record follows that of the frontier, so that a later epoch may be on its way. torn: whether
    what follows, or a newer log, is no line that proves itself.
    """

    log: int = 0
    frontier: int = 0
    in_hand: bool = False
    torn: bool = False


def computed_frontier(disk: Disk) -> int:
    """How far the store is computed, by the end of its lineage alone. `durability.newest` asks other witnesses too."""
    return log_end(disk).frontier


def log_end(disk: Disk) -> LogEnd:
    """Where the newest log ends. Costs one read of its last bytes, whatever its length."""
    torn = False
    for number in reversed(_Logs(disk).numbers):
        name = lineage_log(number)
        try:
            size = disk.size(name)
            reach = _TAIL
            while True:
                found = _end_of(disk.read(name, max(0, size - reach)), from_start=reach >= size)
                if found is not None:
                    frontier, in_hand, torn_here = found
                    return LogEnd(number, frontier, in_hand, torn or torn_here)
                if reach >= size:
                    break
                reach *= 4
            torn = torn or size > 0  # an empty one is of a start that was cut short
        except FileNotFoundError:
            continue
        except IsADirectoryError:
            torn = True
    return LogEnd(torn=torn)


def _end_of(raw: bytes, *, from_start: bool) -> tuple[int, bool, bool] | None:
    """The frontier that the last records in a stretch of a log tell, whether others follow, and whether anything does
    that is none; each line is checked against the one above it. None where the stretch is too short to tell.
    """
    *lines, rest = raw.split(b"\n")

    def proven(i: int) -> bool:
        above = lines[i - 1][:16].decode("ascii", "replace") if i else chain.START
        return chain.follow(above, lines[i][17:]).encode() == lines[i][:16]

    for i in range(len(lines) - 1, -1, -1):
        if b'"computed"' not in lines[i][:32] and b'"began"' not in lines[i][:32]:
            continue
        if i == 0 and not from_start:
            return None
        if not proven(i):
            continue
        try:
            record = decode_record(chain.body_of(lines[i][17:]))
        except (ValueError, DamagedLineage):
            continue
        later = range(i + 1, len(lines))
        torn = bool(rest) or not all(map(proven, later))
        match record:
            case Computed(epoch=epoch):
                return epoch, bool(later), torn
            case Began(after=after):
                return after, True, torn
    return None


def encode_record(record: Record) -> dict[str, JSON]:
    match record:
        case Began():
            return {
                "began": record.incarnation,
                "after": record.after,
                "upto": record.upto,
                "app": record.app,
                **({"follows": list(record.follows)} if record.follows is not None else {}),
                **({"brought": list(record.brought)} if record.brought else {}),
            }
        case Cut():
            marks = {"watermarks": dict(record.watermarks)} if record.watermarks else {}
            return {"cut": record.epoch, "clock": record.clock, "ranges": dict(record.ranges), **marks}
        case Computed():
            line: dict[str, JSON] = {
                "computed": record.epoch,
                "clock": record.clock,
                "seconds": record.seconds,
                "rows": record.rows,
            }
            optional = {
                "rejected": dict(record.rejected),
                "late": dict(record.late),
                "latest": dict(record.latest),
                "layers": dict(record.layers),
                "safe": record.safe,
            }
            kept = {} if record.kept is None else {"kept": record.kept}
            return line | {name: value for name, value in optional.items() if value} | kept
        case Dropped():
            return {"dropped": record.epoch}


def decode_record(line: Mapping[str, JSON]) -> Record:
    try:
        match line:
            case {"began": int(number), "after": int(after), "upto": int(upto), "app": str(app)}:
                follows = line.get("follows")
                if follows is not None and not _is_link(follows, number):
                    raise ValueError("it follows no log before it")
                return Began(
                    incarnation=number,
                    after=after,
                    upto=upto,
                    app=app,
                    follows=None if follows is None else (int(follows[0]), str(follows[1])),
                    brought=tuple(int(each) for each in line.get("brought", ())),
                )
            case {"cut": int(epoch), "clock": float() | int() as clock, "ranges": dict(ranges)}:
                return Cut(epoch, _time(clock), ranges, _each(int, line.get("watermarks", {})))
            case {
                "computed": int(epoch),
                "clock": float() | int() as clock,
                "seconds": float() | int() as seconds,
                "rows": int(rows),
            }:
                return Computed(
                    epoch=epoch,
                    clock=_time(clock),
                    seconds=_time(seconds),
                    rows=rows,
                    rejected=_each(int, line.get("rejected", {})),
                    late=_each(int, line.get("late", {})),
                    latest=_each(int, line.get("latest", {})),
                    layers=_each(str, line.get("layers", {})),
                    safe=int(line.get("safe", 0)),
                    kept=None if line.get("kept") is None else int(line["kept"]),
                )
            case {"dropped": int(epoch)}:
                return Dropped(epoch)
    except (TypeError, ValueError, IndexError, KeyError):
        pass
    raise DamagedLineage(f"a line is no record of lineage: {str(line)[:100]}")


def _time(seconds: float) -> float:
    """Seconds that a calendar knows."""
    if not abs(seconds) < _LATEST:
        raise ValueError("no time")
    return seconds


def _each(kind: type, said: JSON) -> Mapping[str, JSON]:
    """A mapping of names to values of a type."""
    if type(said) is not dict or not all(type(each) is kind for each in said.values()):
        raise ValueError("no such mapping")
    return said


def write_base(disk: Disk, base: Base, before: Base | None = None) -> None:
    """Put a base in place, and the one before it aside. A lost one costs reading and nothing else."""
    if before is not None and before.epoch:
        disk.replace(EARLIER_BASE, documents.encode(before.encode()), flushed=True)
    disk.replace(BASE, documents.encode(base.encode()), flushed=True)


def forget_bases(disk: Disk) -> None:
    """Remove the bases: for whoever puts other logs in the place of those that they stand on."""
    for name in (BASE, EARLIER_BASE):
        disk.remove(name)
    disk.flush_folder(LINEAGE)


def _read_bases(disk: Disk) -> tuple[list[Base], str | None]:
    """The bases that prove themselves, newest first, and what is wrong with the first that does not."""
    bases: list[Base] = []
    problems: list[str] = []
    for name in (BASE, EARLIER_BASE):
        try:
            found = documents.decode(disk.read(name))
            if isinstance(found, str):
                problems.append(f"{name}: {found}")
            else:
                bases.append(Base.decode(found))
        except FileNotFoundError:
            continue
        except (TypeError, KeyError, ValueError, IsADirectoryError):
            problems.append(f"{name}: it is no base")
    return bases, problems[0] if problems else None


def _holds(disk: Disk, base: Base) -> bool:
    """Whether the log of a base has the line at which it stands, after the line above it."""
    reach = _ANCHOR
    while True:
        start = max(0, base.end - reach)
        try:
            raw = disk.read(lineage_log(base.log), start, base.end - start)
        except (FileNotFoundError, IsADirectoryError):
            return False
        if len(raw) < base.end - start or not raw.endswith(b"\n"):
            return False
        lines = raw.split(b"\n")[:-1]
        if len(lines) > 2 or start == 0:
            above = lines[-2][:16].decode("ascii", "replace") if len(lines) > 1 else chain.START
            digest = base.digest.encode()
            return lines[-1][:16] == digest and chain.follow(above, lines[-1][17:]).encode() == digest
        reach *= 8


def _lost(found: Lineage, base: Base) -> bool:
    """Whether a base knows more than the logs, and nobody has gone on from them since."""
    return found.incarnation <= base.log and found.history.frontier < base.epoch
