"""What the ranges in a lineage log add up to."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.observe.consumed import Consumed, consumed


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], Consumed(0)),
        (
            [{"files": [["a.json", 10, 1], ["b.json", 5, 2]]}, {"files": [["c.json", 1, 3]]}],
            Consumed(2, files=3, bytes=16),
        ),
        ([{"appends": [1, 4]}, {"appends": [5, 5]}], Consumed(2, appends=5)),
        (
            [{"start": 0, "end": 100, "from": 1.5}, {"start": 100, "end": 250, "from": 1.5}],
            Consumed(2, rows=250),
        ),
        (
            [
                {"read": 0, "at": 1.0, "rows": 4, "parts": ["p"]},
                {"read": 1, "at": 2.0, "rows": 2, "parts": []},
            ],
            Consumed(2, rows=6),
        ),
        ([{"start": {"p": 1}, "end": {"p": 7}}], Consumed(1, upto='{"p": 7}')),
        (["whatever a source records"], Consumed(1, upto='"whatever a source records"')),
    ],
)
def test_ranges_add_up_as_far_as_they_tell(ranges: list[Any], expected: Consumed) -> None:
    assert consumed(ranges) == expected


@pytest.mark.parametrize(
    ("before", "ranges", "expected"),
    [
        (
            {"epochs": 5, "files": 7, "bytes": 70, "segments": []},
            [{"files": [["c.json", 1, 3]]}],
            Consumed(6, files=8, bytes=71),
        ),
        ({"epochs": 5, "files": 7, "bytes": 70, "segments": []}, [], Consumed(5, files=7, bytes=70)),
        (
            {"epochs": 5, "last": {"appends": [8, 9]}, "appends": 9},
            [{"appends": [10, 10]}],
            Consumed(6, appends=10),
        ),
        (
            {"epochs": 5, "last": {"start": 0, "end": 9, "from": 1}, "rows": 9},
            [{"start": 9, "end": 10, "from": 1}],
            Consumed(6, rows=10),
        ),
        ({"epochs": 5, "last": {"start": 1, "end": {"p": 7}}}, [], Consumed(5, upto='{"p": 7}')),
        ({"epochs": 5, "last": {"start": 1, "end": 7}}, [{"start": 7, "end": 8}], Consumed(6, upto="8")),
    ],
)
def test_a_summary_of_long_ago_counts(before: Any, ranges: list[Any], expected: Consumed) -> None:
    assert consumed(ranges, before) == expected
