"""Supervising real processes: engines that are killed, hang, fail or are stopped. None of them needs Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slipstream.cli.supervise import engine_command
from slipstream.cli.watchover import Start

SUPERVISOR = """
import sys
from pathlib import Path
from slipstream.cli.supervise import supervise
from slipstream.cli.watchover import Policy

def command(beat, start):
    return [sys.executable, "-c", {engine!r}, str(beat), "standby" if start.standby else "engine"]

policy = Policy(stuck_after={stuck_after}, first_pause=0.05, give_up_after=2, standby={standby}, standby_after=0.1)
sys.exit(supervise(command, policy, lambda text: print("supervisor:", text, flush=True)))
"""

ENGINE = """
import fcntl, os, sys, time
from pathlib import Path
from slipstream.cli.heartbeat import Heart, end_with
from slipstream.cli.running import Signals

signals = Signals()
promoted = end_with(0)
heart = Heart(Path(sys.argv[1]))
with open("lock", "w") as lock:
    while sys.argv[2] == "standby":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            heart.beat("standby")
            time.sleep(0.01)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    epoch = 0
    if sys.argv[2] == "standby":
        print("promoted:", promoted.wait(60), flush=True)
    heart.beat("running", epoch)
    print("pid of", sys.argv[2], os.getpid(), flush=True)
    while not signals.count:
        {body}
        epoch += 1
        heart.beat("running", epoch)
        time.sleep(0.01)
print("stopped in good order", flush=True)
"""


@contextmanager
def supervised(
    folder: Path, body: str = "pass", stuck_after: float = 60, standby: bool = False
) -> Iterator[subprocess.Popen[str]]:
    script = SUPERVISOR.format(engine=ENGINE.format(body=body), stuck_after=stuck_after, standby=standby)
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def line_with(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return line
    raise AssertionError(f"no line has {text!r}: {lines}")


def engine_of(process: subprocess.Popen[str], kind: str = "engine") -> int:
    return int(line_with(process, f"pid of {kind} ").split()[-1])


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_killed_engine_is_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path) as process:
        os.kill(engine_of(process), signal.SIGKILL)
        assert "the engine was ended by signal 9; it is started again at once" in line_with(
            process, "supervisor"
        )
        engine_of(process)
        process.terminate()
        assert line_with(process, "stopped") == "stopped in good order\n"
        assert process.wait(60) == 0


def test_options_of_the_first_start_are_not_repeated() -> None:
    command = engine_command(Path("shop.py"), ["--json"], ["--takeover", "--rebuild=revenue"])
    own = ["--beat", "7.json"]
    assert [*command(Path("7.json"), Start(1, first=True))][3:] == [
        *("run", "shop.py", "--json", "--takeover", "--rebuild=revenue"),
        *own,
    ]
    assert [*command(Path("7.json"), Start(2, standby=True))][3:] == [
        *("run", "shop.py", "--json"),
        *own,
        "--await-store",
    ]


def test_an_engine_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path, stuck_after=3) as process:
        first = engine_of(process)
        os.kill(first, signal.SIGSTOP)
        assert "has shown no sign of life for 3 s" in line_with(process, "supervisor")
        assert engine_of(process) != first
        assert gone(first)


def test_ctrl_c_reaches_the_engine_once(tmp_path: Path) -> None:
    with supervised(tmp_path) as process:
        engine_of(process)
        os.killpg(process.pid, signal.SIGINT)
        assert line_with(process, "stopped") == "stopped in good order\n"
        assert process.wait(60) == 0


def test_a_standby_takes_over_and_is_replaced(tmp_path: Path) -> None:
    with supervised(tmp_path, standby=True) as process:
        first = engine_of(process)
        second = wait_for_child(process, {first})
        os.kill(first, signal.SIGKILL)
        assert line_with(process, "promoted") == "promoted: True\n"
        assert engine_of(process, "standby") == second
        third = wait_for_child(process, {first, second})
        process.terminate()
        assert process.wait(60) == 0
        assert gone(third)


def wait_for_child(process: subprocess.Popen[str], known: set[int]) -> int:
    """A child beside those that are known, once it holds itself ready: its beats are in a file of its own."""
    deadline = time.monotonic() + 60
    children = Path("/proc") / str(process.pid) / "task" / str(process.pid) / "children"
    while time.monotonic() < deadline:
        for pid in {int(each) for each in children.read_text().split()} - known:
            arguments = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
            if len(arguments) > 3 and Path(arguments[3].decode()).exists():
                return pid
        time.sleep(0.02)
    raise AssertionError("no standby was started")


def test_an_engine_that_fails_again_and_again_is_given_up(tmp_path: Path) -> None:
    with supervised(tmp_path, body="sys.exit(3)") as process:
        assert "That is the 3rd time in a row" in line_with(process, "giving up at epoch 0")
        assert process.wait(60) == 3


def test_an_engine_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    with supervised(tmp_path) as process:
        engine = engine_of(process)
        process.kill()
        assert gone(engine)
