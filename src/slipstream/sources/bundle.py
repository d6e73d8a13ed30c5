"""Many small files of text, opened here and given to Spark as lines.

To Spark each file is a part of a task, an entry of a listing and a reader of its own: some tenths of a millisecond to a
millisecond, however little is in it. Opened here one costs some twenty microseconds, and the lines of all of them are
parsed by the parser that Spark uses for files.

What the lines do not say is lost: which file they come from. So rows that are rejected are looked for in the files
themselves (`rejects`), and where rows of a key replace each other they do so in the order of the lines. Whatever Spark
might take in another way as a file than as lines is left to it: bytes that are not UTF-8, marks of the byte order (in a
file of JSON it passes over one on each line), other ends of lines, compressed files. Whether files are bundled depends
on nothing but what is recorded of them and what is in them, so the same range gives the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

MANY = 64
SMALL = 32 << 10
MOST = 64 << 20
_TOLD_APART = ("multiline", "linesep", "encoding", "charset", "wholetext", "comment", "compression")
_COMPRESSED = (".gz", ".bz2", ".lz4", ".snappy", ".zst", ".zstd", ".deflate", ".xz", ".lzo")
_MARK = b"\xef\xbb\xbf"
_BYTE_ORDER = (b"\xfe\xff", b"\xff\xfe")
BLANK = bytes(range(33))
"""What a line may have in it and still be blank to Spark."""


def is_bundle(sizes: Sequence[int], options: Mapping[str, str]) -> bool:
    """Whether files of text of these sizes, read with these options, are better given as lines."""
    plain = not any(name.lower() in _TOLD_APART for name in options)
    return plain and len(sizes) >= MANY and max(sizes) <= SMALL and sum(sizes) <= MOST


def lines_of(paths: Sequence[str], *, header: bool) -> pa.Table | None:
    """The lines of files in their order, as the column `value`, without the first of each that is not blank if that is
    a header; None where Spark is to read the files itself.
    """
    if any(path.endswith(_COMPRESSED) for path in paths):
        return None
    lines: list[bytes] = []
    for path in paths:
        data = Path(path).read_bytes()
        if _MARK in data or data.startswith(_BYTE_ORDER) or b"\0" in data:
            return None
        own = data.splitlines()
        if header:
            first = next((at for at, line in enumerate(own) if line.strip(BLANK)), len(own))
            own = own[first + 1 :]
        lines += own
    try:
        return pa.table({"value": pa.array(lines, pa.binary()).cast(pa.string())})
    except pa.ArrowInvalid:  # not UTF-8
        return None
