"""Signals and failures, seen from outside, with an app that has no Spark behind it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, threading, time
from slipstream.cli.displays import JsonDisplay
from slipstream.cli.running import Signals, run_app

class App:
    stopped = threading.Event()
    def on_epoch(self, listener): ...
    def on_notice(self, listener): self.notice = listener
    def stop(self): self.stopped.set()
    def run(self, until, progress):
        print("running", flush=True)
        {body}
        return "summary"

print(run_app(App(), None, JsonDisplay(), Signals()), flush=True)
time.sleep({closing})
"""


def started(body: str, closing: float = 0) -> subprocess.Popen[str]:
    script = SCRIPT.format(body=body, closing=closing)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_asks_to_stop(number: signal.Signals) -> None:
    process = started("self.stopped.wait()")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "summary\n")
    assert err == "finishing the epoch in hand, then stopping (once more to stop at once)\n"


def test_a_second_one_stops_at_once() -> None:
    process = started("time.sleep(600)")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("finishing the epoch in hand")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "stopped at once; the epoch in hand will be run again at the next start\n"


def test_a_second_one_while_the_app_closes_stops_at_once() -> None:
    process = started("self.stopped.wait()", closing=600)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "summary\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_a_failure_of_the_engine_is_raised() -> None:
    process = started("raise RuntimeError('broken engine')")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.endswith("RuntimeError: broken engine\n")


def test_what_the_engine_waits_for_is_said() -> None:
    process = started("self.notice('waiting: the disk is full'); self.notice('going on')")
    with process:  # some of its output may have been read ahead: `communicate` would miss that
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == "summary\n"
        assert process.stderr.read() == "waiting: the disk is full\ngoing on\n"
    assert process.returncode == 0
