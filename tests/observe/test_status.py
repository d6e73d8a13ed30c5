"""A store's status is read from its files: here they are written by hand, and no JVM runs.

That the same picture is right for a store that an engine wrote is tested with the command.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from slipstream.cli.tables import status_picture
from slipstream.core.errors import NotAStore, StoreFull
from slipstream.dataflow.contents import recorded
from slipstream.epoch.machine import GOING_ON, WAITING
from slipstream.observe import Consumed, EpochStatus, SourceStatus, ViewStatus, read_status, status
from slipstream.observe.status import read_frontiers
from slipstream.store import base as bases
from slipstream.store import history as histories
from slipstream.store.base import move_base
from slipstream.store.catalog import Catalog, SourceEntry, ViewEntry
from slipstream.store.events import EventLog
from slipstream.store.lineage import Lineage, LineageWriter
from slipstream.store.records import Computed, Cut
from slipstream.store.store import Claim, Identity, Store, claim_store
from slipstream.trace import Span, TraceWriter
from slipstream.trace.rows import OWING

ROWS = pa.schema([("h", pa.int64()), ("r", pa.int64()), ("v0", pa.string()), ("diff", pa.int64())])
IDENTITY = Identity("shop", "id")


def begun(path: Path) -> tuple[Claim, LineageWriter]:
    """A store that has a name and no epochs."""
    claim = claim_store(Store.at(path), "shop")
    claim.write_identity(IDENTITY)
    return claim, claim.begin(IDENTITY, Lineage(), 0, 0)


@pytest.fixture
def claim(tmp_path: Path) -> Claim:
    """Two computed epochs, a third begun: the view holds ann, then ann twice and ben."""
    claim, lineage = begun(tmp_path / "store")
    contents = recorded("traces/people/1-view", pa.schema([("name", pa.string())]), ROWS)
    view = ViewEntry(
        schema={}, fingerprint="people", contents=contents.describe(), traces=("traces/people/1-view",)
    )
    claim.write_catalog(Catalog({"log": SourceEntry("Files", {})}, {"people": view}))
    writer = TraceWriter(claim.store.root / contents.trace, claim.incarnation)
    for epoch, rows in ((1, [(1, "ann", 1)]), (2, [(1, "ann", 1), (2, "ben", 1)])):
        lineage.append(Cut(epoch, 100.0 + epoch, {"log": {"files": [[f"{epoch}.json", 10, 0]]}}))
        h, names, diffs = zip(*rows, strict=True)
        table = pa.table([list(h), list(h), list(names), list(diffs)], schema=ROWS)
        writer.write(epoch, Span.whole(), table)
        lineage.append(Computed(epoch, 200.0 + epoch, 0.5 * epoch, len(rows), {"log": epoch}))
    lineage.append(Cut(3, 103.0, {"log": {"files": [["3.json", 10, 0]]}}))
    return claim


def test_the_picture_of_a_running_store(claim: Claim) -> None:
    seen = read_status(claim.store.root)
    claim.release()
    assert (seen.app, seen.running, seen.epoch, seen.computed_at) == ("shop", True, 2, 202.0)
    assert (seen.rows, seen.p50, seen.p99, seen.pending) == (3, 0.5, 1.0, 3)
    assert seen.sources == (SourceStatus("log", "files", Consumed(2, files=2, bytes=20), rejected=3),)
    assert seen.latest == (EpochStatus(1, 201.0, 1, 0.5), EpochStatus(2, 202.0, 2, 1.0))
    (view,) = seen.views
    assert view == ViewStatus("people", 3, True, layers=2, bytes=view.bytes, oldest=0)
    assert view.bytes == sum(path.stat().st_size for path in claim.store.root.rglob("*.arrow"))


def test_a_view_whose_first_column_name_occurs_twice(tmp_path: Path) -> None:
    claim, lineage = begun(tmp_path / "store")
    shown = pa.schema([("name", pa.string()), ("name", pa.string())])
    stored = pa.schema([*list(ROWS)[:3], ("v1", pa.string()), ROWS.field("diff")])
    contents = recorded("traces/people/1-view", shown, stored)
    view = ViewEntry(schema={}, fingerprint="p", contents=contents.describe(), traces=(contents.trace,))
    claim.write_catalog(Catalog({}, {"people": view}))
    rows = pa.table([[1, 2], [1, 2], ["ann", "ben"], ["x", "y"], [1, 1]], schema=stored)
    TraceWriter(claim.store.root / contents.trace, claim.incarnation).write(1, Span.whole(), rows)
    lineage.append(Cut(1, 101.0, {}))
    lineage.append(Computed(1, 201.0, 0.5, 2))
    claim.release()
    assert [(each.rows, each.exact) for each in read_status(claim.store.root).views] == [(2, True)]


def test_what_a_running_engine_waits_for(claim: Claim) -> None:
    root, full = claim.store.root, str(StoreFull("the store"))
    log = EventLog(claim.owned, "engine", claim.incarnation)

    def say(event: str, text: str) -> None:
        record = logging.LogRecord("slipstream.engine", logging.WARNING, "", 0, event, (), None)
        record.fields = {"cause": text}
        log.emit(record)

    assert read_status(root).waiting is None
    say(WAITING, full)
    assert read_status(root).waiting == full
    say(GOING_ON, "the store can be used again")
    assert read_status(root).waiting is None
    say(WAITING, full)
    claim.release()
    assert read_status(root).waiting is None, "nobody waits"


@pytest.mark.parametrize(
    ("blocks", "free", "flags", "text"),
    [
        (100, 10_000, 0, None),
        (100, 3, 0, "is full"),
        (0, 0, 0, None),
        (100, 10_000, os.ST_RDONLY, "read-only"),
    ],
)
def test_a_disk_that_takes_no_event_is_asked_itself(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, blocks: int, free: int, flags: int, text: str | None
) -> None:
    said = os.statvfs_result((4096, 4096, blocks, free, free, 0, 0, 0, flags, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: said)
    found = read_status(claim.store.root).waiting
    claim.release()
    assert found is None if text is None else (found is not None and text in found)


class Counted:
    """A source of files that sums up."""

    def folded(self, before: Any, ranges: Sequence[Any]) -> Any:
        known = before or {"epochs": 0, "files": 0, "bytes": 0}
        return {**{name: value + len(ranges) for name, value in known.items()}, "segments": []}


def test_the_picture_is_the_same_from_a_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "EVERY", 4)
    monkeypatch.setattr(bases, "BEHIND", 6)
    claim, lineage = begun(tmp_path)
    claim.write_catalog(Catalog({"log": SourceEntry("Files", {})}, {}))
    for epoch in range(1, 12):
        lineage.append(Cut(epoch, 100.0 + epoch, {"log": {"files": [[f"{epoch}.json", 1, 0]]}}))
        lineage.append(Computed(epoch, 200.0 + epoch, 0.5, 3, {"log": 2}))
    before, frontiers = read_status(tmp_path), read_frontiers(tmp_path)
    base = move_base(claim, lineage, {"log": Counted()}, 11)
    claim.release()
    assert base is not None
    assert base.epoch == 4
    after = read_status(tmp_path)
    assert after == replace(before, running=False)
    assert after.sources == (SourceStatus("log", "files", Consumed(11, files=11, bytes=11), rejected=22),)
    assert (after.rows, len(after.latest), after.computed_at) == (33, 5, 211.0)
    assert read_frontiers(tmp_path) == frontiers


def test_a_large_view_is_not_counted(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    claim.release()
    monkeypatch.setattr(status, "COUNTED_ROWS", 2)
    seen = read_status(claim.store.root)
    assert not seen.running
    assert [(view.rows, view.exact) for view in seen.views] == [(3, False)]


@pytest.mark.parametrize(
    ("updates", "owed", "rows"),
    [
        ([(3, "cyd", -2)], 2, 3),
        ([(3, "cyd", -2), (1, "ann", -2)], 2, 1),  # ann was there twice
        ([(3, "cyd", -2), (3, "cyd", 1), (2, "ben", -3)], 3, 2),
        ([(3, "cyd", -2), (3, "cyd", 2)], 0, 3),
    ],
)
def test_rows_that_were_taken_away_before_they_came_are_counted(
    tmp_path: Path, updates: list[tuple[int, str, int]], owed: int, rows: int
) -> None:
    updates = [(1, "ann", 2), (2, "ben", 1), *updates]
    claim = written(tmp_path, ROWS, [pa.table([[h], [h], [v], [d]], schema=ROWS) for h, v, d in updates])
    seen = read_status(claim.store.root)
    claim.release()
    assert [(view.debts, view.rows) for view in seen.views] == [(owed, rows)]
    printed = Console(width=300, file=StringIO(), record=True)
    printed.print(status_picture(seen, 0.0))
    assert ("owed" in printed.export_text()) == bool(owed), "the column is there when something is owed"


def test_groups_that_owe_rows_are_counted(tmp_path: Path) -> None:
    keyed = pa.schema([(name, pa.int64()) for name in ("h", "k0", "v0", "epoch", "diff")])
    versions = [
        (1, 10, 2, 1, 1),
        (2, 20, -1, 1, OWING),
        (3, 30, -1, 1, OWING),
        (3, 30, 1, 2, 1),
        (4, 40, 0, 2, 0),
    ]
    tables = [
        pa.Table.from_arrays([pa.array(each) for each in zip(*rows, strict=True)], schema=keyed)
        for rows in (versions[:3], versions[3:])
    ]
    claim = written(tmp_path, keyed, tables, columns=("k0",))
    (view,) = read_status(claim.store.root).views
    claim.release()
    assert (view.debts, view.rows) == (1, 2)


def written(
    root: Path, stored: pa.Schema, layers: Sequence[pa.Table], columns: tuple[str, ...] = ()
) -> Claim:
    """A store of one view, with a layer an epoch."""
    claim, lineage = begun(root / "store")
    contents = recorded(
        "traces/people/1-view", pa.schema([("name", stored.field(2 - bool(columns)).type)]), stored
    )
    contents = replace(contents, columns=columns or contents.columns)
    view = ViewEntry(
        schema={}, fingerprint="people", contents=contents.describe(), traces=("traces/people/1-view",)
    )
    claim.write_catalog(Catalog({}, {"people": view}))
    writer = TraceWriter(claim.store.root / contents.trace, claim.incarnation)
    for epoch, table in enumerate(layers, 1):
        lineage.append(Cut(epoch, 100.0 + epoch, {}))
        writer.write(epoch, Span.whole(), table)
        lineage.append(Computed(epoch, 200.0 + epoch, 0.5, table.num_rows, {}))
    return claim


def test_a_view_with_a_damaged_layer_is_told_and_the_rest_is_shown(claim: Claim) -> None:
    folder = claim.store.root / "traces/people/1-view"
    layer = sorted(folder.glob("*.arrow"))[-1]
    body = bytearray(layer.read_bytes())
    body[len(body) // 2] ^= 1
    layer.write_bytes(bytes(body))
    seen = read_status(claim.store.root)
    claim.release()
    (view,) = seen.views
    assert seen.epoch == 2
    assert view.problem is not None
    assert layer.name in view.problem
    printed = Console(width=300, file=StringIO(), record=True)
    printed.print(status_picture(seen, 0.0))
    text = printed.export_text()
    assert "damaged" in text
    assert f"the view 'people': {view.problem}" in text


def test_a_store_without_epochs(tmp_path: Path) -> None:
    begun(tmp_path)[0].release()
    seen = read_status(tmp_path)
    assert (seen.epoch, seen.computed_at, seen.views, seen.sources) == (0, None, (), ())


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="is not a Slipstream store: it has no format"):
        read_status(tmp_path)
