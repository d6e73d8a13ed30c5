"""A store's status is read from its files: here they are written by hand, and no JVM runs.

That the same picture is right for a store that an engine wrote is tested with the command.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from slipstream.dataflow.contents import recorded
from slipstream.durability.lineage import Computed, Cut, LineageWriter
from slipstream.durability.store import Claim, Store
from slipstream.errors import NotAStore
from slipstream.observe import Consumed, EpochStatus, SourceStatus, ViewStatus, read_status, status
from slipstream.trace import Span, TraceWriter

ROWS = pa.schema([("h", pa.int64()), ("r", pa.int64()), ("v0", pa.string()), ("diff", pa.int64())])


@pytest.fixture
def claim(tmp_path: Path) -> Claim:
    """Two computed epochs, a third begun: the view holds ann, then ann twice and ben."""
    claim = Store.claim(tmp_path / "store", "shop")
    contents = recorded("traces/people/1-view", pa.schema([("name", pa.string())]), ROWS)
    view = {"schema": {}, "order": [], "contents": contents.describe(), "traces": ["traces/people/1-view"]}
    claim.store.write_catalog({"sources": {"log": {"kind": "Files"}}, "views": {"people": view}})
    writer = TraceWriter(claim.store.root / contents.trace, claim.incarnation)
    lineage = LineageWriter(claim.store.root, claim.incarnation)
    for epoch, rows in ((1, [(1, "ann", 1)]), (2, [(1, "ann", 1), (2, "ben", 1)])):
        lineage.cut(Cut(epoch, 100.0 + epoch, {"log": {"files": [[f"{epoch}.json", 10, 0]]}}))
        h, names, diffs = zip(*rows, strict=True)
        table = pa.table([list(h), list(h), list(names), list(diffs)], schema=ROWS)
        writer.write(epoch, Span.whole(), table)
        lineage.computed(Computed(epoch, 200.0 + epoch, 0.5 * epoch, len(rows), {"log": epoch}))
    lineage.cut(Cut(3, 103.0, {"log": {"files": [["3.json", 10, 0]]}}))
    lineage.close()
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


def test_a_large_view_is_not_counted(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    claim.release()
    monkeypatch.setattr(status, "COUNTED_ROWS", 2)
    seen = read_status(claim.store.root)
    assert not seen.running
    assert [(view.rows, view.exact) for view in seen.views] == [(3, False)]


def test_a_store_without_epochs(tmp_path: Path) -> None:
    Store.claim(tmp_path, "shop").release()
    seen = read_status(tmp_path)
    assert (seen.epoch, seen.computed_at, seen.views, seen.sources) == (0, None, (), ())


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="is not a Slipstream store: it has no format"):
        read_status(tmp_path)
