"""What the agent's threads tell each other, and what they tell the world.

Each follower (a replica's thread, or the one that flushes to the local disk) posts how far it is. From that come the
barriers that merging respects, and a file in the store, `replication.json`, that the engine and `slipstream status`
read. The file is replaced as a whole; nothing waits for it.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

FILE = "replication.json"


@dataclass(frozen=True)
class Word:
    """What the engine tells the agent."""

    computed: int
    keep_from: int
    histories: tuple[str, ...]  # traces whose history is kept; of the others only the present is


@dataclass(frozen=True)
class Progress:
    """How far a replica is. behind: bytes of layers that it lacks. error: why it is stuck, if it is."""

    durable: int = 0
    clock: float = 0.0
    behind: int = 0
    objects: int = 0
    bytes: int = 0
    commits: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Replication:
    """All of it: the epoch flushed to the local disk, each replica by its URL, without secrets, how many of them make
    an epoch safe, and the damage that was found last.
    """

    persisted: int = 0
    replicas: dict[str, Progress] = field(default_factory=dict)
    incarnation: int = 0
    safe_on: int = 1
    damage: str | None = None


def read_replication(root: Path) -> Replication:
    """What the agent said last; nothing where there never was one with replicas."""
    try:
        said = json.loads((root / FILE).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return Replication()
    replicas = {url: Progress(**each) for url, each in said["replicas"].items()}
    return Replication(said["persisted"], replicas, said["incarnation"], said["safe_on"], said["damage"])


class Board:
    """Shared by the agent's threads."""

    def __init__(self, root: Path, incarnation: int, urls: tuple[str, ...], safe_on: int = 1) -> None:
        self._root = root
        self._changed = threading.Condition()
        self._word: Word | None = None
        known = read_replication(root)
        replicas = {url: replace(known.replicas.get(url, Progress()), error=None) for url in urls}
        self._said = Replication(known.persisted, replicas, incarnation, safe_on)
        self._barriers = {url: frozenset({each.durable}) for url, each in replicas.items()}

    def tell(self, word: Word) -> None:
        with self._changed:
            self._word = word
            self._changed.notify_all()

    def await_word(self, after: int, timeout: float | None = None) -> Word | None:
        """The newest word, once it is about an epoch after `after`; None if that takes too long."""
        with self._changed:
            self._changed.wait_for(lambda: self._word is not None and self._word.computed > after, timeout)
            return self._word if self._word is not None and self._word.computed > after else None

    def barriers(self) -> frozenset[int]:
        """Epochs that followers stand at, or are about to."""
        with self._changed:
            return frozenset().union(*self._barriers.values())

    def aim(self, url: str, durable: int) -> Word | None:
        """The newest word, for a follower that has everything up to `durable` and sets out to go as far as it says.

        From now on nothing is merged across either epoch.
        """
        with self._changed:
            ends = {durable} if self._word is None else {durable, self._word.computed}
            self._barriers[url] = frozenset(ends)
            return self._word

    def post(self, url: str, progress: Progress) -> None:
        with self._changed:
            self._said = replace(self._said, replicas={**self._said.replicas, url: progress})
            self._write()

    def progress(self, url: str) -> Progress:
        with self._changed:
            return self._said.replicas[url]

    def persisted(self, epoch: int) -> None:
        with self._changed:
            self._said = replace(self._said, persisted=epoch)
            self._write()

    def damage(self, found: str | None) -> None:
        with self._changed:
            self._said = replace(self._said, damage=found)
            self._write()

    def _write(self) -> None:
        temporary = self._root / f".{FILE}.{os.getpid()}"
        temporary.write_text(json.dumps(asdict(self._said)))
        temporary.rename(self._root / FILE)
