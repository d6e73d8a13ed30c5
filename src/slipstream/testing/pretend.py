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

from slipstream.dataflow.contents import recorded
from slipstream.durability.agent import Charge, Word
from slipstream.durability.follower import Origin
from slipstream.durability.lineage import Computed, Cut, LineageWriter, read_history
from slipstream.durability.store import Claim, Store
from slipstream.trace import TraceReader, TraceWriter, shard_span

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
    lineage: LineageWriter = field(init=False)

    def __post_init__(self) -> None:
        root = self.claim.store.root
        past = read_history(root)
        self.epoch = past.frontier
        self.claim.begin(self.epoch)
        self.claim.store.discard_after(self.epoch)
        self.lineage = LineageWriter(root, self.claim.incarnation)
        schema = pa.schema([("v0", pa.int64()), ("v1", pa.string())])
        stored = pa.schema([("h", pa.int64()), ("r", pa.int64()), *schema, ("diff", pa.int64())])
        views = {
            "events": {
                "schema": {"type": "struct", "fields": []},
                "fingerprint": "events",
                "order": [],
                "contents": recorded(BAG, schema, stored).describe(),
                "traces": [BAG, KEYED],
            }
        }
        self.claim.store.write_catalog({"sources": {"t": {"kind": "Memory", "schema": {}}}, "views": views})

    @staticmethod
    def on(path: Path) -> Pretend:
        """An engine that claims a store and goes on from where it is."""
        return Pretend(Store.claim(path, "pretend"))

    @property
    def root(self) -> Path:
        return self.claim.store.root

    def run(self, epochs: int = 1) -> Word:
        """Compute some epochs; what the agent is to be told of the last."""
        for _ in range(epochs):
            epoch = self.epoch + 1
            self.lineage.cut(Cut(epoch, float(epoch), {"t": {"appends": [epoch, epoch]}}))
            self.write(epoch)
            self.lineage.computed(Computed(epoch, float(epoch), 0.1, KEYS))
            self.epoch = epoch
        return Word(self.epoch, self.keep_from, self.histories)

    def write(self, epoch: int) -> None:
        for trace, table in (
            (BAG, bag_rows(epoch, self.window)),
            (KEYED, keyed_rows(epoch)),
        ):
            writer = TraceWriter(self.root / trace, self.claim.incarnation)
            for shard in range(SHARDS):
                span = shard_span(shard, SHARDS)
                start, stop = span.bounds(table.column("h").to_numpy())
                writer.write(epoch, span, table.slice(start, stop - start))

    def origin(self) -> Origin:
        """Who replicates, for a follower in this process."""
        return Origin(self.root, self.claim.store.name, self.claim.incarnation, self.epoch, "c0de")

    def charge(self, *replicas: str) -> Charge:
        """What an agent process is started with."""
        store = self.claim.store
        return Charge(str(store.root), store.name, self.claim.incarnation, self.epoch, replicas)

    def close(self) -> None:
        self.lineage.close()
        self.claim.release()


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
