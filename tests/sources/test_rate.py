"""Generated rows: paced by the clock, the same for the same range."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import BadSourceOption, UnknownColumn
from slipstream.sources import rate

pytestmark = pytest.mark.spark

Attach = Callable[..., Any]
Rows = Callable[..., list[tuple[Any, ...]]]


def test_rows_come_as_time_passes(attach: Attach) -> None:
    clock = ManualClock(1000.0)
    source = attach(rate(10, clock=clock))
    assert source.cut(None) is None
    clock.advance(2.55)
    assert source.backlog() == 25
    assert source.cut(20).range == {"start": 0, "end": 20, "from": 1_000_000_000}
    assert source.cut(None).range == {"start": 20, "end": 25, "from": 1_000_000_000}


def test_a_row_is_a_function_of_its_number(attach: Attach, rows: Rows) -> None:
    source = attach(rate(10, keys=3, seed=7, start=1000.0))
    whole = rows(source.frame({"start": 0, "end": 100, "from": 1_000_000_000}))
    parts = [
        row
        for start in range(0, 100, 20)
        for row in rows(source.frame({"start": start, "end": start + 20, "from": 1_000_000_000}))
    ]
    assert sorted(whole) == sorted(parts)
    assert sorted(value for value, _, _ in whole) == list(range(100))
    assert {key for _, key, _ in whole} == {0, 1, 2}
    at = {value: moment.timestamp() for value, _, moment in whole}
    assert at[15] == datetime.datetime.fromtimestamp(1001.5, datetime.UTC).timestamp()
    other = attach(rate(10, keys=3, seed=8))
    assert rows(other.frame({"start": 0, "end": 100, "from": 1_000_000_000})) != whole


def test_a_restart_goes_on_with_the_same_times(attach: Attach) -> None:
    consumed = [{"start": 0, "end": 50, "from": 1_000_000_000}]
    source = attach(rate(10, clock=ManualClock(1006.0)), consumed=consumed)
    assert source.cut(None).range == {"start": 50, "end": 60, "from": 1_000_000_000}


def test_a_limit_ends_the_source(attach: Attach) -> None:
    clock = ManualClock(0.0)
    source = attach(rate(1000, limit=5, clock=clock))
    clock.advance(10)
    assert source.cut(None).rows == 5
    assert source.backlog() == 0
    assert source.cut(None) is None
    assert source.cut(None) is None


def test_without_a_pace_every_epoch_is_full(attach: Attach) -> None:
    source = attach(rate(None, rows_per_epoch=100, limit=250, clock=ManualClock()))
    assert [cut.rows for cut in iter(lambda: source.cut(None), None)] == [100, 100, 50]


def test_rows_may_replace_each_other_by_key(attach: Attach) -> None:
    source = attach(rate(10, keys=2, key="key"))
    frame = source.frame({"start": 5, "end": 9, "from": 0})
    assert frame.columns == ["value", "key", "timestamp", "_slipstream_delete", "_slipstream_order0"]
    assert sorted(row._slipstream_order0 for row in frame.collect()) == [5, 6, 7, 8]


def test_large_numbers(attach: Attach, rows: Rows) -> None:
    source = attach(rate(10))
    assert rows(source.frame({"start": 2**40, "end": 2**40 + 2, "from": 0}), "value") == [
        (2**40,),
        (2**40 + 1,),
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rows_per_second": 0}, "rows_per_second=0 is not positive"),
        ({"rows_per_second": None}, "rows_per_second=None without rows_per_epoch=. To do: say how many rows"),
        ({"keys": 0}, "keys=0 is less than 1"),
        ({"limit": 0}, "limit=0 is less than 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadSourceOption, match=re.escape(text)):
        rate(**options)


def test_there_is_no_diff_column() -> None:
    with pytest.raises(UnknownColumn, match="names 'n', but its schema has only 'key', 'timestamp', 'value'"):
        rate(diff="n")


def test_a_summary_of_old_ranges_is_enough_to_go_on(attach: Attach) -> None:
    source = attach(rate(rows_per_second=None, rows_per_epoch=10, start=5))
    ranges = [source.cut(None).range for _ in range(3)]
    base = source.folded(source.folded(None, ranges[:1]), ranges[1:2])
    assert base == {"last": ranges[1], "epochs": 2, "rows": 20}
    again = attach(rate(rows_per_second=None, rows_per_epoch=10), base=base)
    assert again.cut(None).range == ranges[2]
    assert (
        attach(rate(rows_per_second=None, rows_per_epoch=10), ranges[2:], base=base).cut(None).range["start"]
        == 30
    )
