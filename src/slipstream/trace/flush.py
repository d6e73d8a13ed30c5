"""Flushing to disk: the one place where anything waits for it.

A file is on disk once it was flushed, and its name once its folder was. A rename is seen by every process at once, and
may still be undone by a power cut until the folder is flushed.
"""

from __future__ import annotations

import os
from pathlib import Path


def flush(path: Path) -> None:
    """Have the operating system write a file's bytes to disk."""
    _flush(path, os.O_RDONLY)


def flush_folder(path: Path) -> None:
    """Have the operating system write a folder's entries to disk."""
    _flush(path, os.O_RDONLY | os.O_DIRECTORY)


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
