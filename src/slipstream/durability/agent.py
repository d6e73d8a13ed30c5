"""The agent: a process beside the engine that merges layers, so that the engine never does.

The engine writes a line to its standard input after each epoch: how far the store is computed, and from which
epoch history is wanted. The agent looks after each trace in turn (`trace.upkeep`: decide, then carry out) at
low priority, and ends when its input does. It may be killed at any moment: a merge is a new layer under a
temporary name, and what it replaces is removed only afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from slipstream.trace import upkeep

_PAUSE = 0.2  # seconds between two rounds, so that short epochs share one


@dataclass(frozen=True)
class Word:
    """What the engine tells the agent."""

    computed: int
    keep_from: int
    histories: tuple[str, ...]  # traces whose history is kept; of the others only the present is


class Agent:
    """The engine's end: starts the process and talks to it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process = self._start()

    def tell(self, word: Word) -> None:
        """Pass a word on; a dead agent is started again."""
        line = json.dumps(asdict(word)) + "\n"
        try:
            self._send(line)
        except BrokenPipeError:
            self.close()
            self._process = self._start()
            self._send(line)

    def close(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "slipstream.durability.agent", str(self._root)],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def tend(root: Path, word: Word) -> None:
    """Look after every trace once."""
    for trace in sorted((root / "traces").glob("*/*")):
        kept = word.keep_from if str(trace.relative_to(root)) in word.histories else None
        upkeep(trace, word.computed, kept)


def main() -> None:
    """Read words until there are no more; of several that wait, only the last counts."""
    root = Path(sys.argv[1])
    os.nice(10)
    latest: list[str] = []
    ready = threading.Condition()

    def listen() -> None:
        for line in sys.stdin:
            with ready:
                latest[:] = [line]
                ready.notify()
        os._exit(0)  # the engine is gone: nothing in hand is worth finishing

    threading.Thread(target=listen, daemon=True).start()
    while True:
        with ready:
            ready.wait_for(lambda: bool(latest))
            said = json.loads(latest.pop())
        tend(root, Word(said["computed"], said["keep_from"], tuple(said["histories"])))
        pa.default_memory_pool().release_unused()
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
