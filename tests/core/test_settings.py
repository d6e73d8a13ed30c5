"""How long history is kept."""

from __future__ import annotations

import pytest

from slipstream.core.errors import SlipstreamError
from slipstream.core.settings import History

CLOCKS = [(10.0 * epoch, epoch) for epoch in range(1, 11)]


@pytest.mark.parametrize(
    ("said", "keep_from"), [(3, 7), ("3 epochs", 7), ("25s", 7), ("1 day", 0), (None, 0), ("0.5s", 10)]
)
def test_the_oldest_epoch_that_is_kept(said: str | int | None, keep_from: int) -> None:
    assert History.parse(said).keep_from(10, 100.4, CLOCKS) in (keep_from, max(0, keep_from - 1))


def test_what_was_the_answer_then_can_be_told_for_all_of_the_time_kept() -> None:
    oldest = History.parse("25s").keep_from(10, 100.0, CLOCKS)
    assert 10.0 * oldest <= 75.0, "the answer 25 seconds ago was that of the epoch before"


def test_where_not_every_time_is_known_more_is_kept_and_never_less() -> None:
    sparse = [(0.0, 0), *CLOCKS[3::4], CLOCKS[-1]]
    for seconds in range(1, 101):
        all_known = History(seconds=seconds).keep_from(10, 100.4, CLOCKS)
        assert History(seconds=seconds).keep_from(10, 100.4, sparse) <= all_known
    assert History(seconds=25).keep_from(10, 100.4, sparse) == 4


def test_a_duration_that_is_none() -> None:
    with pytest.raises(SlipstreamError, match="fortnight"):
        History.parse("a fortnight")
