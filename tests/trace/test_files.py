"""What happens around the files of a trace: torn writes, vanished layers, wrong rows, missing schemas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from slipstream.core.errors import BadLayer, DamagedLayer, HistoryForgotten, MissingLayer, UnknownSchema
from slipstream.testing.merging import upkeep
from slipstream.trace import (
    LayerName,
    Span,
    TraceReader,
    TraceWriter,
    carry_out,
    list_layers,
    merge_flat,
    pack_log,
    reader,
    shard_span,
    validate,
    write_layer,
)
from slipstream.trace import layer as layer_module

WHOLE = Span.whole()


def keyed(keys: list[int], value: float = 0.5, *, diff: int = 1) -> pa.Table:
    return pa.table(
        {
            "h": pa.array([key << 40 for key in keys], pa.int64()),
            "k0": pa.array(keys, pa.int64()),
            "v0": pa.array([value] * len(keys), pa.float64()),
            "diff": pa.array([diff] * len(keys), pa.int64()),
        }
    )


def contents(directory: Path, as_of: int) -> list[int]:
    chunks = TraceReader(directory, as_of, WHOLE).snapshot(columns=["k0"])
    return [key for chunk in chunks for key in chunk.column("k0").to_pylist()]


def test_a_torn_temporary_file_is_not_a_layer(tmp_path: Path) -> None:
    TraceWriter(tmp_path, 1).write(1, WHOLE, keyed([1, 2]))
    (tmp_path / f".{list_layers(tmp_path)[0].filename}.0f.tmp").write_bytes(b"ARROW1\0\0half")
    assert len(list_layers(tmp_path)) == 1
    assert contents(tmp_path, 1) == [1, 2]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    table = keyed([1])
    with pytest.raises(pa.ArrowInvalid):
        write_layer(
            tmp_path, LayerName(1, 1, 1, 0, WHOLE.stop), table.schema, pa.table({"x": [1]}).to_batches()
        )
    assert list(tmp_path.iterdir()) == []


def test_an_epoch_without_updates_has_an_empty_layer(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, 1)
    assert writer.write(1, WHOLE, keyed([])) > 0
    assert contents(tmp_path, 1) == []
    found, values = TraceReader(tmp_path, 1, WHOLE).newest(np.array([3]), [pa.array([3])])
    assert (found.tolist(), values.column("v0").to_pylist()) == ([False], [None])
    with pytest.raises(MissingLayer, match=r"no layer for epoch 2 .*never taken as empty"):
        TraceReader(tmp_path, 2, WHOLE)


def test_a_trace_without_layers_needs_a_schema(tmp_path: Path) -> None:
    with pytest.raises(UnknownSchema, match=r"Give the reader its schema"):
        TraceReader(tmp_path / "none", 0, WHOLE).newest(np.array([3]), [pa.array([3])])
    reader_ = TraceReader(tmp_path / "none", 0, WHOLE, schema=keyed([]).schema)
    found, values = reader_.newest(np.array([3]), [pa.array([3])])
    assert (found.tolist(), values.num_rows, values.column_names) == ([False], 1, ["v0"])
    assert list(reader_.snapshot()) == []
    TraceWriter(tmp_path, 1).write(1, WHOLE, keyed([1]))
    assert TraceReader(tmp_path, 0, WHOLE).schema.names == ["h", "k0", "v0", "epoch", "diff"]
    assert TraceReader(tmp_path, 1, WHOLE, schema=keyed([]).schema).newest(
        np.array([1 << 40]), [pa.array([1])]
    )[0]


def test_a_layer_that_a_merger_removes_meanwhile_is_found_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TraceWriter(tmp_path, 1)
    for epoch in range(1, 5):
        writer.write(epoch, WHOLE, keyed([epoch]))
    calls: list[int] = []

    def listed_just_before_the_merge(directory: Path) -> list[LayerName]:
        names = list_layers(directory)
        if not calls:
            upkeep(tmp_path, 4, None)
        calls.append(len(names))
        return names

    monkeypatch.setattr(reader, "list_layers", listed_just_before_the_merge)
    assert contents(tmp_path, 4) == [1, 2, 3, 4]
    assert calls == [4, 1]


def test_an_open_reader_is_not_disturbed_by_a_merger(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, 1)
    for epoch in range(1, 5):
        writer.write(epoch, WHOLE, keyed([epoch]))
    held = TraceReader(tmp_path, 3, WHOLE)
    upkeep(tmp_path, 4, None)
    assert sum(chunk.num_rows for chunk in held.snapshot()) == 3
    assert held.stats().layers == 3
    with pytest.raises(MissingLayer):
        TraceReader(tmp_path, 3, WHOLE)


def test_of_two_incarnations_the_later_counts(tmp_path: Path) -> None:
    TraceWriter(tmp_path, 1).write(1, WHOLE, keyed([1]))
    TraceWriter(tmp_path, 2).write(1, WHOLE, keyed([2]))
    assert contents(tmp_path, 1) == [2]


def test_rows_outside_the_span_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadLayer, match=r"rows lie outside the places 0 to .* Route rows to shards"):
        TraceWriter(tmp_path, 1).write(1, shard_span(0, 2), keyed([1]))


def test_two_versions_of_a_key_in_an_epoch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadLayer, match=r"1 keys have more than one version in epoch 1"):
        TraceWriter(tmp_path, 1).write(1, WHOLE, keyed([1, 1]))


def test_tombstones_live_until_a_merge_from_the_first_epoch(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, 1)
    writer.write(1, WHOLE, keyed([1, 2]))
    writer.write(2, WHOLE, keyed([1], diff=0))
    writer.write(3, WHOLE, keyed([3]))
    singles = list_layers(tmp_path)
    later = LayerName(1, 2, 3, 0, WHOLE.stop, "flat")
    merge_flat(tmp_path, singles[1:], later)
    assert layer_module.open_layer(tmp_path, later).rows == 2
    assert contents(tmp_path, 3) == [2, 3]
    everything = LayerName(1, 1, 3, 0, WHOLE.stop, "flat")
    merge_flat(tmp_path, [singles[0], later], everything)
    assert layer_module.open_layer(tmp_path, everything).rows == 2
    pack_log(tmp_path, singles, LayerName(1, 1, 3, 0, WHOLE.stop))
    validate(tmp_path, 3, keep_from=1)


def test_forgotten_history_is_an_error_that_says_how_far_back_it_goes(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, 1)
    for epoch in range(1, 5):
        writer.write(epoch, WHOLE, keyed([epoch]))
    upkeep(tmp_path, 4, None)
    writer.write(5, WHOLE, keyed([5]))
    held = TraceReader(tmp_path, 5, WHOLE)
    assert held.changes(4, 5).column("k0").to_pylist() == [5]
    with pytest.raises(
        HistoryForgotten, match=r"history reaches back only to epoch 4\. Ask for changes since 4"
    ):
        held.changes(2, 5)


def test_changes_need_the_contents_before_them(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, 1)
    for epoch in range(1, 5):
        writer.write(epoch, WHOLE, keyed([1], value=float(epoch)))
    singles = list_layers(tmp_path)
    merge_flat(tmp_path, singles, LayerName(1, 1, 3, 0, WHOLE.stop, "flat"))
    (tmp_path / singles[0].filename).unlink()
    held = TraceReader(tmp_path, 4, WHOLE)
    assert held.changes(3, 4).column("diff").to_pylist() == [-1, 1]
    with pytest.raises(HistoryForgotten, match="history reaches back only to epoch 3"):
        held.changes(1, 4)
    with pytest.raises(
        MissingLayer, match=r"History up to epoch 3 is collapsed.*: read epoch 3 or a later one"
    ):
        TraceReader(tmp_path, 2, WHOLE)


def test_a_rewritten_file_is_not_served_from_the_cache(tmp_path: Path) -> None:
    TraceWriter(tmp_path, 1).write(1, WHOLE, keyed([1]))
    assert contents(tmp_path, 1) == [1]
    TraceWriter(tmp_path, 1).write(1, WHOLE, keyed([2, 3]))
    assert contents(tmp_path, 1) == [2, 3]


def test_the_cache_lets_go_of_the_least_recently_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = layer_module._Cache(2)
    monkeypatch.setattr(layer_module, "_OPEN", cache)
    for epoch in range(1, 6):
        TraceWriter(tmp_path, 1).write(epoch, WHOLE, keyed([epoch]))
    assert contents(tmp_path, 5) == [1, 2, 3, 4, 5]
    assert len(cache.entries) == 2


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (([1, 3, 2], [1, 1, 1]), "hashes are not in order"),
        (([1, 2], [1, 7]), "a diff other than 0, 1 and -1"),
        (([1, 1], [1, 1]), "there twice"),
    ],
)
def test_validate_finds_damage(tmp_path: Path, rows: tuple[list[int], list[int]], problem: str) -> None:
    keys, diffs = rows
    table = pa.table({"h": keys, "k0": keys, "epoch": [1] * len(keys), "diff": diffs})
    write_layer(tmp_path, LayerName(1, 1, 1, 0, WHOLE.stop), table.schema, table.to_batches())
    with pytest.raises(DamagedLayer, match=problem):
        validate(tmp_path, 1)


def test_removing_twice_does_no_harm(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, 1)
    for epoch in range(1, 5):
        writer.write(epoch, WHOLE, keyed([epoch]))
    for step in upkeep(tmp_path, 4, None)[1:]:
        carry_out(tmp_path, step)
    validate(tmp_path, 4)
