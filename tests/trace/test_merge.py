"""Merging adds up: what goes in comes out, or nothing is merged."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from slipstream.core.errors import BadLayer, DamagedLayer
from slipstream.testing.merging import upkeep
from slipstream.testing.pretend import BAG, Pretend, contents, expected
from slipstream.trace import (
    PLACES,
    LayerName,
    Span,
    TraceReader,
    TraceWriter,
    as_flat,
    list_layers,
    open_layer,
    rows,
    scan,
    sealing,
    validate,
)
from slipstream.trace.merge import merge_flat, substitutes

EPOCHS = 20
UPDATES = {name: pa.array([5, 9], pa.int64()) for name in ("h", "r", "k0", "s0")}


def test_a_merge_that_would_lose_a_row_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend = Pretend.on(tmp_path / "store")
    pretend.histories = ()
    word = pretend.run(EPOCHS)
    before = list_layers(pretend.root / BAG)
    consolidate = rows.consolidate

    def losing(table: pa.Table) -> pa.Table:
        return consolidate(table).slice(1)

    monkeypatch.setattr(rows, "consolidate", losing)
    with pytest.raises(BadLayer, match="do not add up to those that it is merged from"):
        upkeep(pretend.root / BAG, word.computed, None)
    assert list_layers(pretend.root / BAG) == before
    monkeypatch.setattr(rows, "consolidate", consolidate)
    upkeep(pretend.root / BAG, word.computed, None)
    assert len(list_layers(pretend.root / BAG)) < len(before)
    assert contents(pretend.root, BAG, EPOCHS) == expected(BAG, EPOCHS)
    pretend.close()


def test_a_merge_that_would_lose_a_sum_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for epoch in (1, 2):
        diffs = pa.array([1, epoch - 1], pa.int64())
        TraceWriter(tmp_path, 1).write(epoch, Span.whole(), pa.table({**UPDATES, "diff": diffs}))
    inputs = list_layers(tmp_path)
    output = replace(inputs[0], hi=2, kind="flat")
    consolidate = rows.consolidate

    def losing(table: pa.Table) -> pa.Table:
        kept = consolidate(table)
        return kept.set_column(kept.schema.get_field_index("s0"), "s0", pa.array([10, 0], pa.int64()))

    monkeypatch.setattr(rows, "consolidate", losing)
    with pytest.raises(BadLayer, match="do not add up to those that it is merged from"):
        merge_flat(tmp_path, inputs, output)
    assert list_layers(tmp_path) == inputs
    monkeypatch.setattr(rows, "consolidate", consolidate)
    merge_flat(tmp_path, inputs, output)
    (part,) = TraceReader(tmp_path, 2, Span.whole()).snapshot(["k0", "diff", "s0"])
    assert part.to_pylist() == [{"k0": 5, "diff": 2, "s0": 10}, {"k0": 9, "diff": 1, "s0": 18}]


def test_a_row_of_no_multiplicity_and_no_sum_is_damage(tmp_path: Path) -> None:
    nothing = pa.array([0, 0], pa.int64())
    TraceWriter(tmp_path, 1).write(1, Span.whole(), pa.table({**UPDATES, "diff": nothing}))
    validate(tmp_path, 1)
    empty = pa.table({**UPDATES, "s0": nothing, "diff": nothing})
    TraceWriter(tmp_path, 1).write(1, Span.whole(), empty, is_sorted=True)
    with pytest.raises(DamagedLayer, match="multiplicity 0"):
        validate(tmp_path, 1)


def filled(directory: Path, epochs: int) -> list[LayerName]:
    """A trace of one key that gets a new version in each epoch, and one more key an epoch."""
    for epoch in range(1, epochs + 1):
        keys = np.array([0, epoch], dtype=np.int64)
        values = np.full(2, epoch, dtype=np.int64)
        table = pa.table({"h": keys, "k0": keys, "v0": values, "diff": np.ones(2, dtype=np.int64)})
        TraceWriter(directory, 1).write(epoch, Span.whole(), table)
    return list_layers(directory)


def keys_of(directory: Path, epoch: int) -> list[int]:
    tables = TraceReader(directory, epoch, Span.whole()).snapshot(["k0"])
    return [key for table in tables for key in table.column("k0").to_pylist()]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What happens to files, in order: flushed, and removed."""
    seen: list[tuple[str, str]] = []
    fsync, unlink = os.fsync, Path.unlink

    def flushing(handle: int) -> None:
        seen.append(("flush", Path(f"/proc/self/fd/{handle}").readlink().name))
        fsync(handle)

    def removing(path: Path, missing_ok: bool = False) -> None:
        seen.append(("remove", path.name))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(Path, "unlink", removing)
    return seen


