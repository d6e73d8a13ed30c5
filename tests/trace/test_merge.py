"""Merging adds up: what goes in comes out, or nothing is merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from slipstream.durability.agent import tend
from slipstream.errors import BadLayer
from slipstream.testing.pretend import BAG, Pretend, contents, expected
from slipstream.trace import Span, TraceReader, TraceWriter, list_layers, rows, validate
from slipstream.trace.merge import merge_flat

EPOCHS = 20
UPDATES = {name: pa.array([5, 9], pa.int64()) for name in ("h", "r", "k0", "s0")}


def test_a_merge_that_would_lose_a_row_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend = Pretend.on(tmp_path / "store")
    pretend.histories = ()
    word = pretend.run(EPOCHS)
    before = list_layers(pretend.root / BAG)
    consolidate = rows.consolidate

    def losing(table: pa.Table, **options: bool) -> pa.Table:
        return consolidate(table, **options).slice(1)

    monkeypatch.setattr(rows, "consolidate", losing)
    with pytest.raises(BadLayer, match="do not add up to those that it is merged from"):
        tend(pretend.root, word)
    assert list_layers(pretend.root / BAG) == before
    monkeypatch.setattr(rows, "consolidate", consolidate)
    tend(pretend.root, word)
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

    def losing(table: pa.Table, **options: bool) -> pa.Table:
        kept = consolidate(table, **options)
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
    with pytest.raises(BadLayer, match="multiplicity 0"):
        validate(tmp_path, 1)
