"""Generated rows, as many a second as asked for: for trials, benchmarks and tests.

Row number n is a function of n, the seed and the time of the first row, all of which are in the range
`{"start": a, "end": b, "from": microseconds}`. So a replay makes the same rows, on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from slipstream.core.clock import Clock, SystemClock
from slipstream.core.errors import BadSourceOption
from slipstream.sources.base import JSON, Cut, Source, last_range, summed
from slipstream.sources.leaf import RangeTemplate
from slipstream.sources.shape import shaped

SCHEMA = StructType(
    [
        StructField("value", LongType(), False),
        StructField("key", LongType(), False),
        StructField("timestamp", TimestampType(), False),
    ]
)
UNPACED = 1000.0
"""Rows per second that timestamps show where rows come without waiting."""


class Rate(Source):
    """See the module's docstring; made by `rate`."""

    order_types = (LongType(),)

    def __init__(
        self,
        rows_per_second: float | None,
        keys: int | None,
        seed: int,
        limit: int | None,
        rows_per_epoch: int | None,
        start: float | None,
        clock: Clock,
        diff: str | None,
        op: str | None,
        key: str | Sequence[str] | None,
    ) -> None:
        super().__init__(SCHEMA, diff, op, key)
        if rows_per_second is not None and rows_per_second <= 0:
            raise BadSourceOption(
                f"rows_per_second={rows_per_second} is not positive", "give a positive number"
            )
        if rows_per_second is None and rows_per_epoch is None:
            raise BadSourceOption(
                "rows_per_second=None without rows_per_epoch=", "say how many rows an epoch has to take"
            )
        for option, value in (("keys", keys), ("limit", limit), ("rows_per_epoch", rows_per_epoch)):
            if value is not None and value < 1:
                raise BadSourceOption(
                    f"{option}={value} is less than 1", "leave it out or give a positive number"
                )
        self._pace = rows_per_second
        self._keys = keys
        self._seed = seed
        self._limit = limit
        self._rows_per_epoch = rows_per_epoch
        self._clock = clock
        self._first = None if start is None else round(start * 1e6)
        self._cursor = 0
        self._templates: dict[int, RangeTemplate] = {}

    def attach(
        self, name: str, spark: SparkSession, folder: Path, consumed: Sequence[JSON], base: JSON = None
    ) -> None:
        super().attach(name, spark, folder, consumed, base)
        last = last_range(consumed, base)
        self._cursor = 0 if last is None else last["end"]
        if last is not None:
            self._first = last["from"]
        elif self._first is None:
            self._first = round(self._clock.now() * 1e6)

    def folded(self, before: JSON, ranges: Sequence[JSON]) -> JSON:
        rows = sum(taken["end"] - taken["start"] for taken in ranges)
        return {"last": ranges[-1], **summed(before, ranges, rows=rows)}

    def cut(self, budget: int | None) -> Cut | None:
        rows = min(n for n in (self.backlog(), budget, self._rows_per_epoch) if n is not None)
        if rows <= 0:
            return None
        start, self._cursor = self._cursor, self._cursor + rows
        return Cut({"start": start, "end": self._cursor, "from": self._first}, rows, rows)

    def backlog(self) -> int:
        if self._pace is None:
            due = self._cursor + (self._rows_per_epoch or 0)
        else:
            assert self._first is not None, "the backlog is asked for only after attach"
            due = int((self._clock.now() - self._first / 1e6) * self._pace)
        return max(0, (due if self._limit is None else min(due, self._limit)) - self._cursor)

    def size(self, range: JSON) -> int | None:  # noqa: A002
        rows: int = range["end"] - range["start"]
        return rows

    def frame(self, range: JSON) -> DataFrame:  # noqa: A002
        first = range["from"]
        template = self._templates.get(first)
        if template is None:
            template = self._templates[first] = RangeTemplate(self._shaped(first))
        return template.between(range["start"], range["end"])

    def _shaped(self, first: int) -> DataFrame:
        value = F.col("id")
        key = value if self._keys is None else F.pmod(F.xxhash64(F.lit(self._seed), value), F.lit(self._keys))
        passed = (value * F.lit(1e6 / (self._pace or UNPACED))).cast("long")
        generated = self.spark.range(0, 1).select(
            value.alias("value"),
            key.cast("long").alias("key"),
            F.timestamp_micros(F.lit(first).cast("long") + passed).alias("timestamp"),
        )
        return shaped(generated, SCHEMA, self.changes, [F.col("value")])


def rate(
    rows_per_second: float | None = 1000,
    keys: int | None = None,
    seed: int = 0,
    limit: int | None = None,
    rows_per_epoch: int | None = None,
    start: float | None = None,
    clock: Clock | None = None,
    diff: str | None = None,
    op: str | None = None,
    key: str | Sequence[str] | None = None,
) -> Rate:
    """Rows `value long, key long, timestamp timestamp`, the n-th of them n / rows_per_second after the start.

    `keys` is how many different keys there are (each row its own if left out), `limit` the number of rows after which
    the source ends, `rows_per_epoch` the most that one epoch takes. With rows_per_second=None there is no waiting:
    every epoch takes rows_per_epoch rows at once.
    """
    return Rate(
        rows_per_second, keys, seed, limit, rows_per_epoch, start, clock or SystemClock(), diff, op, key
    )
