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


def test_an_interrupt_right_before_the_work_has_it_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes after the last look for one, and before the work."""
    ended = threading.Event()
    with pytest.raises(KeyboardInterrupt), Shield() as shield:  # noqa: PT012
        looked = shield.allow

        def late() -> None:
            looked()
            monkeypatch.undo()
            interrupt()

        monkeypatch.setattr(shield, "allow", late)
        with shield.cancelling(ended.set):
            assert ended.wait(60), "it is cancelled"


def test_an_interrupt_that_comes_last_is_acted_on_when_the_run_ends() -> None:
    with pytest.raises(KeyboardInterrupt), Shield():  # noqa: PT012
        interrupt()
        interrupted = True
    assert interrupted


def test_an_error_is_not_hidden_by_an_interrupt() -> None:
    with pytest.raises(RuntimeError, match="what the run failed with"), Shield():  # noqa: PT012
        interrupt()
        raise RuntimeError("what the run failed with")


@pytest.mark.parametrize("fails", [False, True])
def test_the_handler_is_put_back(fails: bool) -> None:
    known = signal.getsignal(signal.SIGINT)
    with suppress(RuntimeError), Shield():
        assert signal.getsignal(signal.SIGINT) != known
        if fails:
            raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is known
