"""A disk in memory that forgets what was not flushed.

For every file there are two truths: what a running system reads, and what the disk itself holds. `flush` makes the
second the first for a file's bytes, `flush_folder` for the names in a folder. A **power cut** (`power_cut`) throws away
what is only in the first, in whichever way a real disk might:

- of bytes that were not flushed, nothing is there, or all, or a part, or zeros in their place, block by block;
- of names that were not flushed (created, renamed over, removed), each is as it was at any moment since the flush,
  independently of all others. A folder whose own name was not flushed may be gone with everything in it.

Operations are made of the steps that `store.disk.LocalDisk` makes, with a point between each two, so that a process can
be killed, and others can look, in between. What a dead process held is released: locks fall.

The disk can be full, read-only, gone (`wipe`), and its files rot: `Damage` in one file, at rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Literal

from slipstream.core.errors import StoreFull, StoreInUse, StoreReadOnly, StoreVanished
from slipstream.store.disk import unchecked
from slipstream.testing.simulation.scheduler import Process, Scheduler

BLOCK = 64
_QUICK, _SLOW = 0.0005, 0.02
_SLOW_SHARE = 0.02
_WHEN_SLOW = _SLOW / _SLOW_SHARE
_IN_ROWS = (
    0.8  # the share of damage to layers that is in their rows: most of what they are, if not of the model's
)

Damage = Literal["flip", "digit", "cut", "zero", "hole", "delete", "swap", "copy"]
Observer = Callable[[str, str, bytes], None]


@dataclass(eq=False)
class File:
    """data: what a running system reads. flushed: what the disk holds for sure."""

    data: bytes = b""
    flushed: bytes | None = None
    holder: Process | None = None
    held: bool = False

    @property
    def locked(self) -> bool:
        return self.held and (self.holder is None or self.holder.alive)


@dataclass(eq=False)
class Folder:
    """entries: the names now. durable: the names for sure. since: what each changed name was since then."""

    entries: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    since: dict[str, list[File | Folder | None]] = field(default_factory=dict)

    def put(self, name: str, node: File | Folder | None) -> None:
        if node is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = node
        self.since.setdefault(name, []).append(node)

    def flush(self) -> None:
        self.durable = dict(self.entries)
        self.since.clear()


class SimulatedDisk:
    """The folder of a store on a simulated disk; see `store.disk.Disk`."""

    def __init__(self, scheduler: Scheduler, root: str = "/simulated/store") -> None:
        self.scheduler, self._root = scheduler, Path(root)
        self._name, self._draw = self._root.name, scheduler.random.random
        self._mount = Folder()  # what the store's folder is in
        self._temporary = count(1)
        self.full = False
        self.read_only = False
        self.changes = 0  # how often something changed that a reader could see
        self.observers: list[Observer] = []

    @property
    def root(self) -> Path:
        return self._root

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        self._pass()
        return self._file(name).data[offset : None if length is None else offset + length]

    def size(self, name: str) -> int:
        self._pass()
        if isinstance(self._find(name), Folder):
            return BLOCK
        return len(self._file(name).data)

    def exists(self, name: str) -> bool:
        self._pass()
        return self._find(name) is not None

    def list(self, folder: str) -> list[str]:
        self._pass()
        found = self._find(folder)
        if found is None:
            self._named()
        return sorted(found.entries) if isinstance(found, Folder) else []

    def create(self, name: str, body: bytes) -> bool:
        self._pass()
        folder, last = self._parent(name)
        self._writable(last not in folder.entries)
        if last in folder.entries:
            return False
        file = File()
        folder.put(last, file)
        self.changes += 1
        self._pass()
        if self.full:
            folder.put(last, None)
            self._space()
        file.data = body
        self.changes += 1
        self._pass()
        file.flushed = file.data
        self._observed("create", name, body)
        self._pass()
        folder.flush()
        return True

    def replace(
        self, name: str, body: bytes, *, flushed: bool, check: Callable[[], None] = unchecked
    ) -> None:
        self._pass()
        folder, last = self._parent(name)
        self._writable()
        temporary = f".{last}.{next(self._temporary):012x}.tmp"
        file = File()
        folder.put(temporary, file)
        self._pass()
        if self.full:
            folder.put(temporary, None)
            self._space()
        file.data = body
        if flushed:
            self._pass()
            file.flushed = body
        self._pass()
        try:
            check()
        except BaseException:
            folder.put(temporary, None)
            raise
        if isinstance(folder.entries.get(last), Folder):
            self._move_aside(folder, last)
        folder.put(last, file)
        folder.put(temporary, None)
        self._observed("replace", name, body)
        if flushed:
            self._pass()
            folder.flush()

    def append(self, name: str, body: bytes) -> None:
        self._pass()
        file = self._file(name)
        self._writable()
        self._space()
        file.data += body
        self._observed("append", name, body)

    def truncate(self, name: str, size: int) -> None:
        self._pass()
        file = self._file(name)
        self._writable()
        self._observed("truncate", name, b"")
        file.data = file.data[:size].ljust(size, b"\0")

    def remove(self, name: str) -> None:
        self._pass()
        try:
            folder, last = self._parent(name)
        except FileNotFoundError:
            return
        if last not in folder.entries:
            return
        self._writable()
        self._observed("remove", name, b"")
        if isinstance(folder.entries[last], Folder):
            self._move_aside(folder, last)
        else:
            folder.put(last, None)

    def make_folder(self, name: str) -> None:
        self._pass()
        at = self._mount
        if name:
            self._named()
        for part in (self._name, *_parts(name)):
            found = at.entries.get(part)
            if not isinstance(found, Folder):
                self._writable()
                if found is not None:
                    self._move_aside(at, part)
                found = Folder()
                at.put(part, found)
                self.changes += 1
            at = found

    def flush(self, name: str) -> None:
        self._pass()
        file = self._file(name)
        file.flushed = file.data

    def flush_folder(self, name: str) -> None:
        self._pass()
        found = self._find(name)
        if found is None:
            self._named()
            raise FileNotFoundError(name)
        if isinstance(found, File):  # in the place of a folder
            found.flushed = found.data
        else:
            found.flush()
        if not name:
            self._mount.flush()

    def lock(self, name: str, holder: str, *, takeover: bool = False) -> SimulatedLock:
        self._pass()
        folder, last = self._parent(name)
        self._writable()
        if takeover or last not in folder.entries:
            folder.put(last, File())
            self._pass()
        file = self._file(name)
        if file.locked:
            raise StoreInUse(str(self._root), file.data.decode())
        file.held, file.holder = True, self.scheduler.process
        file.data = holder.encode()
        return SimulatedLock(self, name, file)

    def is_locked(self, name: str) -> bool:
        self._pass()
        file = self._find(name)
        return isinstance(file, File) and file.locked

    # What happens to a disk, as opposed to what is done with it: no points, no process.

    def power_cut(self, chance: random.Random) -> None:
        """Become what a power cut leaves. Whoever ran on it must be dead."""
        _cut(self._mount, chance)
        self.changes += 1

    def wipe(self) -> None:
        """Lose everything."""
        self._mount = Folder()
        self.changes += 1

    def damage(self, kind: Damage, name: str, other: str, chance: random.Random) -> None:
        """Change a file at rest, on the disk itself."""
        self.changes += 1
        folder, last = self._parent(name)
        file = folder.entries[last]
        assert isinstance(file, File)
        match kind:
            case "delete":
                folder.entries.pop(last)
                folder.durable.pop(last, None)
                folder.since.pop(last, None)
                return
            case "swap" | "copy":
                elsewhere = self._file(other)
                if kind == "swap":
                    elsewhere.data, file.data = file.data, elsewhere.data
                    elsewhere.flushed = elsewhere.data
                else:
                    file.data = elsewhere.data
            case "flip" | "digit" | "hole" if name.endswith(".arrow") and chance.random() < _IN_ROWS:
                rows, newline, seal = file.data.partition(b"\n")
                file.data = damaged(kind, rows, chance) + newline + seal
            case _:
                file.data = damaged(kind, file.data, chance)
        file.flushed = file.data

    @property
    def gone(self) -> bool:
        """Whether there is nothing."""
        return self._name not in self._mount.entries

    def lose_folder(self, name: str) -> None:
        """Lose a folder with everything in it."""
        self.changes += 1
        folder, last = self._parent(name)
        for names in (folder.entries, folder.durable, folder.since):
            names.pop(last, None)

    @property
    def process(self) -> Process | None:
        """Who is using it now."""
        return self.scheduler.process

    def quietly(self) -> AbstractContextManager[None]:
        """Look at it from outside; see `Scheduler.quietly`."""
        return self.scheduler.quietly()

    def files(self) -> tuple[str, ...]:
        """Every file, by name."""
        root = self._mount.entries.get(self._name)
        return tuple(sorted(_walk(root, ""))) if isinstance(root, Folder) else ()

    def peek(self, name: str) -> bytes | None:
        """A file's bytes as a running system reads them, for whoever watches the world."""
        file = self._find(name)
        return file.data if isinstance(file, File) else None

    def copy_unflushed(self) -> SimulatedDisk:
        """The same files, with what is flushed of each and what is not, to try something on."""
        made = SimulatedDisk(self.scheduler, str(self._root))
        made._mount = deepcopy(self._mount)
        return made

    def _pass(self) -> None:
        if not self.scheduler.quiet:
            drawn = self._draw()
            self.scheduler.point(drawn * (_WHEN_SLOW if drawn < _SLOW_SHARE else _QUICK))

    def _find(self, name: str) -> File | Folder | None:
        at: File | Folder | None = self._mount.entries.get(self._name)
        for part in _parts(name):
            if type(at) is not Folder:
                return None
            at = at.entries.get(part)
        return at

    def _file(self, name: str) -> File:
        found = self._find(name)
        if isinstance(found, File):
            return found
        if isinstance(found, Folder):
            raise IsADirectoryError(name)
        self._named()
        raise FileNotFoundError(name)

    def _parent(self, name: str) -> tuple[Folder, str]:
        folder, _, last = name.rpartition("/")
        found = self._find(folder)
        if not isinstance(found, Folder):
            self._named()
            raise FileNotFoundError(name)
        return found, last

    def _move_aside(self, folder: Folder, name: str) -> None:
        """Give what is in somebody's place a name of its own."""
        folder.put(f".{name}.{next(self._temporary):012x}", folder.entries[name])
        folder.put(name, None)

    def _named(self) -> None:
        if self._name not in self._mount.entries:
            raise StoreVanished(str(self._root))

    def _writable(self, needed: bool = True) -> None:
        if self.read_only and needed:
            raise StoreReadOnly(str(self._root))

    def _space(self) -> None:
        if self.full:
            raise StoreFull(str(self._root))

    def _observed(self, what: str, name: str, body: bytes) -> None:
        self.changes += 1
        for observer in self.observers:
            observer(what, name, body)


