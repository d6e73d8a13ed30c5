"""A store's disk in the hands of whoever owns the store: the only one that removes, cuts off or replaces a file.

Who may do that is not a matter of remembering to ask. `Store.disk` has no such operations. They are had from a claim
(`Claim.owned`), or for an incarnation by a process that works for it (`Store.owned_by`), and each asks right before it
acts whether the store is still theirs; else it raises `Superseded`, and nothing has happened. Everything else goes
through as it is: reading, and what can harm nobody, because it makes a file that was not there or adds to one's own.

Not promised: that nobody takes the store over between asking and acting. What is done then harms nobody (`store`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from slipstream.store.disk import Disk, Lock, WritableDisk, unchecked


class Owned:
    """See the module's docstring; a `WritableDisk`."""

    def __init__(self, disk: Disk, check: Callable[[], None]) -> None:
        """check: raises unless the store is still the owner's."""
        self._disk, self.check = cast(WritableDisk, disk), check

    def replace(
        self, name: str, body: bytes, *, flushed: bool, check: Callable[[], None] = unchecked
    ) -> None:
        """Whoever was succeeded while the new file was flushed, which may take long, does not put it in place."""

        def ours() -> None:
            self.check()
            check()

        self.check()
        self._disk.replace(name, body, flushed=flushed, check=ours)

    def truncate(self, name: str, size: int) -> None:
        self.check()
        self._disk.truncate(name, size)

    def remove(self, name: str) -> None:
        self.check()
        self._disk.remove(name)

    @property
    def root(self) -> Path:
        return self._disk.root

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        return self._disk.read(name, offset, length)

    def size(self, name: str) -> int:
        return self._disk.size(name)

    def exists(self, name: str) -> bool:
        return self._disk.exists(name)

    def list(self, folder: str) -> list[str]:
        return self._disk.list(folder)

    def create(self, name: str, body: bytes) -> bool:
        return self._disk.create(name, body)

    def append(self, name: str, body: bytes) -> None:
        self._disk.append(name, body)

    def make_folder(self, name: str) -> None:
        self._disk.make_folder(name)

    def flush(self, name: str) -> None:
        self._disk.flush(name)

    def flush_folder(self, name: str) -> None:
        self._disk.flush_folder(name)

    def lock(self, name: str, holder: str, *, takeover: bool = False) -> Lock:
        return self._disk.lock(name, holder, takeover=takeover)

    def is_locked(self, name: str) -> bool:
        return self._disk.is_locked(name)
