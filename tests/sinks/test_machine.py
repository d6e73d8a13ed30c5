"""What a follower does next."""

from __future__ import annotations

from slipstream.sinks.machine import (
    FIRST_PAUSE,
    LAST_PAUSE,
    Deliver,
    Delivered,
    Failed,
    Join,
    Joined,
    Reset,
    Rest,
    State,
    after,
    decide,
)

JOINED_AT_3 = after(State(), Joined(3))


def test_nothing_is_done_before_there_is_an_epoch() -> None:
    assert decide(State(), 0, 0.0) == Rest()


def test_the_target_is_asked_first() -> None:
    assert decide(State(), 5, 0.0) == Join()


def test_all_that_has_come_since_goes_in_one_delivery() -> None:
    assert decide(JOINED_AT_3, 7, 0.0) == Deliver(3, 7)


def test_a_target_without_anything_gets_the_whole_view() -> None:
    assert decide(after(State(), Joined(None)), 7, 0.0) == Deliver(None, 7)


def test_without_news_it_rests_for_as_long_as_it_takes() -> None:
    assert decide(JOINED_AT_3, 3, 0.0) == Rest()
    assert decide(JOINED_AT_3, 2, 0.0) == Rest()  # what is safe may be behind what was delivered once


def test_what_failed_is_begun_again_from_joining_after_a_pause_that_doubles() -> None:
    state, now, pauses = JOINED_AT_3, 100.0, []
    for _ in range(12):
        state = after(state, Failed("gone", now))
        told = decide(state, 7, now)
        assert isinstance(told, Rest)
        assert told.seconds is not None
        pauses.append(told.seconds)
        now += told.seconds
        assert decide(state, 7, now) == Join()
    assert pauses[:4] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE]
    assert pauses[-1] == LAST_PAUSE


def test_news_do_not_cut_a_pause_short() -> None:
    state = after(JOINED_AT_3, Failed("gone", 10.0))
    assert decide(state, 1_000, 10.0 + FIRST_PAUSE / 2) == Rest(FIRST_PAUSE / 2)


def test_a_delivery_ends_a_row_of_failures() -> None:
    state = after(after(JOINED_AT_3, Failed("gone", 0.0)), Failed("gone", 1.0))
    assert (state.failures, state.error) == (2, "gone")
    state = after(after(state, Joined(3)), Delivered(7))
    assert (state.failures, state.error, state.reached) == (0, None, 7)


def test_joining_alone_does_not_hide_what_failed() -> None:
    assert after(after(JOINED_AT_3, Failed("gone", 0.0)), Joined(3)).error == "gone"


def test_what_cannot_be_mended_stops_it_until_it_is_reset() -> None:
    state = after(JOINED_AT_3, Failed("another's", 0.0, lasting=True))
    assert decide(state, 7, 1e9) == Rest()
    state = after(state, Reset())
    assert decide(state, 7, 0.0) == Join()
    state = after(state, Joined(3))
    assert decide(state, 7, 0.0) == Deliver(None, 7)
    assert decide(after(state, Delivered(7)), 8, 0.0) == Deliver(7, 8)


def test_a_reset_outlasts_a_failure() -> None:
    state = after(after(JOINED_AT_3, Reset()), Failed("gone", 0.0))
    assert decide(after(state, Joined(3)), 7, 1e9) == Deliver(None, 7)
