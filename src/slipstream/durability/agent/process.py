"""The agent: a process beside the engine that merges layers, flushes them to disk and replicates them, so that the
engine never does.

The engine writes lines to its standard input: first who it is and which replicas there are (`Charge`), then after
each epoch how far the store is computed, and from which epoch history is wanted (`Word`). The parts (`parts`) do the
work, each in a thread of its own and at low priority:

| part | what |
| --- | --- |
| sums | adds up the checksums of new epochs, and then tells the others of them |
| persister | flushes what is new to the local disk |
| upkeep | merges layers, and removes those that nobody needs |
| lineage to URL | sends lineage to a replica, ahead of everything else |
| replica URL | keeps a replica up to date |
| homecoming | brings layers that a restore left on a replica |

It ends when its input does. It may be killed at any moment: a merge is a new layer under a temporary name, what it
replaces is removed only afterwards, and a replica is as its last commit says. A part that crashes ends the process, and
the engine starts it again (`Agent`), after a pause that grows, and says so.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from slipstream.core.clock import Clock, SystemClock
from slipstream.durability.agent.parts import Part, Turn, run_in_threads
from slipstream.durability.agent.sums import LONGEST_REST, Sums
from slipstream.durability.agent.upkeep import Upkeep
from slipstream.durability.ahead import Ahead
from slipstream.durability.board import Board, Word
from slipstream.durability.follower import Follower
from slipstream.durability.healing import Heal, Healing
from slipstream.durability.joining import Guarded, Opener, Origin
from slipstream.durability.persist import Persister
from slipstream.durability.replica import Replica, shown
from slipstream.durability.work import LayerWork, LocalWork
from slipstream.store.disk import is_shared
from slipstream.store.events import fields, log_events
from slipstream.store.layout import AWAY, FORMAT, SPOOL
from slipstream.store.store import Identity, Store
from slipstream.trace import LayerName

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STEADY = 60.0  # seconds after which an agent that ends is started again at once
_NICENESS = 10
_AUTOGROUP = Path("/proc/self/autogroup")
_LOG = logging.getLogger("slipstream.engine")


@dataclass(frozen=True)
class Charge:
    """What an agent is to look after. app, id: whose store it is. after: the epoch from which the incarnation goes on.
    rest: seconds that it may let pass between two rounds if it has much to do.
    """

    root: str
    app: str = ""
    id: str = ""
    incarnation: int = 0
    after: int = 0
    replicas: tuple[str, ...] = ()
    safe_on: int = 1
    rest: float = LONGEST_REST
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @staticmethod
    def decode(line: str) -> Charge:
        said = json.loads(line)
        return Charge(**{**said, "replicas": tuple(said["replicas"])})


class Process(Protocol):
    """A process that reads lines, as this one sees it."""

    @property
    def pid(self) -> int: ...
    def code(self) -> int | None: ...
    def write(self, data: bytes) -> int: ...
    def end(self) -> None: ...


class Agent:
    """The engine's end: starts the process, talks to it, and starts it again when it ends.

    Nothing here waits for the process: a word that it does not read is replaced by the next.
    """

    def __init__(
        self, charge: Charge, clock: Clock | None = None, start: Callable[[], Process] | None = None
    ) -> None:
        self._charge, self._clock, self._start = charge, clock or SystemClock(), start or LocalProcess
        self._word: Word | None = None
        self._sent: Word | None = None
        self._unsent = b""
        self._pause = _FIRST_PAUSE
        self._again: float | None = None  # when a process that ended is started again
        self._process = self._started()

    def tell(self, word: Word) -> None:
        """Pass a word on."""
        self._word = word
        self.look()
        if self._again is None:
            self._tell()

    def look(self) -> None:
        """See to it that there is an agent. To be called now and then, whether there is a word or not."""
        now = self._clock.monotonic()
        if self._again is None:
            code = self._process.code()
            if code is None:
                self._tell()
                return
            if now - self._since > _STEADY:
                self._pause = _FIRST_PAUSE
            self._again, self._pause = now + self._pause, min(2 * self._pause, _LONGEST_PAUSE)
            _LOG.warning(
                "the agent ended, and is started again",
                extra=fields(part="agent", code=code, seconds=round(self._again - now, 1)),
            )
        if now >= self._again:
            self._process.end()
            try:
                self._process = self._started()
            except OSError as error:  # no process can be had now
                self._again, self._pause = now + self._pause, min(2 * self._pause, _LONGEST_PAUSE)
                _LOG.warning("the agent cannot be started", extra=fields(part="agent", cause=str(error)))
                return
            self._again = None
            self._tell()

    def close(self) -> None:
        self._process.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _started(self) -> Process:
        process = self._start()
        self._since = self._clock.monotonic()
        self._unsent, self._sent = _line(vars(self._charge)), None
        self._process = process
        self._send(b"")
        return process

    def _tell(self) -> None:
        """Send the newest word, unless it was sent; one that found no room is sent at a later look."""
        if self._word is not None and self._word is not self._sent and self._send(_line(vars(self._word))):
            self._sent = self._word

    def _send(self, line: bytes) -> bool:
        """Write what is left of the last line, and then this one, as far as the process takes it; whether it took the
        one before whole.
        """
        if self._unsent and not self._written():
            return False
        self._unsent = line
        self._written()
        return True

    def _written(self) -> bool:
        """Whether the process has taken everything."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._process.write(self._unsent) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:  # found out by the next look
            self._unsent = b""
        return True


