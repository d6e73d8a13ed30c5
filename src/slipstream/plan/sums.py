"""What an aggregation adds up, as far as it does: sums, and minima and maxima beside them.

For sums, Catalyst evaluates the keys and the arguments below, and each aggregate's own `evaluateExpression`, the rest
of the select list and HAVING above. Python in between only adds up. An argument that several aggregates have is added
up once.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegralType,
    LongType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from slipstream.dataflow.accumulators import Argument, Buffer, Kind
from slipstream.plan.catalyst import Catalyst, Expr, Node, Type
from slipstream.plan.nodes import Extremum, Summand, Sums

_MOMENTS = {"VariancePop", "VarianceSamp", "StddevPop", "StddevSamp"}
_EXTREMES = {"Min", "Max"}
_ORDERED = (NumericType, StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType)
_SUMS = {"Count", "Sum", "Average"} | _MOMENTS


def aggregates_in(catalyst: Catalyst, node: Node) -> list[Expr]:
    """Every aggregate expression of an Aggregate, each once."""
    found: list[Expr] = []
    for result in catalyst.results(node):
        for expr in catalyst.subtree(result):
            if catalyst.kind(expr) == "AggregateExpression" and expr not in found:
                found.append(expr)
    return found


def accumulates(catalyst: Catalyst, node: Node) -> bool:
    """Whether every aggregate of the node is a sum over whole numbers, doubles or decimals, or an extreme, and its
    groups are known by their rows: a session's are not, they merge.
    """
    if any(catalyst.is_session(key) for key in catalyst.grouping(node)):
        return False
    return all(
        _is_sum(catalyst, expr) or _is_extreme(catalyst, expr) for expr in aggregates_in(catalyst, node)
    )


def sums_of(catalyst: Catalyst, node: Node) -> Sums:
    """What an aggregation adds up."""
    found = aggregates_in(catalyst, node)
    gathered = _Gathered(catalyst)
    buffers = tuple(tuple(gathered.add(expr)) for expr in found)
    keys = tuple(catalyst.normalised(key) for key in catalyst.grouping(node))
    return Sums(
        keys=keys,
        aggregates=tuple(found),
        buffers=buffers,
        summands=tuple(gathered.summands),
        extremes=tuple(gathered.extremes),
    )


def summand_type(catalyst: Catalyst, summand: Summand) -> DataType:
    """The type of an argument as it is sent to be added up; of a count, whether to count the row."""
    return BooleanType() if summand.value is None else catalyst.type_of(summand.value)


def _is_sum(catalyst: Catalyst, expr: Expr) -> bool:
    function = catalyst.function(expr)
    name = catalyst.kind(function)
    if catalyst.is_distinct(expr) or name not in _SUMS:
        return False
    if name == "Sum":
        if catalyst.overflow_mode(function) == "TRY":
            return False
        return isinstance(catalyst.type_of(function), LongType | DoubleType | DecimalType)
    if name == "Average":
        return isinstance(_buffer_type(catalyst, function), DoubleType | DecimalType)
    return True


def _is_extreme(catalyst: Catalyst, expr: Expr) -> bool:
    """Whether it is a min or max of values that Arrow orders as Spark does."""
    kind = catalyst.type_of(expr)
    collated = isinstance(kind, StringType) and kind != StringType()
    is_named = catalyst.kind(catalyst.function(expr)) in _EXTREMES
    return is_named and isinstance(kind, _ORDERED) and not collated


def _buffer_type(catalyst: Catalyst, function: Expr) -> DataType:
    return catalyst.type_of(catalyst.buffers(function)[0])


class _Gathered:
    """The arguments of an aggregation, each once."""

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst
        self.summands: list[Summand] = []
        self.extremes: list[Extremum] = []

    def add(self, expr: Expr) -> list[Buffer]:
        """The buffers of one aggregate, over arguments that are added where they are new."""
        catalyst = self._catalyst
        function = catalyst.function(expr)
        name = catalyst.kind(function)
        only = catalyst.only_where(expr)
        ansi = name != "Sum" or catalyst.overflow_mode(function) == "ANSI"
        if name == "Count":
            return [self._count(catalyst.children(function), only)]
        child = catalyst.children(function)[0]
        if name in _EXTREMES:
            return [self._extremum(child, only, largest=name == "Max")]
        if name in _MOMENTS:
            at = self._argument(catalyst.cast(child, self._sent_as(function)), only, squares=True)
            return [Buffer(show, at, pa.float64()) for show in ("count", "mean", "m2")]
        kind = _buffer_type(catalyst, function)
        own = catalyst.type_of(child)
        shown = to_arrow_type(kind)
        if name == "Average" and isinstance(own, IntegralType):
            at = self._argument(catalyst.cast_long(child), only, "whole")
            return [Buffer("total", at, shown), Buffer("count", at, pa.int64())]
        digits = own.precision if isinstance(own, DecimalType) else Argument.digits
        at = self._argument(catalyst.cast(child, self._sent_as(function)), only, digits=digits)
        if name == "Average":
            return [Buffer("total", at, shown), Buffer("count", at, pa.int64())]
        if isinstance(kind, DecimalType):
            return [Buffer("total", at, shown), Buffer("empty", at, pa.bool_())]
        return [Buffer("sum", at, shown, ansi)]

    def _sent_as(self, function: Expr) -> Type:
        return self._catalyst.jvm_type(self._catalyst.buffers(function)[0])

    def _extremum(self, child: Expr, only: Expr | None, largest: bool) -> Buffer:
        self.extremes.append(Extremum(child, only, largest))
        kind = to_arrow_type(self._catalyst.type_of(child), timezone="UTC")
        return Buffer("extreme", len(self.extremes) - 1, kind)

    def _count(self, arguments: list[Expr], only: Expr | None) -> Buffer:
        nullable = any(self._catalyst.nullable(each) for each in arguments)
        if not nullable and only is None:
            return Buffer("rows", -1, pa.int64())
        self.summands.append(Summand(Argument("count"), None, tuple(arguments), only))
        return Buffer("count", len(self.summands) - 1, pa.int64())

    def _argument(
        self,
        expr: Expr,
        only: Expr | None,
        added_as: Kind | None = None,
        squares: bool = False,
        digits: int = Argument.digits,
    ) -> int:
        kind = self._catalyst.type_of(expr)
        own = added_as or _added_as(kind)
        for at, known in enumerate(self.summands):
            alike = only is None and known.only is None and known.argument.squares == squares
            alike = alike and known.argument.kind == own
            if alike and known.value is not None and self._catalyst.same(known.value, expr):
                return at
        scale = kind.scale if isinstance(kind, DecimalType) else 0
        argument = Argument(own, squares, scale, digits)
        self.summands.append(Summand(argument, expr, only=only))
        return len(self.summands) - 1


def _added_as(kind: DataType) -> Kind:
    return "long" if isinstance(kind, LongType) else "double" if isinstance(kind, DoubleType) else "decimal"
