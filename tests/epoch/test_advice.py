"""Choosing plans from figures."""

from __future__ import annotations

import pytest

from slipstream.epoch.advice import ENOUGH_ROWS, FEW, MANY, STILL, Looks, Seen, Stillness, advise

NONE: frozenset[str] = frozenset()
ROWS = 10 * ENOUGH_ROWS


@pytest.mark.parametrize(
    ("now", "seen", "then"),
    [
        (NONE, Seen(ROWS, 100), {"t"}),
        (NONE, Seen(ROWS, ROWS // MANY), {"t"}),
        (NONE, Seen(ROWS, ROWS // MANY + 1), NONE),
        (NONE, Seen(ENOUGH_ROWS - 1, 1), NONE),
        ({"t"}, Seen(ROWS, ROWS // 4), {"t"}),
        ({"t"}, Seen(ROWS, ROWS // FEW), {"t"}),
        ({"t"}, Seen(ROWS, ROWS), NONE),
        ({"t"}, Seen(ENOUGH_ROWS - 1, ENOUGH_ROWS - 1), {"t"}),
    ],
)
def test_rows_are_added_up_first_where_they_are_many_for_each_that_is_left(
    now: frozenset[str], seen: Seen, then: frozenset[str]
) -> None:
    assert advise(now, {"t": seen}) == then


def test_an_aggregation_of_which_nothing_is_known_stays_as_it_is() -> None:
    assert advise({"a"}, {"b": Seen(ROWS, 1)}) == {"a", "b"}


def test_looks_are_soon_and_then_ever_less_often() -> None:
    looks = Looks()
    due = [epoch for epoch in range(1, 400) if looks.due(ROWS)]
    assert due == [3, 9, 21, 45, 93, 189, 317]


def test_a_small_epoch_is_not_looked_at_and_does_not_put_off_the_look() -> None:
    looks = Looks()
    assert not any(looks.due(ENOUGH_ROWS - 1) for _ in range(50))
    assert looks.due(ENOUGH_ROWS)


def test_a_look_in_vain_is_taken_again_after_the_next_epoch() -> None:
    looks = Looks()
    looked = []
    for epoch in range(1, 13):
        if looks.due(ENOUGH_ROWS):
            looked.append(epoch)
            if epoch < 5:
                looks.in_vain()
    assert looked[:3] == [3, 4, 5]
    assert 6 not in looked


def test_a_side_is_looked_at_once_it_has_been_still_and_the_next_time_later() -> None:
    still = Stillness()
    due = []
    for epoch in range(1, 4 * STILL):
        still.note(changed=epoch == STILL + 2)
        if still.due():
            due.append(epoch)
        if epoch == STILL + 2:
            still.put_off()
    assert due == [STILL, 3 * STILL + 2]
