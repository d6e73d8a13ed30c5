"""Parts: files whose name says what is in them, `READ-ROWS-DIGEST.arrow`, so that one that rotted is never taken for
what was written. What was read of a table is kept in such (`sources.parts`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

import xxhash

_NAME = re.compile(r"(\d{9,})-(\d+)-([0-9a-f]{16})\.arrow")


@dataclass(frozen=True)
class Named:
    """What the name of a part says: the number of the read that wrote it, its rows, its digest."""

    read: int
    rows: int
    digest: str


def named(name: str) -> Named | None:
    """What a name says, if it is that of a part."""
    found = _NAME.fullmatch(name)
    return None if found is None else Named(int(found[1]), int(found[2]), found[3])


def problem_of(path: Path) -> str | None:
    """What is wrong with a part, if anything."""
    part = named(path.name)
    try:
        return None if part is not None and digest_of(path) == part.digest else "is damaged"
    except FileNotFoundError:
        return "is gone"
    except IsADirectoryError:
        return "is damaged"


def digest_of(path: Path) -> str:
    """The digest of a file's bytes."""
    if path.stat().st_size == 0:
        return xxhash.xxh3_64_hexdigest(b"")
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as body:
        return xxhash.xxh3_64_hexdigest(body)
