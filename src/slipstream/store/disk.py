"""A store's folder as a handful of operations, so that everything that is decided about files can be tried on a disk
that loses, tears, reorders and fills up (`testing.simulation`).

What is promised by a real disk, and all that anybody may rely on:
- `replace` is atomic for a running system: a reader sees the old bytes or the new ones. After a power cut it may be
  either, or, where it was not `flushed`, a file of zeros.
- `append` adds bytes at the end of a file that `create` made. After a power cut an unflushed tail may be missing, torn
  or zero-filled.
- `flush` makes a file's bytes survive a power cut, `flush_folder` its names: created, renamed and removed entries.

Failures that are the disk's own are named as what they are: `StoreFull`, `StoreReadOnly`, `StoreVanished`. A file that
is not there is FileNotFoundError, for whoever asks must say what that means.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from slipstream.core.crashing import crash_point
from slipstream.core.errors import (
    StoreFull,
    StoreInUse,
    StoreIsAFile,
    StoreLinkedAway,
    StoreReadOnly,
    StoreTrouble,
    StoreUnreadable,
    StoreVanished,
)

_LOOKED_AT = (0.001, 0.01, 0.05)
"""Seconds between attempts to lock: whoever asks whether a lock is held holds it for a moment (`is_locked`)."""
ROOM = 1 << 16
"""Bytes that there must be room for: with less a disk is full for all that matters."""


def modes(*, shared: bool) -> tuple[int, int]:
    """The permissions of files and folders: for their owner only, or whatever the process allows."""
    return (0o666, 0o777) if shared else (0o600, 0o700)


def is_shared(path: Path) -> bool:
    """Whether others than its owner may read a file, if it is there. Of a store, ask for a file that it made: its own
    folder may have been there before.
    """
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except (FileNotFoundError, NotADirectoryError):
        return False


class Lock(Protocol):
    """A lock that is held by this process, until another takes it over."""

    @property
    def taken_over(self) -> bool: ...
    def release(self) -> None: ...


class Disk(Protocol):
    """What everybody may do: see the module's docstring. Names are relative to the store."""

    @property
    def root(self) -> Path: ...
    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes: ...
    def size(self, name: str) -> int: ...
    def exists(self, name: str) -> bool: ...
    def list(self, folder: str) -> list[str]: ...
    def create(self, name: str, body: bytes) -> bool: ...
    def append(self, name: str, body: bytes) -> None: ...
    def make_folder(self, name: str) -> None: ...
    def flush(self, name: str) -> None: ...
    def flush_folder(self, name: str) -> None: ...
    def lock(self, name: str, holder: str, *, takeover: bool = False) -> Lock: ...
    def is_locked(self, name: str) -> bool: ...


class WritableDisk(Disk, Protocol):
    """What only the owner of a store may do as well: `owned` gives it to nobody else."""

    def replace(self, name: str, body: bytes, *, flushed: bool, check: Callable[[], None] = ...) -> None: ...
    def truncate(self, name: str, size: int) -> None: ...
    def remove(self, name: str) -> None: ...


def unchecked() -> None:
    """Nothing that would keep a file from being replaced."""


