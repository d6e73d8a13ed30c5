"""Supervising: the processes behind what `watchover` decides.

Engines are started as sessions of their own, so that Ctrl-C in a terminal reaches only the supervisor, which passes
it on once. Each has a pipe from the supervisor as its standard input and ends when that does: an engine does not
outlive its supervisor. What comes through the pipe before that tells a standby that it is the engine now. An engine
that ends leaves nothing behind either: what is left of its session, a JVM for one, is killed before anything else is
done about it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from slipstream.cli.heartbeat import Beat
from slipstream.cli.watchover import (
    Decision,
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

TICK = 0.05

Command = Callable[[Path, Start], Sequence[str]]
"""How an engine is started, given the file for its signs of life and what was decided."""


def engine_command(file: Path, options: Sequence[str], once: Sequence[str]) -> Command:
    """`slipstream run` without a supervisor, with the user's options; `once` are for the first start alone."""

    def command(beat: Path, start: Start) -> list[str]:
        own = ["--beat", str(beat), *(["--await-store"] if start.standby else [])]
        given = [*options, *(once if start.first else ())]
        return [sys.executable, "-m", "slipstream.cli", "run", str(file), *given, *own]

    return command


def supervise(command: Command, policy: Policy, say: Callable[[str], None]) -> int:
    """Keep an engine running until it is done, given up or stopped by a signal; the exit code."""
    with tempfile.TemporaryDirectory(prefix="slipstream-supervisor-") as folder:
        supervisor = _Supervisor(command, Path(folder), say)
        try:
            return supervisor.run(policy)
        finally:
            supervisor.kill_all()


class _Supervisor:
    def __init__(self, command: Command, folder: Path, say: Callable[[str], None]) -> None:
        self._command, self._folder, self._say = command, folder, say
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._stops = 0
        self._code: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._caught)

    def run(self, policy: Policy) -> int:
        watch = self._done(began(policy))
        told = 0
        last = time.monotonic()
        while self._code is None:
            time.sleep(TICK)
            while told < self._stops and self._code is None:
                told += 1
                watch = self._done(stop_asked(watch))
            for number in [number for number, process in self._processes.items() if _is_over(process)]:
                watch = self._done(ended(watch, number, self._buried(number)))
            now = time.monotonic()
            beats = {number: Beat.read(self._file(number)) for number in self._processes}
            watch = self._done(looked(watch, now - last, beats))
            last = now
        return self._code

    def kill_all(self) -> None:
        for number in list(self._processes):
            _kill(self._processes[number])
            self._buried(number)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1

    def _done(self, decision: Decision) -> Watch:
        watch, instructions = decision
        for instruction in instructions:
            self._carry_out(instruction)
        return watch

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Start(number):
                command = self._command(self._file(number), instruction)
                self._processes[number] = subprocess.Popen(
                    command, stdin=subprocess.PIPE, start_new_session=True
                )
            case Kill(number) if number in self._processes:
                _kill(self._processes[number])
            case Promote(number) if number in self._processes:
                _tell(self._processes[number])
            case Stop(number) if number in self._processes:
                self._processes[number].send_signal(signal.SIGTERM)
            case Say(text):
                self._say(text)
            case Leave(code) if self._code is None:
                self._code = code

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.json"

    def _buried(self, number: int) -> int:
        """The exit code of a process that is over, once nothing is left of its session."""
        process = self._processes.pop(number)
        _kill(process)
        if process.stdin is not None:
            process.stdin.close()
        return process.wait()


def _is_over(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended. It is not waited for yet: its number must not be given to another."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _tell(process: subprocess.Popen[bytes]) -> None:
    """Send a line; to a process that is over nothing is to be said."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(b"\n")
        process.stdin.flush()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
