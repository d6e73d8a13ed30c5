"""Who may read what is made in a store: whoever may read the folder that it is made in.

The folders of a store are made by its disk (`store/disk.py`), which knows whether the store is shared. Whatever is made
below them, by an engine, a worker, a merge or a source, takes the permissions of its folder: nobody else has to know.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from slipstream.core.errors import StoreVanished


def file_mode(folder: str | Path) -> int:
    """The permissions of a file that is made in a folder."""
    return os.stat(folder).st_mode & 0o666  # noqa: PTH116 (half the time of Path.stat)


def make_folders(path: Path, below: Path) -> None:
    """Have a folder, and those above it up to one that must be there, each of them as open as the one that it is in. A
    store that is gone is not made anew by what is left to do in it.
    """
    if path.is_dir():
        return
    if path == below:
        raise StoreVanished(str(below))
    make_folders(path.parent, below)
    with suppress(FileExistsError):
        path.mkdir(mode=path.parent.stat().st_mode & 0o777)


def make_empty(path: Path) -> None:
    """Have an empty file, for whoever can give it no permissions of its own."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file_mode(path.parent)))