class LocalDisk:
    """A folder of this machine. Files are readable by their owner only, unless `shared`."""

    def __init__(self, root: str | Path, *, shared: bool = False) -> None:
        self._root = Path(root).absolute()
        self._file_mode, self._folder_mode = modes(shared=shared)

    @property
    def root(self) -> Path:
        return self._root

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file from an offset on: to its end, or so many of them as there are."""
        with self._named(), (self._root / name).open("rb") as file:
            if offset > os.fstat(file.fileno()).st_size:
                return b""
            if offset:
                file.seek(offset)
            return file.read(-1 if length is None else length)

    def size(self, name: str) -> int:
        with self._named():
            return (self._root / name).stat().st_size

    def exists(self, name: str) -> bool:
        with self._named():
            return (self._root / name).exists()

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where there is no folder."""
        try:
            with self._named():
                return sorted(path.name for path in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []

    def create(self, name: str, body: bytes) -> bool:
        """Make a file and flush it; False if there is one of that name already."""
        with self._named():
            try:
                handle = os.open(self._root / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._file_mode)
            except FileExistsError:
                return False
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:  # a full disk: nothing half a file
                with suppress(OSError):
                    (self._root / name).unlink()
                raise
            self.flush_folder(name.rpartition("/")[0])
            return True

    def replace(
        self, name: str, body: bytes, *, flushed: bool, check: Callable[[], None] = unchecked
    ) -> None:
        """Put a file in the place of another, or of none. check: raises if it must not be; asked when all is done that
        takes time, right before the file is in place.
        """
        path = self._root / name
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
        with self._named():
            try:
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._file_mode)
                with os.fdopen(handle, "wb") as file:
                    file.write(body)
                    if flushed:
                        file.flush()
                        os.fsync(file.fileno())
                check()
                if path.is_dir():
                    self.remove(name)
                temporary.replace(path)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
            if flushed:
                self.flush_folder(name.rpartition("/")[0])

    def append(self, name: str, body: bytes) -> None:
        """Add to a file that is there: one that is gone is an error, not made anew."""
        with self._named():
            handle = os.open(self._root / name, os.O_WRONLY | os.O_APPEND)
            try:
                written = os.write(handle, body)
                if written < len(body):  # a full disk takes a part: nothing half a line
                    os.ftruncate(handle, os.fstat(handle).st_size - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
            finally:
                os.close(handle)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off."""
        with self._named():
            os.truncate(self._root / name, size)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there. A folder in its place is nobody's, and is moved aside."""
        path = self._root / name
        with suppress(FileNotFoundError), self._named():
            try:
                path.unlink()
            except IsADirectoryError:
                self._move_aside(path)

    def make_folder(self, name: str) -> None:
        """Have a folder, and those above it. A file in its place is nobody's, and is moved aside. The store's own
        is made by its own name (""), and not with another: what is left to do in a store that is gone does not make a
        new one.
        """
        with self._named():
            if not name:
                check_folder(self._root)
                self._root.mkdir(parents=True, exist_ok=True, mode=self._folder_mode)
                _fsync(self._root.parent)
            at = self._root
            for part in Path(name).parts:
                at /= part
                try:
                    at.mkdir(mode=self._folder_mode)
                except FileExistsError:
                    if not at.is_dir():
                        self._move_aside(at)
                        at.mkdir(mode=self._folder_mode)

    def flush(self, name: str) -> None:
        with self._named():
            _fsync(self._root / name)

    def flush_folder(self, name: str) -> None:
        with self._named():
            _fsync(self._root / name)

    def lock(self, name: str, holder: str, *, takeover: bool = False) -> Lock:
        """Take a lock that falls with the process; `StoreInUse` where another holds it. A takeover leaves that one with
        a lock that nobody heeds any more.
        """
        path = self._root / name
        with self._named():
            with suppress(FileNotFoundError, NotADirectoryError):  # the slash: it is a folder, or stays
                os.rename(f"{path}/", path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}"))  # noqa: PTH104
            if takeover:
                fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
                fresh.touch(self._file_mode)
                crash_point("store.before_takeover")
                fresh.rename(path)
            handle = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, self._file_mode), "r+")
            for pause in (*_LOOKED_AT, None):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if pause is not None:
                        time.sleep(pause)
                        continue
                    known = handle.read().strip()
                    handle.close()
                    raise StoreInUse(str(self._root), known) from None
            handle.truncate(0)
            handle.write(holder)
            handle.flush()
        return _FileLock(path, handle)

    def is_locked(self, name: str) -> bool:
        """Whether somebody holds a lock."""
        try:
            with (self._root / name).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (FileNotFoundError, IsADirectoryError):
            return False
        return False

    @staticmethod
    def _move_aside(path: Path) -> None:
        path.rename(path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}"))

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (
            NotADirectoryError
        ) as error:  # a file is in the place of a folder, so what is in that is not there
            raise_named(error, self._root)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), error.filename) from error
        except OSError as error:
            raise_named(error, self._root)
            raise


class _FileLock:
    """An open file with a flock. It is taken over when another file stands under its name."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self._path, self._file = path, file

    @property
    def taken_over(self) -> bool:
        try:
            there, held = self._path.stat(), os.fstat(self._file.fileno())
        except (FileNotFoundError, NotADirectoryError):  # a successor would have put its own there
            raise StoreVanished(str(self._path.parent)) from None
        return (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino)

    def release(self) -> None:
        self._file.close()


def check_folder(root: Path) -> None:
    """Raise where a store's path is something that no folder can be made of."""
    if root.is_file():
        raise StoreIsAFile(str(root))
    if root.is_symlink() and not root.exists():
        raise StoreLinkedAway(str(root), str(root.readlink()))


def raise_named(error: OSError, root: Path) -> None:
    """Raise a failure of a store's disk as what it is; return for one that the caller must judge."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise StoreFull(str(root)) from error
    if error.errno == errno.EROFS:
        raise StoreReadOnly(str(root)) from error
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not root.is_dir():
        raise StoreVanished(str(root)) from error
    if error.errno in (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE):
        raise StoreUnreadable(str(root), f"{error.strerror}: {error.filename}") from error


def trouble_of(root: Path) -> StoreTrouble | None:
    """What is wrong with the disk of a folder, as far as that can be told without writing to it."""
    try:
        said = os.statvfs(root)
    except OSError as error:
        return StoreUnreadable(str(root), str(error))
    if said.f_flag & os.ST_RDONLY:
        return StoreReadOnly(str(root))
    free = said.f_bfree if os.geteuid() == 0 else said.f_bavail
    full = said.f_blocks > 0 and free * said.f_frsize < ROOM  # a file system of no size does not tell
    return StoreFull(str(root)) if full else None


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
