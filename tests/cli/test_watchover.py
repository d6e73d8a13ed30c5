"""What a supervisor decides: no process, no file, no clock."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from slipstream.cli.heartbeat import Beat, State
from slipstream.cli.watchover import (
    Instruction,
    Kill,
    Leave,
    Policy,
    Promote,
    Say,
    Start,
    Stop,
    Watch,
    began,
    ended,
    looked,
    stop_asked,
)

POLICY = Policy(
    stuck_after=10, start_within=30, first_pause=1, longest_pause=4, settled_after=60, give_up_after=3
)
STANDBY = Policy(stuck_after=10, start_within=30, first_pause=1, standby_after=5, standby=True)


class Tale:
    """A supervisor to whom things happen, one after another; keeps what it did."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.watch, self.done = began(policy)
        self._count = 0
        self._beats: dict[int, Beat] = {}

    def look(self, seconds: float = 1.0) -> list[Instruction]:
        return self._note(looked(self.watch, seconds, self._beats))

    def silence(self, seconds: int) -> list[Instruction]:
        """So many looks, a second apart."""
        return [each for _ in range(seconds) for each in self.look()]

    def beat(self, number: int, state: State, epoch: int = 0) -> list[Instruction]:
        self._count += 1
        self._beats[number] = Beat(self._count, state, epoch)
        return self.look()

    def run(self, number: int, *epochs: int) -> list[Instruction]:
        return [each for epoch in epochs for each in self.beat(number, "running", epoch)]

    def end(self, number: int, code: int) -> list[Instruction]:
        self._beats.pop(number, None)
        return self._note(ended(self.watch, number, code))

    def stop(self) -> list[Instruction]:
        return self._note(stop_asked(self.watch))

    def _note(self, decision: tuple[Watch, list[Instruction]]) -> list[Instruction]:
        self.watch, done = decision
        self.done += done
        return done


def said(instructions: Iterable[Instruction]) -> list[str]:
    return [each.text for each in instructions if isinstance(each, Say)]


def unsaid(instructions: Iterable[Instruction]) -> list[Instruction]:
    return [each for each in instructions if not isinstance(each, Say)]


def test_an_engine_that_dies_after_progress_is_started_again_at_once() -> None:
    tale = Tale()
    assert tale.done == [Start(1, first=True)]
    tale.run(1, 5, 6)
    assert tale.end(1, -9) == [
        Say("the engine was ended by signal 9; it is started again at once"),
        Start(2),
    ]


def test_what_was_asked_of_the_first_start_is_asked_until_an_engine_has_run() -> None:
    tale = Tale()
    tale.beat(1, "starting")
    assert unsaid(tale.end(1, -9)) == [Start(2, first=True)]
    tale.run(2, 0)
    tale.end(2, -9)
    assert tale.look() == [Start(3)]


def test_an_engine_that_is_done_ends_the_supervisor() -> None:
    tale = Tale()
    tale.run(1, 5)
    assert tale.end(1, 0) == [Leave(0)]


def test_pauses_double_and_the_supervisor_gives_up_when_nothing_is_computed() -> None:
    tale = Tale()
    tale.run(1, 7)
    assert unsaid(tale.end(1, 1)) == [Start(2)]
    assert said(tale.end(2, 1)) == ["the engine ended with exit code 1; it is started again in 1 s"]
    assert tale.look(0.5) == []
    assert tale.look(0.5) == [Start(3)]
    tale.run(3, 7)
    assert said(tale.end(3, -6)) == ["the engine was ended by signal 6; it is started again in 2 s"]
    assert tale.silence(2) == [Start(4)]
    tale.run(4, 7)
    assert tale.end(4, 1) == [
        Say(
            "the engine ended with exit code 1. That is the 4th time in a row, and no epoch was computed in between: "
            "giving up at epoch 7. What it wrote above says why. Nothing is lost: a new start goes on from there."
        ),
        Leave(1),
    ]


def test_a_pause_has_a_limit() -> None:
    assert [POLICY.pause(failures) for failures in range(6)] == [0, 0, 1, 2, 4, 4]


def test_progress_makes_failures_forgotten() -> None:
    tale = Tale()
    for number in range(1, 20):
        tale.run(number, number, number + 1)
        assert unsaid(tale.end(number, -9)) == [Start(number + 1)]


