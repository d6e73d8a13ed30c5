"""What a store holds, read from its files: no engine and no JVM is needed, and a running one is not
disturbed.

The lineage says how far the store is computed and what epochs took: its base what all of long ago took
together, the records after it what each of the latest did; the catalog names sources and views; the names
and sizes of layers say what each view keeps. A view's rows are counted by reading its trace as a reader
would, as long as that is quick; of a larger trace (`COUNTED_ROWS`) the rows stored are told instead, and
`exact` is False: a row that was replaced and not yet merged away counts twice, and one that occurs several
times counts once. Debts are counted here, when somebody asks, and in no epoch.

Everything is as of one epoch, the newest that was computed when the picture was taken, except the
layers and bytes: those are what was on disk at that moment, and a merger may be at work. Where lineage is lost, the
picture is of what is left, and `problem` says so; a view that cannot be read as of that epoch has no rows to tell.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.core.errors import DamagedLayer, HeldElsewhere, MissingLayer
from slipstream.dataflow.contents import Contents
from slipstream.durability.board import read_replication
from slipstream.durability.frontiers import Frontiers, frontiers
from slipstream.durability.newest import find_newest, newest_epoch
from slipstream.epoch.machine import GOING_ON, WAITING
from slipstream.epoch.report import percentile
from slipstream.observe.consumed import Consumed, consumed
from slipstream.observe.sinks import SinkStatus, read_sinks
from slipstream.store.catalog import Catalog, HeldSince, SourceEntry, ViewEntry
from slipstream.store.disk import trouble_of
from slipstream.store.events import read_events
from slipstream.store.history import History
from slipstream.store.lineage import read_history, read_lineage
from slipstream.store.records import Computed
from slipstream.store.store import Store
from slipstream.trace import (
    LayerStat,
    Merge,
    Pack,
    Span,
    TraceReader,
    history_reach,
    list_layers,
    plan_upkeep,
)

COUNTED_ROWS = 1_000_000
LATEST = 5
LATENCIES = 1000
_ATTEMPTS = 3


@dataclass(frozen=True)
class ViewStatus:
    """One view. oldest: time travel reaches back to this epoch. layers, bytes: of all traces that it keeps. to_merge:
    bytes of layers that are due to be merged. debts: rows that were taken away before they came, and have not come yet,
    in that of its traces that has most of them; groups, where a trace has totals. problem: why its rows cannot be
    counted, if they cannot. held: since when and why it is held, if it is; then all is told as of its last epoch.
    """

    name: str
    rows: int
    exact: bool
    layers: int
    bytes: int
    oldest: int
    to_merge: int = 0
    problem: str | None = None
    debts: int = 0
    held: HeldSince | None = None


@dataclass(frozen=True)
class SourceStatus:
    """One source: its kind, what computed epochs took of it, and how many of its rows were rejected."""

    name: str
    kind: str
    consumed: Consumed
    rejected: int


@dataclass(frozen=True)
class EpochStatus:
    """One computed epoch, as the lineage log has it. ended: seconds since 1970."""

    epoch: int
    ended: float
    rows: int
    seconds: float


@dataclass(frozen=True)
class Status:
    """A store at one moment. p50, p99: seconds, over the last epochs. problem: what keeps it from being read as of
    now, if anything does. waiting: what a running engine waits for, if the disk fails it. sinks: by name, as the
    engine noted them last.
    """

    app: str
    store: str
    running: bool
    epoch: int
    computed_at: float | None
    rows: int
    p50: float
    p99: float
    pending: int | None
    views: tuple[ViewStatus, ...]
    sources: tuple[SourceStatus, ...]
    latest: tuple[EpochStatus, ...]
    frontiers: Frontiers = field(default_factory=lambda: Frontiers(0, 0, 0, 0))
    problem: str | None = None
    waiting: str | None = None
    sinks: Mapping[str, SinkStatus] = field(default_factory=dict)


def read_status(path: str | Path) -> Status:
    """Take the picture of a store."""
    store = Store.existing(path)
    for attempt in range(_ATTEMPTS):
        try:
            return _taken(store, time.time())
        except MissingLayer:  # history moved on between reading the log and the layers: look again
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def read_frontiers(path: str | Path) -> Frontiers:
    """How far a store is computed, flushed to disk, durable on each replica, safe and compacted."""
    store = Store.existing(path)
    newest_epoch(store)
    past = read_history(store.disk)
    compacted = _compacted(store, store.catalog(), past.frontier)
    return frontiers(read_replication(store.disk), past, compacted, time.time())


def _taken(store: Store, now: float) -> Status:
    running = store.running()
    catalog = store.catalog()
    lost = find_newest(store).lost
    lineage = read_lineage(store.disk)
    past, problem = lineage.history, lost or lineage.broken
    latencies = [each.seconds for each in past.computed[-LATENCIES:]]
    return Status(
        app=store.name,
        store=str(store.root),
        running=running,
        epoch=past.frontier,
        computed_at=past.clock,
        rows=past.base.rows + sum(each.rows for each in past.computed),
        p50=percentile(latencies, 50),
        p99=percentile(latencies, 99),
        pending=past.pending[0].epoch if past.pending else None,
        views=tuple(
            _view(store, name, entry, entry.shown(past.frontier), problem)
            for name, entry in catalog.readable.items()
        ),
        sources=_sources(catalog.sources, past),
        latest=tuple(_epoch(each) for each in past.computed[-LATEST:]),
        frontiers=frontiers(
            read_replication(store.disk), past, _compacted(store, catalog, past.frontier), now
        ),
        problem=problem,
        waiting=_waiting(store) if running else None,
        sinks=read_sinks(store.disk),
    )


def _waiting(store: Store) -> str | None:
    """What the engine waits for: by the disk itself, which may have no room for an event, else by the last event."""
    trouble = trouble_of(store.root)
    if trouble is not None:
        return str(trouble)
    said = [event for event in read_events(store.disk, "engine") if event.get("event") in (WAITING, GOING_ON)]
    last = said[-1] if said else {}
    ours = last.get("event") == WAITING and last.get("incarnation") == store.last_incarnation()
    return str(last.get("cause")) if ours else None


def _epoch(done: Computed) -> EpochStatus:
    return EpochStatus(done.epoch, done.clock, done.rows, done.seconds)


def _sources(known: Mapping[str, SourceEntry], past: History) -> tuple[SourceStatus, ...]:
    rejected = Counter(past.base.rejected)
    for done in past.computed:
        rejected.update(done.rejected)
    return tuple(
        SourceStatus(
            name, entry.kind.lower(), consumed(past.consumed(name), past.summary(name)), rejected[name]
        )
        for name, entry in known.items()
    )


def _view(store: Store, name: str, entry: ViewEntry, epoch: int, problem: str | None) -> ViewStatus:
    contents = Contents.described(dict(entry.contents))
    names = list_layers(store.root / contents.trace)
    layers, size = _on_disk(store.root, {entry.trace, *entry.traces})
    rows, exact, debts, damage = 0, False, 0, None
    try:
        rows, exact = _rows(store.root, contents, epoch)
        debts = _debts(store.root, entry, epoch)
    except MissingLayer as gap:
        if entry.held is not None:
            elsewhere = HeldElsewhere(str(store.root), name, epoch, part=bool(names))
            damage = str(gap) if names else str(elsewhere)
        elif problem is None:
            raise
    except DamagedLayer as error:
        damage = str(error)
    reach = history_reach(names, epoch, Span.whole())
    to_merge = _to_merge(store.root, entry, epoch, reach)
    return ViewStatus(name, rows, exact, layers, size, reach, to_merge, damage, debts, entry.held)


def _compacted(store: Store, catalog: Catalog, epoch: int) -> int:
    """The epoch to which time travel reaches back in every view."""
    traces = {entry.trace for entry in catalog.views.values()}
    reaches = [history_reach(list_layers(store.root / trace), epoch, Span.whole()) for trace in traces]
    return max(reaches, default=0)


def _to_merge(root: Path, entry: ViewEntry, epoch: int, reach: int) -> int:
    """The bytes of the layers that a merger would merge now."""
    total = 0
    for trace in {entry.trace, *entry.traces}:
        sizes = {}
        for name in list_layers(root / trace):
            with suppress(FileNotFoundError):
                sizes[name] = (root / trace / name.filename).stat().st_size
        stats = [LayerStat(name, 0, size) for name, size in sizes.items()]
        kept = reach if trace == entry.trace else None
        steps = [step for step in plan_upkeep(stats, epoch, kept) if isinstance(step, Merge | Pack)]
        total += sum(sizes[name] for name in {name for step in steps for name in step.inputs})
    return total


def _rows(root: Path, contents: Contents, epoch: int) -> tuple[int, bool]:
    """The rows of a view, and whether they were counted."""
    if epoch == 0:
        return 0, True
    stored = TraceReader(root / contents.trace, epoch, Span.whole(), schema=contents.stored).stats().rows
    if stored > COUNTED_ROWS:
        return stored, False
    return contents.count(root, epoch), True


def _debts(root: Path, entry: ViewEntry, epoch: int) -> int:
    """Rows that are owed to a view, in that of its traces that is owed most."""
    if epoch == 0:
        return 0
    return max(
        TraceReader(root / trace, epoch, Span.whole()).owed() for trace in {entry.trace, *entry.traces}
    )


def _on_disk(root: Path, traces: set[str]) -> tuple[int, int]:
    """How many layers traces have, and their bytes. One that a merger removes meanwhile is not counted."""
    layers = size = 0
    for trace in traces:
        for name in list_layers(root / trace):
            try:
                size += (root / trace / name.filename).stat().st_size
            except FileNotFoundError:
                continue
            layers += 1
    return layers, size
