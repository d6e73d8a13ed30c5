"""The loop: cut, compute, publish; one epoch after another.

- **Cut.** Each source says how far its input goes, within its budget. The ranges go into the lineage log, and with
  them the epoch's watermarks.
- **Compute.** One Spark job over the template, with the sources' leaves bound to the ranges.
- **Publish.** A line in the lineage log, and the frontier moves: readers see the epoch. The agent is told.

An epoch that fails publishes nothing: its layers are removed, its cut is kept for the next attempt, and the
app stays at the epoch before. To say which views failed, each is then computed alone. A row that no view can take
may be taken back: once the app is started again, the failed epoch is cut anew, to where the input goes by then, and
its rows are added up before they are computed, so that what was taken back is not there at all.

Nothing here waits for a disk or a replica, unless the user has limited how much may be unsafe (`epoch/behind.py`). A
loop whose store was taken over by another process stops before it publishes.

An epoch needs new input, with one exception: where a view has rows over no input (an aggregate without keys, a
constant), the first epoch is computed even if there is none yet. Before it, at epoch 0, every view is empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from slipstream.clock import Clock
from slipstream.crashing import crash_point, crash_points
from slipstream.dataflow.task import EpochProperty
from slipstream.durability.agent import Agent, Charge, Word, rest_within
from slipstream.durability.frontiers import Watching
from slipstream.durability.lineage import JSON, Computed, Cut, History, LineageWriter
from slipstream.durability.store import Claim
from slipstream.epoch.behind import Behind
from slipstream.epoch.culprit import MOST_ROWS, Tables, culprits
from slipstream.epoch.cut import Budget
from slipstream.epoch.report import EpochReport, Summary
from slipstream.epoch.template import FAILURES, Outcome, Template
from slipstream.epoch.watermarks import Watermarks
from slipstream.errors import BadInput, EpochFailed, Superseded
from slipstream.settings import Durability
from slipstream.trace import Span, TraceWriter, epoch_layers

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.02

crash_points(
    epoch__before_cut="sources have said what an epoch takes, and no record of it is written",
    epoch__after_cut="an epoch's input is recorded, and nothing is computed",
    epoch__before_publish="an epoch's layers are all there, and readers do not see it",
    epoch__after_publish="readers see an epoch, and the agent has not been told",
)


class Slice(Protocol):
    """What a source cuts: see sources.base.Cut."""

    @property
    def range(self) -> JSON: ...
    @property
    def amount(self) -> int: ...


class Input(Protocol):
    """What the loop needs of a source."""

    @property
    def on_bad(self) -> str: ...
    @property
    def forgets_each(self) -> bool: ...
    def cut(self, budget: int | None) -> Slice | None: ...
    def frame(self, range: JSON) -> DataFrame: ...  # noqa: A002
    def forget(self, upto: JSON) -> None: ...


@dataclass(frozen=True)
class Rejects:
    """Where the bad rows of a source go: its trace, and how to get them for a range."""

    trace: str
    schema: pa.Schema
    read: Callable[[JSON], pa.Table]


@dataclass(frozen=True)
class Upkeep:
    """Whose history is kept, and from which epoch on."""

    histories: tuple[str, ...]
    keep_from: Callable[[int, float], int]


class Plans(Protocol):
    """What the loop runs: the plan of an epoch, which may be another one by what was measured."""

    @property
    def template(self) -> Template:
        """The last one asked for."""

    def fitting(self, changed: Collection[str]) -> Template:
        """The one for an epoch with input from these sources."""

    def learn(self, epoch: int, rows: int, changed: Collection[str]) -> None:
        """An epoch was computed, of so many rows, from these sources."""


class Loop:
    """Runs epochs, in whichever one thread calls `run`."""

    def __init__(
        self,
        spark: SparkSession,
        claim: Claim,
        plans: Plans,
        inputs: Mapping[str, Input],
        rejects: Mapping[str, Rejects],
        budgets: dict[str, Budget],
        upkeep: Upkeep,
        watermarks: Watermarks,
        late: Mapping[str, str],
        clock: Clock,
        shards: int,
        past: History,
        durability: Durability,
        catch_up: bool,
        begins: bool,
        reads: Mapping[str, set[str]],
    ) -> None:
        self._spark, self._claim, self._plans = spark, claim, plans
        self._inputs, self._rejects, self._budgets = inputs, rejects, budgets
        self._upkeep, self._clock, self._shards = upkeep, clock, shards
        self._watermarks, self._late = watermarks, late
        self._frontier, self._pending, self._begins = past.frontier, past.pending, begins
        self._reads, self._failing = reads, past.failing
        self._catch_up = catch_up
        self._lineage = LineageWriter(claim.store.root, claim.incarnation)
        store = claim.store
        self._agent = Agent(
            Charge(
                str(store.root),
                store.name,
                claim.incarnation,
                past.frontier,
                durability.replicas,
                durability.safe_on,
                rest_within(durability.max_unsafe),
            )
        )
        safe_past = [cut for cut in past.cuts if cut.epoch <= past.frontier]
        self._behind = Behind(durability, Watching(store.root), inputs, safe_past)
        self._amounts: dict[str, int] = {}
        self._stopping = threading.Event()
        self._published = threading.Condition()
        self.listeners: list[Callable[[EpochReport], None]] = []
        self.turns: list[Callable[[int], None]] = []

    @property
    def frontier(self) -> int:
        """The last computed epoch."""
        return self._frontier

    def measured(self) -> dict[str, dict[str, int]]:
        """What was measured of each operator in the last epoch of this process, by the operator's own trace."""
        return self._plans.template.measured()

    def run(self, until: str | int | None) -> Summary:
        """Run epochs: until there is no new input, up to an epoch, or until stopped."""
        self._stopping.clear()
        summary = Summary()
        began = self._clock.monotonic()
        pause = _FIRST_PAUSE
        while not self._stopping.is_set() and not (isinstance(until, int) and self._frontier >= until):
            for turn in list(self.turns):
                turn(self._frontier)
            report = self.step()
            if report is not None:
                summary.add(report)
                pause = _FIRST_PAUSE
            elif until == "caught_up":
                break
            else:
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        summary.seconds = self._clock.monotonic() - began
        return summary

    def stop(self) -> None:
        """Let the epoch in hand finish and begin no other."""
        self._stopping.set()

    def await_epoch(self, epoch: int, timeout: float | None, failed: Callable[[], bool]) -> bool:
        """Wait until an epoch is computed, or the run has failed; whether the epoch is computed."""
        with self._published:
            self._published.wait_for(lambda: self._frontier >= epoch or failed(), timeout)
        return self._frontier >= epoch

    def wake(self) -> None:
        """Let those who wait for an epoch look again."""
        with self._published:
            self._published.notify_all()

    def close(self) -> None:
        self._lineage.close()
        self._agent.close()

    def step(self) -> EpochReport | None:
        """One epoch, if there is anything new."""
        waited = self._clock.monotonic()
        held = self._behind.hold(self._clock.now, lambda: self._stopping.wait(_LONGEST_PAUSE))
        if held and self._stopping.is_set():
            return None
        started, began = self._clock.now(), self._clock.monotonic()
        self._check_ours()
        cut = self._cut(started)
        if cut is None:
            return None
        self._pending = cut
        cut_seconds = self._clock.monotonic() - began
        try:
            outcome, reading = self._compute(cut)
            self._reject(cut, outcome)
        except BaseException as error:
            self._lineage.dropped(cut.epoch)
            self._failing = True
            try:
                if isinstance(error, FAILURES):
                    raise self._explained(cut, error) from error
                raise
            finally:
                self._claim.store.discard_after(self._frontier)
        self._check_ours()
        steps = {"cut": cut_seconds, "frame": reading, **outcome.steps}
        if held:
            steps["held"] = began - waited
        return self._publish(cut, outcome, started, began, steps)

    def _check_ours(self) -> None:
        if self._claim.superseded:
            raise Superseded(str(self._claim.store.root), self._claim.incarnation)

    def _explained(self, cut: Cut, error: BaseException) -> EpochFailed:
        """The error of an epoch whose job failed: in which views, and of what."""
        try:
            failed = self._plans.template.failing(self._spark, self._frames(cut), self._sent(cut))
        except FAILURES:  # already the input cannot be read
            failed = {}
        causes = self._causes(failed)
        blamed = self._culprits(causes, cut) if causes else {}
        told = {view: cause + blamed.get(view, "") for view, cause in causes.items()}
        return EpochFailed(cut.epoch, self._frontier, told or {"": str(error)})

    def _culprits(self, views: Iterable[str], cut: Cut) -> dict[str, str]:
        """The rows that views fail on, in words; none where that cannot be told, or the input is too large to ask."""
        try:
            frames = self._frames(cut)
            tables = {name: frame.limit(MOST_ROWS + 1).toArrow() for name, frame in frames.items()}
            if any(table.num_rows > MOST_ROWS for table in tables.values()):
                return {}
            return {view: self._culprits_of(view, cut, frames, tables) for view in views}
        except FAILURES:
            return {}

    def _culprits_of(self, view: str, cut: Cut, frames: Mapping[str, DataFrame], tables: Tables) -> str:
        def fails(given: Tables) -> bool:
            parts = {
                name: self._spark.createDataFrame(each, frames[name].schema) for name, each in given.items()
            }
            return self._plans.template.failure(self._spark, view, parts, self._sent(cut)) is not None

        found = culprits(fails, tables)
        shown = {
            name: {column: value for column, value in row.to_pylist()[0].items() if column[0] != "_"}
            for name, row in found.items()
        }
        return "".join(f"\nIt fails on this row of '{name}': {row}" for name, row in shown.items())

    def _causes(self, failed: Mapping[str, BaseException]) -> dict[str, str]:
        """Of views that fail, those that do not merely read another that does."""
        own = {view for view in failed if not failed.keys() & self._reads.get(view, set())}
        return {view: str(error) for view, error in failed.items() if view in own}

    def _cut(self, now: float) -> Cut | None:
        """The next epoch's input: that of an epoch that was not computed, said again as it was, or what is new."""
        if self._pending is not None:
            self._lineage.cut(self._pending)
            return self._pending
        ranges, self._amounts = {}, {}
        for name, source in self._inputs.items():
            cut = source.cut(None if self._catch_up else self._budgets[name].amount)
            if cut is not None:
                ranges[name] = cut.range
                self._amounts[name] = cut.amount
        if not ranges and not (self._begins and self._frontier == 0):
            return None
        self._catch_up = False
        made = Cut(self._frontier + 1, now, ranges, self._watermarks.next())
        crash_point("epoch.before_cut")
        self._lineage.cut(made)
        crash_point("epoch.after_cut")
        return made

    def _compute(self, cut: Cut) -> tuple[Outcome, float]:
        began = self._clock.monotonic()
        frames = self._frames(cut)
        reading = self._clock.monotonic() - began
        return self._plans.fitting(cut.ranges).run(self._spark, frames, self._sent(cut)), reading

    def _frames(self, cut: Cut) -> dict[str, DataFrame]:
        frames = {name: self._inputs[name].frame(taken) for name, taken in cut.ranges.items()}
        return {name: _added_up(frame) if self._failing else frame for name, frame in frames.items()}

    def _sent(self, cut: Cut) -> EpochProperty:
        root = str(self._claim.store.root)
        marks = (cut.watermarks, self._watermarks.reached)
        return EpochProperty(root, cut.epoch, self._claim.incarnation, self._shards, *marks)

    def _reject(self, cut: Cut, outcome: Outcome) -> None:
        """Keep the bad rows. Every epoch has a layer, so that the trace has no gap."""
        for name, rejects in self._rejects.items():
            table = rejects.schema.empty_table()
            if name in outcome.bad:
                table = rejects.read(cut.ranges[name])
                if self._inputs[name].on_bad == "fail":
                    raise BadInput(name, outcome.bad[name], table.slice(0, 1).to_pylist())
            writer = TraceWriter(self._claim.store.root / rejects.trace, self._claim.incarnation)
            writer.write(cut.epoch, Span.whole(), table)

    def _late_rows(self, epoch: int) -> dict[str, int]:
        """How many rows came too late for each operator that follows event time."""
        counts = {}
        for view, trace in self._late.items():
            layers = epoch_layers(self._claim.store.root / trace, epoch)
            counts[view] = sum(int(part.integers("diff").sum()) for layer in layers for part in layer.parts)
        return {view: count for view, count in counts.items() if count}

    def _publish(
        self, cut: Cut, outcome: Outcome, started: float, began: float, steps: dict[str, float]
    ) -> EpochReport:
        seconds = self._clock.monotonic() - began
        ended = self._clock.now()
        rows = sum(outcome.rows.values())
        late = self._late_rows(cut.epoch)
        self._watermarks = self._watermarks.after(cut.watermarks, outcome.times)
        latest = dict(self._watermarks.latest)
        crash_point("epoch.before_publish")
        self._lineage.computed(Computed(cut.epoch, ended, seconds, rows, dict(outcome.bad), late, latest))
        crash_point("epoch.after_publish")
        with self._published:
            self._frontier, self._pending, self._failing = cut.epoch, None, False
            self._published.notify_all()
        self._behind.computed(cut, ended)
        keep_from = self._upkeep.keep_from(cut.epoch, ended)
        self._agent.tell(Word(cut.epoch, keep_from, self._upkeep.histories))
        for name, amount in self._amounts.items():
            self._budgets[name] = self._budgets[name].after(amount, seconds)
        steps["publish"] = self._clock.monotonic() - began - seconds
        counted = (rows, outcome.bad, started, ended, seconds, steps, outcome.stats)
        report = EpochReport(cut.epoch, *counted, late, cut.watermarks)
        for listener in list(self.listeners):
            listener(report)
        self._plans.learn(cut.epoch, rows, cut.ranges)
        return report


def _added_up(frame: DataFrame) -> DataFrame:
    """Rows with their diffs added up, where they have diffs: without those that were taken back."""
    if "_diff" not in frame.columns:
        return frame
    row = [_quoted(name) for name in frame.columns if name != "_diff"]
    summed = frame.groupBy(*row).agg(F.sum("_diff").alias("_diff")).where("_diff <> 0")
    return summed.select(*[_quoted(name) for name in frame.columns])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
