"""The local disk as a level of persistence: the part of the agent that flushes what the engine wrote, behind the
computation, with replicas or without.

`persisted` is an epoch of which everything survives a power cut: its layers and all before, the names of these files
and of their folders, the lineage that tells of it, and the checksums. A round flushes what is new up to the newest
epoch, and only then says so. A layer that vanishes meanwhile was merged, and what it was merged into was flushed
before it went (`agent.upkeep`).

The documents (catalog, identity, claims) are written flushed by whoever writes them.
"""

from __future__ import annotations

from contextlib import suppress

from slipstream.durability.board import Board, Word
from slipstream.durability.work import LayerWork
from slipstream.store.layout import LINEAGE, SUMS, TRACES, log_number
from slipstream.store.store import Store
from slipstream.trace import LayerName

_IDLE = 1.0


def flush_after(store: Store, persisted: int) -> None:
    """Have all layers and the lineage on disk now, of which everything up to an epoch is known to be: before a catalog
    is written that makes it impossible to go back behind the newest epoch.
    """
    disk, folders = store.disk, {TRACES: None, "": None}
    for trace in store.traces():
        for name in store.valid_layers(trace):
            if name.hi > persisted:
                with suppress(FileNotFoundError):  # it was merged, and that was flushed
                    disk.flush(f"{trace}/{name.filename}")
        folders |= {trace: None, trace.rpartition("/")[0]: None}
    for folder in folders:
        with suppress(FileNotFoundError):
            disk.flush_folder(folder)
    for log in disk.list(LINEAGE):
        if log_number(log) is not None:
            disk.flush(f"{LINEAGE}/{log}")
    disk.flush_folder(LINEAGE)


class Persister:
    """See the module's docstring."""

    name = "persister"

    def __init__(self, store: Store, *, board: Board, work: LayerWork) -> None:
        self._store, self._board, self._work = store, board, work
        self._flushed: set[tuple[str, LayerName]] = set()
        self._folders: set[str] = set()
        self._logs: dict[str, int] = {}
        self._epoch: int | None = None

    def step(self) -> float:
        told = self._board.told
        if told is None or told.word.computed == self._epoch:
            return _IDLE
        self._flush(told.word)
        self._epoch = told.word.computed
        self._board.persisted(self._epoch)
        self._board.works(self.name)
        return _IDLE

    def _flush(self, word: Word) -> None:
        """Flush every layer up to an epoch, and the logs that tell of it."""
        present: set[tuple[str, LayerName]] = set()
        for trace in self._store.traces():
            names = [name for name in self._store.valid_layers(trace) if name.hi <= word.computed]
            self._flush_trace(trace, names)
            present.update((trace, name) for name in names)
        self._flushed &= present
        for folder in (LINEAGE, SUMS):
            self.flush_logs(folder)

    def _flush_trace(self, trace: str, names: list[LayerName]) -> None:
        fresh = False
        for name in names:
            if (trace, name) not in self._flushed:
                try:
                    if not self._work.is_away(trace, name):
                        self._store.disk.flush(f"{trace}/{name.filename}")
                except FileNotFoundError:
                    continue
                self._flushed.add((trace, name))
                fresh = True
        if fresh:
            self._store.disk.flush_folder(trace)
        if trace not in self._folders:
            for folder in (trace.rpartition("/")[0], TRACES, ""):
                self._store.disk.flush_folder(folder)
            self._folders.add(trace)

    def flush_logs(self, folder: str) -> None:
        """Flush the logs of a folder that have grown since they were flushed last."""
        disk = self._store.disk
        fresh = False
        for name in disk.list(folder):
            log = f"{folder}/{name}"
            if log_number(name) is None:
                continue
            try:
                size = disk.size(log)
                if self._logs.get(log) != size:
                    disk.flush(log)
                    fresh = fresh or log not in self._logs
                    self._logs[log] = size
            except FileNotFoundError:
                continue
        if fresh:
            disk.flush_folder(folder)
