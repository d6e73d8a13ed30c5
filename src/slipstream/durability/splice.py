"""One history out of many copies of lineage: the store's logs, and the stretches of them that replicas hold. Pure.

A line proves which line it follows (`store.chain`), so a log need not be whole in any one copy: lines that follow one
another are joined, wherever each was found. What is read in the end is the longest history that holds from the first
line on. Three things can be wrong with it:
- **torn**: the newest log ends in something that is no line. A crash left it; nothing that was flushed is missing;
- **broken**: a line is there that follows from one that nobody has. More was known once than can be read now. Where
  that is at the end of the newest log (`gap`), a power cut may have done it, too: what is not flushed reaches the
  disk in any order;
- copies **contradict** each other: two lines follow from the same one. Two stores went on from one history, each for
  itself. Such copies are never mixed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slipstream.core.errors import DamagedLineage
from slipstream.store import chain
from slipstream.store.history import History, history_of
from slipstream.store.layout import lineage_log
from slipstream.store.lineage import Lineage
from slipstream.store.records import Began, Computed, Record, decode_record

Copies = Mapping[int, Sequence[bytes]]
"""By log, stretches of it: whole lines, from anywhere in it."""

_WIDTH = len(chain.START)


@dataclass(frozen=True)
class Chain:
    """A history, and where it was written. begins: its incarnations, oldest first. computed_by: the incarnation that
    computed an epoch. logs: the bytes of every log that counts for it. gap: its last log has lines after a hole.
    """

    lineage: Lineage = field(default_factory=Lineage)
    begins: tuple[Began, ...] = ()
    computed_by: Mapping[int, int] = field(default_factory=dict)
    logs: Mapping[int, bytes] = field(default_factory=dict)
    gap: str | None = None

    @property
    def brought(self) -> set[int]:
        """Incarnations that never began, and whose layers belong to this history."""
        return {number for began in self.begins for number in began.brought}

    @property
    def history(self) -> History:
        return self.lineage.history

    @property
    def tip(self) -> int:
        """The incarnation that wrote last."""
        return self.lineage.incarnation

    def holds(self, log: int, digest: str) -> bool:
        """Whether a line is part of this history."""
        raw = self.logs.get(log, b"")
        return any(line.startswith(digest.encode()) for line in raw.split(b"\n"))

    def bounded(self, epoch: int, incarnation: int) -> int:
        """What is left of an epoch that an incarnation had reached, after those that came later."""
        return min([epoch, *(began.after for began in self.begins if began.incarnation > incarnation)])


@dataclass(frozen=True)
class _Line:
    digest: str
    text: bytes
    raw: bytes


def splice(copies: Iterable[Copies], app: str | None) -> Chain:
    """The longest history that copies add up to, of the app with this identity."""
    pieces: dict[int, list[bytes]] = {}
    for copy in copies:
        for number, stretches in copy.items():
            pieces.setdefault(number, []).extend(stretches)
            for stretch in stretches:  # a log in another's place is still what it says
                began = _began(stretch)
                if began is not None and began.incarnation != number:
                    pieces.setdefault(began.incarnation, []).append(stretch)
    logs: dict[int, list[_Line]] = {}
    torn: dict[int, str] = {}
    gaps: dict[int, str] = {}
    broken: list[str] = []
    for number in sorted(pieces):
        joined = _joined(_own(number, pieces[number], app))
        if joined.gap:
            gaps[number] = f"{lineage_log(number)}: lines after the first {len(joined.lines)} are missing"
        elif joined.rest:
            torn[number] = f"{lineage_log(number)} ends in something that is no line"
        if joined.lines:
            logs[number] = joined.lines
            continue
        foreign = [why for each in pieces[number] if (why := _foreign(number, each, app)) is not None]
        broken += [f"{lineage_log(number)}: {why}" for why in foreign]
    found = _traced(logs, torn, broken)
    gap = gaps.get(found.tip)
    if gap is not None and found.lineage.broken is not None:
        lineage = replace(found.lineage, broken=f"{gap}; {found.lineage.broken}")
        return replace(found, lineage=lineage)
    return replace(found, gap=gap)


def contradict(one: Copies, other: Copies, app: str | None) -> bool:
    """Whether two copies tell of two histories that parted."""
    for number in one.keys() & other.keys():
        here, there = (_follows(_own(number, each[number], app)) for each in (one, other))
        if any(there.get(before, digest) != digest for before, digest in here.items()):
            return True
    return False


@dataclass(frozen=True)
class _Joined:
    """The lines of a log from its beginning on. gap: further lines are there, and none that they follow. rest: so is
    something that is no line of it.
    """

    lines: list[_Line]
    gap: bool
    rest: bool


def _joined(stretches: Sequence[bytes]) -> _Joined:
    links: dict[str, _Line] = {}
    loose: list[_Line] = []
    rest = False
    for stretch in stretches:
        rest = rest or bool(stretch and not stretch.endswith(b"\n"))
        for before, line in _lines(stretch):
            if line is None:
                rest = True
            elif before is not None:
                links[before] = line
            else:
                loose.append(line)
    found: list[_Line] = []
    at = chain.START
    while True:
        following = links.get(at) or next(
            (line for line in loose if chain.follow(at, line.text) == line.digest), None
        )
        if following is None:
            break
        found.append(following)
        at = following.digest
    known = {line.digest for line in found}
    gap = any(line.digest not in known for line in links.values())
    return _Joined(found, gap, rest or any(line.digest not in known for line in loose))


def _lines(stretch: bytes) -> Iterator[tuple[str | None, _Line | None]]:
    """Each line with the digest that it follows, if the line above it says that; None if that must be found. What is no
    line at all comes as None.
    """
    above: str | None = chain.START
    for raw in stretch.split(b"\n")[:-1]:
        head, space, text = raw[:_WIDTH], raw[_WIDTH : _WIDTH + 1], raw[_WIDTH + 1 :]
        if space != b" " or not head.isalnum():
            above = None
            yield None, None
            continue
        line = _Line(head.decode(), text, raw + b"\n")
        follows = above is not None and chain.follow(above, text) == line.digest
        yield (above if follows else None), line
        above = line.digest


def _follows(stretches: Sequence[bytes]) -> dict[str, str]:
    return {
        before: line.digest
        for stretch in stretches
        for before, line in _lines(stretch)
        if before is not None and line is not None
    }


def _own(number: int, stretches: Sequence[bytes], app: str | None) -> list[bytes]:
    return [each for each in stretches if _foreign(number, each, app) is None]


def _foreign(number: int, stretch: bytes, app: str | None) -> str | None:
    """Why a stretch that begins as a log does is none of this incarnation's, if it is not."""
    before, line = next(_lines(stretch), (None, None))
    if before != chain.START or line is None:
        return None
    match _began(stretch):
        case None:
            return "it does not begin with the record of a beginning"
        case Began(incarnation=incarnation) if incarnation != number:
            return f"it is the log of incarnation {incarnation}"
        case Began(app=owner) if app is not None and owner != app:
            return f"it is of another app ({owner})"
    return None


