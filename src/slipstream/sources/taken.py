"""Which files were ever taken: known for ever, in 32 bytes a file, and looked up without being loaded.

A file that is forgotten would be read twice, so nothing here is ever dropped. What is kept of a file is a hash of its
name (128 bits), its size and its time. Such records are sorted by the hash, in *segments*: files that are written once
and flushed, mapped into memory, and searched. A segment is

    records    32 bytes each, sorted: hash, size, mtime; in blocks of `BLOCK`
    an index   a line a block: its first hash, and a digest of the block

and is named by the digest of its index. So a summary that names segments proves the index, the index proves a block,
and a block is checked when it is first looked into: opening costs a hundredth of a byte a file. A segment that is
missing or damaged is `DamagedSummary`; it is removed, so that the next start finds it missing and makes it anew.

Adding makes one new segment, and merges it with those before it that are not much larger (`merged_with`): there are
O(log n) segments, and a record is written O(log n) times. None of more than `LARGEST` records is merged again, so that
no addition takes long. Segments that are no longer named are removed by the addition after next: a summary that was
replaced is still good until its successor is flushed, and one step longer.

Not promised: to tell two names apart that have the same hash. By chance there are none; a file is as good as gone for
whoever can make them, and they would have to be two of his own files.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from slipstream.core.errors import DamagedSummary
from slipstream.core.permissions import file_mode

RECORD = np.dtype([("name", "S16"), ("size", "<i8"), ("mtime", "<i8")])
INDEX = np.dtype([("first", "S16"), ("digest", "<u8")])
BLOCK = 2048
LARGEST = 1 << 20
_RATIO = 2
_PREFIX = "taken-"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Seen:
    """A file as it was at one look."""

    name: str
    size: int
    mtime_ns: int

    @property
    def place(self) -> tuple[int, str]:
        """Where the file stands in the order of files."""
        return self.mtime_ns // 1_000_000, self.name

    def __str__(self) -> str:
        return f"{self.size} bytes, written at {self.mtime_ns / 1e9:.3f}"


def merged_with(rows: Sequence[int], added: int) -> int:
    """How many of the last segments, whose numbers of records are given, are merged with a new one."""
    count, total = 0, added
    for each in reversed(rows):
        if each > _RATIO * total or each + total > LARGEST:
            break
        count, total = count + 1, total + each
    return count


class Taken:
    """The segments of one source."""

    def __init__(self, source: str, folder: Path, segments: Sequence[Sequence[Any]] = ()) -> None:
        """Open segments as `described` names them."""
        self._source, self._folder = source, folder
        self._segments = tuple(_Segment(source, folder, str(name), int(rows)) for name, rows in segments)

    def described(self) -> list[list[Any]]:
        """The segments, for a summary."""
        return [[segment.name, segment.rows] for segment in self._segments]

    def find(self, names: Sequence[str]) -> dict[str, Seen]:
        """Those of some names that were taken, and what the files were then."""
        found: dict[str, Seen] = {}
        hashes = _hashes(names)
        left = np.arange(len(names))
        for segment in reversed(self._segments):
            hits = segment.find(hashes[left])
            for at, record in hits:
                name = names[left[at]]
                found[name] = Seen(name, int(record["size"]), int(record["mtime"]))
            left = np.delete(left, [at for at, _ in hits])
        return found

    def with_more(self, files: Sequence[Seen]) -> Taken:
        """With more files: their segment is written and flushed, and what neither this nor that needs is removed."""
        if not files:
            return self
        count = merged_with([segment.rows for segment in self._segments], len(files))
        old, merged = self._segments[: len(self._segments) - count], self._segments[-count:] if count else ()
        records = np.zeros(len(files), RECORD)
        records["name"] = _hashes([file.name for file in files])
        records["size"] = [file.size for file in files]
        records["mtime"] = [file.mtime_ns for file in files]
        together = np.concatenate([*(segment.checked() for segment in merged), records])
        together = together[np.argsort(together["name"], kind="stable")]
        name = _write(self._folder, together)
        kept = [[segment.name, segment.rows] for segment in old]
        added = Taken(self._source, self._folder, [*kept, [name, len(together)]])
        needed = {_PREFIX + segment.name for segment in (*self._segments, *added._segments)}
        for path in self._folder.glob(f"{_PREFIX}*"):
            if path.name not in needed:
                path.unlink(missing_ok=True)
        return added


class _Segment:
    """One segment, whose blocks are checked as they are looked into."""

    def __init__(self, source: str, folder: Path, name: str, rows: int) -> None:
        self.name, self.rows = name, rows
        self._source, self._path = source, folder / f"{_PREFIX}{name}"
        if not re.fullmatch("[0-9a-f]{32}", name) or rows < 1:
            raise DamagedSummary(source, str(self._path), "it is not named as a segment is")
        blocks = -(-rows // BLOCK)
        try:
            if self._path.stat().st_size != rows * RECORD.itemsize + blocks * INDEX.itemsize:
                raise self._damaged("its size is not what was written")
            bytes_ = np.memmap(self._path, np.uint8, "r")
        except FileNotFoundError:
            raise DamagedSummary(source, str(self._path), "it is missing") from None
        index = bytes_[rows * RECORD.itemsize :].tobytes()
        if xxhash.xxh3_128_hexdigest(index) != name:
            raise self._damaged("its index is not what was written")
        self._index: Array = np.frombuffer(index, INDEX)
        self._records: Array = bytes_[: rows * RECORD.itemsize].view(RECORD)
        self._unchecked = set(range(blocks))

    def find(self, hashes: Array) -> list[tuple[int, Any]]:
        """Which of some hashes are here, by their place among them, and their records."""
        blocks = np.searchsorted(self._index["first"], hashes, side="right") - 1
        found = []
        for block in np.unique(blocks[blocks >= 0]).tolist():
            records = self._block(block)
            names = np.ascontiguousarray(records["name"])
            asked = np.flatnonzero(blocks == block)
            at = np.searchsorted(names, hashes[asked], side="right") - 1
            hits = np.flatnonzero(names[at] == hashes[asked])
            found += [(int(asked[hit]), records[at[hit]]) for hit in hits.tolist()]
        return found

    def checked(self) -> Array:
        """All records."""
        for block in sorted(self._unchecked):
            self._block(block)
        return self._records

    def _block(self, block: int) -> Array:
        records = self._records[block * BLOCK : (block + 1) * BLOCK]
        if block in self._unchecked:
            if xxhash.xxh3_64_intdigest(records.tobytes()) != int(self._index["digest"][block]):
                raise self._damaged(f"block {block} of it is not what was written")
            self._unchecked.remove(block)
        return records

    def _damaged(self, problem: str) -> DamagedSummary:
        self._path.unlink(missing_ok=True)
        return DamagedSummary(self._source, str(self._path), problem)


def _hashes(names: Sequence[str]) -> Array:
    return np.frombuffer(b"".join(xxhash.xxh3_128_digest(os.fsencode(name)) for name in names), "S16")


def _write(folder: Path, records: Array) -> str:
    """Write a segment and flush it; its name."""
    blocks = [records[at : at + BLOCK] for at in range(0, len(records), BLOCK)]
    index = np.zeros(len(blocks), INDEX)
    index["first"] = [block["name"][0] for block in blocks]
    index["digest"] = np.array([xxhash.xxh3_64_intdigest(block.tobytes()) for block in blocks], np.uint64)
    name: str = xxhash.xxh3_128_hexdigest(index.tobytes())
    temporary = folder / f".{_PREFIX}{uuid.uuid4().hex[:12]}"
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file_mode(folder)), "wb"
        ) as file:
            file.write(records.tobytes())
            file.write(index.tobytes())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / f"{_PREFIX}{name}")
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return name
