"""The app that is simulated: two views over two sources, small enough to be known by heart.

- `totals`: the sum of the amounts of each key, over files of source `orders`.
- `latest`: the last value of each key, over files of the *keyed* source `customers`. Within an epoch the order of files
  is that of their times, then names; between epochs the later epoch wins. So it matters how input was cut.

Files arrive in `Input`, out of the order of their times, and may be deleted once they are safe. `expected` says what
the views must hold after some cuts, by the files alone. `compute` is the job of an epoch: it looks up what it needs in
the state traces as of the epoch before, as an operator does, so that damaged state would be computed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.core.errors import FileMissing
from slipstream.store.catalog import Catalog, SourceEntry, ViewEntry
from slipstream.testing.simulation.layers import ModelLayers, Row, key_of, place_of
from slipstream.trace import LayerName, Span
from slipstream.trace.naming import shard_span

SOURCES = ("orders", "customers")
VIEWS = {"totals": "orders", "latest": "customers"}
STATE = {view: f"traces/{view}/1-state" for view in VIEWS}
SHOWN = {view: f"traces/{view}/2-view" for view in VIEWS}
TRACES = (*STATE.values(), *SHOWN.values())


@dataclass(frozen=True)
class InputFile:
    """A file of a source. time: when it says that it was written. rows: keys with an amount or a value each."""

    source: str
    name: str
    time: int
    rows: tuple[tuple[str, int], ...]


@dataclass
class Input:
    """The folders that files arrive in. all: every file that ever was; present: those that are there."""

    all: dict[str, InputFile] = field(default_factory=dict)
    present: dict[str, InputFile] = field(default_factory=dict)

    def arrive(self, file: InputFile) -> None:
        self.all[file.name] = file
        self.present[file.name] = file

    def listed(self, source: str) -> list[str]:
        return sorted(name for name, file in self.present.items() if file.source == source)

    def read(self, names: Iterable[str]) -> list[InputFile]:
        found = []
        for name in names:
            if name not in self.present:
                raise FileMissing(self.all[name].source, name)
            found.append(self.present[name])
        return found


Ranges = Mapping[str, Sequence[str]]
Contents = dict[str, dict[str, int]]


def ordered(files: Iterable[InputFile]) -> list[InputFile]:
    return sorted(files, key=lambda file: (file.time, file.name))


def expected(files: Mapping[str, InputFile], cuts: Iterable[Ranges]) -> Contents:
    """What each view holds after some epochs."""
    totals: dict[str, int] = {}
    latest: dict[str, int] = {}
    for ranges in cuts:
        for name in ranges.get("orders", ()):
            for key, amount in files[name].rows:
                totals[key] = totals.get(key, 0) + amount
        for file in ordered(files[name] for name in ranges.get("customers", ())):
            latest.update(file.rows)
    return {
        "totals": {f"{key}={value}": 1 for key, value in totals.items()},
        "latest": {f"{key}={value}": 1 for key, value in latest.items()},
    }


def compute(
    layers: ModelLayers, source: Input, ranges: Ranges, epoch: int, incarnation: int, shards: int
) -> dict[str, list[LayerName]]:
    """Run an epoch's job; the layers that it wrote, by trace."""
    written: dict[str, list[LayerName]] = {trace: [] for trace in TRACES}
    for view, name in VIEWS.items():
        files = source.read(ranges.get(name, ()))
        for shard in range(shards):
            span = shard_span(shard, shards)
            before = layers.contents(STATE[view], epoch - 1, span)
            known = {key_of(row): int(row.partition("=")[2]) for row, diff in before.items() if diff > 0}
            after = _after(view, known, files, span)
            rows = _changes(known, after, epoch)
            layer = LayerName(incarnation, epoch, epoch, span.start, span.stop)
            for trace in (STATE[view], SHOWN[view]):
                layers.write(trace, layer, rows)
                written[trace].append(layer)
    return written


def _after(view: str, known: dict[str, int], files: list[InputFile], span: Span) -> dict[str, int]:
    changed: dict[str, int] = {}
    for file in ordered(files):
        for key, value in file.rows:
            if span.start <= place_of(key) < span.stop:
                base = changed.get(key, known.get(key, 0)) if view == "totals" else 0
                changed[key] = base + value
    return changed


def _changes(known: dict[str, int], after: dict[str, int], epoch: int) -> list[Row]:
    rows: list[Row] = []
    for key, value in after.items():
        if known.get(key) != value:
            if key in known:
                rows.append((f"{key}={known[key]}", epoch, -1))
            rows.append((f"{key}={value}", epoch, 1))
    return rows


def model_catalog() -> Catalog:
    """The catalog of the app."""
    views = {
        view: ViewEntry(
            schema={},
            fingerprint=view,
            contents={"trace": SHOWN[view]},
            traces=(STATE[view], SHOWN[view]),
        )
        for view in VIEWS
    }
    return Catalog({name: SourceEntry("model", {}) for name in SOURCES}, views)
