"""What Spark's processes write to the console, without what is of no use to the user.

The JVM and its Python workers inherit our standard error. Two things that they write there in good
health are left out: Java's warning that Spark uses an incubating module, and the traceback of a Python
worker whose socket Spark closed before it could say goodbye. All the rest is passed on as it is.

The JVM keeps the standard error that it was started with, so it is enough to lead ours through a pipe
while it starts.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

_INCUBATOR = "WARNING: Using incubator modules"
_TRACEBACK = "Traceback (most recent call last):"
_WORKER = "pyspark/daemon.py"
_GOODBYE = "BrokenPipeError"


def useful(lines: Iterable[str]) -> Iterator[str]:
    """The lines that a user should see. A traceback is judged, and passed on, as a whole."""
    block: list[str] = []
    for line in lines:
        if block and line.startswith(" "):
            block.append(line)
        elif block:
            block.append(line)
            if not (line.startswith(_GOODBYE) and any(_WORKER in each for each in block)):
                yield from block
            block = []
        elif line.startswith(_TRACEBACK):
            block = [line]
        elif not line.startswith(_INCUBATOR):
            yield line


@contextmanager
def quiet_start() -> Iterator[None]:
    """Inside, a JVM that is started has a filtered console for as long as it lives."""
    sys.stderr.flush()
    console = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    passing = threading.Thread(
        target=_pass_on, args=(os.fdopen(reading, errors="replace"), console), daemon=True
    )
    passing.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(console, 2)


def _pass_on(source: IO[str], console: int) -> None:
    with source:
        for line in useful(source):
            os.write(console, line.encode())
