"""A table that changes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slipstream.testing.changes import Changing, drop
from slipstream.testing.oracle import applied, assert_equal_rows

ROWS = pa.table({"k": list(range(100)), "v": [f"v{i}" for i in range(100)], "w": [i / 4 for i in range(100)]})


def plain(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def signed(batch: pa.Table) -> list[tuple[tuple[object, ...], int]]:
    return [(row[:-1], row[-1]) for row in plain(batch)]  # type: ignore[misc]


def test_batches_add_up_to_what_the_table_holds() -> None:
    table = Changing(ROWS, ["k"], seed=1, share=0.5)
    held = applied([], signed(table.load()))
    for _ in range(5):
        held = applied(held, signed(table.batch(8, 5, 3)))
        assert_equal_rows(plain(table.rows), held, "rows")
    assert table.rows.num_rows == 50 + 5 * (8 - 3)


def test_a_batch_inserts_updates_and_deletes_as_told_and_keeps_keys() -> None:
    table = Changing(ROWS, ["k"], seed=1, share=0.5)
    before = dict.fromkeys(table.rows["k"].to_pylist())
    batch = table.batch(inserts=8, updates=5, deletes=3)
    after = table.rows["k"].to_pylist()
    assert len(after) == len(set(after))
    assert len(set(after) - before.keys()) == 8
    assert len(before.keys() - set(after)) == 3
    assert sorted(batch["diff"].to_pylist()) == [-1] * 8 + [1] * 13


def test_a_batch_is_the_same_whenever_it_has_the_same_seed() -> None:
    one, same, other = (Changing(ROWS, ["k"], seed=seed, share=0.5).batch(5, 5, 5) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


def test_a_table_without_rows_has_empty_batches() -> None:
    assert Changing(ROWS.slice(0, 0), ["k"], seed=1).batch(3, 3, 3).num_rows == 0


def test_a_dropped_batch_is_one_file(tmp_path: Path) -> None:
    drop(ROWS, tmp_path / "landing", 3)
    assert [path.name for path in (tmp_path / "landing").iterdir()] == ["000003.parquet"]
    assert pq.read_table(tmp_path / "landing" / "000003.parquet").equals(ROWS)
