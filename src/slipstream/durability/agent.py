"""The agent: a process beside the engine that merges layers, flushes them to disk and replicates them, so that the
engine never does.

The engine writes lines to its standard input: first who it is and which replicas there are, then after each epoch how
far the store is computed, and from which epoch history is wanted. The main thread looks after each trace in turn
(`trace.upkeep`: decide, then carry out); each replica has a thread of its own (`follower`), and so has the local disk
(`persist`). Before any of them hears of an epoch, its checksums are noted (`checksum`). All is done at low priority,
and ends when the input does. It may be killed at any moment: a merge is a new layer under a temporary name, what it
replaces is removed only afterwards, and a replica is as its last commit says.

An agent whose engine was succeeded touches nothing any more: it looks before every round.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from slipstream.durability import checksum
from slipstream.durability.board import Board, Word
from slipstream.durability.follower import Follower, Origin
from slipstream.durability.homecoming import Homecoming, away_in
from slipstream.durability.identity import summed
from slipstream.durability.pack import sha256
from slipstream.durability.persist import Checksums, Persister, read_checksums
from slipstream.durability.replica import shown
from slipstream.durability.restore import heal
from slipstream.durability.store import Store
from slipstream.errors import DamagedLayer, HistoryForgotten, MissingLayer
from slipstream.settings import Exposure
from slipstream.trace import LayerName, list_layers, upkeep

__all__ = ["Agent", "Charge", "Word", "tend"]

_PAUSE = 0.2  # seconds between two rounds, so that short epochs share one
_SHARE = 0.2  # of one core that the agent takes while words follow each other
_REST_STEP, _SHORT_REST, _LONGEST_REST = 0.02, 1.0, 10.0


@dataclass(frozen=True)
class Charge:
    """What an agent is to look after. rest: seconds that it may let pass between two rounds if it has much to do."""

    root: str
    app: str = ""
    incarnation: int = 0
    after: int = 0
    replicas: tuple[str, ...] = ()
    safe_on: int = 1
    rest: float = _LONGEST_REST
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @staticmethod
    def decode(line: str) -> Charge:
        said = json.loads(line)
        return Charge(**{**said, "replicas": tuple(said["replicas"])})


def rest_within(limit: Exposure) -> float:
    """How long an agent may rest where no more than this may be unsafe."""
    if limit.bytes is not None:
        return _SHORT_REST
    return _LONGEST_REST if limit.seconds is None else min(_LONGEST_REST, limit.seconds / 4)


class Agent:
    """The engine's end: starts the process and talks to it."""

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._process = self._start()

    def tell(self, word: Word) -> None:
        """Pass a word on; a dead agent is started again."""
        line = json.dumps(asdict(word)) + "\n"
        try:
            self._send(line)
        except BrokenPipeError:
            self.close()
            self._process = self._start()
            self._send(line)

    def close(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "slipstream.durability.agent"],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # found out by the next word
            process.stdin.write(json.dumps(asdict(self._charge)) + "\n")
            process.stdin.flush()
        return process


def tend(root: Path, word: Word, barriers: Iterable[int] = (), replicas: Sequence[str] = ()) -> list[str]:
    """Look after every trace once, but for those that have layers elsewhere. A layer that is found damaged before it is
    merged is replaced from a replica; what was found is returned.
    """
    known = read_checksums(root) if replicas else {}
    damage = []
    away = away_in(root)
    for trace in sorted((root / "traces").glob("*/*")):
        name = str(trace.relative_to(root))
        if name in away:
            continue
        kept = word.keep_from if name in word.histories else None
        check = partial(_check, trace, name, known)
        try:
            upkeep(trace, word.computed, kept, barriers=barriers, check=check if known else None)
        except DamagedLayer as found:
            healed = heal(root, name, found.layer, replicas)
            damage.append(
                f"{found} {'It was replaced from a replica.' if healed else 'No replica has a copy.'}"
            )
    return damage


def _check(directory: Path, trace: str, known: Checksums, name: LayerName) -> None:
    noted = known.get((trace, name.filename))
    if noted is not None and sha256(directory / name.filename) != noted[1]:
        raise DamagedLayer(trace, name)


def behind(root: Path, durable: Iterable[int]) -> list[int]:
    """For each of some followers, the bytes of the layers that it lacks."""
    sizes: list[tuple[int, int]] = []
    for trace in sorted((root / "traces").glob("*/*")):
        for name in list_layers(trace):
            with suppress(FileNotFoundError):
                sizes.append((name.hi, (trace / name.filename).stat().st_size))
    return [sum(size for hi, size in sizes if hi > epoch) for epoch in durable]


def _note_sums(charge: Charge, words: queue.SimpleQueue[Word], board: Board) -> None:
    """Pass words on to the board, of several that wait only the last, once the checksums of their epochs are noted.

    Between two words it rests, for as long as what they cause takes more than its share of a core, up to `charge.rest`:
    the more there is to do, the more epochs go out together, and the engine keeps the cores.
    """
    root = Path(charge.root)
    since = min(checksum.noted(root), charge.after) if charge.replicas else 0
    began, used = time.monotonic(), time.process_time()
    while True:
        word = words.get()
        while (rested := time.monotonic() - began) < charge.rest:
            if time.process_time() - used <= _SHARE * rested:
                break
            time.sleep(_REST_STEP)
        began, used = time.monotonic(), time.process_time()
        while not words.empty():
            word = words.get()
        if charge.replicas and word.computed > since:
            catalog = json.loads((root / "catalog.json").read_text())
            # A store that was run without replicas may have no log that far back: it is never checked.
            with suppress(HistoryForgotten, MissingLayer):
                checksum.record(root, summed(catalog), since, word.computed)
            since = word.computed
        board.tell(word)


def _look_after(charge: Charge, board: Board) -> None:
    """Merge, round after round, until the store is another's."""
    root, told = Path(charge.root), 0
    store = Store(root)
    urls = [shown(url) for url in charge.replicas]
    while True:
        word = board.await_word(told)
        assert word is not None
        told = word.computed
        if charge.incarnation and store.last_incarnation() > charge.incarnation:
            os._exit(0)
        for found in tend(root, word, board.barriers(), charge.replicas):
            board.damage(found)
        if urls:
            known = [board.progress(url) for url in urls]
            for url, size in zip(urls, behind(root, (each.durable for each in known)), strict=True):
                board.post(url, replace(board.progress(url), behind=size))
        pa.default_memory_pool().release_unused()
        time.sleep(_PAUSE)


def main() -> None:
    """Read words until there are no more; of several that wait, only the last counts."""
    os.nice(10)
    charge = Charge.decode(sys.stdin.readline())
    root = Path(charge.root)
    shutil.rmtree(root / ".spool", ignore_errors=True)
    board = Board(root, charge.incarnation, tuple(map(shown, charge.replicas)), charge.safe_on)

    words: queue.SimpleQueue[Word] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            said = json.loads(line)
            words.put(Word(said["computed"], said["keep_from"], tuple(said["histories"])))
        os._exit(0)  # the engine is gone: nothing in hand is worth finishing

    threading.Thread(target=listen, daemon=True).start()
    threading.Thread(target=_note_sums, args=(charge, words, board), daemon=True).start()
    origin = Origin(root, charge.app, charge.incarnation, charge.after, charge.token)
    for url in charge.replicas:
        Follower(origin, url, board).start()
    if charge.replicas:
        Persister(root, board).start()
    Homecoming(root, board).start()
    _look_after(charge, board)


if __name__ == "__main__":
    main()
