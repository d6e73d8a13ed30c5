"""What the two decision-support suites, TPC-H and TPC-DS, have in common: tables that change, and answers.

The dataset has, beside the phases of every other (`load`, `warm`, `timed`), the tables as they are after the last
batch, in `tables`. A batch changes one row in a thousand of every table, a third each inserted, updated and deleted;
tables of so few rows that this is none never change, and get no files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from statistics import geometric_mean

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructType

import slipstream as sl
from benchmarks.data import Feed
from benchmarks.report import Finding, Target
from slipstream.testing.changes import Changing

CHANGED = 1 / 1000
LOAD_ROWS = 250_000
BATCH_WARM_UP = 2
BATCH_TIMED = 5


def stage_table(
    folder: Path, name: str, rows: pa.Table, key: Collection[str], *, seed: int, warm: int, timed: int
) -> None:
    """A table's files, of all phases, and the table as it is in the end."""
    changing = Changing(rows, key, seed=seed, share=0.95)
    load = changing.load()
    for part, first in enumerate(range(0, load.num_rows, LOAD_ROWS)):
        _write(folder / "load" / name, part, load.slice(first, LOAD_ROWS))
    third = round(load.num_rows * CHANGED / 3)
    for phase, batches in (("warm", warm), ("timed", timed)):
        for batch in range(batches if third else 0):
            _write(folder / phase / name, batch, changing.batch(third, third, third))
    (folder / "tables").mkdir(exist_ok=True)
    pq.write_table(changing.rows, folder / "tables" / f"{name}.parquet")


def kept(app: sl.App, query: str, schemas: Mapping[str, StructType], feed: Feed) -> Iterator[sl.EpochReport]:
    """The epochs of the timed batches, of an app that keeps a query over these tables as its view `answer`."""
    for name, schema in schemas.items():
        declared = StructType([*schema.fields]).add("diff", LongType(), False)
        app.source(name, sl.files(feed.landing / name, "parquet", declared, diff="diff"))
    app.view("answer", query)
    feed.drop_all("load")
    app.run(until="caught_up", progress=False)
    epochs: list[sl.EpochReport] = []
    for files in feed.files("warm"):
        feed.drop(files)
        app.run(until="caught_up", progress=False)
    app.on_epoch(epochs.append)
    for files in feed.files("timed"):
        feed.drop(files)
        app.run(until="caught_up", progress=False)
    yield from epochs


def digest(frame: DataFrame) -> str:
    """A frame's rows, whatever their order, in short. Doubles, which only TPC-DS has, to nine digits."""
    rows = sorted(repr(tuple(_rounded(value) for value in row)) for row in frame.collect())
    short = hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]
    return f"{len(rows)} rows, {short}"


def compared(
    suite: str,
    pairs: Mapping[int, tuple[float, float]],
    *,
    each: float | None = None,
    mean: float | None = None,
) -> list[Finding]:
    """A line for each query (an epoch, the whole again) and one for all. each, mean: how many times faster an epoch is
    to be, of each query and in the geometric mean.
    """
    findings = [
        Finding(suite, f"query {number}, an epoch beside the whole", "ms", *pair, _faster(each))
        for number, pair in pairs.items()
    ]
    means = (
        geometric_mean(ours for ours, _ in pairs.values()),
        geometric_mean(theirs for _, theirs in pairs.values()),
    )
    slowest = max(pairs, key=lambda number: pairs[number][0] / pairs[number][1])
    whole = f"geometric mean of {len(pairs)}; least gain: query {slowest}"
    return [*findings, Finding(suite, whole, "ms", *means, _faster(mean))]


def _faster(times: float | None) -> Target | None:
    return None if times is None else Target("at_most", 1 / times)


def _rounded(value: object) -> object:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _write(folder: Path, number: int, rows: pa.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / f"{number:05d}.parquet")
