"""The simulated scheduler: order by virtual time, death without last words, freezing in the middle."""

from __future__ import annotations

import threading

import pytest

from slipstream.testing.simulation.scheduler import Killed, Scheduler, SimulatedClock, Stalled


def test_processes_take_turns_in_the_order_of_virtual_time() -> None:
    scheduler = Scheduler(1)
    clock = SimulatedClock(scheduler)
    seen: list[tuple[str, float]] = []

    def ticking(name: str, every: float) -> None:
        for _ in range(3):
            clock.sleep(every)
            seen.append((name, clock.monotonic()))

    scheduler.start("a", lambda: ticking("a", 2.0))
    scheduler.start("b", lambda: ticking("b", 3.0))
    assert not scheduler.run(lambda: False, 100.0)
    assert seen == [("a", 2.0), ("b", 3.0), ("a", 4.0), ("b", 6.0), ("a", 6.0), ("b", 9.0)]
    assert [process.exit for process in scheduler.processes] == [0, 0]


def test_a_killed_process_cannot_touch_the_world_in_its_cleanup() -> None:
    scheduler = Scheduler(1)
    clock = SimulatedClock(scheduler)
    done: list[str] = []

    def body() -> None:
        try:
            clock.sleep(10.0)
        finally:
            clock.sleep(0.0)
            done.append("cleaned up")

    process = scheduler.start("a", body)
    scheduler.alarm(5.0, lambda: scheduler.kill(process))
    scheduler.run(lambda: False, 20.0)
    assert process.exit == -9
    assert done == []


def test_code_that_catches_death_for_ever_is_found() -> None:
    scheduler = Scheduler(1)
    clock = SimulatedClock(scheduler)

    def body() -> None:
        while True:
            try:
                clock.sleep(1.0)
            except Killed:
                continue

    process = scheduler.start("a", body)
    scheduler.alarm(5.0, lambda: scheduler.kill(process))
    scheduler.run(lambda: False, 20.0)
    assert scheduler.failure is not None


def test_an_error_in_one_thread_ends_the_process() -> None:
    scheduler = Scheduler(1)
    clock = SimulatedClock(scheduler)

    def fails() -> None:
        clock.sleep(1.0)
        raise ValueError("no")

    def body() -> None:
        scheduler.thread(fails)
        clock.sleep(100.0)

    process = scheduler.start("a", body)
    scheduler.run(lambda: not process.alive, 200.0)
    assert process.exit == 1
    assert isinstance(process.error, ValueError)
    assert scheduler.now == 1.0


def test_a_frozen_process_goes_on_where_it_was() -> None:
    scheduler = Scheduler(1)
    clock = SimulatedClock(scheduler)
    woke: list[float] = []

    def body() -> None:
        for _ in range(3):
            clock.sleep(1.0)
            woke.append(clock.monotonic())

    process = scheduler.start("a", body)
    scheduler.alarm(1.5, lambda: scheduler.freeze(process, 10.0))
    scheduler.run(lambda: False, 100.0)
    assert woke == [1.0, 11.5, 12.5]


def test_an_interruption_comes_between_two_operations() -> None:
    scheduler = Scheduler(1)
    clock = SimulatedClock(scheduler)
    seen: list[int] = []
    scheduler.interrupt(3, lambda: seen.append(scheduler.points))

    def body() -> None:
        for _ in range(5):
            clock.sleep(0.0)

    scheduler.start("a", body)
    scheduler.run(lambda: False, 1.0)
    assert seen == [3]


def test_running_in_circles_is_a_failure() -> None:
    scheduler = Scheduler(1, most_points=1000)
    clock = SimulatedClock(scheduler)

    def body() -> None:
        while True:
            clock.sleep(0.0)

    scheduler.start("a", body)
    assert not scheduler.run(lambda: False, 10.0)
    assert isinstance(scheduler.failure, Stalled)
    scheduler.close()


def test_waiting_for_an_event_ends_soon_after_it_is_set() -> None:
    scheduler = Scheduler(1)
    clock = SimulatedClock(scheduler)
    event = threading.Event()
    seen: list[bool] = []
    scheduler.start("a", lambda: seen.append(clock.wait(event, 60.0)))
    scheduler.start("b", lambda: seen.append(clock.wait(threading.Event(), 5.0)))
    scheduler.alarm(3.0, lambda: event.set())
    scheduler.run(lambda: False, 4.0)
    assert seen == [True]
    scheduler.run(lambda: False, 10.0)
    assert seen == [True, False]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_is_the_same_history(seed: int) -> None:
    def history() -> list[tuple[str, float]]:
        scheduler = Scheduler(seed)
        clock = SimulatedClock(scheduler)
        seen: list[tuple[str, float]] = []

        def body(name: str) -> None:
            for _ in range(20):
                clock.sleep(scheduler.random.random())
                seen.append((name, clock.monotonic()))

        for name in "abc":
            scheduler.start(name, lambda name=name: body(name))  # type: ignore[misc]
        scheduler.run(lambda: False, 100.0)
        return seen

    assert history() == history()