def test_the_epoch_of_an_earlier_run_is_no_progress_but_a_minute_without_input_is() -> None:
    tale = Tale()
    for number in (1, 2):
        tale.run(number, 100)
        tale.end(number, -9)
    assert tale.watch.failures == 2
    tale.look()
    for _ in range(62):
        tale.run(3, 100)
    assert tale.watch.failures == 0


def test_a_file_that_is_at_fault_is_not_tried_again() -> None:
    tale = Tale()
    tale.beat(1, "starting")
    tale.beat(1, "refused")
    assert tale.end(1, 1) == [Leave(1)]


def test_a_file_that_is_at_fault_after_one_that_ran_is_tried_again() -> None:
    tale = Tale()
    tale.run(1, 5, 6)
    tale.end(1, -9)
    tale.beat(2, "refused")
    assert said(tale.end(2, 1)) == ["the engine ended with exit code 1; it is started again in 1 s"]


def test_a_stuck_engine_is_killed_once_and_started_again() -> None:
    tale = Tale()
    tale.run(1, 5, 6)
    assert tale.silence(10) == []
    assert tale.look() == [
        Say("the engine has shown no sign of life for 11 s, at epoch 6: it is killed"),
        Kill(1),
    ]
    assert tale.silence(20) == []
    assert tale.end(1, -9) == [Say("the engine was killed as stuck; it is started again at once"), Start(2)]


def test_an_engine_may_take_longer_to_start() -> None:
    tale = Tale()
    assert tale.silence(30) == []
    assert unsaid(tale.look()) == [Kill(1)]


def test_who_is_killed_for_silence_without_progress_gets_twice_as_long() -> None:
    tale = Tale()
    tale.run(1, 5)
    assert unsaid(tale.silence(11)) == [Kill(1)]
    tale.end(1, -9)
    tale.run(2, 5)
    assert tale.silence(20) == []
    assert unsaid(tale.silence(1)) == [Kill(2)]
    tale.end(2, -9)
    tale.look()
    tale.run(3, 5, 6)
    assert unsaid(tale.silence(11)) == [Kill(3)], "with progress, the old limit holds again"


def lives(policy: Policy, epoch_seconds: float, within: int = 5 * 3600) -> tuple[int, Tale]:
    """Supervise engines whose one epoch takes so long, and is silent all the while; how many it took until it was
    through, or until the supervisor gave up.
    """
    tale = Tale(policy)
    number, age, waited = 1, 0, 0
    while waited < within:
        waited += 1
        age += 1
        if age == 5:
            done = tale.beat(number, "running", 7)
        elif age > 5 + epoch_seconds:
            tale.beat(number, "running", 8)
            return number, tale
        else:
            done = tale.look()
        if Kill(number) in done:
            done = tale.end(number, -9)
        for each in done:
            match each:
                case Start(started):
                    number, age = started, 0
                case Leave():
                    return number, tale
    raise AssertionError("neither through nor given up")


@pytest.mark.parametrize(
    ("stuck_after", "epoch", "engines"),
    [(60, 70, 2), (30, 70, 3), (120, 150, 2), (60, 600, 5), (60, 3600, 7)],
)
def test_an_epoch_that_is_longer_than_the_patience_gets_through_in_the_end(
    stuck_after: float, epoch: float, engines: int
) -> None:
    number, tale = lives(Policy(stuck_after=stuck_after), epoch)
    assert (number, tale.watch.patience, tale.watch.failures) == (engines, 1, 0)


@pytest.mark.parametrize("stuck_after", [10, 60, 120])
def test_an_engine_that_is_stuck_each_time_is_given_up(stuck_after: float) -> None:
    number, tale = lives(Policy(stuck_after=stuck_after), epoch_seconds=float("inf"))
    assert number == 7
    assert isinstance(tale.done[-1], Leave)


def test_an_engine_that_beats_while_it_holds_input_is_left_alone() -> None:
    tale = Tale(Policy(stuck_after=60))
    tale.run(1, 7)
    assert [each for _ in range(600) for each in tale.run(1, 7)] == []
    assert tale.watch.engine is not None
    assert tale.watch.engine.ran == 600


def test_of_a_silence_a_second_counts_as_running_once_it_is_over() -> None:
    tale = Tale()
    tale.run(1, 5)
    tale.silence(8)
    assert tale.watch.engine is not None
    assert tale.watch.engine.ran == 0
    tale.run(1, 5)
    assert tale.watch.engine.ran == 1


