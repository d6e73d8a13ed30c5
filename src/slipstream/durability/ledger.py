"""The engine's ledger: lineage, the safe frontier and the agent, behind the few calls that the epoch's loop makes
(`epoch.ledger`).

**Only the owner writes.** Every call that appends, removes or heals asks first whether the store is still ours.

**What is safe** is what the agent says of replicas, and it must be about *our* epochs: a successor numbers its own
after the one that it goes on from. So what an agent of a later incarnation says is not believed, and what one of an
earlier incarnation said counts up to the epoch from which this one went on. Else input would be forgotten that only
somebody else's epoch of the same number has taken.

**The layers of an epoch** are expected where the plan puts them, one for each shard, and are asked for their digests
without listing a folder. Where one is not where it is expected, the folder is listed.

**History is let go in the record of an epoch first** (`Computed.kept`). The agent removes what it is told to, and is
told only what is recorded: so what is missing without a record is lost, and is told as such. While somebody computes
beside the epochs what these have done since (`keeping`), nothing more is let go.

A store whose folder is gone, or in which the log that this process writes is gone, has *vanished*: that is trouble,
not a takeover. If it comes back as it was, the engine goes on; if another engine has made it anew, it is superseded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Protocol

from slipstream.core.errors import StoreTrouble, StoreVanished
from slipstream.core.settings import Durability, Exposure
from slipstream.durability.board import Replication, Word, safe_epoch
from slipstream.durability.stash import Stash
from slipstream.store.base import Foldable, move_base
from slipstream.store.disk import ROOM
from slipstream.store.history import History
from slipstream.store.layers import combined
from slipstream.store.layout import PROBE, lineage_log
from slipstream.store.lineage import LineageWriter
from slipstream.store.records import Computed, Cut, Dropped, Record
from slipstream.store.store import Claim
from slipstream.trace import LayerName, Span

_PROBED = bytes(ROOM)
"""What is written to see whether there is room."""


class Following(Protocol):
    """What a ledger needs of the agent's end in this process."""

    def tell(self, word: Word) -> None: ...
    def look(self) -> None: ...
    def close(self) -> None: ...


class Watched(Protocol):
    """What the agent says."""

    def now(self) -> Replication: ...


@dataclass(frozen=True)
class Upkeep:
    """Whose history is kept, and from which epoch on, given the newest epoch and when it was computed."""

    histories: tuple[str, ...]
    keep_from: Callable[[int, float], int]


