"""The loop: cut, compute, publish; one epoch after another.

- **Cut.** Each source says how far its input goes, within its budget. The ranges go into the lineage log, and with
  them the epoch's watermarks.
- **Compute.** One job over the ranges.
- **Publish.** A line in the lineage log, and the frontier moves: readers see the epoch. The agent is told.

What comes after what, and what becomes of an epoch that fails, is decided in `machine`; here it is carried out, in
whichever one thread calls `run`. Waiting goes through the clock and is cut short by `stop`. Whoever wants to know that
the engine lives listens to its `turns`: they come before every epoch, many times a second while there is nothing to
do, and a few times a second while it waits for something. What it waits for is told to its `notices`, once.

Nothing here waits for a disk or a replica, unless the user has limited how much may be unsafe, or the disk fails. An
interrupt (`KeyboardInterrupt`) passes through where nothing can be lost by it (`interrupts`), and the next `run` goes
on with the epoch that was in hand.

An epoch needs new input, with one exception: where a view has rows over no input (an aggregate without keys, a
constant), the first epoch is computed even if there is none yet. Before it, at epoch 0, every view is empty.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from slipstream.core.clock import Clock
from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.errors import EpochFailed, SlipstreamError, StoreTrouble
from slipstream.epoch.behind import Behind, Forgetful
from slipstream.epoch.cut import Budget
from slipstream.epoch.interrupts import Shield
from slipstream.epoch.job import Given, Job
from slipstream.epoch.ledger import Ledger
from slipstream.epoch.machine import (
    UNLIMITED,
    Announce,
    Beat,
    Compute,
    Discard,
    Done,
    Drop,
    Event,
    Explain,
    Explained,
    Failed,
    Finished,
    Heal,
    Healed,
    Hold,
    Look,
    Looked,
    Policy,
    Probe,
    Probed,
    Publish,
    Question,
    RecordCut,
    RunAsked,
    Say,
    State,
    Stop,
    StopAsked,
    TakeInput,
    Taken,
    Until,
    Wait,
    decide,
)
from slipstream.epoch.report import EpochReport, Summary
from slipstream.epoch.watermarks import Watermarks
from slipstream.spark.jvm import text_of
from slipstream.store.events import fields
from slipstream.store.history import History
from slipstream.store.records import JSON, Computed, Cut

crash_points(
    epoch__before_cut="sources have said what an epoch takes, and no record of it is written",
    epoch__after_cut="an epoch's input is recorded, and nothing is computed",
    epoch__before_publish="an epoch's layers are all there, and readers do not see it",
    epoch__after_publish="readers see an epoch, and the agent has not been told",
)

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LOG = logging.getLogger("slipstream.engine")
HELD, JOINED = "held", "goes on"
"""What is said when views are held, and when they have caught up."""
_FORGET_EVERY = 1.0  # seconds between two looks for what became safe meanwhile


class Slice(Protocol):
    """What a source cuts: see sources.base.Cut."""

    @property
    def range(self) -> JSON: ...
    @property
    def amount(self) -> int: ...


class Input(Forgetful, Protocol):
    """What the loop needs of a source."""

    def cut(self, budget: int | None) -> Slice | None: ...
    def settling(self) -> frozenset[str]: ...


@dataclass(frozen=True)
class Options:
    """How a loop goes on from a history.

    budgets: what the first epoch may take of each source. policy: see `machine`. catch_up: the first new cut takes all
    there is. computed_before: the newest epoch that was ever computed, where a start has stepped back behind it.
    forgetting: whether sources are told which input is safe, which needs replicas. due: the next epoch is computed even
    if there is no input.
    """

    budgets: Mapping[str, Budget]
    watermarks: Watermarks
    policy: Policy = field(default_factory=Policy)
    catch_up: bool = False
    computed_before: int = 0
    forgetting: bool = False
    due: bool = False


@dataclass(frozen=True)
class _Begun:
    """An epoch that is on its way: since when, and how much was taken of each source."""

    started: float
    began: float
    amounts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Ready:
    """An epoch that is computed: what is to be said once it is published."""

    begun: _Begun
    record: Computed
    watermarks: Watermarks
    steps: Mapping[str, float]
    stats: tuple[Mapping[str, int | str], ...]


def _plainly(error: Exception) -> Exception:
    """An error to raise: ours without what led to it, which is logged."""
    if isinstance(error, SlipstreamError):
        error.__cause__, error.__suppress_context__ = None, True
        return error.with_traceback(None)
    return error


class Loop:
    """Runs epochs, in whichever one thread calls `run`."""

    def __init__(
        self,
        job: Job,
        inputs: Mapping[str, Input],
        ledger: Ledger,
        past: History,
        options: Options,
        clock: Clock,
    ) -> None:
        self._job, self._inputs, self._ledger, self._clock = job, inputs, ledger, clock
        self._state = State.begin(
            past,
            options.policy,
            catch_up=options.catch_up,
            computed_before=options.computed_before,
            due=options.due,
        )
        self._frontier = past.frontier
        self._budgets, self._watermarks = dict(options.budgets), options.watermarks
        computed = [cut for cut in past.cuts if cut.epoch <= past.frontier]
        self._behind = Behind(inputs, computed) if options.forgetting else None
        self._forgets = 0.0
        self._slices: dict[str, Slice] = {}
        self._begun: _Begun | None = None
        self._ready: _Ready | None = None
        self._held = 0.0
        self._summary = Summary()
        self._changes: deque[Callable[[], None]] = deque()
        self._stopping = threading.Event()
        self._thread: int | None = None
        self._published = threading.Condition()
        self.listeners: list[Callable[[EpochReport], None]] = []
        self.turns: list[Callable[[int], None]] = []
        self.notices: list[Callable[[str], None]] = []
        self.holds: Callable[[EpochFailed], str] | None = None
        """Makes the plan one without views that failed, by `change`, and says so."""

    @property
    def frontier(self) -> int:
        """The last computed epoch."""
        return self._frontier

    @property
    def is_run_here(self) -> bool:
        """Whether it is this thread that runs epochs, so that a listener is being called."""
        return self._thread == threading.get_ident()

    @property
    def trouble(self) -> StoreTrouble | None:
        """What the loop waits for, if the store's disk fails."""
        return self._state.trouble

    def measured(self) -> dict[str, dict[str, int]]:
        """What was measured of each operator in the last epoch of this process, by the operator's own trace."""
        return self._job.measured()

    def run(self, until: Until) -> Summary:
        """Run epochs: until there is no new input, up to an epoch, or until stopped."""
        self._stopping.clear()
        summary = self._summary = Summary()
        began = self._clock.monotonic()
        event: Event = RunAsked(until)
        with Shield() as shield, self._in_this_thread():
            while True:
                self._state, instructions = decide(self._state, event)
                if isinstance(self._state.asked, Look):  # a turn begins: nothing is in hand
                    shield.allow()
                for instruction in instructions:
                    match instruction:
                        case Stop(error=None):
                            summary.seconds = self._clock.monotonic() - began
                            return summary
                        case Stop(error=error):
                            assert error is not None
                            told = fields(epoch=self._frontier, cause=text_of(error))
                            _LOG.error("the run failed", exc_info=error, extra=told)
                            raise _plainly(error)
                        case Beat() | Say():
                            self._show(instruction)
                        case Compute() | Explain():
                            with shield.cancelling(self._job.cancel):
                                event = self._answer(instruction)
                        case Heal() | Wait():
                            with shield.lifted():
                                event = self._answer(instruction)
                        case _:
                            event = self._answer(instruction)
                if self._stopping.is_set() and not self._state.stopping:
                    self._state, _ = decide(self._state, StopAsked())

    @contextmanager
    def _in_this_thread(self) -> Iterator[None]:
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = None

    def stop(self) -> None:
        """Let the epoch in hand finish and begin no other."""
        self._stopping.set()

    def await_epoch(self, epoch: int, timeout: float | None, failed: Callable[[], bool]) -> bool:
        """Wait until an epoch is computed, or the run has failed; whether the epoch is computed."""
        with self._published:
            self._published.wait_for(lambda: self._frontier >= epoch or failed(), timeout)
        return self._frontier >= epoch

    def between_epochs(self, work: Callable[[], None]) -> None:
        """Have something done in the run's thread at its next turn, when no epoch is in hand. It must not raise."""
        self._changes.append(work)

    @property
    def settled(self) -> bool:
        """Whether no epoch is computed whose record could not be written yet."""
        return self._state.record is None

    def do_changes(self) -> None:
        """Do now what waits for a turn. For whoever knows that there is no run."""
        while self._changes:
            self._changes.popleft()()

    def change(
        self,
        job: Job,
        inputs: Mapping[str, Input],
        budgets: Mapping[str, Budget],
        delays: Mapping[str, int],
        *,
        begins: bool,
        due: bool,
        may_hold: frozenset[str] = frozenset(),
    ) -> None:
        """Go on with another job and other inputs, from the next epoch on. Between two epochs. How much is taken of an
        input is as it was, where it was one before. due: the next epoch is computed even if there is no input.
        may_hold: views without which an epoch is computed if they fail.
        """
        self._job, self._inputs = job, inputs
        self._budgets = {name: self._budgets.get(name, budget) for name, budget in budgets.items()}
        self._watermarks = replace(self._watermarks, delays=delays)
        if self._behind is not None:
            self._behind.inputs = inputs
        policy = replace(self._state.policy, begins=begins, may_hold=may_hold)
        self._state = replace(self._state, policy=policy, due=due)

    def wake(self) -> None:
        """Let those who wait for an epoch look again."""
        with self._published:
            self._published.notify_all()

    def close(self) -> None:
        self._ledger.close()

    def _show(self, instruction: Beat | Say) -> None:
        match instruction:
            case Beat(epoch=epoch):
                self._ledger.look()
                for turn in list(self.turns):
                    turn(epoch)
            case Say(level=level, event=event, text=text):
                _LOG.log(_LEVELS[level], event, extra=fields(epoch=self._frontier, cause=text))
                for notice in list(self.notices):
                    notice(f"{event}: {text}")

    def _answer(self, question: Question) -> Event:
        """Do what is asked, and say how it went."""
        try:
            return self._done(question)
        except Exception as error:  # the machine decides what it means
            return Failed(error)

    def _done(self, question: Question) -> Event:
        match question:
            case Look():
                return self._look()
            case TakeInput():
                return Taken(self._take(question), self._settling())
            case RecordCut(cut=cut):
                crash_point("epoch.before_cut")
                self._ledger.cut(cut)
                crash_point("epoch.after_cut")
            case Compute(cut=cut, failing=failing):
                return Finished(self._compute(self._given(cut, failing)))
            case Publish(record=record):
                self._publish(record)
            case Announce(cut=cut):
                self._announce(cut)
            case Drop(epoch=epoch):
                self._ledger.dropped(epoch)
            case Explain(cut=cut, failing=failing, error=error):
                return Explained(self._job.explained(self._given(cut, failing), error))
            case Discard(after=after):
                self._ledger.discard(after)
            case Hold(error=error):
                self._hold(error)
            case Heal():
                return Healed(self._ledger.heal())
            case Probe():
                return Probed(self._probe())
            case Wait():
                self._wait(question)
        return Done()

    def _hold(self, error: EpochFailed) -> None:
        if self.holds is None:
            raise error
        self._show(Say("warning", HELD, self.holds(error)))

    def notice(self, event: str, text: str) -> None:
        """Tell the user, and those who read the events, of something that is no matter of the loop's own."""
        self._show(Say("warning", event, text))

    def _look(self) -> Looked:
        self.do_changes()
        self._ledger.check_ours()
        if self._clock.monotonic() >= self._forgets:  # also where no epoch comes after those that became safe
            self._forget()
        limited = self._state.policy.limit != UNLIMITED
        return Looked(self._ledger.exposure(self._clock.now())) if limited else Looked()

    def _take(self, asked: TakeInput) -> Cut | None:
        """The next epoch's input. What a source has given is kept until it is part of a cut: it is not given twice."""
        started, began = self._clock.now(), self._clock.monotonic()
        for name, source in self._inputs.items():
            if name not in self._slices:
                taken = source.cut(self._budgets[name].amount if asked.budgeted else None)
                if taken is not None:
                    self._slices[name] = taken
        if not self._slices and not asked.even_if_none:
            return None
        ranges = {name: taken.range for name, taken in self._slices.items()}
        amounts = {name: taken.amount for name, taken in self._slices.items()}
        self._begun, self._slices = _Begun(started, began, amounts), {}
        return Cut(asked.epoch, started, ranges, self._watermarks.next())

    def _settling(self) -> frozenset[tuple[str, str]]:
        """What a run that is to catch up has to wait for."""
        if self._state.until != "caught_up":
            return frozenset()
        return frozenset((name, each) for name, source in self._inputs.items() for each in source.settling())

    def _given(self, cut: Cut, failing: bool) -> Given:
        return Given(cut, self._watermarks.reached, failing)

    def _compute(self, given: Given) -> Computed:
        """Run the job; the record of the epoch, once all that it says is known to be so."""
        begun = self._begun or _Begun(self._clock.now(), self._clock.monotonic())
        self._begun = None  # an attempt that fails is no measure of the next
        steps = {"cut": self._clock.monotonic() - begun.began}
        result = self._job.run(given)
        computed = self._clock.monotonic()
        layers = self._ledger.layers(given.cut.epoch)
        steps |= {**result.steps, "seal": self._clock.monotonic() - computed}
        watermarks = self._watermarks.after(given.cut.watermarks, result.times)
        record = Computed(
            epoch=given.cut.epoch,
            clock=self._clock.now(),
            seconds=self._clock.monotonic() - begun.began,
            rows=result.rows,
            rejected=dict(result.rejected),
            late=dict(result.late),
            latest=dict(watermarks.latest),
            layers=dict(layers),
            safe=self._ledger.safe(),
        )
        self._ready = _Ready(begun, record, watermarks, steps, result.stats)
        return record

    def _publish(self, record: Computed) -> None:
        assert self._ready is not None
        crash_point("epoch.before_publish")
        self._ledger.computed(record)
        crash_point("epoch.after_publish")
        self._watermarks = self._ready.watermarks
        with self._published:
            self._frontier = record.epoch
            self._published.notify_all()

    def _announce(self, cut: Cut) -> None:
        """Tell of an epoch. It is published: a disk that fails now is found out by the next one."""
        assert self._ready is not None
        begun, record = self._ready.begun, self._ready.record
        try:
            self._ledger.tell(record)
            if self._behind is not None:
                self._behind.computed(cut)
            self._forget()
            self._ledger.compact()
        except StoreTrouble as trouble:
            _LOG.warning("an epoch was not told", extra=fields(epoch=cut.epoch, cause=str(trouble)))
        for name, amount in begun.amounts.items():
            if name in self._budgets:
                self._budgets[name] = self._budgets[name].after(amount, record.seconds)
        steps = {**self._ready.steps, "publish": self._clock.monotonic() - begun.began - record.seconds}
        if self._held:
            steps["held"], self._held = self._held, 0.0
        report = EpochReport(
            epoch=cut.epoch,
            rows=record.rows,
            rejected=record.rejected,
            started=begun.started,
            ended=record.clock,
            seconds=record.seconds,
            steps=steps,
            stats=self._ready.stats,
            late=record.late,
            watermarks=cut.watermarks,
        )
        self._summary.add(report)
        for listener in list(self.listeners):
            listener(report)
        self._job.learn(cut, record.rows)

    def _forget(self) -> None:
        """Tell sources what is safe by now."""
        self._forgets = self._clock.monotonic() + _FORGET_EVERY
        if self._behind is not None:
            self._behind.forget(self._ledger.safe())

    def _wait(self, asked: Wait) -> None:
        self._clock.wait(self._stopping, asked.seconds)
        if asked.why == "unsafe":
            self._held += asked.seconds
        elif asked.why == "trouble":
            self._begun = None  # the time that it took is no measure of an epoch

    def _probe(self) -> StoreTrouble | None:
        try:
            self._ledger.check_ours()
        except StoreTrouble as trouble:
            return trouble
        return self._ledger.trouble()
