"""An engine that computes nothing: it fills a store with layers, lineage and a catalog, as a real one would, in
milliseconds and without Spark. For tests of everything that follows behind the computation.

Epoch e adds `KEYS` rows to a bag, and gives each key of a keyed trace a new value, or takes it away. What a trace must
hold as of an epoch is a formula (`expected`), so a test needs no second store to compare with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from slipstream.core.clock import Clock, SystemClock
from slipstream.core.settings import Durability
from slipstream.dataflow.contents import recorded
from slipstream.durability.agent import Charge, Word
from slipstream.durability.agent.parts import Part
from slipstream.durability.agent.process import assemble, board_of
from slipstream.durability.ahead import Ahead
from slipstream.durability.board import Board
from slipstream.durability.follower import Follower
from slipstream.durability.healing import Heal
from slipstream.durability.joining import Opener, Origin
from slipstream.durability.replica import Replica
from slipstream.durability.start import Started, start
from slipstream.durability.work import LocalWork
from slipstream.store.catalog import Catalog, SourceEntry, ViewEntry
from slipstream.store.layers import combined
from slipstream.store.lineage import LineageWriter, read_lineage
from slipstream.store.records import Computed, Cut
from slipstream.store.store import Claim, Identity, Store, claim_store
from slipstream.trace import LayerName, TraceReader, TraceWriter, shard_span

BAG, KEYED = "traces/events/1-view", "traces/totals/1-accumulate"
SHARDS = 2
KEYS = 50


def eventually(holds: Callable[[], bool], seconds: float = 120) -> bool:
    """Whether something comes to hold within a generous time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return False


@dataclass
class Pretend:
    """See the module. keep_from, histories: what the agent is told of history."""

    claim: Claim
    keep_from: int = 0
    histories: tuple[str, ...] = (BAG,)
    epoch: int = 0
    window: int | None = None  # rows of the bag that are older than so many epochs are taken away again
    started: Started | None = None  # None: whatever the store says of itself is taken for true
    identity: Identity = field(init=False)
    lineage: LineageWriter = field(init=False)
    after: int = field(init=False)
    pending: int = 0  # the last epoch that is cut already

    def __post_init__(self) -> None:
        store = self.claim.store
        if self.started is None:
            self.identity = store.identity() or Identity.new("pretend")
            self.claim.write_identity(self.identity)
            past = read_lineage(store.disk)
            self.epoch = self.after = past.history.frontier
            self.lineage = self.claim.begin(self.identity, past, self.epoch, self.epoch)
        else:
            self.identity, self.lineage = self.started.identity, self.started.writer
            history = self.started.lineage.history
            self.epoch = self.after = history.frontier
            self.pending = max((cut.epoch for cut in history.pending), default=0)
        schema = pa.schema([("v0", pa.int64()), ("v1", pa.string())])
        stored = pa.schema([("h", pa.int64()), ("r", pa.int64()), *schema, ("diff", pa.int64())])
        view = ViewEntry(
            schema={"type": "struct", "fields": []},
            fingerprint="events",
            contents=recorded(BAG, schema, stored).describe(),
            traces=(BAG, KEYED),
        )
        self.claim.write_catalog(Catalog({"t": SourceEntry("Memory", {})}, {"events": view}))

    @staticmethod
    def on(path: Path) -> Pretend:
        """An engine that claims a store and goes on from where it is."""
        return Pretend(claim_store(Store.at(path), "pretend"))

    @staticmethod
    def start(path: Path, *replicas: str, accept_loss: bool = False, safe_on: int = 1) -> Pretend:
        """An engine that starts as an app does, and recovers what must be."""
        claim = claim_store(Store.at(path), "pretend")
        try:
            started = start(claim, "pretend", Durability(replicas, safe_on), accept_loss=accept_loss)
        except BaseException:
            claim.release()
            raise
        return Pretend(started.claim, started=started)

    @property
    def store(self) -> Store:
        return self.claim.store

    @property
    def root(self) -> Path:
        return self.claim.store.root

    def run(self, epochs: int = 1) -> Word:
        """Compute some epochs; what the agent is to be told of the last."""
        for _ in range(epochs):
            epoch = self.epoch + 1
            if epoch > self.pending:
                self.cut(epoch)
            layers = self.write(epoch)
            self.lineage.append(
                Computed(
                    epoch=epoch,
                    clock=float(epoch),
                    seconds=0.1,
                    rows=KEYS,
                    layers=layers,
                    kept=self.keep_from if BAG in self.histories else None,
                )
            )
            self.epoch = epoch
        return Word(self.epoch, self.keep_from, self.histories)

    def cut(self, epoch: int) -> None:
        self.lineage.append(Cut(epoch, float(epoch), {"t": {"appends": [epoch, epoch]}}))

    def write(self, epoch: int) -> dict[str, str]:
        """Write the layers of an epoch; by trace, what they add up to."""
        made: dict[str, str] = {}
        for trace, table in (
            (BAG, bag_rows(epoch, self.window)),
            (KEYED, keyed_rows(epoch)),
        ):
            writer = TraceWriter(self.root / trace, self.claim.incarnation)
            digests = []
            for shard in range(SHARDS):
                span = shard_span(shard, SHARDS)
                start, stop = span.bounds(table.column("h").to_numpy())
                writer.write(epoch, span, table.slice(start, stop - start))
                name = LayerName(self.claim.incarnation, epoch, epoch, span.start, span.stop)
                digests.append(self.store.layers.digest(trace, name))
            made[trace] = combined(digests)
        return made

    def charge(self, *replicas: str) -> Charge:
        """What an agent process is started with."""
        return Charge(
            root=str(self.root),
            app=self.identity.app,
            id=self.identity.id,
            incarnation=self.claim.incarnation,
            after=self.after,
            replicas=replicas,
            token="c0de",
        )

    def origin(self) -> Origin:
        """Who replicates, for parts of an agent in this process."""
        return Origin(self.store, self.identity, self.claim.incarnation, self.after, "c0de")

    def agent(
        self,
        *replicas: str,
        clock: Clock | None = None,
        objects: Opener = Replica,
        heal: Heal = lambda trace, name: False,
    ) -> Hands:
        """An agent whose steps are taken by hand, in this process."""
        charge, ticking = self.charge(*replicas), clock or SystemClock()
        board = board_of(charge, self.store, ticking)
        parts = assemble(
            charge,
            self.store,
            board,
            clock=ticking,
            work=LocalWork(self.store),
            heal=heal,
            objects=objects,
            cpu=lambda: 0.0,
        )
        return Hands(board, {part.name: part for part in parts})

    def close(self) -> None:
        self.claim.release()


