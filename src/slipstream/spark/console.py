"""What Spark's processes write to the console, without what is of no use to the user.

The JVM and its Python workers inherit our standard error, and keep the one that they were started with. So it is enough
to lead ours through a pipe while the JVM starts. What comes through it is one of three things:
- What is said in good health is left out: Java's warnings about modules and methods that Spark uses, and the traceback
  of a Python worker whose socket Spark closed before it could say goodbye.
- What Spark logs (errors, with their stacks) is written by `conf/log4j2.properties` as lines of JSON. It becomes events
  of `slipstream.engine`, and so goes into the event log of the stores that are open; the error that the user gets says
  all of it that matters. A stack that was told is not told again.
- All the rest, such as what a UDF prints, is passed on as it is.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

MARK = '{"spark":'
"""How a line begins that Spark logs."""

_HEALTHY = re.compile(
    r"WARNING: (Using incubator modules"
    r"|package \S+ not in \S+$"
    r"|Unknown module: \S+ specified to --add-"
    r"|A terminally deprecated method in sun\.misc\.Unsafe"
    r"|sun\.misc\.Unsafe::"
    r"|A restricted method in "
    r"|\S+::\S+ has been called by "
    r"|Please consider reporting this to the maintainers of "
    r"|Restricted methods will be blocked"
    r"|Use --enable-native-access="
    r"|\S+::\S+ will be removed in a future release)"
)
_TRACEBACK = "Traceback (most recent call last):"
_FLUSHING = "PySpark daemon failed to flush the output"
_WORKER = "pyspark/daemon.py"
_GOODBYE = "BrokenPipeError"
_TOLD = 64  # stacks that are remembered

_log = logging.getLogger("slipstream.engine")

Event = dict[str, Any]


def useful(lines: Iterable[str], logged: Callable[[Event], None]) -> Iterator[str]:
    """What a user should see. A traceback is judged, and passed on, as a whole; what Spark logs is handed over."""
    block: list[str] = []
    for line in lines:
        if block and line.startswith((" ", _TRACEBACK)):
            block.append(line)
        elif block:
            block.append(line)
            if not (line.startswith(_GOODBYE) and any(_WORKER in each for each in block)):
                yield from block
            block = []
        elif line.startswith((_TRACEBACK, _FLUSHING)):
            block = [line]
        elif (event := _event(line)) is not None:
            logged(event)
        elif not _HEALTHY.match(line):
            yield line
    yield from block


def _event(line: str) -> Event | None:
    if not line.startswith(MARK):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


class Teller:
    """Tells what Spark logs to whoever listens to the engine's events, and to the console where nobody does."""

    def __init__(self, console: Callable[[str], None]) -> None:
        self._console = console
        self._told: deque[str] = deque(maxlen=_TOLD)

    def __call__(self, event: Event) -> None:
        said, stack = str(event.get("said", "")), str(event.get("stack", ""))
        if not _log.hasHandlers():
            self._console(f"{event.get('spark')}: {said}\n{stack}")
            return
        kind = re.sub(r"\d+", "", stack)
        known = {"stack": stack} if stack and kind not in self._told else {}
        if known:
            self._told.append(kind)
        level = logging.getLevelNamesMapping().get(str(event.get("level")), logging.ERROR)
        _log.log(
            level, "Spark says", extra={"fields": {"logger": event.get("spark"), "cause": said, **known}}
        )


@contextmanager
def quiet_start() -> Iterator[None]:
    """Inside, a JVM that is started has a filtered console for as long as it lives."""
    try:
        sys.stderr.flush()
        console = os.dup(2)
    except (AttributeError, OSError, ValueError):  # there is no standard error
        yield
        return
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


def quiet_errors() -> None:
    """PySpark writes some of the errors that it raises to the console too, as JSON. They are raised: that is enough."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _pass_on(source: IO[str], console: int) -> None:
    """Pass on for as long as anybody writes. Whatever fails, the pipe is drained: a JVM and its workers have it for
    their standard error, and would fail with it.
    """

    def write(text: str) -> None:
        left = text.encode()
        with suppress(Exception):  # a console that is gone is told nothing
            while left:
                try:
                    left = left[os.write(console, left) :]
                except BlockingIOError:
                    select.select([], [console], [])

    tell = Teller(write)

    def told(event: Event) -> None:
        with suppress(Exception):  # a handler of the program's own
            tell(event)

    with source:
        for line in useful(source, told):
            write(line)
