"""An app that is changed: its declarations became others since it began.

While no run is under way a change is made at once, by whoever needs the app next. While epochs run it is made beside
them, in a thread of its own: everything is compiled, the new views are computed up to an epoch, then what has come
meanwhile, until that is little; then, between two epochs, the last of it, and the loop goes on with the new plan. What
is declared while one change is on its way is the next change.

A change that fails leaves the app as it was. Whoever asks next is told, until something else is declared. Of one that
fails for views that may be held, the rest is made. Damaged layers that it meets are healed; where it is the disk that
fails, the change is tried again after a pause. What is not declared but asked for (a rebuild) is asked for until it is
made.

Views are held (`holding`) by the run itself, between the epoch that failed and the same epoch without them: a change
that is on its way then is begun anew, for it was compared with a store that is another by now. With every change that
is made of what is declared, views that are held are tried again; and by themselves: when a run begins and epochs have
come since, for what mends them may have been in these; and beside the run, when it is time. Where the app has refused
what is declared, they are tried in the app as it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from slipstream.app.assembly import Assembly, Changing, Running
from slipstream.app.holding import Fault, Pauses, faults_of, told
from slipstream.core.clock import Clock
from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.errors import (
    ChangeFailed,
    ChangeHalfDone,
    EpochFailed,
    SlipstreamError,
    Superseded,
    listed,
)
from slipstream.epoch.loop import HELD, JOINED
from slipstream.epoch.machine import cause_of
from slipstream.spark.jvm import text_of
from slipstream.spark.session import BACKFILL_POOL, EPOCH_POOL
from slipstream.store.catalog import Catalog
from slipstream.store.events import fields
from slipstream.store.store import Store

crash_points(
    hold__begun="it is known which views are at fault, and nothing is changed",
    hold__done="views are held, and the epoch that they failed in is not computed yet",
    hold__noted="what held views failed of when they were tried again is written down",
)

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
    """Brings an app that runs to what is declared. latest: says what that is. gate: held by whoever begins or ends a
    run, or works between two. active: whether there is a run.
    """

    def __init__(
        self,
        running: Running,
        assembly: Assembly,
        version: int,
        clock: Clock,
        latest: Callable[[], Wanted],
    ) -> None:
        self.assembly, self.version = assembly, version
        self._running, self._clock, self._latest = running, clock, latest
        self._again = False
        self._holds = 0  # how often the run has held views
        self._tried_upto = running.loop.frontier
        self._hindered = False  # a change waits for a disk
        self._pauses = Pauses().begun(clock.monotonic())
        running.loop.holds = self.hold
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
        """Whether the app is what is declared, or refused to be; and no view that is held is to be tried again."""
        return not self._again and (self.version == version or self._failure(version) is not None)

    def hold(self, error: EpochFailed) -> str:
        """Go on without views that failed and what reads them, between two epochs; what is to be said of that."""
        crash_point("hold.begun")
        frontier, before = self._running.loop.frontier, self.assembly
        assembly = before.without(faults_of(error), frontier)
        changing = assembly.begin(self._running.started.claim, frontier)
        try:
            if changing.backfill is not None:
                changing.backfill.advance(frontier, EPOCH_POOL)
            self._swap(assembly, changing)
        except BaseException:
            changing.abandon()
            raise
        self._holds += 1
        self._tried_upto = frontier
        self._pauses = self._pauses.begun(self._clock.monotonic())
        crash_point("hold.done")
        return told({name: held for name, held in assembly.held.items() if name not in before.held}, frontier)

    def look_again(self, *, begins: bool = False) -> None:
        """Try views again that are held, if it is time: beside the run, if there is one, else when the app is needed
        next. begins: a run is about to; then it is time also if epochs have come since the last try.
        """
        if not (self.assembly.held or self._hindered) or self._worker is not None:
            return
        mended = begins and self._running.loop.frontier > self._tried_upto
        if mended or self._clock.monotonic() >= self._pauses.due:
            self._again = True
            if self.active:
                self.beside()

    def check_whole(self) -> None:
        """Raise if a change was cut short where it could not be taken back."""
        if self._half_done is not None:
            raise self._half_done

    def at_fault(self, version: int) -> frozenset[str]:
        """The views for which the app has refused what was declared by then; none where nobody knows."""
        failed = self._failed
        return failed[1].at_fault if failed is not None and failed[0] >= version else frozenset()

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
            began = self._clock.monotonic()
            wanted = self._possible(wanted)
            try:
                self._make(wanted, beside=False)
            except (ChangeHalfDone, Superseded):
                raise
            except Exception as error:
                raise self._refused(wanted, error) from None  # the log has the whole story
            finally:
                self._tried(began)

    def beside(self) -> None:
        """Make a change beside a run, and whatever is declared meanwhile."""
        with self._done:
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="slipstream-change", daemon=True)
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

    def _work(self) -> None:
        try:
            self._work_off()
        finally:
            with self._done:
                if self._worker is threading.current_thread():  # it failed: another may try
                    self._worker = None
                self._done.notify_all()

    def _work_off(self) -> None:
        self._running.job_group(_JOBS)
        while True:
            wanted = self._latest()
            with self._done:
                if self.closed or self._half_done or self.made(wanted.version):
                    self._worker = None
                    return
            with self._lock:
                began = self._clock.monotonic()
                wanted = self._possible(wanted)
                try:
                    self._make(wanted, beside=True)
                except BaseException as error:  # Ctrl-C is one: it has ended the run
                    self._refused(wanted, error)
                finally:
                    self._tried(began)
            with self._done:
                if self._hindered:
                    self._worker = None
                    return

    def _possible(self, wanted: Wanted) -> Wanted:
        """What is declared, unless the app has refused that: then what it is."""
        if self._failure(wanted.version) is None:
            return wanted
        return Wanted(self.version, (), lambda: self.assembly.anew(self._running.loop.frontier))

    def _tried(self, began: float) -> None:
        """A change was made, or could not be. That counts as a try of the views that are held, whatever came of it."""
        now = self._clock.monotonic()
        self._pauses = self._pauses.after(now, now - began)
        self._tried_upto = self._running.loop.frontier
        with self._done:
            self._again = False
            self._done.notify_all()

    def _make(self, wanted: Wanted, *, beside: bool) -> None:
        """Make a change, at once unless beside a run; without views that fail, if they may be held."""
        self._hindered = False
        with self._running.ledger.keeping():  # of views that are handed in their changes are read, too
            self._made_so(wanted, beside=beside)

    def _made_so(self, wanted: Wanted, *, beside: bool) -> None:
        holds, healed, assembly = self._holds, False, wanted.assembled()
        while True:
            changing: Changing | None = None
            try:
                with self.gate if not beside else nullcontext():
                    beside = beside or self.active
                    changing = self._begun(assembly, beside=beside)
                    if not beside:
                        self._advance(changing)
                        self._end(assembly, changing, wanted.version)
                if beside:
                    self._make_beside(assembly, changing, wanted.version, holds)
                break
            except Exception as error:
                if self.closed or isinstance(error, ChangeHalfDone | Superseded):
                    raise
                if self._holds != holds or isinstance(error, _Overtaken):
                    holds, assembly = self._holds, wanted.assembled()
                elif cause_of(error) == "damage" and not healed:
                    self._between(self._heal)
                    healed, assembly = True, wanted.assembled()
                elif cause_of(error) != "fault":  # no view's, whatever they say of errors
                    raise
                else:
                    pool = BACKFILL_POOL if beside else EPOCH_POOL
                    assembly = assembly.blaming(changing, error, pool, starts=False)
            finally:
                if changing is not None:  # what was taken up is gone from there already
                    changing.abandon()

    def _heal(self) -> None:
        """Replace layers that a change cannot read. What cannot be healed now is for the next try."""
        with suppress(SlipstreamError):
            self._running.ledger.heal()

    def _make_beside(self, assembly: Assembly, changing: Changing, version: int, holds: int) -> None:
        rounds = 0
        self._advance(changing)
        if changing.backfill is not None:
            assembly.place(self._running.started.claim, changing)
        while self._left(changing) > _NEAR and rounds < _ROUNDS and not self.closed:
            rounds += 1
            self._advance(changing)

        def last() -> None:
            began_with_nothing = not changing.after and self._running.loop.frontier
            if self._holds != holds or began_with_nothing:
                raise _Overtaken
            if self._left(changing):
                self._advance(changing)
            self._end(assembly, changing, version)

        self._between(last)

    def _left(self, changing: Changing) -> int:
        """How many epochs were computed that a change has not."""
        return 0 if changing.backfill is None else self._running.loop.frontier - changing.backfill.upto

    def _begun(self, assembly: Assembly, *, beside: bool) -> Changing:
        return assembly.begin(self._running.started.claim, self._running.loop.frontier, beside=beside)

    def _advance(self, changing: Changing) -> None:
        if changing.backfill is not None:
            changing.backfill.advance(self._running.loop.frontier)

    def _end(self, assembly: Assembly, changing: Changing, version: int) -> None:
        """The last of a change, while no epoch is in hand. Where nothing comes of it but that views stay held, the run
        goes on with the plan that it has.
        """
        before, loop = self.assembly.held, self._running.loop
        if version == self.version and before.keys() == assembly.held.keys() and not changing.rebuild.views:
            assembly.note(self._running.started.claim, loop.frontier)
            self.assembly = replace(self.assembly, held=assembly.held)
            crash_point("hold.noted")
        else:
            self._join(assembly, changing, version)
        self._tell(before)

    def _tell(self, before: Mapping[str, Fault]) -> None:
        """Say which views are held now, or for another reason than before, and which are not any more."""
        loop, now = self._running.loop, self.assembly.held
        held = {
            name: fault
            for name, fault in now.items()
            if name not in before or (before[name].cause, before[name].row) != (fault.cause, fault.row)
        }
        if held:
            loop.notice(HELD, told(held, loop.frontier))
        back = [name for name in before if name not in now and name in self.assembly.catalog.views]
        if back:
            loop.notice(JOINED, f"from epoch {loop.frontier + 1} on again with {listed(back)}")

    def _join(self, assembly: Assembly, changing: Changing, version: int) -> None:
        self._swap(assembly, changing)
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

    def _swap(self, assembly: Assembly, changing: Changing) -> None:
        """Have the loop go on with another plan."""
        store = self._running.started.claim.store
        before = store.catalog()
        try:
            assembly.join(self._running, changing)
        except Superseded:
            raise
        except BaseException as error:
            if _became_another(store, before):
                self._half_done = ChangeHalfDone(str(store.root), text_of(error))
                raise self._half_done from error
            raise
        self.assembly = assembly

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
        failure = error if isinstance(error, ChangeFailed) else ChangeFailed(wanted.names, text_of(error))
        if self.closed:
            return failure
        _LOG.error("a change of the app failed", exc_info=error, extra=fields(cause=text_of(error)))
        with self._done:
            self._hindered = _is_passing(error)
            if wanted.version != self.version and not self._hindered:
                self._failed = (wanted.version, failure)
            self._done.notify_all()
        return failure


class _Overtaken(Exception):
    """The store is another than when a change began: the run has held views, or computed its first epochs."""


def _is_passing(error: BaseException) -> bool:
    """Whether a change failed for what may be over when it is tried again, and for no view."""
    return isinstance(error, Exception) and cause_of(error) in ("trouble", "hindered")


def _became_another(store: Store, before: Catalog) -> bool:
    """Whether a store is no longer what its catalog said, as far as that can be told."""
    try:
        return store.catalog() != before
    except (SlipstreamError, OSError):
        return True
