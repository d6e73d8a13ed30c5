"""What an accumulating aggregate remembers of one argument, and what it shows of it.

An aggregate that is a sum (count, sum, avg, variance) needs no rows, only totals: adding a row's contribution
`diff` times keeps them right for inserts, deletes and updates alike. All aggregates over the same argument
share its totals. What Spark calls the aggregate's buffer (`sum`, `count`, `avg`, `m2`) is worked out of the
totals here; turning a buffer into the final value is left to Catalyst's own `evaluateExpression`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slipstream.dataflow import exact
from slipstream.errors import SumOverflow

Totals = dict[str, npt.NDArray[Any]]
_SPECIAL = ("nans", "infs", "neginfs")


@dataclass(frozen=True)
class Argument:
    """One argument of accumulating aggregates, and which totals of it are kept.

    kind: `count` (a boolean column: is it to be counted), `long`, `double` or `decimal`.
    """

    kind: Literal["count", "long", "double", "decimal"]
    squares: bool = False
    scale: int = 0

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The state columns of this argument: name and type."""
        names: list[tuple[str, pa.DataType]] = [("count", pa.int64())]
        if self.kind == "long":
            names.append(("sum", pa.int64()))
        elif self.kind == "decimal":
            names.append(("sum", pa.decimal256(76, self.scale)))
        elif self.kind == "double":
            names += [("hi", pa.float64()), ("lo", pa.float64())]
            names += [(special, pa.int64()) for special in _SPECIAL]
            if self.squares:
                names += [("hi2", pa.float64()), ("lo2", pa.float64())]
        return names

    def totals(self, values: pa.Array, diff: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> Totals:
        """Totals of each segment of `values`, each value counted `diff` times."""
        if self.kind == "count":
            counted = values.to_numpy(zero_copy_only=False).astype(bool)
            return {"count": np.add.reduceat(np.where(counted, diff, 0), starts)}
        valid = np.asarray(values.is_valid()) if values.null_count else np.True_
        weight = np.where(valid, diff, 0)
        result: Totals = {"count": np.add.reduceat(weight, starts)}
        if self.kind == "decimal":
            result["sum"] = np.add.reduceat(exact.decimal_limbs(values) * weight[:, None], starts, axis=0)
            return result
        filled = values.fill_null(0) if values.null_count else values
        numbers = filled.to_numpy(zero_copy_only=False)
        if self.kind == "long":
            with np.errstate(over="ignore"):
                result["sum"] = np.add.reduceat(numbers * weight, starts)
            result["approximate"] = np.add.reduceat(numbers.astype(np.float64) * weight, starts)
            return result
        return result | self._double_totals(numbers, weight, starts)

    def _double_totals(
        self, numbers: exact.Doubles, weight: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
    ) -> Totals:
        result: Totals = {}
        finite = np.isfinite(numbers)
        if finite.all():
            nothing = np.zeros(len(starts), dtype=np.int64)
            result |= dict.fromkeys(_SPECIAL, nothing)
        else:
            for special, found in zip(
                _SPECIAL, (np.isnan(numbers), numbers == np.inf, numbers == -np.inf), strict=True
            ):
                result[special] = np.add.reduceat(np.where(found, weight, 0), starts)
            numbers = np.where(finite, numbers, 0.0)
        # A canonical order of the terms of a group, so that a replay gives the same bits.
        segment = np.zeros(len(numbers), dtype=np.int64)
        segment[starts[1:]] = 1
        order = np.lexsort((weight, numbers, np.cumsum(segment)))
        numbers, times = numbers[order], weight[order].astype(np.float64)
        result["hi"], result["lo"] = exact.sum_segments(exact.times(numbers, times), starts)
        if self.squares:
            square = exact.times(numbers, numbers)
            terms = exact.multiply(square, exact.Pair(times, np.zeros_like(times)))
            result["hi2"], result["lo2"] = exact.sum_segments(terms, starts)
        return result

    def combine(self, old: Totals, change: Totals) -> Totals:
        """old + change, row by row."""
        new: Totals = {"count": old["count"] + change["count"]}
        if self.kind == "long":
            with np.errstate(over="ignore"):
                new["sum"] = old["sum"] + change["sum"]
            new["approximate"] = old["sum"].astype(np.float64) + change.get("approximate", np.float64(0))
        elif self.kind == "decimal":
            new["sum"] = old["sum"] + change["sum"]
        elif self.kind == "double":
            for special in _SPECIAL:
                new[special] = old[special] + change[special]
            for hi, lo in (("hi", "lo"), ("hi2", "lo2"))[: 2 if self.squares else 1]:
                new[hi], new[lo] = exact.add(
                    exact.Pair(old[hi], old[lo]),
                    exact.Pair(change[hi], change[lo]),
                )
        return new

    def store(self, totals: Totals) -> list[pa.Array]:
        """Totals as state columns."""
        return [
            exact.limbs_to_decimal(totals[name], self.scale)
            if pa.types.is_decimal(kind)
            else pa.array(totals[name])
            for name, kind in self.fields()
        ]

    def load(self, columns: Mapping[str, pa.Array]) -> Totals:
        """State columns as totals; what is NULL was never stored and counts as nothing."""
        loaded: Totals = {}
        for name, kind in self.fields():
            values = columns[name]
            if pa.types.is_decimal(kind):
                loaded[name] = exact.decimal_limbs(values)
            else:
                loaded[name] = (values.fill_null(0) if values.null_count else values).to_numpy(
                    zero_copy_only=False
                )
        return loaded


@dataclass(frozen=True)
class Buffer:
    """One column of an aggregate's buffer as Spark defines it.

    show: `rows` (all rows of the group), `count` (those with an argument), `sum` (NULL where there were
    none), `total` (0 where there were none), `empty`, `mean`, `m2` (sum of squared distances from the mean).
    """

    show: Literal["rows", "count", "sum", "total", "empty", "mean", "m2"]
    argument: int
    type: pa.DataType
    ansi: bool = True

    def column(self, argument: Argument | None, totals: Totals, rows: npt.NDArray[np.int64]) -> pa.Array:
        if self.show == "rows":
            return pa.array(rows)
        assert argument is not None
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
                value = total.hi
        value = np.where(infs, np.inf, np.where(neginfs, -np.inf, value))
        return np.where(nans | (infs & neginfs), np.nan, np.where(count == 0, 0.0, value))
