"""How the agent's parts are run, all of them alike.

A part has a name and a `step`, which does what is due and says after how many seconds it wants to be asked again. It
has no loop, no thread and no sleep, so a test takes its steps one by one. A `Turn` makes steps of one part. Before
each it looks whether the store is still this incarnation's. It is the only place that decides what an exception
means:

| a step | what is done |
| --- | --- |
| returns | the part is asked again after as long as it said, or when there is news |
| raises `Superseded` | the store is another's: the process ends, with code 0 |
| raises another `SlipstreamError` | it is posted as the part's error, and tried again after a pause that grows |
| raises anything else | it is logged with its traceback and posted, and the process ends, with code 70 |

A `SlipstreamError` is a condition with a name: a disk that is full, a replica that fails, a damaged layer. Of anything
else nobody knows in what state it left the part.

That is *crash-only*: a process that ends is started again by the engine (`process.Agent`), and begins with what the
store and the replicas say. No part can die and leave the others behind that rely on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from slipstream.core.clock import Clock
from slipstream.core.errors import SlipstreamError, Superseded
from slipstream.durability.board import Board
from slipstream.store.events import fields
from slipstream.store.store import Store

CRASHED = 70
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_LOG = logging.getLogger("slipstream.agent")


class Part(Protocol):
    """See the module's docstring."""

    @property
    def name(self) -> str: ...
    def step(self) -> float: ...


class Ends(BaseException):
    """The process is to end, with a code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Turn:
    """Makes steps of one part."""

    def __init__(self, part: Part, board: Board, store: Store, incarnation: int) -> None:
        self._part, self._board, self._store, self._incarnation = part, board, store, incarnation
        self._pause = _FIRST_PAUSE
        self._error: str | None = None

    def take(self) -> float:
        """One step; the seconds until the next. Raises `Ends` if the process must not go on."""
        part = self._part.name
        try:
            if self._store.superseded(self._incarnation):
                raise Superseded(str(self._store.root), self._incarnation)
            wait = self._part.step()
        except Superseded as end:
            _LOG.warning("the store is another's", extra=fields(part=part, cause=str(end)))
            raise Ends(0) from end
        except SlipstreamError as error:
            return self._postponed(part, error)
        except Exception as error:
            _LOG.exception("a part of the agent crashed", extra=fields(part=part))
            self._board.trouble(part, f"{type(error).__name__}: {error}")
            raise Ends(CRASHED) from error
        if self._error is not None and not self._board.troubled(part):
            _LOG.info("a part of the agent works again", extra=fields(part=part))
            self._error = None
        self._pause = _FIRST_PAUSE
        self._board.settle()
        return wait

    def _postponed(self, part: str, error: SlipstreamError) -> float:
        said = f"{type(error).__name__}: {error}"
        if said != self._error:
            _LOG.warning("a part of the agent waits", extra=fields(part=part, cause=said))
        self._error = said
        self._board.trouble(part, said)
        wait, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        return wait


def run_in_threads(turns: Mapping[str, Turn], board: Board, clock: Clock, end: Callable[[int], None]) -> None:
    """Run each part, by its name, in a thread of its own, for as long as the process lives."""
    for name, turn in turns.items():
        threading.Thread(target=_run, args=(turn, board, clock, end), name=name, daemon=True).start()


def _run(turn: Turn, board: Board, clock: Clock, end: Callable[[int], None]) -> None:
    news = board.waker()
    try:
        while True:
            news.clear()
            clock.wait(news, turn.take())
    except Ends as ends:
        end(ends.code)
    except BaseException:
        end(CRASHED)
        raise
