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

from dataclasses import dataclass, field, replace

from slipstream.core.errors import DamagedLineage
from slipstream.store import chain, documents
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.history import Base, Folding, History, Place
from slipstream.store.layout import BASE, EARLIER_BASE, LINEAGE, lineage_log, log_number
from slipstream.store.records import Began, Computed, Record, decode_record, encode_record, is_link

_HEAD, _TAIL = 1 << 12, 1 << 16
_ANCHOR = 1 << 12


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

    def __init__(self, disk: WritableDisk, incarnation: int, known: Lineage | None = None) -> None:
        self._disk, self._log = disk, lineage_log(incarnation)
        self._incarnation = incarnation
        self._digest = chain.START
        self._end = 0
        self._in_doubt = False
        self._folding = None if known is None else Folding(known.history, known.app, known.places)

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
        self._folding = Folding(later, app, [place for place in self.places if place.epoch > base.epoch])


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
        if first.body.get("began") != at or not (follows is None or is_link(follows, at)):
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
    folding = Folding(History(base or Base()), base.app if base is not None else None)
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
    """Where the newest log ends. Costs a read of its first bytes and of its last ones, whatever its length."""
    torn = False
    for number in reversed(_Logs(disk).numbers):
        name = lineage_log(number)
        try:
            size = disk.size(name)
            if _is_anothers(disk.read(name, 0, _HEAD), number):
                torn = True
                continue
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


def _is_anothers(raw: bytes, number: int) -> bool:
    """Whether a log that begins like this is that of another incarnation, under a name that is not its own."""
    try:
        first = decode_record(chain.body_of(raw.partition(b"\n")[0][17:]))
    except (ValueError, DamagedLineage):
        return False
    return isinstance(first, Began) and first.incarnation != number


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


def write_base(disk: WritableDisk, base: Base, before: Base | None = None) -> None:
    """Put a base in place, and the one before it aside. A lost one costs reading and nothing else."""
    if before is not None and before.epoch:
        disk.replace(EARLIER_BASE, documents.encode(before.encode()), flushed=True)
    disk.replace(BASE, documents.encode(base.encode()), flushed=True)


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
