"""A round: a pack of random views in one app, taken through random changes, compared with batch Spark.

Every view is compared as of every step. Starting an app is dear, so a round has many views; they may read each
other. If anything goes wrong that cannot be laid to one view, such as an epoch that fails, each view is played
again alone, with those that it reads, over the same changes: a seed gives the same tables whatever the views.

The seed also says under which settings of the session a round is played (ANSI mode, time zone, case of names), and
whether rows are taken away a step before they come. Then views are compared as of the steps at which nothing is owed.
In some rounds the app is changed between steps: views come, are replaced, computed anew and dropped.

A query that Slipstream refuses (`CannotMaintain`) is counted, and so is one that Spark refuses. A query that fails
in batch Spark and fails here too is as it should be.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from slipstream.app import App
from slipstream.core.errors import BadQuery, CannotMaintain
from slipstream.core.settings import Settings
from slipstream.testing.fuzz.generator import INEXACT, Generator
from slipstream.testing.fuzz.query import Query, Select, parts_of
from slipstream.testing.fuzz.tables import Debts, change, scripted
from slipstream.testing.oracle import QUICK, Mismatch, assert_equal_rows, recompute, rows_of
from slipstream.testing.scripted import Row, Script, kept_table

STEPS = 4
_TRIES = 60
_ZONES = ("UTC", "America/New_York", "Asia/Kathmandu")

Trouble: TypeAlias = Exception
"""A `Mismatch`, a failed epoch, or an error of Spark's."""


@dataclass(frozen=True)
class Failure:
    """A view that is not what batch Spark computes, or that could not be kept at all."""

    seed: int
    query: Query
    trouble: Trouble
    reads: Mapping[str, Query] = field(default_factory=dict)
    """The views that it reads, directly or not, in the order in which they can be declared."""

    def __str__(self) -> str:
        views = "".join(f"\n  where {name} is {query.sql()}" for name, query in self.reads.items())
        return f"seed {self.seed}: {self.query.sql()}{views}\n{type(self.trouble).__name__}: {self.trouble}"


@dataclass
class Tally:
    """What rounds came to."""

    kept: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    invalid: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.kept += other.kept
        self.refused += other.refused
        self.invalid += other.invalid
        self.failures += other.failures

    def __str__(self) -> str:
        refused = sum(self.refused.values())
        return f"{self.kept} kept, {refused} refused, {self.invalid} not valid in Spark, {len(self.failures)} wrong"


def tuned(spark: SparkSession, compiled: bool) -> SparkSession:
    """A session on the same context for many small queries; with or without Spark's generated code."""
    session = spark.newSession()
    for key, value in QUICK.items():
        if not (compiled and ".codegen." in key):
            session.conf.set(key, value)
    return session


@dataclass
class Pack:
    """The views of a round. since: of each the step after which it came to be what it is."""

    app: App
    random: Random
    seed: int
    tally: Tally
    queries: dict[str, Query] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    def declare(self, views: int) -> None:
        """Further views, which may read those that there are."""
        for _ in range(views):
            self._declare(f"v{next(self.numbers)}", self.queries)

    def change(self) -> None:
        """Make the app another, once or a few times. What another view reads stays."""
        for _ in range(self.random.randrange(1, 4)):
            read = {name for query in self.queries.values() for name in _relations(query)}
            free = [name for name in self.queries if name not in read]
            verb = self.random.choice(["come", "replace", "rebuild", "drop"])
            if verb == "come" or len(free) < 2:
                self.declare(1)
                continue
            name = self.random.choice(free)
            if verb == "replace":
                others = {each: query for each, query in self.queries.items() if each != name}
                self._declare(name, others, replace=True)
            elif verb == "rebuild":
                self.app.rebuild(name)
                self.since[name] = self.app.epoch
            else:
                self.app.drop(name)
                del self.queries[name]

    def _declare(self, name: str, others: Mapping[str, Query], *, replace: bool = False) -> None:
        query = Generator(self.random, dict(others), lenient=_is_lenient(self.seed)).query()
        try:
            self.app.view(name, query.sql(), replace=replace)
        except CannotMaintain as refusal:
            self.tally.refused[refusal.why] += 1
        except BadQuery:
            self.tally.invalid += 1
        except Exception as trouble:
            self.tally.failures.append(Failure(self.seed, query, trouble, _read_by(query, others)))
        else:
            self.queries[name], self.since[name] = query, self.app.epoch


