"""Choosing plans from figures."""

from __future__ import annotations

import pytest

from slipstream.plan.choosing import ENOUGH_ROWS, FEW, MANY, Choices, Fact, Looks, choose

NONE: frozenset[str] = frozenset()
ROWS = 10 * ENOUGH_ROWS


@pytest.mark.parametrize(
    ("now", "seen", "then"),
    [
        (NONE, Fact(ROWS, 100), {"t"}),
        (NONE, Fact(ROWS, ROWS // MANY), {"t"}),
        (NONE, Fact(ROWS, ROWS // MANY + 1), NONE),
        (NONE, Fact(ENOUGH_ROWS - 1, 1), NONE),
        ({"t"}, Fact(ROWS, ROWS // 4), {"t"}),
        ({"t"}, Fact(ROWS, ROWS // FEW), {"t"}),
        ({"t"}, Fact(ROWS, ROWS), NONE),
        ({"t"}, Fact(ENOUGH_ROWS - 1, ENOUGH_ROWS - 1), {"t"}),
    ],
)
def test_rows_are_added_up_first_where_they_are_many_for_each_that_is_left(
    now: frozenset[str], seen: Fact, then: frozenset[str]
) -> None:
    assert choose(Choices(frozenset(now)), {"t": seen}) == Choices(frozenset(then))


def test_an_aggregation_of_which_nothing_is_known_stays_as_it_is() -> None:
    assert choose(Choices(frozenset({"a"})), {"b": Fact(ROWS, 1)}) == Choices(frozenset({"a", "b"}))


def looked(rows: int, epochs: int, in_vain: int = 0) -> list[int]:
    """After which epochs there is a look, those before `in_vain` in vain."""
    looks, found = Looks(), []
    for epoch in range(1, epochs + 1):
        due, looks = looks.after(rows)
        if due:
            found.append(epoch)
            looks = looks.in_vain() if epoch < in_vain else looks
    return found


def test_looks_are_soon_and_then_ever_less_often() -> None:
    assert looked(ROWS, 400) == [3, 9, 21, 45, 93, 189, 317]


def test_a_small_epoch_is_not_looked_at_and_does_not_put_off_the_look() -> None:
    looks = Looks()
    for _ in range(50):
        due, looks = looks.after(ENOUGH_ROWS - 1)
        assert not due
    assert looks.after(ENOUGH_ROWS)[0]


def test_a_look_in_vain_is_taken_again_after_the_next_epoch() -> None:
    assert looked(ENOUGH_ROWS, 12, in_vain=5)[:3] == [3, 4, 5]
    assert 6 not in looked(ENOUGH_ROWS, 12, in_vain=5)
