"""An app that is changed: its declarations became others since it began.

While no run is under way a change is made at once, by whoever needs the app next. While epochs run it is made beside
them, in a thread of its own: everything is compiled, the new views are computed up to an epoch, then what has come
meanwhile, until that is little; then, between two epochs, the last of it, and the loop goes on with the new plan. What
is declared while one change is on its way is the next change.

A change that fails leaves the app as it was. Whoever asks next is told, until something else is declared.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from slipstream.app.assembly import Assembly, Changing, Running
from slipstream.core.clock import Clock
from slipstream.core.errors import ChangeFailed, ChangeHalfDone, SlipstreamError
from slipstream.spark.jvm import text_of
from slipstream.store.catalog import Catalog
from slipstream.store.events import fields
from slipstream.store.store import Store

_LOG = logging.getLogger("slipstream.engine")
_NEAR = 2  # epochs that may be left to be caught up between two epochs
_ROUNDS = 20  # of catching up; then what is left waits for it
_TICK = 0.02
_JOBS = "slipstream-change"


@dataclass(frozen=True)
class Wanted:
    """What an app is to become: of which version of its declarations, and how it is made."""

    version: int
    names: tuple[str, ...]
    assembled: Callable[[], Assembly]


class Changes:
    """Brings an app that runs to what is declared. gate: held by whoever begins or ends a run, or works between two.
    active: whether there is a run.
    """

    def __init__(self, running: Running, assembly: Assembly, version: int, clock: Clock) -> None:
        self.assembly, self.version = assembly, version
        self._running, self._clock = running, clock
        self._failed: tuple[int, ChangeFailed] | None = None
        self._half_done: ChangeHalfDone | None = None
        self._worker: threading.Thread | None = None
        self._lock = threading.Lock()
        self._done = threading.Condition()
        self.gate = threading.RLock()
        self.active = False
        self.closed = False

    def begin_run(self) -> bool:
        """A run is about to begin; False if one is under way: there is one loop, and one thread in it."""
        with self.gate:
            begins, self.active = not self.active, True
        return begins

    def end_run(self) -> None:
        """A run is over."""
        with self.gate:
            self.active = False

    def made(self, version: int) -> bool:
        """Whether the app is what is declared, or refused to be."""
        return self.version == version or self._failure(version) is not None

    def check_whole(self) -> None:
        """Raise if a change was cut short where it could not be taken back."""
        if self._half_done is not None:
            raise self._half_done

    def check(self, version: int) -> None:
        """Raise if the app refused to become what is declared."""
        failure = self._failure(version)
        if failure is not None:
            raise failure

    def now(self, wanted: Wanted) -> None:
        """Make a change while no run is under way; where one began meanwhile, beside it."""
        with self._lock:
            if self.made(wanted.version):
                return self.check(wanted.version)
            try:
                assembly = wanted.assembled()
                with self.gate:
                    if not self.active:
                        changing = self._begun(assembly, beside=False)
                        self._advance(changing)
                        return self._join(assembly, changing, wanted.version)
                return self._make(wanted, assembly)
            except ChangeHalfDone:
                raise
            except Exception as error:
                raise self._refused(wanted, error) from None  # the log has the whole story

    def beside(self, latest: Callable[[], Wanted]) -> None:
        """Make a change beside a run, and whatever is declared meanwhile."""
        with self._done:
            if self._worker is None:
                self._worker = threading.Thread(
                    target=self._work, args=(latest,), name="slipstream-change", daemon=True
                )
                self._worker.start()

    def wait(self, version: Callable[[], int], timeout: float | None) -> bool:
        """Wait until the app is what is declared; False if the timeout passes before."""
        with self._done:
            self._done.wait_for(lambda: self.closed or self._half_done or self.made(version()), timeout)
            self.check_whole()
            return self.made(version())

    def stop(self, spark: SparkSession) -> None:
        """Let go of the change on its way, if one is: it is begun anew when the app is."""
        self.closed = True
        with self._done:
            self._done.notify_all()
        while (worker := self._worker) is not None and worker.is_alive():
            with suppress(Exception):  # Spark may be gone
                spark.sparkContext.cancelJobGroup(_JOBS)
            worker.join(_TICK)

    def _work(self, latest: Callable[[], Wanted]) -> None:
        self._running.job_group(_JOBS)
        while True:
            wanted = latest()
            with self._done:
                if self.closed or self._half_done or self.made(wanted.version):
                    self._worker = None
                    return
            with self._lock:
                try:
                    self._make(wanted, wanted.assembled())
                except BaseException as error:  # Ctrl-C is one: it has ended the run
                    self._refused(wanted, error)

    def _make(self, wanted: Wanted, assembly: Assembly) -> None:
        changing = self._begun(assembly, beside=True)
        rounds = 0
        self._advance(changing)
        if changing.backfill is not None and not changing.rebuild.forced:
            assembly.place(self._running.started.claim, changing)
        while self._left(changing) > _NEAR and rounds < _ROUNDS and not self.closed:
            rounds += 1
            self._advance(changing)
        self._between(lambda: self._last(assembly, changing, wanted.version))

    def _last(self, assembly: Assembly, changing: Changing, version: int) -> None:
        if not changing.after and self._running.loop.frontier:  # the app's first epochs came meanwhile
            changing = self._begun(assembly, beside=True)
        if self._left(changing):
            self._advance(changing)
        self._join(assembly, changing, version)

    def _left(self, changing: Changing) -> int:
        """How many epochs were computed that a change has not."""
        return 0 if changing.backfill is None else self._running.loop.frontier - changing.backfill.upto

    def _begun(self, assembly: Assembly, *, beside: bool) -> Changing:
        return assembly.begin(self._running.started.claim, self._running.loop.frontier, beside=beside)

    def _advance(self, changing: Changing) -> None:
        if changing.backfill is not None:
            changing.backfill.advance(self._running.loop.frontier)

    def _join(self, assembly: Assembly, changing: Changing, version: int) -> None:
        store = self._running.started.claim.store
        before = store.catalog()
        try:
            assembly.join(self._running, changing)
        except BaseException as error:
            if _became_another(store, before):
                self._half_done = ChangeHalfDone(str(store.root), text_of(error))
                raise self._half_done from error
            raise
        self.assembly = assembly
        told = changing.rebuild
        _LOG.info(
            "the app was changed",
            extra=fields(
                epoch=self._running.loop.frontier,
                cause=f"added {list(told.added)}, replaced {list(told.changed)}, dropped {list(told.dropped)}",
            ),
        )
        with self._done:
            self.version = version
            self._done.notify_all()

    def _between(self, work: Callable[[], None]) -> None:
        """Do something while no epoch is in hand: in the thread of the run if there is one; raises what it raises."""
        over = threading.Event()
        failed: list[BaseException] = []

        def told() -> None:
            try:
                work()
            except BaseException as error:  # it is raised where it was asked for
                failed.append(error)
                if isinstance(error, ChangeHalfDone) or not isinstance(error, Exception):
                    raise  # and ends the run
            finally:
                over.set()

        self._running.loop.between_epochs(told)
        while not over.wait(_TICK):
            if self.closed:
                return
            if not self.active and self.gate.acquire(blocking=False):
                try:
                    if not self.active and self._running.loop.settled:
                        self._running.loop.do_changes()
                finally:
                    self.gate.release()
        if failed:
            raise failed[0]

    def _failure(self, version: int) -> ChangeFailed | None:
        if self._failed is None or self._failed[0] != version or self.version == version:
            return None
        return self._failed[1]

    def _refused(self, wanted: Wanted, error: BaseException) -> Exception:
        failure = ChangeFailed(wanted.names, text_of(error))
        if self.closed:
            return failure
        _LOG.error("a change of the app failed", exc_info=error, extra=fields(cause=text_of(error)))
        with self._done:
            self._failed = (wanted.version, failure)
            self._done.notify_all()
        return failure


def _became_another(store: Store, before: Catalog) -> bool:
    """Whether a store is no longer what its catalog said, as far as that can be told."""
    try:
        return store.catalog() != before
    except (SlipstreamError, OSError):
        return True
