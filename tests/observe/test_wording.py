"""How numbers, times and values are written."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import Row

from slipstream.observe import Backlog, Consumed, wording


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (123_456, "123 KB"), (5_600_000_000, "5.6 GB")],
)
def test_sizes(count: int, text: str) -> None:
    assert wording.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7500, "2 h 5 min"), (7205, "2 h"), (90_000, "1 d 1 h")],
)
def test_spans_have_two_units_at_most(seconds: float, text: str) -> None:
    assert wording.span(seconds) == text


def test_amounts() -> None:
    assert wording.backlog({"a": Backlog(1, "rows"), "b": Backlog(2000, "bytes")}) == "a 1 row, b 2.0 KB"
    assert wording.consumed(Consumed(0)) == "nothing yet"
    assert wording.consumed(Consumed(2, files=1, bytes=10)) == "1 file, 10 B"
    assert wording.consumed(Consumed(2, appends=3)) == "3 appends"
    assert wording.latency(0.0456) == "46 ms"
    assert wording.latency(1.26) == "1.3 s"


def test_every_value_has_a_form_in_json() -> None:
    values = [
        None,
        True,
        1.5,
        float("nan"),
        b"\x01\xff",
        Decimal("1.20"),
        date(2026, 1, 31),
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        Row(a=1, b=[Decimal("2")]),
        {date(2026, 1, 1): b""},
    ]
    assert wording.plain(values) == [
        None,
        True,
        1.5,
        "nan",
        "01ff",
        "1.20",
        "2026-01-31",
        "2026-01-31T12:00:00+00:00",
        {"a": 1, "b": ["2"]},
        {"2026-01-01": ""},
    ]


def test_cells_are_written_as_sql_would() -> None:
    assert [wording.cell(value) for value in (None, b"\x0f", 1.5, "x", [1])] == [
        "NULL",
        "X'0F'",
        "1.5",
        "x",
        "[1]",
    ]


def test_equal_names_are_told_apart() -> None:
    assert wording.distinct(["x", "y", "x", "x"]) == ["x", "y", "x_2", "x_3"]