def play(spark: SparkSession, folder: Path, seed: int, views: int) -> Tally:
    """One round."""
    tally = Tally()
    wrong: dict[str, Trouble] = {}
    with _app(spark, folder / "pack", seed) as app:
        script = _declared_sources(app)
        pack = Pack(app, Random(f"{seed}/queries"), seed, tally)
        pack.declare(views)

        def between() -> None:
            if _is_changing(seed):
                found = _compared(script, pack.queries, pack.since)
                tally.failures.extend(_failure(seed, pack.queries, each) for each in found.items())
                script.steps.clear()
                pack.change()

        try:
            _take_steps(script, seed, between)
        except Exception as trouble:
            wrong = dict(_alone(spark, folder, seed, pack.queries))
            if not wrong:
                trouble.add_note(f"seed {seed}: the views fail together, and none of them alone")
                raise
        else:
            wrong = _compared(script, pack.queries, pack.since)
    tally.failures.extend(_failure(seed, pack.queries, each) for each in wrong.items())
    tally.kept = len(pack.queries) - len(wrong)
    shutil.rmtree(folder, ignore_errors=True)
    return tally


def _failure(seed: int, queries: Mapping[str, Query], found: tuple[str, Trouble]) -> Failure:
    name, trouble = found
    return Failure(seed, queries[name], trouble, _read_by(queries[name], queries))


def shrink(spark: SparkSession, folder: Path, failure: Failure) -> Failure:
    """The smallest query found that still fails in the same way, over the same tables and views."""
    smallest, tries = failure, 0
    while True:
        for query in smallest.query.smaller():
            if tries == _TRIES:
                return smallest
            tries += 1
            reads = _read_by(query, failure.reads)
            trouble = _trouble(spark, folder / str(tries), failure.seed, {**reads, "v": query})
            if type(trouble) is type(failure.trouble):
                smallest = Failure(failure.seed, query, trouble, reads)
                break
        else:
            return smallest


def _alone(
    spark: SparkSession, folder: Path, seed: int, queries: Mapping[str, Query]
) -> Iterator[tuple[str, Trouble]]:
    for name, query in queries.items():
        trouble = _trouble(spark, folder / name, seed, {**_read_by(query, queries), name: query})
        if trouble is not None:
            yield name, trouble


