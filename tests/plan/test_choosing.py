"""Choosing plans from figures."""

from __future__ import annotations

import pytest

from slipstream.plan.choosing import ENOUGH_ROWS, FEW, MANY, SLOW, Choices, Fact, Looks, Pace, choose, rows_of

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


def after(one: list[float], many: list[float]) -> Pace:
    pace = Pace()
    for seconds in one:
        pace = pace.after(True, seconds)
    for seconds in many:
        pace = pace.after(False, seconds)
    return pace


@pytest.mark.parametrize(
    ("one", "many", "chosen"),
    [
        ([], [], True),
        ([9.0] * 4, [], True),
        ([SLOW / 2] * 5, [], True),
        ([SLOW] * 5, [], False),
        ([SLOW] * 5, [SLOW / 2] * 4, False),
        ([SLOW] * 5, [SLOW / 2] * 5, False),
        ([SLOW] * 5, [2 * SLOW] * 5, True),
        ([9.0, 9.0, 0.1, 0.1, 0.1], [], True),
        ([9.0, 9.0, 9.0, 9.0, 9.0, 0.1, 0.1, 0.1], [], True),
    ],
)
def test_epochs_of_little_input_are_computed_by_one_task_unless_they_are_slow_and_shards_are_quicker(
    one: list[float], many: list[float], chosen: bool
) -> None:
    assert after(one, many).one_task() is chosen


def test_the_way_that_is_not_chosen_is_tried_again_after_a_while() -> None:
    pace, tried = after([1.0] * 5, [0.6] * 5), 0
    for _ in range(300):
        one = pace.one_task()
        tried += one
        pace = pace.after(one, 1.0 if one else 0.6)
    assert tried == 5


def test_the_rows_of_an_epochs_input_are_known_only_where_every_source_can_tell() -> None:
    assert rows_of([]) == 0
    assert rows_of([("rows", 7), ("bytes", 250)]) == 9
    assert rows_of([("rows", 7), ("rows", None)]) is None