def test_what_a_rebuild_puts_in_place_is_flushed(tmp_path: Path, events: list[tuple[str, str]]) -> None:
    (built,) = filled(tmp_path / "scratch", 1)
    as_flat(tmp_path / "scratch", built, tmp_path / "trace", 7)
    (placed,) = list_layers(tmp_path / "trace")
    assert (placed.lo, placed.hi, placed.kind) == (1, 7, "flat")
    assert len(events) == 2
    assert events[1] == ("flush", "trace")
    assert keys_of(tmp_path / "trace", 7) == [0, 1]


def test_layers_that_share_no_epoch_or_no_place_do_not_stand_in_for_each_other() -> None:
    gone = LayerName(1, 3, 4, 0, 100)
    stand = [LayerName(1, 1, 8, 0, PLACES), LayerName(1, 4, 9, 50, 200, "flat")]
    others = [LayerName(1, 1, 2, 0, 100), LayerName(1, 5, 5, 0, 100), LayerName(1, 1, 9, 100, 200)]
    assert substitutes([gone, *others, *stand], [gone]) == stand


@pytest.mark.parametrize("where", ["body", "end"])
def test_a_damaged_layer_ends_upkeep_and_nothing_is_removed(tmp_path: Path, where: str) -> None:
    inputs = filled(tmp_path, 8)
    path = tmp_path / inputs[2].filename
    sound = path.read_bytes()
    at = len(sound) - (3 if where == "end" else len(sound) // 2)
    path.unlink()
    path.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
    for _ in range(2):
        with pytest.raises(DamagedLayer) as error:
            upkeep(tmp_path, 8, None)
        assert error.value.layer == inputs[2]
        assert list_layers(tmp_path) == inputs
    path.unlink()
    path.write_bytes(sound)
    upkeep(tmp_path, 8, None)
    assert keys_of(tmp_path, 8) == list(range(9))


def test_a_damaged_layer_that_is_not_due_to_be_merged_is_found_too(tmp_path: Path) -> None:
    inputs = filled(tmp_path, 2)
    (tmp_path / inputs[0].filename).write_bytes(b"")
    with pytest.raises(DamagedLayer):
        upkeep(tmp_path, 2, None)
    assert list_layers(tmp_path) == inputs


def test_merging_again_and_again_keeps_parts_of_a_useful_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1 << 14
    monkeypatch.setattr(sealing, "PART_BYTES", size)
    monkeypatch.setattr(scan, "CHUNK_ROWS", 100)
    keys = np.arange(3000, dtype=np.int64)
    for epoch in range(1, 17):
        values = np.full(len(keys), epoch, dtype=np.int64)
        table = pa.table({"h": keys << 40, "k0": keys, "v0": values, "diff": np.ones_like(keys)})
        TraceWriter(tmp_path, 1).write(epoch, Span.whole(), table)
    for epoch in range(4, 17, 4):
        upkeep(tmp_path, epoch, None)
    (merged,) = list_layers(tmp_path)
    parts = open_layer(tmp_path, merged).parts
    assert len(parts) > 3
    assert all(size // 3 <= part.batch.nbytes <= size for part in parts[:-1])
    assert sum(part.rows for part in parts) == len(keys)
    probes = keys[::500]
    found, values_ = TraceReader(tmp_path, 16, Span.whole()).newest(probes << 40, [pa.array(probes)])
    assert found.all()
    assert set(values_.column("v0").to_pylist()) == {16}
