"""Frontiers: how far a store is computed, durable, safe and compacted; pure arithmetic.

Always `compacted <= safe <= computed`, and `safe` is the epoch that as many replicas hold as the user asked for: the
point to which an app can always go back, and up to which input may be forgotten. Without replicas there is nothing to
go back to but the store itself, and `safe` is 0: input is never forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.durability.board import Replication, read_replication
from slipstream.durability.lineage import History


@dataclass(frozen=True)
class Lag:
    """A replica's distance from the newest epoch. error: why it is stuck, if it is."""

    durable: int
    epochs: int
    bytes: int
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Frontiers:
    """Epochs. persisted: flushed to the local disk. durable: by replica. compacted: time travel reaches back to it.
    damage: what was found to be damaged last, if anything was, and what came of it.
    """

    computed: int
    persisted: int
    safe: int
    compacted: int
    durable: Mapping[str, Lag] = field(default_factory=dict)
    damage: str | None = None


def safe_epoch(durable: list[int], safe_on: int) -> int:
    """The epoch up to which `safe_on` of the replicas hold everything."""
    if not durable or safe_on < 1 or safe_on > len(durable):
        return 0
    return sorted(durable, reverse=True)[safe_on - 1]


def frontiers(said: Replication, past: History, compacted: int, now: float) -> Frontiers:
    """Where a store and its replicas stand. A replica lags by the time since the first epoch that it lacks."""
    computed = past.frontier
    clocks = {done.epoch: done.clock for done in past.computed}
    durable = {}
    for url, each in said.replicas.items():
        reached = min(each.durable, computed)
        seconds = max(0.0, now - clocks.get(reached + 1, now)) if reached < computed else 0.0
        durable[url] = Lag(
            reached, computed - reached, each.behind if reached < computed else 0, seconds, each.error
        )
    safe = safe_epoch([lag.durable for lag in durable.values()], said.safe_on)
    return Frontiers(
        computed, min(said.persisted, computed), safe, min(compacted, computed), durable, said.damage
    )


class Watching:
    """What the agent says, read again only when it has said something new."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stamp: tuple[int, int] | None = None
        self._known = Replication()

    def now(self) -> Replication:
        try:
            status = (self._root / "replication.json").stat()
        except FileNotFoundError:
            return self._known
        stamp = (status.st_ino, status.st_mtime_ns)
        if stamp != self._stamp:
            self._known, self._stamp = read_replication(self._root), stamp
        return self._known