def test_a_long_epoch_that_fails_is_no_progress() -> None:
    """Else an engine that fails after a minute each time is started for ever, and one whose epoch takes long is never
    given more time than it was killed for (seed 1795023177221 of the simulation).
    """
    tale = Tale(Policy(stuck_after=60, give_up_after=2))
    tale.run(1, 5)
    assert unsaid(tale.silence(60) + tale.look()) == [Kill(1)]
    tale.end(1, -9)
    tale.run(2, 5)
    tale.silence(100)
    tale.run(2, 5)  # the epoch failed, and is tried once more
    assert tale.watch.patience == 2
    assert unsaid(tale.silence(100)) == []
    for number in (2, 3):
        tale.end(number, 1)
        tale.silence(3)
        tale.run(number + 1, 5)
        tale.silence(100)
        tale.run(number + 1, 5)
    assert isinstance(tale.end(4, 1)[-1], Leave)


def test_time_in_which_the_supervisor_did_not_run_does_not_count() -> None:
    tale = Tale()
    tale.run(1, 5)
    assert tale.look(3600) == []
    assert tale.silence(9) == []
    assert unsaid(tale.look()) == [Kill(1)]


def test_a_stop_is_passed_on_twice_and_then_enforced() -> None:
    tale = Tale()
    tale.run(1, 5)
    assert tale.stop() == [Stop(1)]
    assert tale.stop() == [Stop(1)]
    assert tale.stop() == [Kill(1)]
    assert tale.end(1, -9) == [Leave(137)]


def test_a_stop_in_a_pause_ends_everything() -> None:
    tale = Tale()
    tale.run(1, 5)
    tale.end(1, 1)
    tale.end(2, 1)
    assert tale.stop() == [Leave(0)]
    assert tale.silence(10) == []


def test_a_stopped_engine_is_not_started_again() -> None:
    tale = Tale()
    tale.run(1, 5, 6)
    tale.stop()
    assert tale.end(1, 0) == [Leave(0)]


def test_a_standby_is_started_when_the_engine_has_got_going() -> None:
    tale = Tale(STANDBY)
    tale.beat(1, "starting")
    assert tale.run(1, 5) == []
    assert tale.run(1, 6) == [Start(2, standby=True)]
    assert tale.run(1, 7, 8) == []


def test_a_standby_is_started_beside_an_engine_without_input() -> None:
    tale = Tale(STANDBY)
    assert [each for _ in range(7) for each in tale.run(1, 0)] == [Start(2, standby=True)]


def test_a_standby_becomes_the_engine_and_gets_a_standby_of_its_own() -> None:
    tale = Tale(STANDBY)
    tale.run(1, 5, 6)
    tale.beat(2, "standby")
    told = "the engine was ended by signal 9; the standby takes over"
    assert tale.end(1, -9) == [Say(told), Promote(2)]
    assert tale.run(2, 6) == []
    assert tale.run(2, 7) == [Start(3, standby=True)]
    tale.beat(3, "standby")
    assert unsaid(tale.silence(11)) == [Kill(2), Kill(3)]


def test_a_standby_is_told_that_its_engine_was_killed_as_stuck_and_is_not_told_twice() -> None:
    tale = Tale(STANDBY)
    tale.run(1, 5, 6)
    done = [each for _ in range(11) for each in tale.beat(2, "standby")]
    assert unsaid(done) == [Kill(1)]
    assert unsaid(tale.end(1, -9)) == [Promote(2)]
    assert unsaid(tale.beat(2, "standby")) == []
    assert Promote(2) not in tale.end(2, -9)


def test_a_standby_that_dies_is_replaced_and_the_engine_goes_on() -> None:
    tale = Tale(STANDBY)
    tale.run(1, 5, 6)
    assert tale.end(2, 1) == [Say("the standby ended with exit code 1; another is started in 1 s")]
    assert tale.run(1, 7) == [Start(3, standby=True)]
    assert tale.end(3, 1) == [Say("the standby ended with exit code 1; another is started in 2 s")]
    assert tale.run(1, 8, 9) == [Start(4, standby=True)]


def test_a_stop_and_an_end_take_the_standby_along() -> None:
    for stopped in (True, False):
        tale = Tale(STANDBY)
        tale.run(1, 5, 6)
        assert Kill(2) in (tale.stop() if stopped else tale.end(1, 0))
