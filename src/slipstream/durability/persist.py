"""The local disk as a level of persistence: layers and lineage flushed, by the agent, behind the computation.

Each round flushes what is new up to the newest epoch, and notes for each layer the checksum of its file, a line each in
`checksums.jsonl`: {"trace": ..., "layer": ..., "size": ..., "sha256": ...}. From then on damage to the file can be
told. Layers that were merged before their turn came are never flushed.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from slipstream.durability.board import Board, Word
from slipstream.durability.pack import sha256
from slipstream.durability.replica import flush
from slipstream.errors import MissingLayer
from slipstream.trace import LayerName, is_away, list_layers

_IDLE = 1.0
_FEW = 1000
FILE = "checksums.jsonl"
GONE = -1

Checksums = dict[tuple[str, str], tuple[int, str]]


class Persister(threading.Thread):
    """Flushes what is new for as long as the process lives."""

    def __init__(self, root: Path, board: Board) -> None:
        super().__init__(name="local disk", daemon=True)
        self._root, self._board = root, board
        self._flushed = {root / trace / layer for trace, layer in read_checksums(root)}
        self._noted = len(self._flushed)
        self._notes: list[str] = []
        self._epoch = 0

    def run(self) -> None:
        word: Word | None = None
        while True:
            word = self._board.await_word(self._epoch, _IDLE) or word  # at rest, what was merged is new, too
            if word is None:
                continue
            try:
                self.step(word)
            except (
                FileNotFoundError,
                MissingLayer,
            ):  # a merger was quicker: what it made is flushed next time
                continue
            if word.computed > self._epoch:
                self._epoch = word.computed
                self._board.persisted(word.computed)

    def step(self, word: Word) -> None:
        """Flush every layer up to an epoch, and the lineage that tells of it."""
        present: set[Path] = set()
        try:
            for trace in sorted((self._root / "traces").glob("*/*")):
                fresh = False
                for name in list_layers(trace):
                    path = trace / name.filename
                    present.add(path)
                    if name.hi <= word.computed and path not in self._flushed and not is_away(path):
                        flush(path)
                        fresh = True
                        self._note(path)
                if fresh:
                    flush(trace)
        finally:  # what was flushed is known to be, even if a merger gets in between
            self._write_notes()
        flush_lineage(self._root)
        self._flushed &= present
        if self._noted > 4 * len(present) + _FEW:
            self._rewrite(present)

    def _note(self, path: Path) -> None:
        self._notes.append(note(self._root, path))
        self._flushed.add(path)

    def _write_notes(self) -> None:
        if self._notes:
            with (self._root / FILE).open("a") as file:
                file.write("".join(self._notes))
            self._noted += len(self._notes)
            self._notes.clear()

    def _rewrite(self, present: set[Path]) -> None:
        """Leave out the notes of layers that are gone."""
        known = read_checksums(self._root)
        kept = {key: said for key, said in known.items() if self._root / key[0] / key[1] in present}
        temporary = self._root / f".{FILE}.{os.getpid()}"
        temporary.write_text("".join(_line(*key, *said) for key, said in kept.items()))
        temporary.rename(self._root / FILE)
        self._noted = len(kept)


def flush_lineage(root: Path) -> None:
    for log in (root / "lineage").glob("*.jsonl"):
        flush(log)


def forget(root: Path, layers: Iterable[tuple[str, LayerName]]) -> None:
    """The notes of these layers count no more: their files are about to be replaced."""
    lines = [_line(trace, name.filename, GONE, "") for trace, name in layers]
    if lines:
        with (root / FILE).open("a") as file:
            file.write("".join(lines))


def note(root: Path, path: Path) -> str:
    """A line that says what a layer's file is like."""
    return _line(str(path.parent.relative_to(root)), path.name, path.stat().st_size, sha256(path))


def _line(trace: str, layer: str, size: int, digest: str) -> str:
    return json.dumps({"trace": trace, "layer": layer, "size": size, "sha256": digest}) + "\n"


def read_checksums(root: Path) -> Checksums:
    """Size and checksum of each layer's file, by trace and layer; the newest note counts."""
    try:
        lines = (root / FILE).read_text().splitlines()
    except FileNotFoundError:
        return {}
    found = {}
    for line in lines:
        try:
            said = json.loads(line)
        except json.JSONDecodeError:  # torn by a crash
            continue
        found[said["trace"], said["layer"]] = (said["size"], said["sha256"])
    return {key: said for key, said in found.items() if said[0] != GONE}