class LocalProcess:
    """A process of this machine."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "slipstream.durability.agent"],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        os.set_blocking(self._pipe.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def code(self) -> int | None:
        return self._process.poll()

    def write(self, data: bytes) -> int:
        """Write as much as fits; BlockingIOError if nothing does."""
        return os.write(self._pipe.fileno(), data)

    def end(self) -> None:
        """End its input, and then itself."""
        with suppress(BrokenPipeError):
            self._pipe.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def assemble(
    charge: Charge,
    store: Store,
    board: Board,
    *,
    clock: Clock,
    work: LayerWork,
    heal: Heal,
    objects: Opener = Replica,
    cpu: Callable[[], float] = time.process_time,
) -> list[Part]:
    """The parts of an agent."""
    healing = Healing(store, board, heal, clock)
    origin = Origin(
        store=store,
        identity=Identity(charge.app, charge.id),
        incarnation=charge.incarnation,
        after=charge.after,
        token=charge.token,
    )
    parts: list[Part] = [
        Sums(
            store,
            charge.incarnation,
            charge.after,
            board=board,
            work=work,
            healing=healing,
            clock=clock,
            cpu=cpu,
            rest=charge.rest,
        ),
        Persister(store, board=board, work=work),
        Upkeep(
            store,
            charge.incarnation,
            [shown(url) for url in charge.replicas],
            board=board,
            work=work,
            healing=healing,
        ),
    ]
    for url in charge.replicas:
        parts.append(Ahead(origin, Guarded(url, objects), board=board, clock=clock))
        parts.append(
            Follower(origin, Guarded(url, objects), board=board, work=work, healing=healing, clock=clock)
        )
    return parts


def board_of(charge: Charge, store: Store, clock: Clock) -> Board:
    return Board(
        store,
        charge.incarnation,
        tuple(map(shown, charge.replicas)),
        charge.safe_on,
        after=charge.after,
        clock=clock,
    )


def main() -> None:
    """Read words until there are no more; of several that wait, only the last counts."""
    _step_aside()
    charge = Charge.decode(sys.stdin.readline())
    clock, shared = SystemClock(), is_shared(Path(charge.root) / FORMAT)
    store = replace(Store.at(charge.root, shared=shared), owner=charge.id or None)
    log_events(store.owned_by(charge.incarnation), "agent", charge.incarnation)
    logging.getLogger("slipstream.agent").info("the agent begins", extra=fields(process=os.getpid()))
    shutil.rmtree(store.root / SPOOL, ignore_errors=True)
    board = board_of(charge, store, clock)
    work = LocalWork(store)
    parts = assemble(
        charge,
        store,
        board,
        clock=clock,
        work=work,
        heal=partial(_heal, charge, store, work),
        objects=partial(Replica, shared=shared),
    )
    if store.disk.exists(AWAY):
        from slipstream.durability.homecoming import Homecoming

        parts.append(Homecoming(store, charge.incarnation, board=board, work=work))
    turns = {part.name: Turn(part, board, store, charge.incarnation) for part in parts}
    run_in_threads(turns, board, clock, os._exit)
    _listen(sys.stdin, board)
    os._exit(0)  # the engine is gone: nothing in hand is worth finishing


def _step_aside() -> None:
    """Take the cores that the engine leaves. Linux weighs sessions against each other before it looks at the niceness
    of their processes (`man 7 sched`, autogroups), and the agent has a session of its own, which steps aside too.
    """
    os.nice(_NICENESS)
    with suppress(OSError):  # no such thing on this system
        _AUTOGROUP.write_text(str(_NICENESS))


def _heal(charge: Charge, store: Store, work: LayerWork, trace: str, name: LayerName) -> bool:
    from slipstream.durability.restore import heal_layer  # seldom needed

    return heal_layer(store, charge.incarnation, trace, name, charge.replicas, work)


def _listen(lines: Iterable[str], board: Board) -> None:
    for line in lines:
        said = json.loads(line)
        board.hear(Word(said["computed"], said["keep_from"], tuple(said["histories"])))


def _line(said: dict[str, object]) -> bytes:
    return json.dumps(said).encode() + b"\n"
