"""Storage that misbehaves, by script: a filesystem around another one, with faults that are plain data.

`Faults` says what goes wrong and when; `wrap` puts it around any `pyarrow.fs` filesystem. A replica's URL can ask for
it, in another process too: `faulty+file:///mnt/replica?delay=0.2&fail_at=3,7`.

Operations are counted from 1, each open, write, listing, removal and so on being one; reads of an open object belong to
its opening. The count is of one wrapped filesystem, so a process that is started again counts anew. What an operation
that fails has done depends on the fault, as it does in the world:

| fault | what is done | what is raised |
| --- | --- | --- |
| `fail_at`, `fail_every` | nothing | `OSError`, EIO |
| `timeout_at` | the operation itself: only the answer is lost | `TimeoutError` |
| `lost` | nothing, for a stretch of operations | `ConnectionResetError` |
| `torn_at` | a write leaves half of its bytes | `ConnectionResetError` |
| `full_after` | nothing, once so many bytes were written in all | `OSError`, ENOSPC |
| `cut_at` | an object that is opened comes without its second half | nothing |
| `short` | a read gives at most so many bytes | nothing |
| `stale` | a listing lacks what the last so many operations wrote | nothing |

`delay` comes before every operation, and holds up only the thread that asked.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

T = TypeVar("T")


@dataclass(frozen=True)
class Faults:
    """What goes wrong. Numbers of operations, bytes, and seconds for `delay`."""

    delay: float = 0.0
    fail_at: tuple[int, ...] = ()
    fail_every: int | None = None
    timeout_at: tuple[int, ...] = ()
    torn_at: tuple[int, ...] = ()
    cut_at: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()  # the first and the last operation of the stretch; only the first: for good
    full_after: int | None = None
    short: int | None = None
    stale: int = 0

    @staticmethod
    def parse(options: Mapping[str, str]) -> Faults:
        """From the query of a URL: numbers, and for those that may be several, numbers with commas between."""
        known = {field.name: str(field.type) for field in fields(Faults)}
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ValueError(f"there is no fault called {', '.join(unknown)}; there are: {', '.join(known)}")
        given: dict[str, Any] = {}
        for name, text in options.items():
            if known[name].startswith("tuple"):
                given[name] = tuple(int(each) for each in text.split(","))
            else:
                given[name] = float(text) if known[name] == "float" else int(text)
        return Faults(**given)

    def before(self, number: int) -> OSError | None:
        """What the operation of this number raises instead of doing anything."""
        if number in self.fail_at or (self.fail_every and number % self.fail_every == 0):
            return OSError(errno.EIO, f"scripted fault: operation {number} fails")
        if self.lost and self.lost[0] <= number and (len(self.lost) == 1 or number <= self.lost[1]):
            return ConnectionResetError(
                errno.ECONNRESET, f"scripted fault: no connection, operation {number}"
            )
        return None

    def after(self, number: int) -> OSError | None:
        """What it raises although it was done."""
        if number in self.timeout_at:
            return TimeoutError(errno.ETIMEDOUT, f"scripted fault: no answer to operation {number}")
        return None


def wrap(options: Mapping[str, str], files: pafs.FileSystem) -> pafs.FileSystem:
    """A filesystem with the faults that a URL's query names: what the scheme `faulty+` stands for."""
    return faulty(files, Faults.parse(options))


def faulty(files: pafs.FileSystem, faults: Faults) -> pafs.FileSystem:
    """A filesystem with faults."""
    return pafs.PyFileSystem(FaultyHandler(files, faults))


