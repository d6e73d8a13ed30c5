"""The part that adds up epoch checksums, and then tells the others of the epoch (`durability.checksum`).

It comes first, because a merge collapses epochs: once the others have heard of an epoch, its updates may be merged with
older ones. It also sets the pace. Between two words it rests for as long as what the last one caused takes more than
the agent's share of a core: the more there is to do, the more epochs go out together, and the engine keeps the cores.
Epochs that go out together are added up together: a key that changed in each of them counts once, and the totals that
are noted are those as of the last.

Where the total of a view is not known (it is new, or a layer was damaged when its turn came, or history does not
reach back to where it was known), it begins with the checksum of what the view holds now. From then on it proves what
follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from slipstream.core.clock import Clock
from slipstream.core.errors import DamagedLayer, HistoryForgotten, MissingLayer
from slipstream.core.settings import Exposure
from slipstream.durability.board import Board, Word
from slipstream.durability.checksum import MODULUS, read_totals, sums_line, sums_of
from slipstream.durability.healing import Healing
from slipstream.durability.work import LayerWork
from slipstream.store import chain
from slipstream.store.events import fields
from slipstream.store.layout import SUMS, log_number, sums_log
from slipstream.store.store import Store

SHARE = 0.1  # of one core that the agent takes while words follow each other
_REST_STEP, _SHORT_REST, LONGEST_REST = 0.02, 1.0, 10.0
_IDLE = 1.0
_LARGEST = 1 << 22  # bytes of a log of sums; then it begins anew
_LOGS_KEPT = 2
_LOG = logging.getLogger("slipstream.agent")


def rest_within(limit: Exposure) -> float:
    """How long an agent may rest where no more than this may be unsafe."""
    if limit.bytes is not None:
        return _SHORT_REST
    return LONGEST_REST if limit.seconds is None else min(LONGEST_REST, limit.seconds / 4)


def must_rest(rested: float, used: float, limit: float) -> bool:
    """Whether an agent that used so many seconds of processor time in the last so many seconds takes more than its
    share. It never rests longer than the limit.
    """
    return rested < limit and used > SHARE * rested


class Sums:
    """See the module's docstring. `cpu` tells how much processor time this process has used."""

    name = "sums"

    def __init__(
        self,
        store: Store,
        incarnation: int,
        after: int,
        *,
        board: Board,
        work: LayerWork,
        healing: Healing,
        clock: Clock,
        cpu: Callable[[], float],
        rest: float,
    ) -> None:
        self._store, self._incarnation, self._after = store, incarnation, after
        self._board, self._work, self._healing = board, work, healing
        self._clock, self._cpu, self._rest = clock, cpu, rest
        self._began, self._used = clock.monotonic(), cpu()
        self._log: _SumsLog | None = None
        self._told: Word | None = None

    def step(self) -> float:
        word = self._board.heard
        if word is None or word == self._told:
            return _IDLE
        if must_rest(self._clock.monotonic() - self._began, self._cpu() - self._used, self._rest):
            return _REST_STEP
        self._began, self._used = self._clock.monotonic(), self._cpu()
        if self._log is None:
            self._log = _SumsLog.open(self._store, self._incarnation, self._after)
        totals = self._add_up(self._log, word.computed)
        self._told = word
        self._board.works(self.name)
        self._board.tell(word, totals)
        return _IDLE

    def _add_up(self, log: _SumsLog, until: int) -> dict[str, int]:
        """Note the totals as of an epoch, and give them."""
        traces = self._store.catalog().summed()
        if until <= log.epoch and log.totals.keys() >= traces.keys():
            return log.totals
        totals: dict[str, int] = {}
        for key, trace in traces.items():
            try:
                totals[key] = self._total(log, key, trace, until)
            except DamagedLayer as damage:
                self._healing.found(self.name, damage)
            except MissingLayer as missing:
                _LOG.warning(
                    "a view cannot be summed up",
                    extra=fields(part=self.name, trace=trace, epoch=until, cause=str(missing)),
                )
        log.append(until, totals)
        return totals

    def _total(self, log: _SumsLog, key: str, trace: str, until: int) -> int:
        known = log.totals.get(key, 0 if log.epoch == 0 else None)
        if known is not None:
            try:
                return (known + self._work.change_sum(trace, log.epoch, until)) % MODULUS
            except (HistoryForgotten, MissingLayer):
                _LOG.warning(
                    "the checksum of a view begins anew: its epochs are not there one by one",
                    extra=fields(part=self.name, trace=trace, epoch=until),
                )
        return self._work.state_sum(trace, until)


class _SumsLog:
    """Appends to the log of one incarnation. epoch, totals: what its last line says."""

    def __init__(self, store: Store, incarnation: int, epoch: int, totals: dict[str, int]) -> None:
        self._disk, self._file = store.owned_by(incarnation), sums_log(incarnation)
        self.epoch, self.totals = epoch, totals
        self._digest, self._size = chain.START, 0

    @staticmethod
    def open(store: Store, incarnation: int, after: int) -> _SumsLog:
        """Go on after the last line that holds; a log that cannot be gone on with begins anew."""
        known, problems = read_totals(store.disk)
        for problem in problems:
            _LOG.warning("a log of checksums is damaged", extra=fields(part="sums", cause=problem))
        file = sums_log(incarnation)
        if store.disk.exists(file):
            found = chain.scan(store.disk.read(file))
            last = sums_of(found.lines[-1]) if found.lines else None
            if last is not None:
                log = _SumsLog(store, incarnation, *last)
                log._digest, log._size = found.digest, found.lines[-1].end
                if found.end != "whole":
                    log._disk.truncate(file, log._size)
                return log
        log = _SumsLog(store, incarnation, after, known.get(after, {}))
        log._begin()
        for name in store.disk.list(SUMS):
            number = log_number(name)
            if number is not None and number <= incarnation - _LOGS_KEPT:
                log._disk.remove(f"{SUMS}/{name}")
        return log

    def append(self, epoch: int, totals: dict[str, int]) -> None:
        digest, line = sums_line(self._digest, epoch, totals)
        if self._size + len(line) > _LARGEST:
            self.epoch, self.totals = epoch, totals
            self._begin()
            return
        self._disk.append(self._file, line)
        self._digest, self._size = digest, self._size + len(line)
        self.epoch, self.totals = epoch, totals

    def _begin(self) -> None:
        """A log of one line, in the place of whatever was there."""
        digest, line = sums_line(chain.START, self.epoch, self.totals)
        self._disk.replace(self._file, line, flushed=True)
        self._digest, self._size = digest, len(line)
