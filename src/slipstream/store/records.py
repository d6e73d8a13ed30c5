"""The records of lineage: what a line of a log says, and how it is written and read (`lineage` has their meaning)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slipstream.core.errors import DamagedLineage

JSON = Any
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
                if follows is not None and not is_link(follows, number):
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


def is_link(follows: JSON, at: int) -> bool:
    match follows:
        case [int(log), str()]:
            return 0 < log < at
    return False