def _trouble(spark: SparkSession, folder: Path, seed: int, queries: Mapping[str, Query]) -> Trouble | None:
    """What is wrong with the last of some views; the others are there for it to read."""
    name = list(queries)[-1]
    try:
        with _app(spark, folder, seed) as app:
            script = _declared_sources(app)
            try:
                for each, text in queries.items():
                    app.view(each, text.sql())
            except (CannotMaintain, BadQuery):
                return None
            try:
                _take_steps(script, seed)
            except Exception as trouble:
                return None if _fails_in_batch(script, name) else trouble
            return _compared(script, {name: queries[name]}).get(name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_LITTLE = (Settings.little, 0, 30)
"""Rows of input below which an epoch is computed by one task: all, none, some."""


def _is_lenient(seed: int) -> bool:
    return seed % 3 == 2


def _is_changing(seed: int) -> bool:
    """Whether the views of a round come and go."""
    return seed % 5 in (1, 3)


@contextmanager
def _app(spark: SparkSession, folder: Path, seed: int) -> Iterator[App]:
    """Shards, the length of hashes, partial aggregation, what one task computes and settings of the session go with the
    seed: short hashes collide.
    """
    little = _LITTLE[seed // 2 % len(_LITTLE)]
    settings = Settings(hash_bits=3 if seed % 4 == 0 else 64, partial=seed % 2 == 0, little=little)
    session = {
        "spark.sql.ansi.enabled": str(not _is_lenient(seed)).lower(),
        "spark.sql.session.timeZone": _ZONES[seed % len(_ZONES)],
        "spark.sql.caseSensitive": str(seed % 7 == 3).lower(),
    }
    before = {key: spark.conf.get(key, None) for key in session}
    for key, value in session.items():
        spark.conf.set(key, value)
    store = folder / "store"
    try:
        with App("fuzz", store, spark=spark, shards=1 + seed % 3, history=None, settings=settings) as app:
            yield app
    finally:
        for key, known in before.items():
            spark.conf.unset(key) if known is None else spark.conf.set(key, known)


def _declared_sources(app: App) -> Script:
    sources = scripted()
    for name, source in sources.items():
        app.source(name, source.source)
    return Script(app, sources)


def _take_steps(script: Script, seed: int, between: Callable[[], None] = lambda: None) -> None:
    random, debts, sources = Random(f"{seed}/rows"), Debts(), dict(script.sources)
    for step in range(STEPS):
        debts.pay()
        owing = seed % 4 < 2 and step % 2 == 0 and step < STEPS - 1

        def alter(owing: bool = owing) -> None:
            change(sources, random)
            if owing:
                debts.owe(sources, random)

        epoch = script.step(alter)
        if debts.some:
            del script.steps[epoch]
        if step < STEPS - 1:
            between()


def _compared(
    script: Script, queries: Mapping[str, Query], since: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Trouble]:
    """Views that at some step, of those since which they are what they are, do not have what batch Spark makes of the
    same tables.
    """
    wrong: dict[str, Trouble] = {}
    for epoch, held in script.steps.items():
        inputs = _frames(script, held)
        for name in [name for name in queries if name not in wrong and epoch > since.get(name, 0)]:
            inexact = any(function in queries[name].sql() for function in INEXACT)
            kept = kept_table(script.app, name, epoch)
            got = _folded(queries[name], zip(*(_plain(column) for column in kept.columns), strict=True))
            try:
                expected = _folded(queries[name], rows_of(recompute(script.app, name, inputs)))
                tolerance = {"relative": 1e-9, "absolute": 1e-9} if inexact else {}
                assert_equal_rows(got, expected, f"as of epoch {epoch}", **tolerance)
            except Mismatch as trouble:
                both = f"kept:  {sorted(got, key=repr)}\nbatch: {sorted(expected, key=repr)}"
                wrong[name] = AssertionError(f"{trouble}\n{both}")
            except (PySparkException, Py4JError) as trouble:
                wrong[name] = trouble
    return wrong


def _folded(query: Query, rows: Iterable[Row]) -> list[Row]:
    """Rows without what Spark leaves open: strings that have a collation in lower case, lists sorted."""
    folds = [_FOLDED.get(kind) for kind in query.kinds]
    if not any(folds):
        return list(rows)
    return [
        tuple(
            value if fold is None or value is None else fold(value)
            for value, fold in zip(row, folds, strict=True)
        )
        for row in rows
    ]


_FOLDED: dict[str, Callable[[str], Any]] = {
    "collated": str.lower,
    "listed": lambda text: sorted(text.split("|")),
}


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """A column's values as Spark gives them: a struct is a tuple, a map a dict."""
    of = _value_of(column.type)
    return [of(each) for each in column.to_pylist()]


def _value_of(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return lambda moment: None if moment is None else moment.astimezone().replace(tzinfo=None)
    if pa.types.is_map(kind):
        return lambda pairs: None if pairs is None else dict(pairs)
    if pa.types.is_list(kind):
        each = _value_of(kind.value_type)
        return lambda values: None if values is None else [each(value) for value in values]
    if pa.types.is_struct(kind):
        fields = [(field.name, _value_of(field.type)) for field in kind]
        return lambda held: None if held is None else tuple(of(held[name]) for name, of in fields)
    return lambda value: value


def _frames(script: Script, held: Mapping[str, list[Row]]) -> dict[str, DataFrame]:
    make = script.app.spark.createDataFrame
    return {name: make(held[name], source.row_schema) for name, source in script.sources.items()}


def _fails_in_batch(script: Script, view: str) -> bool:
    """Whether batch Spark fails over the tables as they stand."""
    inputs = _frames(script, {name: source.rows for name, source in script.sources.items()})
    try:
        rows_of(recompute(script.app, view, inputs))
    except (PySparkException, Py4JError):
        return True
    return False


def _read_by(query: Query, views: Mapping[str, Query]) -> dict[str, Query]:
    """The views that a query reads, directly or not, in the order of `views`."""
    direct = [name for name in _relations(query) if name in views]
    names = set(direct).union(*(_read_by(views[name], views) for name in direct))
    return {name: view for name, view in views.items() if name in names}


def _relations(query: Query) -> Iterator[str]:
    if isinstance(query, Select):
        for part in query.parts:
            if isinstance(part.relation, str):
                yield part.relation
            else:
                yield from _relations(part.relation)
    else:
        for each in parts_of(query):
            yield from _relations(each)
