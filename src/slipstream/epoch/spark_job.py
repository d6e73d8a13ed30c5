"""An epoch's job on Spark: the plan's template over the sources' frames, then what the plan itself does not do: bad
rows are kept, late ones counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from slipstream.core.clock import Clock
from slipstream.core.columns import DIFF
from slipstream.dataflow.task import EpochProperty
from slipstream.epoch.diagnosis import Diagnosis
from slipstream.epoch.job import Given, Result
from slipstream.epoch.rejects import Judging, Rejects, write_rejects, writer_in
from slipstream.epoch.template import FAILURES, Template
from slipstream.epoch.trouble import trouble_of
from slipstream.plan import Unit, rows_of
from slipstream.spark.netting import netted
from slipstream.store.records import JSON, Cut
from slipstream.trace import epoch_layers


@dataclass(frozen=True)
class Planned:
    """A plan of an epoch, into how many shards it divides rows, and whether a single task runs it."""

    template: Template
    shards: int
    one_task: bool = False


class Plans(Protocol):
    """What a job runs: the plan of an epoch, which may be another one by what was measured."""

    def by_shards(self) -> Planned:
        """The plan for much input."""

    def chosen(self, rows: int | None) -> Planned:
        """The plan of the next epoch, of about so many rows of input; None where that is not known."""

    def took(self, planned: Planned, rows: int | None, seconds: float) -> None:
        """An epoch of about so many rows was computed in so many seconds."""

    def learn(self, epoch: int, rows: int) -> None:
        """An epoch was published, of so many rows."""

    def measured(self) -> dict[str, dict[str, int]]:
        """What was measured of each operator in the last epoch, by the operator's own trace."""


class Readable(Judging, Protocol):
    """What a job needs of a source."""

    @property
    def unit(self) -> Unit: ...
    def size(self, range: JSON) -> int | None: ...  # noqa: A002
    def frame(self, range: JSON) -> DataFrame: ...  # noqa: A002


@dataclass(frozen=True)
class Place:
    """Where layers go: the store, and the incarnation in their names."""

    root: Path
    incarnation: int


@dataclass(frozen=True)
class SparkJob:
    """Computes epochs with an app's plans. rejects: by source. late: the traces of late rows, by view. reads: the views
    that each view reads, directly or not. idle: sources that only views read that are held. token: by which it knows
    what its tasks say of themselves. last_rows: of each source in the last epoch that read it.
    """

    spark: SparkSession
    plans: Plans
    inputs: Mapping[str, Readable]
    place: Place
    rejects: Mapping[str, Rejects]
    late: Mapping[str, str]
    reads: Mapping[str, set[str]]
    clock: Clock
    idle: Mapping[str, Judging] = field(default_factory=dict)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    last_rows: dict[str, int] = field(default_factory=dict)

    def run(self, given: Given) -> Result:
        try:
            return self._run(given)
        except FAILURES as error:
            trouble = trouble_of(error, self.token)
            if trouble is None:
                raise
            raise trouble from error

    def _run(self, given: Given) -> Result:
        began = self.clock.monotonic()
        cut = given.cut
        frames = self._frames(given)
        reading = self.clock.monotonic() - began
        rows = rows_of(self._size(name, taken) for name, taken in self._read(cut).items())
        planned = self.plans.chosen(rows)
        outcome = planned.template.run(self.spark, frames, self._sent(given, planned))
        self.plans.took(planned, rows, self.clock.monotonic() - began)
        self.last_rows.update(outcome.rows)
        writer = writer_in(self.place.root, self.place.incarnation)
        bad = {**outcome.bad, **self._bad_of_idle(cut)}
        write_rejects(cut, bad, self.rejects, {**self.inputs, **self.idle}, writer)
        return Result(
            rows=sum(outcome.rows.values()),
            rejected=bad,
            late=self._late_rows(cut.epoch),
            times=outcome.times,
            steps={"frame": reading, **outcome.steps},
            stats=outcome.stats,
        )

    def cancel(self) -> None:
        """End the job in hand, from another thread: it fails."""
        with suppress(Exception):  # it may be over, and Spark too
            self.spark.sparkContext.cancelAllJobs()

    def explained(self, given: Given, error: Exception) -> Exception:
        if not isinstance(error, FAILURES):
            return error
        planned = self.plans.by_shards()
        sent = self._sent(given, planned)
        diagnosis = Diagnosis(self.spark, planned.template, lambda: self._frames(given), sent, self.reads)
        told = diagnosis.told(error)
        told.__cause__ = error
        return told

    def learn(self, cut: Cut, rows: int) -> None:
        self.plans.learn(cut.epoch, rows)

    def measured(self) -> dict[str, dict[str, int]]:
        return self.plans.measured()

    def _size(self, name: str, taken: JSON) -> tuple[Unit, int | None]:
        """How much input a range is. Where its source can not tell, as many rows as it gave last."""
        size = self.inputs[name].size(taken)
        return ("rows", self.last_rows.get(name)) if size is None else (self.inputs[name].unit, size)

    def _read(self, cut: Cut) -> dict[str, JSON]:
        """The ranges of a cut; not of a source that no view reads any more."""
        return {name: taken for name, taken in cut.ranges.items() if name in self.inputs}

    def _frames(self, given: Given) -> dict[str, DataFrame]:
        frames = {name: self.inputs[name].frame(taken) for name, taken in self._read(given.cut).items()}
        return {name: added_up(frame) if given.failing else frame for name, frame in frames.items()}

    def _sent(self, given: Given, planned: Planned) -> EpochProperty:
        return EpochProperty(
            root=str(self.place.root),
            epoch=given.cut.epoch,
            incarnation=self.place.incarnation,
            shards=planned.shards,
            watermarks=given.cut.watermarks,
            watermarks_before=given.reached,
            token=self.token,
        )

    def _bad_of_idle(self, cut: Cut) -> dict[str, int]:
        """How many bad rows a cut has that nothing in the plan reads: of the epoch in which views were held."""
        idle = [name for name in self.idle if name in cut.ranges and name in self.rejects]
        counts = {name: self.rejects[name].read(cut.ranges[name]).num_rows for name in idle}
        return {name: count for name, count in counts.items() if count}

    def _late_rows(self, epoch: int) -> dict[str, int]:
        """How many rows came too late for each operator that follows event time."""
        counts = {}
        for view, trace in self.late.items():
            layers = epoch_layers(self.place.root / trace, epoch)
            counts[view] = sum(int(part.integers("diff").sum()) for layer in layers for part in layer.parts)
        return {view: count for view, count in counts.items() if count}


def added_up(frame: DataFrame) -> DataFrame:
    """Rows with their diffs added up, where they have diffs: without those that were taken back."""
    return netted(frame) if DIFF in frame.columns else frame
