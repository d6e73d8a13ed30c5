"""Which files of a folder are new, complete and in what order: the part of `files` that needs no Spark.

A look at the folder must be cheap when it holds 100,000 files that were read long ago:
- When the folder's own modification time has not moved, no entry was added or removed, and it is not scanned. File
  systems keep that time in coarse steps, so it is trusted only once it is older than `RACY` at the time of a scan.
- A scan compares names, and asks for the details of new ones only.
- What was read long ago is not in memory (`taken`): only what of it is still in the folder, and what was read lately.

A file is *ready* when nobody is writing it any more. Who renames (or links) a finished file into the folder leaves
it with a change time later than its last write, and it is ready at once; so is one that the kernel says was moved
in (`watch`: times are too coarse for a rename right after the last write). Any other file whose two times are
equal may be being written in place: it is ready when its last write is `settle` ago and it did not grow since the
previous look. An empty file is never ready: its writer may just be slow.

A file that was consumed must stay as it was. A replacement under the same name is noticed by its inode in the
scan, at once; a write in place is noticed when the audit comes round, which looks at `AUDIT` consumed files each
time. A consumed file may be removed. The first scan of a process compares every consumed file that it finds with what
was recorded, however long ago that was.

Files come in the order of their modification time, in milliseconds as Spark sees it, then of their name. Where the
order means something (a later row of a key replaces an earlier one), no file overtakes an earlier one that is not
ready yet; an empty one holds up nobody, for it is written when it is written.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from slipstream.core.clock import Clock
from slipstream.sources.taken import Seen, Taken
from slipstream.sources.watch import Watch

RACY = 1.0
AUDIT = 64
UNFINISHED = (".tmp", ".temp", ".crc", ".inprogress", ".part", ".partial", ".crdownload", ".swp", "~")


def is_ready(details: os.stat_result, previous: Seen | None, now: float, settle: float) -> bool:
    """Whether a file is complete, as the module's docstring says."""
    if details.st_size == 0:
        return False
    if details.st_ctime_ns > details.st_mtime_ns:
        return True
    age = now - min(details.st_mtime, details.st_ctime)
    if age < settle:
        return False
    # An old file seen for the first time did not grow since its last write, long ago.
    return age >= 10 * settle or (previous is not None and previous.size == details.st_size)