class FaultyHandler(pafs.FileSystemHandler):  # type: ignore[misc]
    """The filesystem around the other one. `operations` says what was asked of it, in order."""

    def __init__(self, files: pafs.FileSystem, faults: Faults) -> None:
        self._files, self._faults = files, faults
        self._lock = threading.Lock()
        self._written = 0
        self._fresh: dict[str, int] = {}
        self.operations: list[tuple[str, str]] = []

    def get_type_name(self) -> str:
        return f"faulty+{self._files.type_name}"

    def normalize_path(self, path: str) -> str:
        return str(self._files.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        def found(_: int) -> list[pafs.FileInfo]:
            return list(self._files.get_file_info(paths))

        return self._do("info", ",".join(paths), found)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        def listed(number: int) -> list[pafs.FileInfo]:
            oldest = number - self._faults.stale
            found = self._files.get_file_info(selector)
            return [each for each in found if self._fresh.get(each.path, 0) < max(oldest, 1)]

        return self._do("list", selector.base_dir, listed)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._do("mkdir", path, lambda _: self._files.create_dir(path, recursive=recursive))

    def delete_dir(self, path: str) -> None:
        self._do("delete", path, lambda _: self._files.delete_dir(path))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._do(
            "delete",
            path,
            lambda _: self._files.delete_dir_contents(path, missing_dir_ok=missing_dir_ok),
        )

    def delete_root_dir_contents(self) -> None:
        self._do("delete", "/", lambda _: self._files.delete_dir_contents("/", accept_root_dir=True))

    def delete_file(self, path: str) -> None:
        self._do("delete", path, lambda _: self._files.delete_file(path))

    def move(self, src: str, dest: str) -> None:
        self._do("move", src, lambda _: self._files.move(src, dest))

    def copy_file(self, src: str, dest: str) -> None:
        self._do("copy", src, lambda _: self._files.copy_file(src, dest))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self._do("read", path, lambda number: self._opened(path, number))

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._do("read", path, lambda number: self._opened(path, number))

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        return pa.PythonFile(_Writing(self, path, self._files.open_output_stream), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        return pa.PythonFile(_Writing(self, path, self._files.open_append_stream), mode="w")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FaultyHandler) and self._files == other._files and self._faults == other._faults
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def _opened(self, path: str, number: int) -> pa.NativeFile:
        inner = self._files.open_input_file(path)
        size = inner.size()
        return pa.PythonFile(
            _Reading(inner, size // 2 if number in self._faults.cut_at else size, self._faults.short),
            mode="r",
        )

    def _write(self, path: str, body: bytes, opened: Callable[[str], Any]) -> None:
        """All of an object at once, as an object store sees it."""

        def written(number: int) -> None:
            with self._lock:
                self._written += len(body)
                full = self._faults.full_after is not None and self._written > self._faults.full_after
            if full:
                raise OSError(errno.ENOSPC, f"scripted fault: {os.strerror(errno.ENOSPC)}")
            torn = number in self._faults.torn_at
            with opened(path) as stream:
                stream.write(body[: len(body) // 2] if torn else body)
            self._fresh[path] = number
            if torn:
                raise ConnectionResetError(errno.ECONNRESET, f"scripted fault: operation {number} breaks off")

        self._do("write", path, written)

    def _do(self, kind: str, path: str, work: Callable[[int], T]) -> T:
        with self._lock:
            self.operations.append((kind, path))
            number = len(self.operations)
        if self._faults.delay:
            time.sleep(self._faults.delay)
        before = self._faults.before(number)
        if before is not None:
            raise before
        result = work(number)
        after = self._faults.after(number)
        if after is not None:
            raise after
        return result


class _Writing:
    """Gathers an object's bytes; the operation is done when it is closed."""

    def __init__(self, handler: FaultyHandler, path: str, opened: Callable[[str], Any]) -> None:
        self._handler, self._path, self._opened = handler, path, opened
        self._body = bytearray()
        self.closed = False

    def write(self, data: Any) -> int:
        self._body += memoryview(data)
        return len(memoryview(data))

    def tell(self) -> int:
        return len(self._body)

    def flush(self) -> None:
        return

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._handler._write(self._path, bytes(self._body), self._opened)


class _Reading:
    """An object that may end early, and whose reads may be short."""

    def __init__(self, inner: pa.NativeFile, size: int, short: int | None) -> None:
        self._inner, self._size, self._short = inner, size, short
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        left = self._size - int(self._inner.tell())
        wanted = left if size is None or size < 0 else min(size, left)
        return bytes(self._inner.read(min(wanted, self._short) if self._short is not None else wanted))

    def seek(self, offset: int, whence: int = 0) -> int:
        place = (
            self._size + offset if whence == 2 else offset + (int(self._inner.tell()) if whence == 1 else 0)
        )
        self._inner.seek(place)
        return place

    def tell(self) -> int:
        return int(self._inner.tell())

    def close(self) -> None:
        self.closed = True
        self._inner.close()
