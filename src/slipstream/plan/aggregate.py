"""Aggregate nodes: to Accumulate where every aggregate is a sum, to Regroup otherwise.

For Accumulate, Catalyst evaluates the keys and the arguments below, and each aggregate's own
`evaluateExpression`, the rest of the select list and HAVING above. Python in between only adds up. Where the
select list shows nothing but keys and plain buffers, the view can be read straight from the totals
(`Direct`), and nothing is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BooleanType, DataType, DecimalType, DoubleType, LongType

from slipstream.dataflow.accumulate import Accumulate
from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.graph import Step
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.stages import Columns, stage

_MOMENTS = {"VariancePop", "VarianceSamp", "StddevPop", "StddevSamp"}
_SUMS = {"Count", "Sum", "Average"} | _MOMENTS


@dataclass(frozen=True)
class Direct:
    """How to read a view's columns straight from an Accumulate's trace: `k0` a key, `b0` a buffer."""

    accumulate: Accumulate
    columns: tuple[str, ...]


def aggregates_in(catalyst: Catalyst, node: Node) -> list[Expr]:
    """Every aggregate expression of an Aggregate, each once."""
    found: list[Expr] = []
    for result in catalyst.items(node.aggregateExpressions()):
        for expr in catalyst.subtree(result):
            if catalyst.kind(expr) == "AggregateExpression" and not any(
                expr.equals(known) for known in found
            ):
                found.append(expr)
    return found


def accumulates(catalyst: Catalyst, node: Node) -> bool:
    """Whether every aggregate of the node is a sum over whole numbers, doubles or decimals."""
    return all(_is_sum(catalyst, expr) for expr in aggregates_in(catalyst, node))


def reads_directly(catalyst: Catalyst, node: Node) -> bool:
    """Whether the node's output is nothing but keys and plain buffers."""
    found = aggregates_in(catalyst, node)
    return _direct_columns(catalyst, node, found, [[] for _ in found]) is not None


def _is_sum(catalyst: Catalyst, expr: Expr) -> bool:
    function = expr.aggregateFunction()
    name = catalyst.kind(function)
    if expr.isDistinct() or name not in _SUMS:
        return False
    if name == "Sum":
        if _mode(function) == "TRY":
            return False
        return isinstance(catalyst.type_of(function), LongType | DoubleType | DecimalType)
    if name == "Average":
        return isinstance(_buffer_type(catalyst, function, 0), DoubleType | DecimalType)
    return True


def _mode(function: Expr) -> str:
    """What a sum does when it overflows: ANSI (fail), LEGACY (wrap around) or TRY (NULL)."""
    mode: str = function.evalContext().evalMode().toString()
    return mode


def _buffer_type(catalyst: Catalyst, function: Expr, at: int) -> DataType:
    return catalyst.type_of(catalyst.items(function.aggBufferAttributes())[at])


def accumulate(
    build: Builder, node: Node, child: Delta, name: str, trace: str, emits: bool
) -> tuple[Delta, Direct | None]:
    """An Accumulate in the place of the node, and how to read its output directly if that can be done."""
    catalyst = build.catalyst
    keys = [catalyst.normalised(key) for key in catalyst.items(node.groupingExpressions())]
    found = aggregates_in(catalyst, node)
    gathered = _Gathered(build)
    buffers = [gathered.add(expr) for expr in found]
    columns: Columns = {"h": (build.hash(catalyst.column(key) for key in keys), LongType())}
    columns |= {f"k{i}": (catalyst.column(key), catalyst.type_of(key)) for i, key in enumerate(keys)}
    columns |= {f"x{i}": value for i, value in enumerate(gathered.columns)}
    if not child.inserts_only:
        columns["diff"] = (catalyst.column(child.diff), LongType())

    made: list[Accumulate] = []
    direct = None

    def make(schema: pa.Schema) -> Accumulate:
        flat = tuple(buffer for group in buffers for buffer in group)
        made.append(
            Accumulate(name, trace, schema, tuple(gathered.arguments), flat, emits, everything=not keys)
        )
        return made[0]

    ran = stage(build, child.plan, columns, make)
    shown = _direct_columns(catalyst, node, found, buffers)
    if shown is not None:
        direct = Direct(made[0], shown)
    step = Step("Accumulate", catalyst.line(node), (child.step,), (trace,))
    if not emits:
        return Delta(ran, None, None, step, "sharded"), direct
    below, key_attributes = _restore(build, ran, keys, found, buffers)
    diff, route = catalyst.attribute(below[0]), catalyst.attribute(below[1])
    replaced = _replacements(catalyst, node, found, key_attributes)
    results = [catalyst.replace(result, replaced) for result in catalyst.items(node.aggregateExpressions())]
    named = [
        result if catalyst.kind(result) == "Alias" else catalyst.renamed(result, target)
        for result, target in zip(results, catalyst.output(node), strict=True)
    ]
    plan = catalyst.project([*named, diff, route], catalyst.project(below, ran))
    return Delta(plan, diff, route, step, "sharded"), direct


