from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slipstream.trace import consolidate, equal, group_rows
from slipstream.trace.rows import collapse_keyed

NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "left", "right", "same"),
    [
        (pa.int32(), [1, None, None, 4], [1, None, 3, 5], [True, True, False, False]),
        (pa.float32(), [NAN, -0.0, None, 1.0], [NAN, 0.0, NAN, 2.0], [True, True, False, False]),
        (pa.float64(), [NAN, -0.0], [NAN, 0.0], [True, True]),
        (pa.bool_(), [True, None, False], [True, None, True], [True, True, False]),
        (pa.binary(), [b"a", None], [b"b", None], [False, True]),
        (pa.null(), [None, None], [None, None], [True, True]),
        (pa.list_(pa.float64()), [[NAN, None], [], None, [1.0]], [[NAN, None], None, None, [1.0, 2.0]],
         [True, False, True, False]),
        (pa.list_(pa.list_(pa.int64())), [[[1], None], [[]]], [[[1], None], [None]], [True, False]),
        (pa.list_(pa.int64(), 2), [[1, 2], [1, None]], [[1, 2], [1, 3]], [True, False]),
        (pa.struct([("a", pa.float64())]), [{"a": -0.0}, None, {"a": None}], [{"a": 0.0}, {"a": None}, {"a": None}],
         [True, False, True]),
        (pa.map_(pa.string(), pa.float64()), [[("a", NAN), ("b", 0.0)], [("a", 1.0)]],
         [[("b", -0.0), ("a", NAN)], [("a", 2.0)]], [True, False]),
        (pa.month_day_nano_interval(), [(1, 2, 3), (0, 0, 0)], [(1, 2, 3), (0, 0, 1)], [True, False]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", None], ["a", "b"], [True, False]),
    ],
    ids=str,
)  # fmt: skip
def test_grouping_equality(kind: pa.DataType, left: list[Any], right: list[Any], same: list[bool]) -> None:
    a, b = pa.array(left, kind), pa.array(right, kind)
    assert equal(a, b).tolist() == same
    assert equal(a.slice(1), b.slice(1)).tolist() == same[1:]
    colliding = group_rows([np.zeros(2 * len(a), dtype=np.int64)], [pa.concat_arrays([a, b])])
    group_of = {int(row): g for g, (s, e) in enumerate(zip(colliding.starts, colliding.ends, strict=True))
                for row in colliding.order[s:e]}  # fmt: skip
    assert [group_of[i] == group_of[i + len(a)] for i in range(len(a))] == same


def test_maps_among_the_values_of_a_bag_are_told_apart_by_their_order() -> None:
    one, other = [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]
    maps = pa.array([one, other, one, other, None], pa.map_(pa.string(), pa.int64()))
    zeros = np.zeros(5, dtype=np.int64)
    for stored in (
        maps,
        pa.StructArray.from_arrays([maps], ["m"]),
        pa.array([[m] for m in maps.to_pylist()], pa.list_(maps.type)),
    ):
        table = pa.table(
            {"h": zeros, "r": zeros, "v0": stored, "epoch": zeros + 1, "diff": pa.array([1, 1, 2, -1, 1])}
        )
        left = consolidate(table)
        assert Counter(left["diff"].to_pylist()) == Counter([3, 1])
        keyed = pa.table({"h": zeros, "k0": stored, "epoch": np.arange(5), "diff": zeros + 1})
        assert collapse_keyed(keyed, keep_tombstones=True).num_rows == 2


def test_groups_do_not_depend_on_the_order_of_arrival() -> None:
    chance = np.random.default_rng(5)
    keys = chance.integers(0, 40, 300)
    for _ in range(5):
        keys = chance.permutation(keys)
        groups = group_rows([keys % 4], [pa.array([f"key {key}" for key in keys])])
        ordered = keys[groups.order]
        assert ordered.tolist() == sorted(keys.tolist(), key=lambda key: (key % 4, repr((f"key {key}",))))
        assert len(groups.starts) == len(set(keys.tolist()))


def test_nothing_to_group() -> None:
    groups = group_rows([np.empty(0, dtype=np.int64)], [pa.array([], pa.string())])
    assert (len(groups.order), len(groups.starts), len(groups.ends)) == (0, 0, 0)


def updates(rows: list[tuple[int, int, float | None, int, int]]) -> pa.Table:
    names = {"h": pa.int64(), "r": pa.int64(), "v0": pa.float64(), "epoch": pa.int64(), "diff": pa.int64()}
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    return pa.table({n: pa.array(c, t) for (n, t), c in zip(names.items(), columns, strict=True)})


def test_consolidation_adds_up_and_drops_what_cancels() -> None:
    table = updates(
        [(2, 0, 1.0, 1, 1), (1, 0, NAN, 1, 2), (1, 0, None, 2, 1), (2, 0, 1.0, 3, -1), (1, 0, NAN, 4, 1)]
    )
    result = consolidate(table)
    assert result.column("h").to_pylist() == [1, 1]
    assert sorted(
        zip(result.column("epoch").to_pylist(), result.column("diff").to_pylist(), strict=True)
    ) == [
        (2, 1),
        (4, 3),
    ]
    assert consolidate(updates([])).num_rows == 0
