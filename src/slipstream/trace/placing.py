"""Putting a file under its name: all of it, or nothing.

A file is written under a temporary name in the same folder, `.NAME.RANDOM.tmp`, and renamed. Its writer holds a lock on
it until then, and the operating system takes the lock away when the writer dies. So a temporary file that nobody has
locked was left by a dead writer, however young it is, and one that is locked is in use, however old: no clock is asked.

Between making its file and locking it, a writer may be overtaken by somebody who clears up. It then holds a file that
has no name any more, notices, and makes another.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.permissions import file_mode
from slipstream.trace.flush import flush, flush_folder

_BUFFER = 1 << 16

crash_points(
    layer__before_rename="a layer is written under a temporary name",
    layer__after_rename="a layer stands under its name",
)


@contextmanager
def placed(path: Path, *, flushed: bool = False, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file to write to, which stands under its name once the block ends without an error. Whoever may read its folder
    may read it, unless a mode is given.

    Flushed: it is on disk before it gets its name, and its name is on disk on return.
    """
    folder, _, name = os.fspath(path).rpartition("/")
    folder = folder or "."
    allowed = file_mode(folder) if mode is None else mode
    temporary, handle = _locked(folder, name, allowed)
    try:
        with os.fdopen(handle, "wb", _BUFFER) as file:
            yield file
            file.flush()
            if flushed:
                flush(Path(temporary))
            crash_point("layer.before_rename")
            os.rename(temporary, path)  # noqa: PTH104 (half the time of Path.rename)
            crash_point("layer.after_rename")
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    if flushed:
        flush_folder(path.parent)


def clear_abandoned(folder: Path, may: Callable[[], bool]) -> int:
    """Remove what dead writers left in a folder, as long as `may` says so, asked for each; how many files went."""
    removed = 0
    for path in folder.glob(".*.tmp"):
        with suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if not may():
                break
            path.unlink()
            removed += 1
    return removed


def _locked(folder: str, name: str, mode: int) -> tuple[str, int]:
    """A new temporary file that this process alone holds: its path, and a handle to write to it."""
    while True:
        temporary = f"{folder}/.{name}.{os.urandom(8).hex()}.tmp"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)
