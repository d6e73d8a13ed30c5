"""What engine and agent did, a line an event, in a file of the store that is bounded in size.

Whoever has something to say uses Python's `logging`, under `slipstream.engine` or `slipstream.agent`, and gives what
belongs to it as fields:

    logging.getLogger("slipstream.agent").warning("a layer is damaged", extra=fields(part="upkeep", trace=trace))

`log_events` writes what is said in a process to `events/NAME.log`, each event as one JSON object: time, part, level,
incarnation, event, the fields, and the traceback of an exception. A file that has grown to `LARGEST` bytes becomes
`events/NAME.log.1`, and the one that was there before goes. So a user's own handlers see the same events, and a store
tells its story without them.

Nothing waits for an event to be written, and nothing fails because it cannot be: on a full disk events are counted, and
the next one that can be written says how many are missing. A process that was succeeded goes on until the file is full.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from slipstream.core.errors import StoreTrouble, Superseded
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.layout import EVENTS

LARGEST = 1 << 20
_ROOT = "slipstream"


def fields(**said: Any) -> dict[str, dict[str, Any]]:
    """What belongs to an event, as `extra=` takes it."""
    return {"fields": said}


class EventLog(logging.Handler):
    """Writes events to one file of a store."""

    def __init__(self, disk: WritableDisk, name: str, incarnation: int) -> None:
        super().__init__(logging.INFO)
        self._disk, self._name, self._incarnation = disk, name, incarnation
        self._file = f"{EVENTS}/{name}.log"
        self._missing = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._append(self._line(record))
            self._missing = 0
        except (OSError, StoreTrouble, Superseded):
            self._missing += 1

    def _line(self, record: logging.LogRecord) -> bytes:
        said: dict[str, Any] = {
            "time": record.created,
            "part": self._name,
            "level": record.levelname.lower(),
            "incarnation": self._incarnation,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            said["traceback"] = logging.Formatter().formatException(record.exc_info)
        if self._missing:
            said["missing"] = self._missing
        return json.dumps(said, default=str).encode() + b"\n"

    def _append(self, line: bytes) -> None:
        try:
            if self._disk.size(self._file) + len(line) > LARGEST:
                self._disk.replace(f"{self._file}.1", self._disk.read(self._file), flushed=False)
                self._disk.truncate(self._file, 0)
            self._disk.append(self._file, line)
        except FileNotFoundError:
            self._disk.make_folder(EVENTS)
            if not self._disk.create(self._file, line):
                self._disk.append(self._file, line)


def log_events(disk: WritableDisk, name: str, incarnation: int) -> EventLog:
    """Have what is said under `slipstream.NAME` written to a store, from now on until `stop_logging`."""
    root, logger = logging.getLogger(_ROOT), logging.getLogger(f"{_ROOT}.{name}")
    if not root.handlers:
        root.addHandler(logging.NullHandler())  # nothing goes to the terminal unless the user asks for it
    handler = EventLog(disk, name, incarnation)
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    return handler


def stop_logging(handler: EventLog, name: str) -> None:
    logging.getLogger(f"{_ROOT}.{name}").removeHandler(handler)


def read_events(disk: Disk, name: str) -> list[dict[str, Any]]:
    """The events that are still there, oldest first; lines that cannot be read are left out."""
    found = []
    for file in (f"{EVENTS}/{name}.log.1", f"{EVENTS}/{name}.log"):
        try:
            raw = disk.read(file)
        except (FileNotFoundError, IsADirectoryError):
            continue
        for line in raw.splitlines():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
    return [event for event in found if isinstance(event, dict)]
