"""Frontiers: how far a store is computed, durable, safe and compacted; pure arithmetic.

Always `compacted <= safe <= computed`, and `safe` is the newest epoch that as many replicas held at some time as the
user asked for: the point to which an app can always go back, and up to which input may be forgotten. What was once said
to be safe is not taken back, should a replica lose it: then `durable` says so. Without replicas there is nothing to
go back to but the store itself, and `safe` is 0: input is never forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.durability.board import Replication, Trouble, decode_replication, safe_epoch
from slipstream.store.disk import Disk
from slipstream.store.history import History
from slipstream.store.layout import PROGRESS

__all__ = ["Frontiers", "Lag", "Watching", "frontiers", "safe_epoch"]


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
    errors: what went wrong last in each part of the agent. damage: the layers that are damaged, if any are.
    """

    computed: int
    persisted: int
    safe: int
    compacted: int
    durable: Mapping[str, Lag] = field(default_factory=dict)
    damage: str | None = None
    errors: Mapping[str, Trouble] = field(default_factory=dict)


def frontiers(said: Replication, past: History, compacted: int, now: float) -> Frontiers:
    """Where a store and its replicas stand. A replica lags by the time since the first epoch that it lacks."""
    computed = past.frontier
    durable = {}
    for url, each in said.replicas.items():
        reached = min(each.durable, computed)
        seconds = max(0.0, now - (past.clock_of(reached + 1) or now)) if reached < computed else 0.0
        durable[url] = Lag(
            reached, computed - reached, each.behind if reached < computed else 0, seconds, each.error
        )
    safe = max(said.safe, past.safe, safe_epoch([lag.durable for lag in durable.values()], said.safe_on))
    return Frontiers(
        computed=computed,
        persisted=min(said.persisted, computed),
        safe=min(safe, computed),
        compacted=min(compacted, computed),
        durable=durable,
        damage=said.damage,
        errors=said.errors,
    )


class Watching:
    """What the agent says, read again only when it has said something new."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._raw: bytes | None = None
        self._known = Replication()

    def now(self) -> Replication:
        try:
            raw = self._disk.read(PROGRESS)
        except (FileNotFoundError, IsADirectoryError):
            return self._known
        if raw != self._raw:
            self._known, self._raw = decode_replication(raw) or self._known, raw
        return self._known
