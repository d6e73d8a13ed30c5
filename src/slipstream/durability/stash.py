"""The stash: cuts of epochs whose lineage may not be durable yet, in memory.

What an epoch was made of goes in here when it is cut, besides into the log. Whatever leaves the app that depends on the
epoch takes its cut along, for as long as it is not durable (`forwarded`): so whoever has seen an output has what it was
made of, and no output waits for storage. What is durable is let go.

A start whose lineage ends before an epoch that somebody outside has seen goes on with the cuts that come from there
(`adopted`): the same input, and therefore the same output. Where lineage was lost and nobody has seen what it made, it
is cut anew, and nobody can tell.

Durable is what the log of the store has on its disk, if the app has no replicas; else what has arrived on as many of
them as make an epoch safe.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slipstream.core.errors import DamagedLineage
from slipstream.durability.board import Replication, safe_epoch
from slipstream.store.history import History
from slipstream.store.records import JSON, Cut, decode_record, encode_record


def digest_of(cut: Cut) -> str:
    """What tells the cuts of one epoch apart, in any log and any incarnation."""
    text = json.dumps(encode_record(cut), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def durable_lineage(said: Replication, *, replicated: bool) -> int:
    """The newest epoch whose lineage is durable, by what the agent says."""
    if not replicated:
        return said.persisted
    arrived = [max(each.lineage, each.durable) for each in said.replicas.values()]
    return max(safe_epoch(arrived, max(1, said.safe_on)), said.safe)


class Stash:
    """See the module's docstring. Used by the thread that cuts, and by those that deliver."""

    def __init__(self, cuts: Iterable[Cut] = ()) -> None:
        self._cuts = {cut.epoch: cut for cut in cuts}
        self._lock = threading.Lock()

    def add(self, cut: Cut) -> None:
        with self._lock:
            self._cuts[cut.epoch] = cut

    def forwarded(self, upto: int, durable: int) -> tuple[Mapping[str, JSON], ...]:
        """What an output as of an epoch takes along, given which lineage is durable."""
        with self._lock:
            for epoch in [epoch for epoch in self._cuts if epoch < durable]:
                del self._cuts[epoch]  # that of the durable epoch itself is asked for by its digest
            return tuple(
                encode_record(self._cuts[epoch])
                for epoch in range(durable + 1, upto + 1)
                if epoch in self._cuts
            )

    def digest(self, epoch: int) -> str:
        """Of the cut of an epoch; nothing where it is not known any more."""
        with self._lock:
            return digest_of(self._cuts[epoch]) if epoch in self._cuts else ""


@dataclass(frozen=True)
class Outside:
    """What somebody outside has seen: epochs up to one, its cut, and the cuts that came along."""

    who: str
    epoch: int
    cut: str
    lineage: tuple[Mapping[str, JSON], ...]


def cuts_of(seen: Outside) -> dict[int, Cut]:
    """The cuts that came along with an output."""
    found = {}
    for line in seen.lineage:
        record = decode_record(line)
        if not isinstance(record, Cut):
            raise DamagedLineage(f"{seen.who}: a line that was forwarded is no cut: {str(line)[:100]}")
        found[record.epoch] = record
    return found


def missing_cuts(history: History, seen: Sequence[Outside]) -> tuple[Cut, ...]:
    """The cuts that a history lacks and outputs have: those of the output that reaches furthest, and agrees with what
    is known. They follow the last that is known, one after another, and are to be computed as they were cut.
    """
    known = {cut.epoch: cut for cut in history.cuts}
    last = max(known, default=history.base.epoch)
    best: tuple[Cut, ...] = ()
    for each in seen:
        if each.epoch <= last:
            continue
        told = cuts_of(each)
        agrees = all(
            digest_of(told[epoch]) == digest_of(known[epoch]) for epoch in told.keys() & known.keys()
        )
        more = [told[epoch] for epoch in range(last + 1, each.epoch + 1) if epoch in told]
        if agrees and len(more) == each.epoch - last > len(best):
            best = tuple(more)
    return best


def contradicts(seen: Outside, last: int, cut: str) -> str | None:
    """Why an output cannot be of a history, if it cannot. last: the newest epoch that is cut there. cut: the digest of
    the cut of the epoch that was seen, nothing where that is not known any more.
    """
    if seen.epoch > last:
        return f"and this app has come to epoch {last}"
    if seen.cut and cut and seen.cut != cut:
        return "which was another one: made of other input than this app's"
    return None
