"""Rehearsing an epoch: all of it, on a store that is thrown away.

A process that stands by is worth having only if its first epoch is as fast as any: plans are made, code is
generated and compiled, Python workers are there with everything imported. The way to get there is to run
epochs. A rehearsal runs the app's own plans in turn, over the input of an epoch that was computed before or over
none, with an empty scratch folder in the place of the store. Every operator does what it always does and
nothing of it is seen.

Spark ends Python workers that were idle for a minute, so a long wait needs a rehearsal now and then.
Rehearsing is a help and never a need: input that cannot be read again is left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from slipstream.core.errors import SlipstreamError, StoreTrouble
from slipstream.dataflow.task import EpochProperty
from slipstream.epoch.spark_job import Planned
from slipstream.store.lineage import read_lineage
from slipstream.store.records import JSON, Cut
from slipstream.store.store import Store

_FIRST = 8  # rehearsals in a row, until everything of each plan has been compiled
_EVERY = 20.0  # seconds between later ones
_REFUSED = (SlipstreamError, PySparkException, Py4JJavaError, OSError)


class Readable(Protocol):
    """What a rehearsal needs of a source."""

    def frame(self, range: JSON) -> DataFrame: ...  # noqa: A002


class Rehearsal:
    """Runs an app's epochs where they leave no trace."""

    def __init__(
        self,
        spark: SparkSession,
        plans: Sequence[Callable[[], Planned]],
        inputs: Mapping[str, Readable],
    ) -> None:
        """plans: those with which a store may be taken over."""
        self._spark, self._plans, self._inputs = spark, plans, inputs
        self._done = 0
        self._last = 0.0

    def keep_warm(self, store: Store, readable: Set[str], now: float) -> None:
        """Rehearse if it is time to, by a clock that only grows; at first over the newest recorded input of sources
        that can be read already.
        """
        if self._done >= _FIRST and now - self._last < _EVERY:
            return
        try:
            past = read_lineage(store.disk).history
        except StoreTrouble:
            return
        cuts = past.cuts if self._done < _FIRST else ()
        newest = next((cut for cut in reversed(cuts) if readable >= cut.ranges.keys()), None)
        if not self.run(newest):
            self.run(None)
        self._done, self._last = self._done + 1, now

    def run(self, cut: Cut | None) -> bool:
        """Run one epoch as if the store were taken over now: over the input of `cut`, or over none. Whether it went
        through.
        """
        with suppress(*_REFUSED), tempfile.TemporaryDirectory(prefix="slipstream-rehearsal-") as scratch:
            ranges = cut.ranges if cut is not None else {}
            frames = {name: self._inputs[name].frame(taken) for name, taken in ranges.items()}
            planned = self._plans[self._done % len(self._plans)]()
            planned.template.run(self._spark, frames, EpochProperty(scratch, 1, 0, planned.shards))
            return True
        return False
