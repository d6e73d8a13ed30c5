"""What opening a store costs after many epochs, beside what it costs after few.

Each store's lineage is written as an engine writes it, with one file and a hundred generated rows an epoch and the base
moved on as it goes; there are no layers, so what is measured is the lineage and what sources know. The files themselves
are gone, as after `after_safe="delete"`: looking through a folder costs the folder, not the age.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import SparkSession

from benchmarks.lab import Lab
from benchmarks.report import Finding, Target
from slipstream.durability.timetravel import resolve_epoch
from slipstream.observe import read_status
from slipstream.sources import Source, files, rate
from slipstream.sources.files import Files
from slipstream.sources.rate import SCHEMA, Rate
from slipstream.store.base import move_base
from slipstream.store.catalog import Catalog, SourceEntry
from slipstream.store.layout import SOURCES
from slipstream.store.lineage import Lineage, read_lineage
from slipstream.store.records import Computed, Cut
from slipstream.store.store import Identity, Store, claim_store

if TYPE_CHECKING:
    from benchmarks.suite import Scale

LOOKS = 7
ALLOWED = 0.2
FIRST = 1_700_000_000.0
NO_SPARK = cast(SparkSession, None)
TRACES = {f"traces/view{i}/1-view": "0123456789abcdef" for i in range(4)}


def age(lab: Lab, scale: Scale) -> list[Finding]:
    """Opening a store after few epochs and after many; no Spark."""
    young, old = scale.ages
    with TemporaryDirectory(prefix="slipstream-age-") as folder:
        times = {epochs: _measured(Path(folder), epochs, lab) for epochs in scale.ages}
    findings = []
    for what in times[old]:
        before, after = times[young][what], times[old][what]
        target = Target("at_most", ALLOWED) if what in ("open", "status", "as of a time") else None
        findings.append(
            Finding(
                "age", f"{what}: {old:,} epochs rather than {young:,}", "ms", after - before, None, target
            )
        )
    return findings


def _measured(folder: Path, epochs: int, lab: Lab) -> dict[str, float]:
    """Seconds, the best of some looks: to read the lineage, to attach sources, both, a status, and `as_of`."""
    store = Store.at(folder / str(epochs))
    began = time.monotonic()
    moves = _written(store, epochs, folder)
    took = time.monotonic() - began
    slowest = f", the base moved {len(moves)} times in at most {max(moves) * 1000:.0f} ms" if moves else ""
    lab.console.print(f"  {epochs:,} epochs written in {took:.0f} s{slowest}", highlight=False)

    def opened() -> None:
        history = read_lineage(store.disk).history
        for name, source in _sources(folder).items():
            home = store.root / SOURCES / name
            source.attach(name, NO_SPARK, home, history.taken(name), history.summary(name))
            source.close()

    past = datetime.fromtimestamp(FIRST + epochs / 3, UTC)
    times = {
        "lineage": _best(lambda: read_lineage(store.disk)),
        "open": _best(opened),
        "status": _best(lambda: read_status(store.root)),
        "as of a time": _best(lambda: resolve_epoch(store, past)),
    }
    shown = ", ".join(f"{what} {seconds * 1000:.1f} ms" for what, seconds in times.items())
    lab.console.print(f"  {shown}", highlight=False)
    return times


def _best(look: Callable[[], Any]) -> float:
    taken = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        look()
        taken.append(time.perf_counter() - began)
    return min(taken)


def _sources(folder: Path) -> dict[str, Source]:
    landing = folder / "landing"
    landing.mkdir(exist_ok=True)
    made: dict[str, Files | Rate] = {
        "orders": files(landing, "json", SCHEMA),
        "clicks": rate(None, rows_per_epoch=100, start=FIRST),
    }
    return {**made}


def _written(store: Store, epochs: int, folder: Path) -> list[float]:
    """Write the lineage of so many epochs; how long each move of the base took."""
    claim = claim_store(store, "aged")
    identity = Identity.new("aged")
    claim.write_identity(identity)
    claim.write_catalog(Catalog({"orders": SourceEntry("Files", {}), "clicks": SourceEntry("Rate", {})}))
    writer = claim.begin(identity, Lineage(), 0, 0)
    sources = _sources(folder)
    for name, source in sources.items():
        home = store.root / SOURCES / name
        home.mkdir(parents=True)
        source.attach(name, NO_SPARK, home, ())
    moves = []
    for epoch in range(1, epochs + 1):
        file = [f"part-{epoch:08d}-{os.urandom(4).hex()}.json", 1000 + epoch, int(FIRST * 1e9) + epoch]
        clicks = {"start": 100 * (epoch - 1), "end": 100 * epoch, "from": int(FIRST * 1e6)}
        writer.append(Cut(epoch, FIRST + epoch, {"orders": {"files": [file]}, "clicks": clicks}))
        writer.append(Computed(epoch, FIRST + epoch, 0.1, 200, layers=TRACES, safe=epoch - 1))
        began = time.perf_counter()
        if move_base(claim, writer, sources, epoch) is not None:
            moves.append(time.perf_counter() - began)
    for source in sources.values():
        source.close()
    claim.release()
    return moves
