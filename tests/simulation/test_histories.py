"""Histories in which nothing that must never be is found, the same ones each time: some hundred for whoever waits, and
20,000 for whoever does not.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from slipstream.testing.simulation.campaign import told
from slipstream.testing.simulation.history import run
from slipstream.testing.simulation.plan import WEIGHTS, draw

_EACH = 20
_MANY, _TOGETHER, _FROM = 20_000, 1_000, 1_000_000


@pytest.mark.parametrize("first", range(0, 300, _EACH))
def test_nothing_is_violated(first: int) -> None:
    for seed in range(first, first + _EACH):
        outcome = run(draw(seed))
        assert outcome.failure is None, told(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(_FROM, _FROM + _MANY, _TOGETHER))
def test_nothing_is_violated_in_many_histories(first: int) -> None:
    done = _simulated("--histories", str(_TOGETHER), "--seed", str(first))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seed", [1004042, 1008343, 1012469, 1795002960163, 1795023177221])
def test_what_was_once_violated_is_not_again(seed: int) -> None:
    done = _simulated("--histories", "1", "--seed", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_history_is_the_same_each_time() -> None:
    for seed in range(5):
        first, second = run(draw(seed)), run(draw(seed))
        assert (first.points, first.story) == (second.points, second.story)


def test_every_kind_of_fault_happens() -> None:
    drawn = {fault.kind for seed in range(300) for fault in draw(seed).faults}
    assert drawn == set(WEIGHTS)


def test_the_command_says_what_was_tried() -> None:
    done = _simulated("--histories", "3", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 histories" in done.stdout
    assert "failures: none" in done.stdout


def _simulated(*options: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own, in which hashes of texts are fixed too."""
    command = [sys.executable, "-m", "slipstream.testing.simulation", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)
