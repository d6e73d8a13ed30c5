"""Adding up in two steps gives what adding up in one does."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slipstream.core.errors import SumOverflow
from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.combine import Combine, receive

KINDS: dict[str, tuple[Argument, pa.DataType, st.SearchStrategy[Any]]] = {
    "count": (Argument("count"), pa.bool_(), st.booleans()),
    "long": (Argument("long"), pa.int64(), st.none() | st.integers(-(2**62), 2**62)),
    "whole": (Argument("whole"), pa.int64(), st.none() | st.integers(-(2**63), 2**63 - 1)),
    "short decimal": (
        Argument("decimal", scale=2, digits=18),
        pa.decimal128(28, 2),
        st.none() | st.decimals(-(10**16) + 1, 10**16 - 1, places=2, allow_nan=False),
    ),
    "decimal": (
        Argument("decimal", scale=2),
        pa.decimal128(20, 2),
        st.none() | st.decimals(-(10**17), 10**17, places=2, allow_nan=False),
    ),
    "double": (
        Argument("double", squares=True),
        pa.float64(),
        st.none()
        | st.sampled_from([float("nan"), float("inf"), 0.1, -0.0])
        | st.integers(-1000, 1000).map(float),
    ),
}
Row = tuple[str | None, int | None, Any, int]
PAIRS = (("hi", "lo"), ("hi2", "lo2"))


def table(rows: Sequence[Row], kind: pa.DataType) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    kinds = {"k0": pa.string(), "b0": pa.int32(), "a0": kind, "diff": pa.int64()}
    return pa.table({name: pa.array(c, type=t) for (name, t), c in zip(kinds.items(), columns, strict=True)})


def in_steps(made: Combine, parts: Sequence[pa.Table]) -> dict[tuple[Any, Any], dict[str, Any]]:
    """Each part combined by itself, then all of them folded: what an Accumulate does."""
    sent = pa.concat_tables([made(part) for part in parts]).combine_chunks()
    keys = list(zip(sent["c0"].to_pylist(), sent["c1"].to_pylist(), strict=True))
    order = np.array(sorted(range(len(keys)), key=lambda i: repr(keys[i])))
    starts = np.array([i for i in range(len(order)) if i == 0 or keys[order[i]] != keys[order[i - 1]]])
    (argument,) = made.arguments
    columns = [
        sent[name].combine_chunks().take(pa.array(order)) for name in sent.column_names if name[0] == "x"
    ]
    totals = argument.fold(receive((argument,), columns)[0], starts)
    diffs = np.add.reduceat(sent["diff"].to_numpy()[order], starts)
    stored = dict(zip([name for name, _ in argument.fields()], argument.store(totals), strict=True))
    return {
        keys[order[start]]: {"rows": diffs[i]}
        | {name: repr(values[i].as_py()) for name, values in stored.items()}
        for i, start in enumerate(starts)
    }


def alike(found: dict[tuple[Any, Any], dict[str, Any]]) -> dict[tuple[Any, Any], dict[str, Any]]:
    """The same with each sum of doubles as one number, rounded: its two parts have 106 bits, and are not exact."""

    def one(totals: dict[str, Any]) -> dict[str, Any]:
        if "infs" not in totals:
            return totals
        sums = {hi: round(Fraction(totals[hi]) + Fraction(totals[lo]), 15) for hi, lo in PAIRS}
        return {name: value for name, value in totals.items() if not name.startswith("lo")} | sums

    return {key: one(totals) for key, totals in found.items()}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_is_combined_in_parts_folds_to_the_totals_of_all_rows(kind: str, data: st.DataObject) -> None:
    argument, type_, values = KINDS[kind]
    row = st.tuples(
        st.sampled_from(["x", "", None]), st.sampled_from([1, None]), values, st.sampled_from([1, 1, -1, 3])
    )
    parts = data.draw(st.lists(st.lists(row, min_size=1, max_size=8), min_size=1, max_size=4))
    combine = Combine(("k0", "b0"), ("a0",), (argument,))
    whole = [row for part in parts for row in part]
    assert alike(in_steps(combine, [table(part, type_) for part in parts])) == alike(
        in_steps(combine, [table(whole, type_)])
    )


@pytest.mark.parametrize("kind", ["count", "long", "whole", "short decimal"])
@given(data=st.data())
def test_what_is_kept_as_sums_is_what_rows_would_have_been(kind: str, data: st.DataObject) -> None:
    argument, type_, values = KINDS[kind]
    row = st.tuples(st.sampled_from(["x", "", None]), st.just(1), values, st.sampled_from([1, 1, -1, 3]))
    rows = data.draw(st.lists(row, min_size=1, max_size=20))
    given_rows = table(rows, type_)
    sums = argument.to_sums(given_rows["a0"].combine_chunks(), given_rows["diff"].to_numpy())
    assert len(sums) == argument.sums
    names = tuple(f"s{i}" for i in range(argument.sums))
    kept = given_rows.drop_columns("a0")
    for name, each in zip(names, sums, strict=True):
        kept = kept.append_column(name, pa.array(each))
    keys = ("k0", "b0")
    parts = [part for part in (kept.slice(0, 3), kept.slice(3)) if part.num_rows]
    by_sums = in_steps(Combine(keys, names, (argument,), kept=True), parts)
    assert by_sums == in_steps(Combine(keys, ("a0",), (argument,)), [given_rows])


@pytest.mark.parametrize("sign", [1, -1])
def test_a_total_that_wraps_around_is_seen_although_it_is_kept_as_sums(sign: int) -> None:
    argument, large = Argument("long"), pa.array([sign * 2**62] * 3, pa.int64())
    sums = [np.array([each.sum()]) for each in argument.to_sums(large, np.ones(3, dtype=np.int64))]
    totals = argument.from_sums(sums)
    with pytest.raises(SumOverflow):
        Buffer("sum", 0, pa.int64()).check(totals)
    sums[1] //= 3
    Buffer("sum", 0, pa.int64()).check(argument.from_sums(sums))


@example([6780926352797013464, 9120004104975011412, 7569860841532671023])
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30))
def test_an_average_of_whole_numbers_has_their_exact_sum(values: list[int | None]) -> None:
    argument, there = Argument("whole"), [value for value in values if value is not None]
    ones = np.ones(len(values), dtype=np.int64)
    totals = argument.totals(pa.array(values, pa.int64()), ones, np.array([0]))
    shown = Buffer("total", 0, pa.float64()).column(argument, totals, ones[:1])
    assert shown.to_pylist() == [float(sum(there))]
    taken = argument.totals(pa.array(values, pa.int64()), -ones, np.array([0]))
    assert not argument.some(argument.combine(totals, taken)).any()


def test_one_row_leaves_for_each_key() -> None:
    rows = [("x", 1, Decimal("1.50"), 2), ("x", 1, Decimal("0.25"), -1), ("y", 1, None, 1)]
    made = Combine(("k0",), ("a0",), (Argument("decimal", scale=2),))(table(rows, pa.decimal128(10, 2)))
    assert made.num_rows == 2
    assert made["diff"].to_pylist() == [1, 1]


def test_many_keys_of_many_values_are_told_apart() -> None:
    size = 3_000
    columns = {f"k{i}": pa.array([(j * (i + 1)) % (size - i) for j in range(size)]) for i in range(7)}
    rows = pa.table({**columns, "diff": pa.array([1] * size)})
    assert Combine(tuple(columns), (), ())(rows).num_rows == len(
        set(zip(*(c.to_pylist() for c in columns.values()), strict=True))
    )
