"""Nothing in a store is a path to follow: neither a name in a document nor a symbolic link.

A link in the place of a folder would have an engine write, merge and delete where it points, and a link in the place of
a file be taken for one. So a store with a link in it is refused, by engines and by readers, and `fsck` tells of each
link. The store's own folder may be a link: that is where the user says that the store is.

What sources keep is looked at no deeper than the folder of each, so that looking does not cost what was ever taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from slipstream.core.errors import StoreLinked
from slipstream.store.layout import SOURCES


def links_in(root: Path) -> list[str]:
    """Every symbolic link in a store, by its name there."""
    return sorted(_links(root, "", 0))


def refuse_links(root: Path) -> None:
    """Raise for a store with a symbolic link in it."""
    found = links_in(root)
    if found:
        raise StoreLinked(str(root), found)


def _links(folder: Path, name: str, depth: int) -> Iterator[str]:
    try:
        entries = os.scandir(folder)
    except OSError:  # what cannot be looked into is told by whoever reads it
        return
    with entries:
        for entry in entries:
            known = f"{name}{entry.name}"
            if entry.is_symlink():
                yield known
            elif entry.is_dir(follow_symlinks=False) and not (depth and known.startswith(f"{SOURCES}/")):
                yield from _links(folder / entry.name, f"{known}/", depth + 1)
