"""The loop: cut, compute, publish; one epoch after another.

- **Cut.** Each source says how far its input goes, within its budget. The ranges go into the lineage log, and with
  them the epoch's watermarks.
- **Compute.** One Spark job over the template, with the sources' leaves bound to the ranges.
- **Publish.** A line in the lineage log, and the frontier moves: readers see the epoch. The agent is told.

An epoch that fails publishes nothing: its layers are removed, its cut is kept for the next attempt, and the
app stays at the epoch before. Nothing here waits for a disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from slipstream.clock import Clock
from slipstream.dataflow.task import EpochProperty
from slipstream.durability.agent import Agent, Word
from slipstream.durability.lineage import JSON, Computed, Cut, LineageWriter
from slipstream.durability.store import Claim
from slipstream.epoch.cut import Budget
from slipstream.epoch.report import EpochReport, Summary
from slipstream.epoch.template import Outcome, Template
from slipstream.epoch.watermarks import Watermarks
from slipstream.errors import BadInput, EpochFailed
from slipstream.trace import Span, TraceWriter, list_layers, open_layer

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.02


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
    def cut(self, budget: int | None) -> Slice | None: ...
    def frame(self, range: JSON) -> DataFrame: ...  # noqa: A002


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


class Loop:
    """Runs epochs, in whichever one thread calls `run`."""

    def __init__(
        self,
        spark: SparkSession,
        claim: Claim,
        template: Template,
        inputs: Mapping[str, Input],
        rejects: Mapping[str, Rejects],
        budgets: dict[str, Budget],
        upkeep: Upkeep,
        watermarks: Watermarks,
        late: Mapping[str, str],
        clock: Clock,
        shards: int,
        frontier: int,
        pending: Cut | None,
    ) -> None:
        self._spark, self._claim, self._template = spark, claim, template
        self._inputs, self._rejects, self._budgets = inputs, rejects, budgets
        self._upkeep, self._clock, self._shards = upkeep, clock, shards
        self._watermarks, self._late = watermarks, late
        self._frontier, self._pending = frontier, pending
        self._lineage = LineageWriter(claim.store.root, claim.incarnation)
        self._agent = Agent(claim.store.root)
        self._amounts: dict[str, int] = {}
        self._stopping = threading.Event()
        self._published = threading.Condition()
        self.listeners: list[Callable[[EpochReport], None]] = []

    @property
    def frontier(self) -> int:
        """The last computed epoch."""
        return self._frontier

    def measured(self) -> dict[str, dict[str, int]]:
        """What was measured of each operator in the last epoch of this process, by the operator's own trace."""
        return self._template.measured()

    def run(self, until: str | int | None) -> Summary:
        """Run epochs: until there is no new input, up to an epoch, or until stopped."""
        self._stopping.clear()
        summary = Summary()
        began = self._clock.monotonic()
        pause = _FIRST_PAUSE
        while not self._stopping.is_set() and not (isinstance(until, int) and self._frontier >= until):
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
        started, began = self._clock.now(), self._clock.monotonic()
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
            self._claim.store.discard_after(self._frontier)
            if isinstance(error, PySparkException | Py4JJavaError):
                raise EpochFailed(cut.epoch, self._frontier, str(error)) from error
            raise
        steps = {"cut": cut_seconds, "frame": reading, **outcome.steps}
        return self._publish(cut, outcome, started, began, steps)

    def _cut(self, now: float) -> Cut | None:
        """The next epoch's input: that of an epoch that was not computed, said again as it was, or what is new."""
        if self._pending is not None:
            self._lineage.cut(self._pending)
            return self._pending
        ranges, self._amounts = {}, {}
        for name, source in self._inputs.items():
            cut = source.cut(self._budgets[name].amount)
            if cut is not None:
                ranges[name] = cut.range
                self._amounts[name] = cut.amount
        if not ranges:
            return None
        made = Cut(self._frontier + 1, now, ranges, self._watermarks.next())
        self._lineage.cut(made)
        return made

    def _compute(self, cut: Cut) -> tuple[Outcome, float]:
        began = self._clock.monotonic()
        frames = {name: self._inputs[name].frame(taken) for name, taken in cut.ranges.items()}
        reading = self._clock.monotonic() - began
        store = self._claim.store
        marks = (cut.watermarks, self._watermarks.reached)
        sent = EpochProperty(str(store.root), cut.epoch, self._claim.incarnation, self._shards, *marks)
        return self._template.run(self._spark, frames, sent), reading

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
            directory = self._claim.store.root / trace
            layers = [open_layer(directory, name) for name in list_layers(directory) if name.lo == epoch]
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
        self._lineage.computed(Computed(cut.epoch, ended, seconds, rows, dict(outcome.bad), late, latest))
        with self._published:
            self._frontier, self._pending = cut.epoch, None
            self._published.notify_all()
        keep_from = self._upkeep.keep_from(cut.epoch, ended)
        self._agent.tell(Word(cut.epoch, keep_from, self._upkeep.histories))
        for name, amount in self._amounts.items():
            self._budgets[name] = self._budgets[name].after(amount, seconds)
        steps["publish"] = self._clock.monotonic() - began - seconds
        counted = (rows, outcome.bad, started, ended, seconds, steps, outcome.stats)
        report = EpochReport(cut.epoch, *counted, late, cut.watermarks)
        for listener in list(self.listeners):
            listener(report)
        return report
