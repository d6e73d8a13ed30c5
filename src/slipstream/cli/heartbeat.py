"""Signs of life: how an engine that is watched over tells its supervisor that it is well.

An engine writes a small file, a few times a second: how often it has done so, in which state it is and how far
it has computed. It is written by the thread that runs epochs, so a loop that hangs stops it, whatever else in
the process still runs. What counts is that the file changes. Its times are not looked at: a clock may jump.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

State = Literal["starting", "standby", "running", "refused"]

_EVERY = 0.2


@dataclass(frozen=True)
class Beat:
    """One sign of life. `refused`: the file or its app is at fault, and another start would say the same."""

    count: int
    state: State
    epoch: int

    @staticmethod
    def read(path: Path) -> Beat | None:
        """The last sign of life; None where there was none yet."""
        try:
            return Beat(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None


class Heart:
    """The engine's end. Without a path it does nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._last = Beat(0, "starting", 0)
        self._when = 0.0
        self._lock = threading.Lock()

    def beat(self, state: State, epoch: int = 0) -> None:
        """Show that all is well; a call that comes soon after another and has nothing new to say costs nothing."""
        now = time.monotonic()
        same = (state, epoch) == (self._last.state, self._last.epoch)
        if self._path is None or (same and now - self._when < _EVERY):
            return
        with self._lock:
            self._last, self._when = Beat(self._last.count + 1, state, epoch), now
            temporary = self._path.with_suffix(".new")
            temporary.write_text(json.dumps(asdict(self._last)))
            temporary.replace(self._path)


def end_with(parent: int) -> threading.Event:
    """Have this process stop, as a signal would stop it, when a file descriptor comes to its end: its supervisor is
    gone, and nobody would ever stop it. The event is set when something comes before that: if this is a standby, it is
    the engine now.
    """
    promoted = threading.Event()

    def listen() -> None:
        while os.read(parent, 1024):
            promoted.set()
        os.kill(os.getpid(), 15)

    threading.Thread(target=listen, name="slipstream-supervisor", daemon=True).start()
    return promoted