class StoreLedger:
    """Writes down what the loop does, in a store that this process has claimed."""

    def __init__(
        self,
        *,
        claim: Claim,
        lineage: LineageWriter,
        past: History,
        durability: Durability,
        agent: Following,
        watching: Watched,
        traces: Mapping[str, Sequence[Sequence[Span]]],
        upkeep: Upkeep,
        sources: Mapping[str, Foldable],
        heal: Callable[[], tuple[str, ...]],
        stash: Stash | None = None,
    ) -> None:
        """past: the history from which this incarnation goes on. traces: all that epochs write to, each with the spans
        of the layers that an epoch usually makes there, in either way. sources: make summaries of old input. heal:
        replaces damaged layers; those that it replaced. stash: where cuts go besides.
        """
        self._claim, self._lineage, self._disk = claim, lineage, claim.owned
        self._agent, self._watching, self._durability = agent, watching, durability
        self._traces, self._upkeep, self._heal = dict(traces), upkeep, heal
        self._sources = sources
        self._stash = stash or Stash()
        self._after = self._computed = past.frontier
        self._safe = min(past.safe, past.frontier)
        followed = past.computed if durability.written else ()
        self._unsafe = deque((done.epoch, done.clock) for done in followed if done.epoch > self._safe)
        self._kept = past.kept
        self._keepers, self._letting_go = 0, Lock()
        if past.clock is not None:  # what was computed before may not have reached anybody yet
            self._kept = min(past.kept, upkeep.keep_from(past.frontier, past.clock))
            self._tell(past.frontier)

    def check_ours(self) -> None:
        self._claim.check_ours()

    def cut(self, cut: Cut) -> None:
        self._append(cut)
        self._stash.add(cut)

    def layers(self, epoch: int) -> dict[str, str]:
        found = {trace: self._digests(trace, epoch, ways) for trace, ways in self._traces.items()}
        if not all(found.values()):
            self._check_there()
        return {trace: combined(digests) for trace, digests in found.items() if digests}

    def computed(self, record: Computed) -> None:
        if record.epoch <= self._computed:
            return
        kept = self._upkeep.keep_from(record.epoch, record.clock)
        with self._letting_go:
            kept = min(kept, self._kept) if self._keepers else kept
            self._append(replace(record, kept=kept))
            self._computed, self._kept = record.epoch, kept
        if self._durability.written:
            self._unsafe.append((record.epoch, record.clock))

    def dropped(self, epoch: int) -> None:
        self._append(Dropped(epoch))

    def discard(self, after: int) -> None:
        self._claim.check_ours()
        self._claim.discard_after(after)

    def safe(self) -> int:
        with suppress(StoreTrouble):  # what was known is still true
            self._learn(self._watching.now())
        return self._safe

    def exposure(self, now: float) -> Exposure:
        said = self._watching.now()
        self._learn(said)
        while self._unsafe and self._unsafe[0][0] <= self._safe:
            self._unsafe.popleft()
        if not self._unsafe:
            return Exposure(0.0, 0)
        needed = self._durability.safe_on
        behind = sorted(each.behind for each in said.replicas.values())
        size = behind[needed - 1] if 1 <= needed <= len(behind) else 0
        return Exposure(max(0.0, now - self._unsafe[0][1]), size)

    def tell(self, record: Computed) -> None:
        self._tell(record.epoch)

    def compact(self) -> None:
        persisted = self._watching.now().persisted
        upto = min(persisted, self._safe) if self._durability.written else persisted
        with self._vanishing():
            move_base(self._claim, self._lineage, self._sources, min(upto, self._computed))

    def look(self) -> None:
        self._agent.look()

    def trouble(self) -> StoreTrouble | None:
        try:
            self._check_there()
            self._disk.replace(PROBE, _PROBED, flushed=True)
            self._disk.remove(PROBE)
        except StoreTrouble as trouble:
            return trouble
        return None

    def heal(self) -> tuple[str, ...]:
        self._claim.check_ours()
        return self._heal()

    def close(self) -> None:
        self._agent.close()

    @property
    def kept(self) -> int:
        """The epoch before which history is let go."""
        return self._kept

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """While this is open, in any thread, no more history is let go."""
        with self._letting_go:
            self._keepers += 1
        try:
            yield
        finally:
            with self._letting_go:
                self._keepers -= 1

    def change(
        self,
        traces: Mapping[str, Sequence[Sequence[Span]]],
        histories: tuple[str, ...],
        sources: Mapping[str, Foldable],
    ) -> None:
        """From the next epoch on these are the traces and the sources."""
        self._traces, self._sources = dict(traces), sources
        self._upkeep = replace(self._upkeep, histories=histories)
        self._tell(self._computed)

    def _tell(self, epoch: int) -> None:
        self._agent.tell(Word(epoch, self._kept, self._upkeep.histories))

    def _append(self, record: Record) -> None:
        self._claim.check_ours()
        with self._vanishing():
            self._lineage.append(record)

    def _check_there(self) -> None:
        with self._vanishing():
            self._disk.size(lineage_log(self._claim.incarnation))

    @contextmanager
    def _vanishing(self) -> Iterator[None]:
        """Our own log is there for as long as the store is."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreVanished(str(self._disk.root)) from error

    def _learn(self, said: Replication) -> None:
        safe = safe_epoch([each.durable for each in said.replicas.values()], self._durability.safe_on)
        if said.incarnation < self._claim.incarnation:
            safe = min(safe, self._after)
        elif said.incarnation > self._claim.incarnation:
            safe = 0
        self._safe = max(self._safe, safe)

    def _digests(self, trace: str, epoch: int, ways: Sequence[Sequence[Span]]) -> list[str]:
        layers, ours = self._claim.store.layers, self._claim.incarnation
        for spans in ways:
            with suppress(FileNotFoundError):
                return [
                    layers.digest(trace, LayerName(ours, epoch, epoch, span.start, span.stop))
                    for span in spans
                ]
        listed = layers.listed(trace)[0]
        made = [name for name in listed if name.incarnation == ours and name.lo == name.hi == epoch]
        return [layers.digest(trace, name) for name in made]