class Listing:
    """The files of one folder: consumed, ready, or not yet complete."""

    def __init__(
        self,
        folder: Path,
        pattern: str,
        settle: float,
        clock: Clock,
        changed: Callable[[Seen, Seen], Exception],
        *,
        in_order: bool = False,
    ) -> None:
        self.folder, self._prefix = (
            folder,
            f"{folder}{os.sep}",
        )  # a look at 10,000 files makes no 10,000 Paths
        self._matches = re.compile(fnmatch.translate(pattern)).match
        self._settle = settle
        self._clock = clock
        self._changed = changed
        self._in_order = in_order
        self._taken: Taken | None = None
        self._consumed: dict[str, Seen] = {}
        self._lately: set[str] = set()
        """Of what was consumed, that which `taken` does not know."""
        self._inodes: dict[str, int] = {}
        self._audit: deque[str] = deque()
        self._waiting: dict[str, Seen | None] = {}
        self._ready: dict[str, Seen] = {}
        self._queue: deque[Seen] = deque()
        self._queue_stale = False
        self._quiet_since: int | None = None
        self._watch: Watch | None = None
        self._moved: set[str] = set()

    def consume(self, files: Iterable[Seen]) -> None:
        """These files were taken; they are never offered again."""
        for file in files:
            if file.name not in self._consumed:
                self._audit.append(file.name)
            self._consumed[file.name] = file
            self._lately.add(file.name)
            self._ready.pop(file.name, None)
            self._waiting.pop(file.name, None)
            self._moved.discard(file.name)

    def settle(self, taken: Taken | None, files: Iterable[Seen] = ()) -> None:
        """From now on, look what was taken long ago up here, these files among it."""
        self._taken = taken
        self._lately.difference_update(file.name for file in files)

    def watch(self) -> None:
        """From now on, notice what is moved in. A folder that is not there yet is watched when it is."""
        if self._watch is None and self.folder.is_dir():
            self._watch = Watch(self.folder)

    def look(self) -> None:
        """Bring the picture up to date."""
        try:
            folder_time = self.folder.stat().st_mtime_ns
        except FileNotFoundError:
            return
        self.watch()
        if self._watch is not None:
            self._moved |= self._watch.arrived()
        if folder_time != self._quiet_since:
            # The folder's time is the file system's, so it is compared with the machine's, not with our clock.
            settled = time.time() - folder_time / 1e9 > RACY
            self._scan()
            self._quiet_since = folder_time if settled else None
        self._examine()
        for _ in range(min(AUDIT, len(self._audit))):
            name = self._audit.popleft()
            if self._verify(name) or name in self._lately:
                self._audit.append(name)
            else:
                del self._consumed[name]
                self._inodes.pop(name, None)

    def ready(self) -> Iterator[Seen]:
        """Complete files in order, each looked at once more: one that changed meanwhile has to wait again."""
        if self._queue_stale:
            self._queue = deque(sorted(self._ready.values(), key=lambda file: file.place))
            self._queue_stale = False
        first_waiting = min(
            (file.place for file in self._waiting.values() if self._in_order and file and file.size),
            default=None,
        )
        while self._queue and self._ready.get(self._queue[0].name) != self._queue[0]:
            self._queue.popleft()
        for file in self._queue:
            if self._ready.get(file.name) != file:
                continue
            if first_waiting is not None and file.place > first_waiting:
                return
            now = self._stat(file.name)
            if now is not None and _seen(file.name, now) == file:
                yield file
                continue
            del self._ready[file.name]
            self._moved.discard(file.name)
            if now is not None:
                self._waiting[file.name] = None

    def size(self) -> int:
        """Bytes of all files that were not consumed, complete or not."""
        ready = sum(file.size for file in self._ready.values())
        return ready + sum(file.size for file in self._waiting.values() if file is not None)

    def settling(self) -> frozenset[str]:
        """The files that are there and were not consumed, without those that are empty."""
        waiting = (name for name, file in self._waiting.items() if file is None or file.size)
        return frozenset((*waiting, *self._ready))

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _scan(self) -> None:
        consumed, inodes = self._consumed, self._inodes
        unknown: dict[str, int] = {}
        with os.scandir(self.folder) as entries:
            for entry in entries:
                name = entry.name
                if inodes.get(name) == entry.inode():
                    continue
                if name in consumed:
                    self._verify(name)
                    inodes[name] = entry.inode()
                elif name not in self._ready and name not in self._waiting and self._wanted(name):
                    unknown[name] = entry.inode()
        known = self._taken.find(list(unknown)) if self._taken is not None and unknown else {}
        for name, inode in unknown.items():
            if name in known:
                consumed[name] = known[name]
                self._audit.append(name)
                self._verify(name)
                inodes[name] = inode
            else:
                self._waiting[name] = None

    def _wanted(self, name: str) -> bool:
        return not name.startswith((".", "_")) and not name.endswith(UNFINISHED) and bool(self._matches(name))

    def _examine(self) -> None:
        """Look at every file that is not known to be complete."""
        now = self._clock.now()
        for name, previous in list(self._waiting.items()):
            details = self._stat(name)
            if details is None:
                del self._waiting[name]
            elif (name in self._moved and details.st_size > 0) or is_ready(
                details, previous, now, self._settle
            ):
                del self._waiting[name]
                self._ready[name] = _seen(name, details)
                self._queue_stale = True
            else:
                self._waiting[name] = _seen(name, details)

    def _verify(self, name: str) -> bool:
        """Whether a consumed file is still there; an error if it is another one."""
        details = self._stat(name)
        if details is not None and (now := _seen(name, details)) != self._consumed[name]:
            raise self._changed(self._consumed[name], now)
        return details is not None

    def _stat(self, name: str) -> os.stat_result | None:
        """The file's details; None for what is gone or is no file."""
        try:
            details = os.stat(self._prefix + name)  # noqa: PTH116
        except FileNotFoundError:
            return None
        return details if stat.S_ISREG(details.st_mode) else None


def _seen(name: str, details: os.stat_result) -> Seen:
    return Seen(name, details.st_size, details.st_mtime_ns)
