"""Deciding how to start: pure; what is there in, one instruction out.

| what is found | what is done |
| --- | --- |
| the store is whole, and no replica is ahead of it | go on |
| layers are missing or damaged, and a replica's fill the gaps | fetch those, go on |
| the store is gone, or cannot be filled up, or lags a replica | restore the newest epoch that a replica holds |
| nothing anywhere, and every replica was heard | a new app: start empty |
| anything else | refuse, and say what is missing and where a copy may be |

A store is never started empty where something was expected: a replica that cannot be reached may hold something. The
epochs that a restored store lacks are computed again from their input, all in one.

With `safe_on` of n replicas, an epoch that was called safe is on one of any n - safe_on + 1 of them. If fewer were
heard, a restored store may be older than what was called safe; that is allowed, because the others may be gone for
good, and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.errors import MissingLayer
from slipstream.trace import LayerName, Span, cover, tile

Names = Mapping[str, Sequence[LayerName]]


@dataclass(frozen=True)
class Local:
    """What is left of a store. usable: there is lineage that says how far it goes, and a catalog. layers: the sound
    ones of each trace; damaged: the others. remains: whether there is anything at all.
    """

    usable: bool
    remains: bool
    frontier: int = 0
    traces: tuple[str, ...] = ()
    layers: Names = field(default_factory=dict)
    damaged: Names = field(default_factory=dict)


@dataclass(frozen=True)
class Remote:
    """A replica: the epoch and layers of its newest commit, or why it cannot be read."""

    url: str
    epoch: int = 0
    layers: Names = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class GoOn:
    """The store is whole."""


@dataclass(frozen=True)
class StartEmpty:
    """There is nothing, and there never was."""


@dataclass(frozen=True)
class Fetch:
    """Bring these layers from a replica, by trace; then the store is whole."""

    url: str
    layers: Names


@dataclass(frozen=True)
class Restore:
    """Make the store what a replica holds. lost: epochs that were computed and must be computed again, if known.
    certain: enough replicas were heard to know that nothing safe is missing.
    """

    url: str
    epoch: int
    lost: int
    certain: bool


@dataclass(frozen=True)
class Refuse:
    """Nothing can be done without help."""

    missing: str
    heard: tuple[str, ...]


Instruction = GoOn | StartEmpty | Fetch | Restore | Refuse


def decide(local: Local, remotes: Sequence[Remote], safe_on: int) -> Instruction:
    """What to do at a start."""
    heard = [remote for remote in remotes if remote.error is None]
    best = max(heard, key=lambda remote: remote.epoch, default=None)
    ahead = best is not None and best.epoch > local.frontier
    if local.usable and not ahead:
        gaps = gaps_of(local)
        if not gaps:
            return GoOn()
        for remote in sorted(heard, key=lambda remote: remote.epoch, reverse=True):
            layers = fill(local, remote, gaps)
            if layers is not None:
                return Fetch(remote.url, layers)
    if best is not None and best.epoch > 0:
        certain = len(heard) >= len(remotes) - safe_on + 1
        return Restore(best.url, best.epoch, max(0, local.frontier - best.epoch), certain)
    if not local.remains and len(heard) == len(remotes):
        return StartEmpty()
    return Refuse(_missing(local), tuple(_heard(remote) for remote in remotes))


def gaps_of(local: Local) -> list[str]:
    """The traces that cannot be read as of the store's epoch, or have a damaged layer."""
    found = []
    for trace in local.traces:
        try:
            cover(local.layers.get(trace, ()), local.frontier, Span.whole())
        except MissingLayer:
            found.append(trace)
            continue
        if local.damaged.get(trace):
            found.append(trace)
    return found


def fill(local: Local, remote: Remote, gaps: Iterable[str]) -> Names | None:
    """The layers of a replica that make traces whole again; None if they do not.

    A damaged log is replaced too, where the replica has its updates; where it has not, that history is lost, and what
    is there is still right.
    """
    wanted: dict[str, list[LayerName]] = {}
    for trace in gaps:
        mine = list(local.layers.get(trace, ()))
        theirs = [name for name in remote.layers.get(trace, ()) if name.hi <= local.frontier]
        try:
            pieces = cover([*mine, *theirs], local.frontier, Span.whole())
        except MissingLayer:
            return None
        chosen = {piece.layer for piece in pieces}
        for name in local.damaged.get(trace, ()):
            if name.is_log:
                try:
                    chosen |= {
                        piece.layer
                        for piece in tile([*mine, *theirs], name.lo, name.hi, name.span, whole=False)
                    }
                except MissingLayer:
                    continue
        wanted[trace] = sorted(chosen - set(mine))
    return wanted


def _missing(local: Local) -> str:
    if not local.remains:
        return "there is no store"
    if not local.usable:
        return "the store has no lineage or no catalog, so that nobody can say how far it goes"
    texts = []
    for trace in gaps_of(local):
        try:
            cover(local.layers.get(trace, ()), local.frontier, Span.whole(), directory=trace)
        except MissingLayer as gap:
            texts.append(str(gap).partition(". ")[0])
        texts += [f"{trace}/{name.filename} is damaged" for name in local.damaged.get(trace, ())]
    return "; ".join(texts)


def _heard(remote: Remote) -> str:
    if remote.error is not None:
        return f"{remote.url} cannot be read ({remote.error})"
    return f"{remote.url} holds epoch {remote.epoch}" if remote.epoch else f"{remote.url} holds nothing"
