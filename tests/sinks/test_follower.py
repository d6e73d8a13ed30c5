"""One sink's follower, with a target in memory that fails when it is told to, and a log that is a formula. It is
stepped by hand: no thread, and a clock that stands still.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import TargetBehind, TargetTaken
from slipstream.sinks import Delivery, Follower, Stamp
from slipstream.sinks.follower import QUIET
from slipstream.sinks.machine import FIRST_PAUSE
from slipstream.testing.targets import LOG, Memory, MemorySink, append, only_stamped, replace, stamped


class Squares:
    """A view to which epoch e adds the row (e, e * e); epochs of multiples of ten add nothing."""

    def __init__(self, frontier: int = 0) -> None:
        self.newest, self.stops = frontier, False
        self.incarnation = 1

    def frontier(self) -> int:
        return self.newest

    def schema(self) -> pa.Schema:
        return LOG

    def joined(self, stamp: Stamp | None) -> Stamp | None:
        if stamp is not None and stamp.incarnation > self.incarnation:
            raise TargetTaken("sink", "memory", stamp.epoch, stamp.incarnation)
        return None if stamp is None else stamp.claimed(self.incarnation)

    def delivery(self, before: Stamp | None, since: int | None, upto: int) -> Delivery:
        if self.stops:
            raise TargetBehind("sink", "memory", since or 0, "gone.")
        after = stamped(upto, self.incarnation)
        epochs = [epoch for epoch in range((since or 0) + 1, upto + 1) if epoch % 10]
        rows = [(epoch, str(epoch * epoch), epoch, 1) for epoch in epochs]
        if since is None:
            return replace(before, after, rows, LOG)
        return append(before, after, rows) if rows else only_stamped(before, after, LOG)


def expected(upto: int) -> Counter[tuple[object, ...]]:
    return Counter((epoch, str(epoch * epoch), epoch, 1) for epoch in range(1, upto + 1) if epoch % 10)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1e9)


def follower(memory: Memory, log: Squares, clock: ManualClock) -> Follower:
    sink = MemorySink(memory=memory)
    return Follower("sink", sink, sink.opened, log, clock, lambda: None)


def steps(follower: Follower, number: int) -> None:
    for _ in range(number):
        follower.step()


def test_a_follower_delivers_the_whole_and_then_what_comes(clock: ManualClock) -> None:
    memory, log = Memory(), Squares(3)
    one = follower(memory, log, clock)
    steps(one, 2)
    assert memory.rows == expected(3)
    log.newest = 7
    steps(one, 1)
    assert memory.rows == expected(7)
    assert [each.after.epoch for each in memory.deliveries] == [3, 7]
    assert (one.progress.epoch, one.progress.error, one.needs) == (7, None, 7)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("failure", [ConnectionError("gone"), "lost"])
def test_whatever_fails_nothing_comes_twice(clock: ManualClock, at: int, failure: Exception | str) -> None:
    memory, log = Memory(failing=[*[None] * at, failure]), Squares(3)
    one = follower(memory, log, clock)
    for newest in (3, 5, 9):
        log.newest = newest
        for _ in range(6):
            one.step()
            clock.advance(FIRST_PAUSE)
    assert memory.rows == expected(9)
    assert one.progress.failures == 0


def test_after_a_restart_the_target_says_where_to_go_on(clock: ManualClock) -> None:
    memory, log = Memory(), Squares(3)
    steps(follower(memory, log, clock), 2)
    log.newest, log.incarnation = 5, 2
    again = follower(memory, log, clock)
    again.step()
    assert memory.stamp == stamped(3, 2)  # it is ours from the moment that we join
    again.step()
    assert memory.rows == expected(5)


def test_one_that_was_succeeded_delivers_nothing_more(clock: ManualClock) -> None:
    memory, log, later = Memory(), Squares(3), Squares(3)
    before, after = follower(memory, log, clock), follower(memory, later, clock)
    steps(before, 2)
    later.incarnation = 2
    steps(after, 1)
    log.newest = 4
    steps(before, 1)
    clock.advance(FIRST_PAUSE)
    steps(before, 1)
    assert memory.rows == expected(3)
    assert before.progress.stopped
    assert "a later start of the app" in str(before.progress.error)


def test_a_target_that_is_written_while_it_is_joined_is_asked_again(clock: ManualClock) -> None:
    """By an engine that was succeeded, and whose last delivery was on its way."""
    memory, log = Memory(), Squares(3)
    steps(follower(memory, log, clock), 2)
    log.newest, log.incarnation = 4, 2
    again = follower(memory, log, clock)
    joined = log.joined

    def meanwhile(stamp: Stamp | None) -> Stamp | None:
        wanted = joined(stamp)
        if memory.stamp == stamped(3):
            memory.stamp, memory.rows = stamped(4), expected(4)
        return wanted

    log.joined = meanwhile  # type: ignore[method-assign]
    steps(again, 1)
    clock.advance(FIRST_PAUSE)
    log.newest = 5
    steps(again, 2)
    assert memory.rows == expected(5)
    assert not again.progress.stopped


def test_epochs_that_bring_nothing_are_not_told_at_once(clock: ManualClock) -> None:
    memory, log = Memory(), Squares(9)
    one = follower(memory, log, clock)
    steps(one, 2)
    log.newest = 10
    steps(one, 1)
    assert memory.stamp == stamped(9)
    assert one.progress.epoch == 10
    assert one.needs == 9  # a restart would ask the target
    log.newest = 11
    steps(one, 1)
    assert memory.rows == expected(11)
    clock.advance(QUIET)
    log.newest = 20
    steps(one, 1)
    log.newest = 19
    clock.advance(QUIET)


def test_a_quiet_view_lets_go_of_history_in_time(clock: ManualClock) -> None:
    memory, log = Memory(), Squares(9)
    one = follower(memory, log, clock)
    steps(one, 2)
    clock.advance(QUIET)
    log.newest = 10
    steps(one, 1)
    assert memory.stamp == stamped(10)
    assert one.needs == 10


def test_a_reset_writes_all_anew_also_where_it_has_stopped(clock: ManualClock) -> None:
    memory, log = Memory(), Squares(3)
    one = follower(memory, log, clock)
    steps(one, 2)
    log.stops, log.newest = True, 4
    steps(one, 1)
    assert one.progress.stopped
    log.stops = False
    memory.rows[(99, "spoiled", 1, 1)] += 1
    one.reset()
    steps(one, 2)
    assert memory.rows == expected(4)
    assert not one.progress.stopped


def test_waiting_ends_with_the_delivery_with_a_failure_and_with_the_app(clock: ManualClock) -> None:
    memory, log = Memory(failing=[ConnectionError("gone")]), Squares(3)
    one = follower(memory, log, clock)
    assert not one.await_epoch(3, 0.01)
    steps(one, 1)
    clock.advance(FIRST_PAUSE)
    steps(one, 2)
    assert one.await_epoch(3, None)


def test_as_a_thread_it_follows_until_it_is_closed() -> None:
    from slipstream.core.clock import SystemClock

    memory, log = Memory(), Squares(1)
    sink = MemorySink(memory=memory)
    one = Follower("sink", sink, sink.opened, log, SystemClock(), lambda: None)
    one.start()
    assert one.await_epoch(1, 30)
    for epoch in range(2, 9):
        log.newest = epoch
        one.wake()
        assert one.await_epoch(epoch, 30)
    one.close()
    assert memory.rows == expected(8)
