"""Ctrl-C, let through only where nothing is in hand."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from slipstream.epoch.interrupts import Shield


@pytest.fixture(autouse=True)
def python_s_own() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_has_work_cancelled_and_is_raised_once_that_has_ended() -> None:
    ended, told = threading.Event(), []

    def cancel() -> None:
        told.append(threading.current_thread() is not threading.main_thread())
        ended.set()

    with pytest.raises(KeyboardInterrupt) as raised, Shield() as shield:  # noqa: PT012
        with shield.cancelling(cancel):
            interrupt()
            assert ended.wait(60), "it is cancelled by another thread, while this one is busy"
            told.append(True)
        told.append(False)
    assert told == [True, True]
    assert raised.value.__context__ is None


def test_what_cancelled_work_raises_and_is_caught_is_no_part_of_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, Shield() as shield, shield.cancelling(lambda: None):  # noqa: PT012
        interrupt()
        with suppress(RuntimeError):
            raise RuntimeError("the job was cancelled, says the JVM, with its stack")
    assert raised.value.__context__ is None


def test_a_second_interrupt_goes_through_at_once() -> None:
    told = []
    with pytest.raises(KeyboardInterrupt), Shield() as shield, shield.cancelling(lambda: None):  # noqa: PT012
        interrupt()
        told.append("after the first")
        interrupt()
        told.append("after the second")
    assert told == ["after the first"]


def test_an_interrupt_before_the_work_keeps_it_from_being_begun() -> None:
    with pytest.raises(KeyboardInterrupt), Shield() as shield:  # noqa: PT012
        interrupt()
        with shield.cancelling(lambda: None):
            raise AssertionError("it is begun")


def test_a_handler_of_the_user_s_own_decides_for_itself_and_nothing_is_cancelled() -> None:
    told: list[str] = []
    signal.signal(signal.SIGINT, lambda number, frame: told.append("handled"))
    with Shield() as shield, shield.cancelling(lambda: told.append("cancelled")):
        interrupt()
        assert told == ["handled"]
    assert told == ["handled"]
