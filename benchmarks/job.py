"""What one side is asked to do, and what it measured: plain data that crosses a process boundary as JSON.

A `Job` is also the key under which a measurement is remembered, so that two benchmarks that need the same
measurement (`small` and `floor`, `backlog` and `forced`) share it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from statistics import quantiles
from typing import Literal

Engine = Literal["slipstream", "rocksdb", "default", "batch"]
Query = Literal[
    "totals", "revenue", "floor", "tpch", "tpcds", "words", "views", "adding", "replacing", "sinks"
]
Restart = Literal["cold", "standby"]

ENGINE_NAMES: dict[Engine, str] = {
    "slipstream": "Slipstream",
    "rocksdb": "Structured Streaming, RocksDB",
    "default": "Structured Streaming, default store",
    "batch": "Spark in full",
}


@dataclass(frozen=True)
class Job:
    """One measurement: `engine` keeps `query` up to date over the files staged as `dataset`.

    `files_per_batch` is the most files (of each source) in a batch; None leaves it to the engine. `every` feeds the
    timed files one by one, so many seconds apart; None puts them all there at the start. `delay` is what every
    operation of the storage that keeps things safe (a replica, a checkpoint) takes longer, in seconds; None is no
    replica, and a checkpoint on the plain local disk. `restart` kills the engine before the timed files come and
    measures how long it takes until they show. `number` and `scale` say which of TPC-H's queries it is, or the first
    of a pack of TPC-DS's, and over how much data, or how many views or sinks there are; `window` how many seconds the
    windows are long in which words are counted. `attempt` tells measurements apart that are made several times.
    `checkout` is a folder with another version of Slipstream, which is measured in place of this one.
    """

    engine: Engine
    query: Query
    dataset: str
    files_per_batch: int | None = None
    every: float | None = None
    target_latency: str = "1s"
    delay: float | None = None
    restart: Restart | None = None
    number: int = 0
    scale: float = 1.0
    window: int = 0
    attempt: int = 1
    checkout: str = ""

    def __str__(self) -> str:
        size = f", {self.files_per_batch} file(s) a batch" if self.files_per_batch else ""
        slow = f", storage delayed by {self.delay * 1000:.0f} ms" if self.delay is not None else ""
        again = f", {self.restart} restart" if self.restart else ""
        query = f"{self.query} {self.number}" if self.number else self.query
        query = f"{query} in {self.window:,} s" if self.window else query
        more = f", attempt {self.attempt}" if self.attempt > 1 else ""
        whose = f" of {self.checkout}" if self.checkout else ""
        return f"{query} over {self.dataset}, {ENGINE_NAMES[self.engine]}{whose}{size}{slow}{again}{more}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        return Job(**json.loads(text))


@dataclass(frozen=True)
class Measured:
    """The timed part only: `rows` of input took `seconds` from the first file's arrival to the last result.

    `batches` are the seconds of each batch; `visible`, in a paced feed, the seconds from each file's rename
    to its result; `steps` the median seconds of each step of an epoch; `memory` the peak bytes by kind of
    process, where it was sampled; `answer` a digest of the result, where it is compared, or `answers` those of several
    queries by their numbers, of which `steps` then has the median seconds.
    """

    rows: int
    seconds: float
    batches: list[float]
    visible: list[float] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    answer: str = ""
    answers: dict[str, str] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Measured:
        return Measured(**json.loads(text))


def percentile(values: list[float], percent: int) -> float:
    """The given percentile, 1 to 99, between neighbours; a single value is every percentile of itself."""
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]
