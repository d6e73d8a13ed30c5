"""What an accumulating aggregate remembers of one argument, and what it shows of it.

An aggregate that is a sum (count, sum, avg, variance) needs no rows, only totals: adding a row's contribution
`diff` times keeps them right for inserts, deletes and updates alike. All aggregates over the same argument
share its totals. What Spark calls the aggregate's buffer (`sum`, `count`, `avg`, `m2`) is worked out of the
totals here; turning a buffer into the final value is left to Catalyst's own `evaluateExpression`.

A row may be taken away before it comes, so totals may be those of fewer than no rows. They are kept like any others,
and are right again when the rows have come; until then they are shown as those of no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slipstream.core.errors import SumOverflow
from slipstream.dataflow import exact

Totals = dict[str, npt.NDArray[Any]]
_DIGITS = 18  # that fit into 64 bits
_LOWER = np.int64((1 << 32) - 1)
_SPECIAL = ("nans", "infs", "neginfs")
_PAIRS = (("hi", "lo"), ("hi2", "lo2"))
_FAR = ("far", "far2")
"""What is added up apart of doubles and of their squares. It is in totals only where some of it is there."""
_PAIRED = {name for pair in _PAIRS for name in pair}


Kind = Literal["count", "long", "whole", "double", "decimal"]
_IN_LIMBS = ("decimal", "whole")


@dataclass(frozen=True)
class Argument:
    """One argument of accumulating aggregates, and which totals of it are kept.

    kind: `count` (a boolean column: is it to be counted), `long`, `double`, `decimal`, or `whole`: 64-bit numbers whose
    sum may need more, as an average does. digits: how many a decimal may have.
    """

    kind: Kind
    squares: bool = False
    scale: int = 0
    digits: int = 38

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The state columns of this argument: name and type."""
        names: list[tuple[str, pa.DataType]] = [("count", pa.int64())]
        if self.kind == "long":
            names.append(("sum", pa.int64()))
        elif self.kind in _IN_LIMBS:
            names.append(("sum", pa.decimal256(76, self.scale)))
        elif self.kind == "double":
            names += [("hi", pa.float64()), ("lo", pa.float64())]
            names += [(whole, pa.int64()) for whole in (*_SPECIAL, "mark")]
            if self.squares:
                names += [("hi2", pa.float64()), ("lo2", pa.float64())]
            names += [(far, pa.binary()) for far in _FAR[: 2 if self.squares else 1]]
        return names

    def sent(self) -> list[tuple[str, pa.DataType]]:
        """The columns in which totals travel between operators: what Spark's types can carry, and what tells
        a sum that has wrapped around.
        """
        names = [(name, pa.binary() if pa.types.is_decimal(kind) else kind) for name, kind in self.fields()]
        return [*names, ("approximate", pa.float64())] if self.kind == "long" else names

    def totals(self, values: pa.Array, diff: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> Totals:
        """Totals of each segment of `values`, each value counted `diff` times."""
        return self.fold(self._terms(values, diff), starts)

    @property
    def sums(self) -> int:
        """In how many whole numbers its totals can be kept whatever is added and taken away; 0 if they are not."""
        if self.kind == "count":
            return 1
        if self.kind == "decimal":
            return 3 if self.digits <= _DIGITS else 0
        return 0 if self.kind == "double" else 3

    def to_sums(self, values: pa.Array, diff: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        """What each value, counted `diff` times, adds to those: how often it is there, and of a number its upper and
        its lower 32 bits, so that no sum of them wraps around.
        """
        if self.kind == "count":
            return [self._terms(values, diff)["count"]]
        numbers = exact.small_decimals(values) if self.kind == "decimal" else _numbers(values)
        return [_counted(values, diff), (numbers >> 32) * diff, (numbers & _LOWER) * diff]

    def from_sums(self, sums: list[npt.NDArray[np.int64]]) -> Totals:
        """The totals that are kept in these."""
        if self.kind == "count":
            return {"count": sums[0]}
        count, upper, lower = sums
        if self.kind in _IN_LIMBS:
            return {"count": count, "sum": exact.limbs_of(lower, upper)}
        with np.errstate(over="ignore"):
            total = (upper << 32) + lower
        return {"count": count, "sum": total, "approximate": upper * 2.0**32 + lower}

    def _terms(self, values: pa.Array, diff: npt.NDArray[np.int64]) -> Totals:
        """What each value adds to the totals."""
        if self.kind == "count":
            counted = values.to_numpy(zero_copy_only=False).astype(bool)
            return {"count": np.where(counted, diff, 0)}
        weight = _counted(values, diff)
        terms: Totals = {"count": weight}
        if self.kind == "decimal":
            return terms | {"sum": exact.decimal_limbs(values) * weight[:, None]}
        numbers = _numbers(values)
        if self.kind == "whole":
            return terms | {"sum": exact.limbs_of(numbers & _LOWER, numbers >> 32) * weight[:, None]}
        if self.kind == "long":
            with np.errstate(over="ignore"):
                terms["sum"] = numbers * weight
            terms["approximate"] = numbers.astype(np.float64) * weight
            return terms
        return terms | self._double_terms(numbers, weight)

    def _double_terms(self, numbers: exact.Doubles, weight: npt.NDArray[np.int64]) -> Totals:
        finite = np.isfinite(numbers)
        terms: Totals = dict.fromkeys((*_SPECIAL, "mark"), np.zeros(len(numbers), dtype=np.int64))
        if not finite.all():
            found = (np.isnan(numbers), numbers == np.inf, numbers == -np.inf)
            terms |= {name: np.where(at, weight, 0) for name, at in zip(_SPECIAL, found, strict=True)}
            numbers = np.where(finite, numbers, 0.0)
        with np.errstate(over="ignore"):
            terms["mark"] = exact.marks(numbers) * np.where(finite, weight, 0)
        for power, name in enumerate(_FAR[: 2 if self.squares else 1], 1):
            if (far := exact.far_apart(numbers, power)) is not None:
                terms[name] = far * weight
        numbers = exact.near(numbers)
        times = weight.astype(np.float64)
        terms["hi"], terms["lo"] = exact.times(numbers, times)
        if self.squares:
            square = exact.times(numbers, numbers)
            terms["hi2"], terms["lo2"] = exact.multiply(square, exact.Pair(times, np.zeros_like(times)))
        return terms

    def fold(self, totals: Totals, starts: npt.NDArray[np.int64]) -> Totals:
        """The totals of each segment of some totals, added up."""
        folded: Totals = {}
        for name, values in totals.items():
            if name not in _PAIRED:
                with np.errstate(over="ignore"):
                    folded[name] = np.add.reduceat(values, starts, axis=0)
        for hi, lo in (pair for pair in _PAIRS if pair[0] in totals):
            terms = exact.in_order(exact.Pair(totals[hi], totals[lo]), starts)
            folded[hi], folded[lo] = exact.sum_segments(terms, starts)
        return folded

    def combine(self, old: Totals, change: Totals) -> Totals:
        """old + change, row by row."""
        new: Totals = {"count": old["count"] + change["count"]}
        if self.kind == "long":
            with np.errstate(over="ignore"):
                new["sum"] = old["sum"] + change["sum"]
            new["approximate"] = old["sum"].astype(np.float64) + change.get("approximate", np.float64(0))
        elif self.kind in _IN_LIMBS:
            new["sum"] = old["sum"] + change["sum"]
        elif self.kind == "double":
            for whole in _SPECIAL:
                new[whole] = old[whole] + change[whole]
            with np.errstate(over="ignore"):
                new["mark"] = old["mark"] + change["mark"]
            for far in _FAR:
                if far in old or far in change:
                    none = np.zeros(len(new["count"]), dtype=object)
                    new[far] = old.get(far, none) + change.get(far, none)
            some = self.some(new)
            for hi, lo in _PAIRS[: 2 if self.squares else 1]:
                added = exact.add(exact.Pair(old[hi], old[lo]), exact.Pair(change[hi], change[lo]))
                new[hi], new[lo] = (np.where(some, part, 0.0) for part in added)
        return new

    def some(self, totals: Totals) -> npt.NDArray[np.bool_]:
        """Which totals are not those of no values at all. Whole numbers tell it: doubles are rounded."""
        there: npt.NDArray[np.bool_] = totals["count"] != 0
        if self.kind == "long":
            there |= totals["sum"] != 0
        elif self.kind in _IN_LIMBS:
            there |= ~exact.is_zero(totals["sum"])
        elif self.kind == "double":
            for whole in (*_SPECIAL, "mark", *(far for far in _FAR if far in totals)):
                there |= totals[whole] != 0
        return there

    def store(self, totals: Totals) -> list[pa.Array]:
        """Totals as state columns."""
        return [
            exact.limbs_to_decimal(totals[name], self.scale)
            if pa.types.is_decimal(kind)
            else _array(name, totals)
            for name, kind in self.fields()
        ]

    def load(self, columns: Mapping[str, pa.Array]) -> Totals:
        """State columns as totals; what is NULL was never stored and counts as nothing."""
        return _totals(
            (name, exact.decimal_limbs(values) if pa.types.is_decimal(values.type) else values)
            for name, values in columns.items()
        )

    def send(self, totals: Totals) -> list[pa.Array]:
        """Totals as columns that travel."""
        return [
            exact.limbs_to_binary(totals[name])
            if name == "sum" and self.kind in _IN_LIMBS
            else _array(name, totals)
            for name, _ in self.sent()
        ]

    def receive(self, columns: Mapping[str, pa.Array]) -> Totals:
        """Columns that have travelled as totals."""
        return _totals(
            (name, exact.binary_limbs(values) if name == "sum" and self.kind in _IN_LIMBS else values)
            for name, values in columns.items()
        )


def _array(name: str, totals: Totals) -> pa.Array:
    """One total of each group as a column."""
    if name in _FAR:
        return (
            exact.wholes_to_binary(totals[name])
            if name in totals
            else pa.nulls(len(totals["count"]), pa.binary())
        )
    return pa.array(totals[name])


def _totals(columns: Iterable[tuple[str, pa.Array | npt.NDArray[Any]]]) -> Totals:
    """Totals out of columns, those of decimals as limbs already."""
    totals: Totals = {}
    for name, values in columns:
        found = exact.binary_wholes(values) if name in _FAR else values
        if found is not None:
            totals[name] = _numbers(found) if isinstance(found, pa.Array) else found
    return totals


def _counted(values: pa.Array, diff: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How often each value is there: not at all where it is NULL."""
    return np.where(np.asarray(values.is_valid()), diff, 0) if values.null_count else diff


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = (values.fill_null(0) if values.null_count else values).to_numpy(
        zero_copy_only=False
    )
    return numbers


@dataclass(frozen=True)
class Buffer:
    """One column of an aggregate's buffer as Spark defines it.

    show: `rows` (all rows of the group), `count` (those with an argument), `sum` (NULL where there were
    none), `total` (0 where there were none), `empty`, `mean`, `m2` (sum of squared distances from the mean). An
    `extreme` is not worked out of totals: `argument` is the number of a min or max that Extreme keeps.
    """

    show: Literal["rows", "count", "sum", "total", "empty", "mean", "m2", "extreme"]
    argument: int
    type: pa.DataType
    ansi: bool = True

    def column(self, argument: Argument | None, totals: Totals, rows: npt.NDArray[np.int64]) -> pa.Array:
        if self.show == "rows":
            return pa.array(np.maximum(rows, 0))
        assert argument is not None
        totals = _seen(totals, rows)
        count = totals["count"]
        if self.show == "count":
            return pa.array(count).cast(self.type)
        if self.show == "empty":
            return pa.array(count == 0)
        none = count == 0 if self.show == "sum" else None
        if argument.kind == "long":
            return self._long(totals, none)
        if argument.kind == "decimal":
            return self._decimal(argument, totals, none)
        if argument.kind == "whole":
            return pa.array(exact.limbs_to_double(totals["sum"]))
        return pa.array(self._double(totals), mask=none)

    def _long(self, totals: Totals, none: npt.NDArray[np.bool_] | None) -> pa.Array:
        self.check(totals)
        return pa.array(totals["sum"], mask=none)

    def check(self, totals: Totals) -> None:
        """Raise if a sum of whole numbers has wrapped around and must not. Totals that were stored have passed."""
        if self.ansi and "approximate" in totals:
            approximate = totals["approximate"]
            wrapped = np.abs(approximate - totals["sum"].astype(np.float64)) > 2.0**62
            if wrapped.any():
                raise SumOverflow(approximate[wrapped][0])

    def _decimal(self, argument: Argument, totals: Totals, none: npt.NDArray[np.bool_] | None) -> pa.Array:
        wide = exact.limbs_to_decimal(totals["sum"], argument.scale)
        try:
            narrow = wide.cast(self.type)
        except pa.ArrowInvalid:  # NULL tells Catalyst's evaluateExpression of an overflow
            bound = Decimal(10) ** (self.type.precision - argument.scale)
            values = [v if v.copy_abs() < bound else None for v in wide.to_pylist()]
            narrow = pa.array(values, type=self.type)
        if none is None or not none.any():
            return narrow
        return pa.compute.if_else(pa.array(none), pa.scalar(None, self.type), narrow)

    def _double(self, totals: Totals) -> exact.Doubles:
        count = totals["count"].astype(np.float64)
        nans, infs, neginfs = (totals[special] > 0 for special in _SPECIAL)
        total = exact.Pair(totals["hi"], totals["lo"])
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.show == "m2":
                square = exact.divide(exact.multiply(total, total), count)
                squares = exact.Pair(totals["hi2"], totals["lo2"])
                value = np.maximum(exact.add(squares, exact.negate(square)).hi, 0.0)
                infs = nans = nans | infs | neginfs
            elif self.show == "mean":
                value = exact.divide(total, count).hi
            else:
                value = total.hi.copy()
        for at in _with_far(totals):
            value[at] = self._exactly(totals, at)
        value = np.where(infs, np.inf, np.where(neginfs, -np.inf, value))
        return np.where(nans | (infs & neginfs), np.nan, np.where(count == 0, 0.0, value))

    def _exactly(self, totals: Totals, at: int) -> float:
        """What is shown of one group some of whose values are added up apart."""
        count = int(totals["count"][at])
        total = exact.together(exact.Pair(totals["hi"], totals["lo"]), totals.get("far"), at)
        if self.show == "m2" and count:
            squares = exact.Pair(totals["hi2"], totals["lo2"])
            total = max(
                exact.together(squares, totals.get("far2"), at, power=2) - total * total / count, total * 0
            )
        elif self.show == "mean" and count:
            total /= count
        return exact.rounded(total)


def _seen(totals: Totals, rows: npt.NDArray[np.int64]) -> Totals:
    """Totals as they are shown: those of nothing where the group has no rows, or the argument no values, or fewer."""
    owed = (rows <= 0) | (totals["count"] < 0)
    if not owed.any():
        return totals
    shown = {name: values.copy() for name, values in totals.items()}
    for values in shown.values():
        values[owed] = 0
    return shown


def _with_far(totals: Totals) -> list[int]:
    """The groups some of whose values are added up apart."""
    apart = [np.flatnonzero(totals[far] != 0) for far in _FAR if far in totals]
    return np.unique(np.concatenate(apart)).tolist() if apart else []
