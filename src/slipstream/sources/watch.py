"""Which files were moved into a folder: what Linux knows and a file's times do not say.

Times are kept in steps of some milliseconds, so a file that was renamed right after its last write looks like
one that is still being written, and would have to wait until it has settled. The kernel's inotify says which
names arrived by a rename. Where there is no inotify (other systems, some network mounts, too many watches)
nothing is known, and times must do.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

_MOVED_TO = 0x00000080
_OVERFLOW = 0x00004000
_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16


class Watch:
    """Names moved into a folder since the watch began."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = _begin(folder)

    def arrived(self) -> set[str]:
        """The names that arrived since the last call. Some may be missing, none is wrong."""
        names: set[str] = set()
        while self._descriptor is not None:
            try:
                events = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                break
            at = 0
            while at < len(events):
                _, mask, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size
                if mask & _MOVED_TO and not mask & _OVERFLOW:
                    names.add(os.fsdecode(events[at : at + length].rstrip(b"\0")))
                at += length
        return names

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _begin(folder: Path) -> int | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(folder), _MOVED_TO) < 0:
        os.close(descriptor)
        return None
    return descriptor