def _began(stretch: bytes) -> Began | None:
    """The beginning that a stretch begins with, if it does."""
    before, line = next(_lines(stretch), (None, None))
    if before != chain.START or line is None:
        return None
    try:
        first = decode_record(chain.body_of(line.text))
    except (DamagedLineage, ValueError):
        return None
    return first if isinstance(first, Began) else None


def _traced(logs: Mapping[int, list[_Line]], torn: Mapping[int, str], broken: list[str]) -> Chain:
    """The history that ends with the newest log; if that follows a line that nobody has, what is left before that."""
    parts: list[tuple[int, list[_Line]]] = []
    at = max(logs, default=0)
    upto: str | None = None
    while at:
        lines = logs.get(at, [])
        end = next((i + 1 for i, line in enumerate(lines) if line.digest == upto), 0)
        if upto is not None and not end:
            broken.append(f"{lineage_log(at)} lacks the line that {lineage_log(parts[-1][0])} follows")
            parts = []
            if not lines:
                at, upto = max((number for number in logs if number < at), default=0), None
                continue
        parts.append((at, lines[: end or len(lines)]))
        began = decode_record(chain.body_of(lines[0].text))
        assert isinstance(began, Began)
        if began.follows is None:
            break
        at, upto = began.follows
    parts.reverse()
    return _folded(parts, torn, broken)


def _folded(
    parts: Sequence[tuple[int, Sequence[_Line]]], torn: Mapping[int, str], broken: list[str]
) -> Chain:
    if not parts:
        return Chain(Lineage(torn=next(iter(torn.values()), None), broken="; ".join(broken) or None))
    placed: list[tuple[int, _Line, Record]] = []
    for number, lines in parts:
        for line in lines:
            try:
                placed.append((number, line, decode_record(chain.body_of(line.text))))
            except (DamagedLineage, ValueError) as error:
                broken.append(f"{lineage_log(number)}: {error}")
                return _chain(placed, torn, broken)
    return _chain(placed, torn, broken)


def _chain(placed: list[tuple[int, _Line, Record]], torn: Mapping[int, str], broken: list[str]) -> Chain:
    problem = _misfit(placed)
    if problem is not None:
        fits = bisect_left(range(len(placed) + 1), True, key=lambda n: _misfit(placed[:n]) is not None) - 1
        broken.append(problem)
        placed = placed[:fits]
    if not placed:
        return Chain(Lineage(broken="; ".join(broken) or None))
    history = history_of(record for _, _, record in placed)
    number, line, _ = placed[-1]
    begins = tuple(record for _, _, record in placed if isinstance(record, Began))
    logs: dict[int, list[bytes]] = {}
    for log, each, _ in placed:
        logs.setdefault(log, []).append(each.raw)
    return Chain(
        lineage=Lineage(
            history=history,
            incarnation=number,
            digest=line.digest,
            app=begins[-1].app,
            torn=torn.get(number),
            broken="; ".join(broken) or None,
        ),
        begins=begins,
        computed_by={record.epoch: log for log, _, record in placed if isinstance(record, Computed)},
        logs={log: b"".join(lines) for log, lines in logs.items()},
    )


def _misfit(placed: Sequence[tuple[int, _Line, Record]]) -> str | None:
    try:
        history_of(record for _, _, record in placed)
    except DamagedLineage as error:
        return str(error)
    return None
