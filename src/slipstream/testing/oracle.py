"""The batch oracle: a view, recomputed from scratch by Spark, and compared with what was maintained, row for row.

The query is the user's own, over DataFrames in the place of its inputs, so nothing of Slipstream has a part in the
expected answer. Rows are compared as multisets. A NULL equals a NULL, a NaN a NaN, 0.0 a -0.0, as they do where Spark
groups. Doubles are exact unless a relative tolerance is given: a sum of doubles depends on the order of its terms in
Spark, and in no way here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from slipstream.app import App
from slipstream.core.errors import UnknownView

_SHOWN = 5
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Mismatch(AssertionError):
    """What was maintained is not what batch Spark computes."""

    def __init__(self, what: str, missing: list[Any], unexpected: list[Any]) -> None:
        self.missing, self.unexpected = missing, unexpected
        super().__init__(
            f"{what}: {len(missing)} row(s) of the oracle are missing, {len(unexpected)} row(s) are not the oracle's.\n"
            f"missing:    {_listed(missing)}\nunexpected: {_listed(unexpected)}"
        )


def recompute(app: App, view: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The view's query over these contents of the app's sources, views that it reads included."""
    known = {**inputs}

    def frame(name: str) -> DataFrame:
        if name not in known:
            if name not in app.definitions:
                raise UnknownView(name, {*inputs, *app.definitions}, "source or view")
            definition = app.definitions[name]
            known[name] = definition.query(*[frame(each) for each in definition.inputs])
        return known[name]

    return frame(view)


@contextmanager
def quick(spark: SparkSession) -> Iterator[None]:
    """Settings under which Spark answers many small queries soonest: what it compiles for one would run once."""
    before = {key: spark.conf.get(key, None) for key in QUICK}
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, known in before.items():
            spark.conf.unset(key) if known is None else spark.conf.set(key, known)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """A frame's rows as plain values."""
    return [tuple(row) for row in frame.collect()]


def assert_equal_rows(
    got: Iterable[tuple[Any, ...]],
    expected: Iterable[tuple[Any, ...]],
    what: str,
    *,
    relative: float | None = None,
    absolute: float = 0.0,
) -> None:
    """Raise `Mismatch` unless the two are one multiset, doubles within the tolerance where one is given."""
    mine = Counter(map(_Row, got))
    theirs = Counter(map(_Row, expected))
    unexpected, missing = list((mine - theirs).elements()), list((theirs - mine).elements())
    if relative is not None:
        unexpected, missing = _unpaired(unexpected, missing, relative, absolute)
    if unexpected or missing:
        raise Mismatch(what, [row.values for row in missing], [row.values for row in unexpected])


def assert_equal(
    got: DataFrame, expected: DataFrame, what: str, *, relative: float | None = None, absolute: float = 0.0
) -> None:
    """Raise `Mismatch` unless two frames have the same columns, types and rows."""
    assert_same_columns(got, expected, what)
    assert_equal_rows(rows_of(got), rows_of(expected), what, relative=relative, absolute=absolute)


def assert_same_columns(got: DataFrame, expected: DataFrame, what: str) -> None:
    """Raise unless two frames have the same columns and types. Whether a column may be NULL is not compared."""
    mine, theirs = got.schema.simpleString(), expected.schema.simpleString()
    if mine != theirs:
        raise AssertionError(f"{what}: the schema is {mine}; the oracle's is {theirs}")


def applied(
    rows: Iterable[tuple[Any, ...]], changes: Iterable[tuple[tuple[Any, ...], int]]
) -> list[tuple[Any, ...]]:
    """Rows with changes (row, diff) summed up on top of them. A row that falls below none is an error."""
    counts: Counter[_Row] = Counter(map(_Row, rows))
    for row, diff in changes:
        counts[_Row(row)] += diff
    below = [row.values for row, count in counts.items() if count < 0]
    if below:
        raise Mismatch("changes take away what is not there", below, [])
    return [row.values for row in counts.elements()]


class _Row:
    """A row that is compared and hashed as Spark compares values."""

    __slots__ = ("key", "values")

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self.key = tuple(map(_comparable, values))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Row) and self.key == other.key


def _comparable(value: Any) -> Hashable:
    if isinstance(value, float):
        return ("float", "NaN" if math.isnan(value) else value + 0.0)
    if isinstance(value, dict):
        return ("map", frozenset((_comparable(k), _comparable(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return (type(value).__name__ if isinstance(value, list) else "row", *map(_comparable, value))
    if isinstance(value, bytearray):
        return bytes(value)
    return (type(value).__name__, value)


def _unpaired(
    left: list[_Row], right: list[_Row], relative: float, absolute: float
) -> tuple[list[_Row], list[_Row]]:
    """What is left of both after each row is paired with one that is close to it."""
    rest = list(right)
    alone = []
    for row in left:
        at = next(
            (i for i, each in enumerate(rest) if _close(row.values, each.values, relative, absolute)), None
        )
        if at is None:
            alone.append(row)
        else:
            rest.pop(at)
    return alone, rest


def _close(one: Any, other: Any, relative: float, absolute: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        same = _comparable(one) == _comparable(other)
        return same or math.isclose(one, other, rel_tol=relative, abs_tol=absolute)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            _close(a, b, relative, absolute) for a, b in zip(one, other, strict=True)
        )
    return _comparable(one) == _comparable(other)


def _listed(rows: list[Any]) -> str:
    shown = ", ".join(map(repr, rows[:_SHOWN]))
    return f"{shown}, and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else shown or "none"
