"""The newest epoch that readers may see, and what shows that it was once newer.

Lineage alone says how far a store is computed. If its newest log is gone, or was cut back, what is left still reads
well, and says something older. No reader may take that for the present. So every read asks witnesses too, whose
word costs a listing that it makes anyway and one small file:

| witness | what it proves |
| --- | --- |
| a fence of an incarnation that is newer than the newest log | that incarnation had begun: its log came first |
| a layer of the newest incarnation, or of a newer one, past the frontier | that epoch was cut: its record came first |
| `progress.json` of the same incarnation, or of a newer one | what is persisted or safe was computed before |
| a tail of the log that is no line | something was appended, and perhaps seen |

**Never a false alarm.** Each witness is asked before the log is read, and each comes after the record that it speaks
of, so a store in use never contradicts itself: only the epoch in hand may be ahead, and its cut is on record. What an
incarnation before the newest log's wrote counts for nothing here, so a process that was succeeded may go on. While a
recovery is under way (its note is there, and the store is held), layers come before the lineage that they belong to,
and the frontier is what the log says. A line that is torn while an engine holds the store is its own, half appended.
What looks wrong is believed only if the log is the same after all witnesses were heard.

Not promised: to miss the record of one last epoch that was cut off at its first byte before the agent told of it. That
is what a crash right before publishing leaves, and the epoch is computed again from the same cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slipstream.core.errors import LostLineage
from slipstream.durability.board import Replication, read_replication
from slipstream.store.layout import RESTORING, lineage_log
from slipstream.store.lineage import LogEnd, log_end, read_lineage
from slipstream.store.store import Store
from slipstream.trace import Fence, LayerName

Listed = Sequence[tuple[str, list[LayerName], list[Fence]]]
"""Traces, each with its layers and fences."""

_LOOKS = 10


@dataclass(frozen=True)
class Newest:
    """The newest epoch that lineage knows; lost: what shows that there was a newer one, if anything does."""

    epoch: int
    lost: str | None = None


def newest_epoch(store: Store, traces: Iterable[str] | None = None) -> int:
    """The newest epoch; an error where a newer one was computed and its lineage is lost. traces: those that are asked,
    all of them unless given.
    """
    found = find_newest(store, traces)
    if found.lost is not None:
        raise LostLineage(str(store.root), found.epoch, found.lost)
    return found.epoch


def find_newest(store: Store, traces: Iterable[str] | None = None) -> Newest:
    """The newest epoch, and what is wrong with that."""
    asked = list(store.traces() if traces is None else traces)
    found = Newest(0)
    for _ in range(_LOOKS):
        said = read_replication(store.disk)
        listed = [(trace, *store.layers.listed(trace)) for trace in asked]
        end = log_end(store.disk)
        found = Newest(end.frontier, lost(end, said, listed))
        if found.lost is None or _explained(store, end, said, listed):
            return Newest(end.frontier)
        if log_end(store.disk) == end:
            break
    return found


def lost(end: LogEnd, said: Replication, listed: Listed) -> str | None:
    """What shows that more was computed than the end of the lineage tells."""
    ahead = end.frontier + 1 if end.in_hand else end.frontier
    for trace, layers, fences in listed:
        begun = max((fence.incarnation for fence in fences), default=0)
        if begun > end.log:
            return f"{lineage_log(begun)} is missing or cannot be read, and {trace} has a fence of it"
        past = [name for name in layers if name.incarnation >= end.log and name.hi > ahead]
        if past:
            newest = max(past, key=lambda name: name.hi)
            log = lineage_log(max(newest.incarnation, end.log))
            return f"{log} ends before epoch {newest.hi}, and {trace} has layers of it"
    if said.incarnation > end.log:
        return f"{lineage_log(said.incarnation)} is missing or cannot be read, and the agent has told of it"
    promised = max(said.persisted, said.safe)
    if said.incarnation == end.log and promised > end.frontier:
        return f"{lineage_log(end.log)} ends before epoch {promised}, and the agent has told of that"
    if end.torn:
        return f"{lineage_log(end.log)}, or one that is newer, ends in something that is no line of it"
    return None


def _explained(store: Store, end: LogEnd, said: Replication, listed: Listed) -> bool:
    """Whether what looks lost is not: a recovery is under way, an append is, or a pending epoch is in hand."""
    running = store.running()
    if running and store.disk.exists(RESTORING):
        return True
    allowed = replace(end, torn=end.torn and not running)
    if not end.in_hand:
        pending = read_lineage(store.disk).history.pending
        allowed = replace(allowed, in_hand=any(cut.epoch == end.frontier + 1 for cut in pending))
    return lost(allowed, said, listed) is None