class SimulatedLock:
    """A lock on a file of a simulated disk; it is taken over when another file stands under its name."""

    def __init__(self, disk: SimulatedDisk, name: str, file: File) -> None:
        self._disk, self._name, self._file = disk, name, file

    @property
    def taken_over(self) -> bool:
        self._disk._pass()
        found = self._disk._find(self._name)
        if found is None:
            raise StoreVanished(str(self._disk.root))
        return found is not self._file

    def release(self) -> None:
        self._file.held = False


def damaged(kind: Damage, data: bytes, chance: random.Random) -> bytes:
    """Bytes after some damage. A file of no bytes stays as it is."""
    if not data:
        return data
    at = chance.randrange(len(data))
    match kind:
        case "flip":
            return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        case "digit":  # rot that makes sense
            digits = [i for i, byte in enumerate(data) if byte in b"123456789"]
            if not digits:
                return data
            at = chance.choice(digits)
            return data[:at] + (b"8" if data[at] == b"9"[0] else bytes([data[at] + 1])) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "zero":
            return bytes(len(data))
        case "hole":
            stop = min(len(data), at + BLOCK)
            return data[:at] + bytes(stop - at) + data[stop:]
    return data


def survived(file: File, chance: random.Random) -> bytes:
    """What a power cut may leave of a file's bytes."""
    sure = file.flushed or b""
    if file.data == sure:
        return sure
    if not file.data.startswith(sure):  # cut off and written anew since it was flushed
        return sure if chance.random() < 0.5 else file.data
    tail = file.data[len(sure) :]
    match chance.choice(("nothing", "all", "part", "zeros", "blocks", "part, then zeros")):
        case "nothing":
            return sure
        case "part":
            return sure + tail[: chance.randrange(len(tail))]
        case "zeros":
            return sure + bytes(len(tail))
        case "part, then zeros":
            return sure + tail[: chance.randrange(len(tail))].ljust(len(tail), b"\0")
        case "blocks":
            blocks = (tail[at : at + BLOCK] for at in range(0, len(tail), BLOCK))
            return sure + b"".join(each if chance.random() < 0.5 else bytes(len(each)) for each in blocks)
        case _:
            return file.data


def _cut(folder: Folder, chance: random.Random) -> None:
    for name in sorted(folder.since):
        moments = [folder.durable.get(name), *folder.since[name]]
        node = chance.choice(moments)
        if node is None:
            folder.entries.pop(name, None)
        else:
            folder.entries[name] = node
    folder.flush()
    for name in sorted(folder.entries):
        node = folder.entries[name]
        if isinstance(node, Folder):
            _cut(node, chance)
        else:
            node.data = survived(node, chance)
            node.flushed = node.data


def _walk(folder: Folder, under: str) -> Iterator[str]:
    for name, node in folder.entries.items():
        if isinstance(node, Folder):
            yield from _walk(node, f"{under}{name}/")
        else:
            yield under + name


@lru_cache(maxsize=1 << 14)
def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split("/") if part)
