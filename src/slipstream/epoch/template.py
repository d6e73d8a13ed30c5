"""The epoch's template: one Spark plan, built when the app starts, whose leaves each epoch swaps.

An epoch binds the leaves of the sources that have something new to plans of their ranges, keeps what several
operators read, and runs one action: the union of all terminal operators, each of which yields a row of
statistics a shard. Leaves that are not bound stay what they are, relations without rows: so are those of a
query's own constants, which are bound in the first epoch only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from slipstream.dataflow.task import EPOCH_PROPERTY, EpochProperty
from slipstream.plan.catalyst import Catalyst, ExprList, Node
from slipstream.plan.lower import Leaf, Program, bind
from slipstream.plan.watermarks import observed_watermark
from slipstream.spark.session import EPOCH_POOL

FIRST_EPOCH = 1
FAILURES = (PySparkException, Py4JError, ConnectionError)
"""What a Spark job that fails raises; the last two where there is no JVM any more."""


@dataclass(frozen=True)
class Outcome:
    """What one epoch's job said: statistics of its operators, for each source its rows and those that were bad, and
    for each watermark the latest event time of the epoch, in microseconds.
    """

    stats: tuple[dict[str, Any], ...]
    rows: Mapping[str, int]
    bad: Mapping[str, int]
    times: Mapping[str, int]
    steps: Mapping[str, float]


class Template:
    """A plan to run again and again."""

    def __init__(self, catalyst: Catalyst, program: Program) -> None:
        self._catalyst = catalyst
        self._program = program
        self._plan = catalyst.union(program.terminals)
        self._bound: dict[int, tuple[int, ExprList]] = {}
        self._last: DataFrame | None = None

    @property
    def routed(self) -> frozenset[str]:
        """The sources and views whose change has a route."""
        return self._program.routed

    def measured(self) -> dict[str, dict[str, int]]:
        """What Spark measured of each operator in the last epoch, by the operator's own trace."""
        return {} if self._last is None else self._catalyst.stage_metrics(self._last)

    def run(
        self,
        spark: SparkSession,
        frames: Mapping[str, DataFrame],
        sent: EpochProperty,
        pool: str = EPOCH_POOL,
    ) -> Outcome:
        """Run one epoch over these inputs. Must be called from one thread only. pool: of Spark's scheduler."""
        catalyst = self._catalyst
        clock = _Stopwatch()
        pairs = self._inputs(frames, sent)
        kept = []
        for shared in self._program.shared:
            frame, relation = catalyst.kept(catalyst.swap(shared.plan, pairs))
            kept.append((frame, relation))
            pairs.append((shared.leaf.node, self._bind(shared.leaf, relation)))
        frame = catalyst.frame(catalyst.swap(self._plan, pairs) if pairs else self._plan)
        clock.lap("leaf")
        try:
            with _told(spark, sent, pool):
                catalyst.planned(frame)
                clock.lap("plan")
                stats = [json.loads(said) for said in catalyst.collect_strings(frame)]
                clock.lap("run")
            all_observed = all(catalyst.is_kept(relation) for _, relation in kept)
        finally:
            for each, _ in kept:
                catalyst.dropped(each)
        self._last = frame
        observed = catalyst.observed(frame)
        if not all_observed:
            observed |= self._observed_anew(spark, frames, sent, pool)
        counts = {name: seen for name, seen in observed.items() if observed_watermark(name) is None}
        rows = {name: seen[0] or 0 for name, seen in counts.items()}
        bad = {name: seen[1] for name, seen in counts.items() if seen[1]}
        measured = {observed_watermark(name): seen[0] for name, seen in observed.items()}
        times = {name: latest for name, latest in measured.items() if name is not None and latest is not None}
        clock.lap("stats")
        return Outcome(tuple(stats), rows, bad, times, clock.laps)

    def _observed_anew(
        self, spark: SparkSession, frames: Mapping[str, DataFrame], sent: EpochProperty, pool: str
    ) -> dict[str, tuple[int | None, ...]]:
        """What the plans of shared rows observe, all computed once more: a task failed whose rows were kept already. It
        has not said what it observed, and the task in its place found the rows and computed nothing.
        """
        catalyst = self._catalyst
        pairs = self._all_inputs(frames, sent)
        found: dict[str, tuple[int | None, ...]] = {}
        with _told(spark, sent, pool):
            for shared in self._program.shared:
                whole = catalyst.frame(catalyst.swap(shared.plan, pairs))
                catalyst.run(whole)
                found |= catalyst.observed(whole)
        return found

    def failing(
        self,
        spark: SparkSession,
        frames: Mapping[str, DataFrame],
        sent: EpochProperty,
        pool: str = EPOCH_POOL,
    ) -> dict[str, BaseException]:
        """The views that fail over these inputs, each tried alone, and what each fails of. For an epoch that failed:
        the layers that this writes are not to be kept.
        """
        pairs = self._all_inputs(frames, sent)
        with _told(spark, sent, pool):
            tried = {view: self._failure(view, pairs) for view in self._program.views}
        return {view: error for view, error in tried.items() if error is not None}

    def failure(
        self,
        spark: SparkSession,
        view: str,
        frames: Mapping[str, DataFrame],
        sent: EpochProperty,
        pool: str = EPOCH_POOL,
    ) -> BaseException | None:
        """What one view fails of over these inputs, if it does."""
        pairs = self._all_inputs(frames, sent)
        with _told(spark, sent, pool):
            return self._failure(view, pairs)

    def _failure(self, view: str, pairs: list[tuple[Node, Node]]) -> BaseException | None:
        catalyst = self._catalyst
        try:
            for plan in self._program.views[view]:
                catalyst.run(catalyst.frame(catalyst.swap(plan, pairs)))
        except FAILURES as error:
            return error
        return None

    def _all_inputs(self, frames: Mapping[str, DataFrame], sent: EpochProperty) -> list[tuple[Node, Node]]:
        """The same as `_inputs`, and what is shared, computed anew wherever it is read."""
        pairs = self._inputs(frames, sent)
        for shared in self._program.shared:
            plan = bind(self._catalyst, shared.leaf, self._catalyst.swap(shared.plan, pairs))
            pairs.append((shared.leaf.node, plan))
        return pairs

    def _inputs(self, frames: Mapping[str, DataFrame], sent: EpochProperty) -> list[tuple[Node, Node]]:
        """What takes the place of which leaf."""
        given = [
            (self._program.leaves[name], self._catalyst.analysed(frame)) for name, frame in frames.items()
        ]
        pairs = [(leaf.node, self._bind(leaf, plan)) for leaf, plan in given]
        if sent.epoch == FIRST_EPOCH:
            pairs += [
                (each.leaf.node, bind(self._catalyst, each.leaf, each.plan))
                for each in self._program.constants
            ]
        return pairs

    def _bind(self, leaf: Leaf, plan: Node) -> Node:
        """A plan in the place of a leaf. Where its attributes are those of the last epoch, so are the aliases."""
        identity = self._catalyst.output_hash(plan)
        known = self._bound.get(leaf.number)
        if known is None or known[0] != identity:
            bound = bind(self._catalyst, leaf, plan)
            self._bound[leaf.number] = (identity, self._catalyst.projected(bound))
            return bound
        return self._catalyst.project(known[1], plan)


@contextmanager
def _told(spark: SparkSession, sent: EpochProperty, pool: str = EPOCH_POOL) -> Iterator[None]:
    """What the tasks of this thread's jobs must know, for as long as they are an epoch's. Spark looks through the stack
    for a name for each RDD, unless it is told one.
    """
    name = f"epoch {sent.epoch}"
    properties = {
        EPOCH_PROPERTY: sent.encode(),
        "spark.scheduler.pool": pool,
        "callSite.short": name,
        "callSite.long": name,
    }
    context: Any = spark.sparkContext
    before = {key: context.getLocalProperty(key) for key in properties}
    for key, value in properties.items():
        context.setLocalProperty(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