def _restore(
    build: Builder, ran: Node, keys: list[Expr], found: list[Expr], buffers: list[list[Buffer]]
) -> tuple[list[Expr], list[Expr]]:
    """The stage's output under the attributes of Spark's aggregation buffers; diff and route first."""
    catalyst = build.catalyst
    by_name = {attribute.name(): attribute for attribute in catalyst.output(ran)}
    columns = [catalyst.alias(by_name["diff"], "diff"), catalyst.alias(by_name["h"], "h")]
    key_columns = [catalyst.alias(by_name[f"k{i}"], f"k{i}") for i in range(len(keys))]
    position = 0
    for expr, group in zip(found, buffers, strict=True):
        for target in catalyst.items(expr.aggregateFunction().aggBufferAttributes())[: len(group)]:
            columns.append(catalyst.renamed(by_name[f"b{position}"], target))
            position += 1
    return columns + key_columns, [catalyst.attribute(column) for column in key_columns]


def _replacements(
    catalyst: Catalyst, node: Node, found: list[Expr], key_attributes: list[Expr]
) -> list[tuple[Expr, Expr]]:
    pairs = [(expr, expr.aggregateFunction().evaluateExpression()) for expr in found]
    for key, attribute in zip(catalyst.items(node.groupingExpressions()), key_attributes, strict=True):
        pairs.append((key, attribute))
    return pairs


def _direct_columns(
    catalyst: Catalyst, node: Node, found: list[Expr], buffers: list[list[Buffer]]
) -> tuple[str, ...] | None:
    """For each output column the key or buffer that it is; None where one is anything else."""
    keys = catalyst.items(node.groupingExpressions())
    first = [sum(len(group) for group in buffers[:i]) for i in range(len(buffers))]
    names = []
    for result in catalyst.items(node.aggregateExpressions()):
        expr = result.child() if catalyst.kind(result) == "Alias" else result
        at_key = [i for i, key in enumerate(keys) if catalyst.same(key, expr)]
        at_aggregate = [i for i, known in enumerate(found) if expr.equals(known)]
        if at_key:
            names.append(f"k{at_key[0]}")
        elif at_aggregate and catalyst.kind(
            found[at_aggregate[0]].aggregateFunction().evaluateExpression()
        ) == ("AttributeReference"):
            names.append(f"b{first[at_aggregate[0]]}")
        else:
            return None
    return tuple(names)


class _Gathered:
    """The arguments of an aggregation, each once."""

    def __init__(self, build: Builder) -> None:
        self._catalyst = build.catalyst
        self._exprs: list[Expr] = []
        self.arguments: list[Argument] = []
        self.columns: list[tuple[Column, DataType]] = []

    def add(self, expr: Expr) -> list[Buffer]:
        """The buffers of one aggregate, over arguments that are added where they are new."""
        catalyst = self._catalyst
        function = expr.aggregateFunction()
        name = catalyst.kind(function)
        only = catalyst.option(expr.filter())
        ansi = name != "Sum" or _mode(function) == "ANSI"
        if name == "Count":
            return [self._count(catalyst.children(function), only)]
        child = catalyst.children(function)[0]
        if name in _MOMENTS:
            at = self._argument(catalyst.cast(child, self._jtype(function, 0)), only, squares=True)
            return [
                Buffer("count", at, pa.float64()),
                Buffer("mean", at, pa.float64()),
                Buffer("m2", at, pa.float64()),
            ]
        kind = _buffer_type(catalyst, function, 0)
        at = self._argument(catalyst.cast(child, self._jtype(function, 0)), only)
        shown = to_arrow_type(kind)
        if name == "Average":
            return [Buffer("total", at, shown), Buffer("count", at, pa.int64())]
        if isinstance(kind, DecimalType):
            return [Buffer("total", at, shown), Buffer("empty", at, pa.bool_())]
        return [Buffer("sum", at, shown, ansi)]

    def _jtype(self, function: Expr, at: int) -> Expr:
        return self._catalyst.items(function.aggBufferAttributes())[at].dataType()

    def _count(self, arguments: list[Expr], only: Expr | None) -> Buffer:
        catalyst = self._catalyst
        counted = [catalyst.column(each).isNotNull() for each in arguments if each.nullable()]
        if only is not None:
            counted.append(F.coalesce(catalyst.column(only), F.lit(False)))
        if not counted:
            return Buffer("rows", -1, pa.int64())
        condition = counted[0]
        for each in counted[1:]:
            condition = condition & each
        self._exprs.append(None)
        self.arguments.append(Argument("count"))
        self.columns.append((condition, BooleanType()))
        return Buffer("count", len(self.arguments) - 1, pa.int64())

    def _argument(self, expr: Expr, only: Expr | None, squares: bool = False) -> int:
        catalyst = self._catalyst
        kind = catalyst.type_of(expr)
        for at, known in enumerate(self._exprs):
            if (
                only is None
                and known is not None
                and catalyst.same(known, expr)
                and self.arguments[at].squares == squares
            ):
                return at
        value = catalyst.column(expr)
        if only is not None:
            value = F.when(catalyst.column(only), value)
        name = (
            "long" if isinstance(kind, LongType) else "double" if isinstance(kind, DoubleType) else "decimal"
        )
        scale = kind.scale if isinstance(kind, DecimalType) else 0
        self._exprs.append(expr if only is None else None)
        self.arguments.append(Argument(name, squares, scale))  # type: ignore[arg-type]
        self.columns.append((value, kind))
        return len(self.arguments) - 1