@dataclass(frozen=True)
class Hands:
    """An agent's parts, taken by hand."""

    board: Board
    parts: dict[str, Part]

    def hear(self, word: Word) -> None:
        """Tell of an epoch, and add it up."""
        self.board.hear(word)
        self.parts["sums"].step()

    def persist(self) -> None:
        self.parts["persister"].step()

    def upkeep(self) -> None:
        self.parts["upkeep"].step()

    def lineage(self) -> None:
        """Send lineage ahead, to every replica."""
        for part in self.parts.values():
            if isinstance(part, Ahead):
                part.step()

    def follow(self) -> None:
        """Send to every replica, until there is nothing more to do."""
        for part in self.parts.values():
            if isinstance(part, Follower):
                while part.step() == 0.0:
                    pass

    def all(self, word: Word) -> None:
        """A round of everything."""
        self.hear(word)
        self.upkeep()
        self.follow()
        self.persist()


def hashes(keys: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        return keys.astype(np.int64) * np.int64(-7046029254386353131)


def bag_rows(epoch: int, window: int | None = None) -> pa.Table:
    keys = np.arange(KEYS) + epoch * KEYS
    diffs = np.ones(KEYS, dtype=np.int64)
    if window is not None and epoch > window:
        keys = np.concatenate([keys, keys - window * KEYS])
        diffs = np.concatenate([diffs, -diffs])
    order = np.argsort(hashes(keys), kind="stable")
    keys, diffs = keys[order], diffs[order]
    texts = pa.array([f"event {key}" for key in keys.tolist()])
    return pa.table({"h": hashes(keys), "r": hashes(keys + 1), "v0": keys, "v1": texts, "diff": diffs})


def keyed_rows(epoch: int) -> pa.Table:
    keys = np.arange(KEYS)
    keys = keys[np.argsort(hashes(keys), kind="stable")]
    present = (keys % 5 != epoch % 5).astype(np.int64)
    values = np.full(KEYS, epoch, dtype=np.int64)
    return pa.table({"h": hashes(keys), "k0": keys, "v0": values, "diff": present})


def contents(root: Path, trace: str, epoch: int) -> list[tuple[Any, ...]]:
    """All rows of a trace as of an epoch."""
    rows: list[tuple[Any, ...]] = []
    for shard in range(SHARDS):
        for table in TraceReader(root / trace, epoch, shard_span(shard, SHARDS)).snapshot():
            rows += zip(*table.to_pydict().values(), strict=True)
    return sorted(rows)


def expected(trace: str, epoch: int) -> list[tuple[Any, ...]]:
    """What a trace must hold as of an epoch."""
    if trace == BAG:
        keys = range(KEYS, (epoch + 1) * KEYS)
        return sorted((key, f"event {key}", 1) for key in keys)
    return [(key, epoch) for key in range(KEYS) if key % 5 != epoch % 5]
