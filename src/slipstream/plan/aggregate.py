"""Aggregate nodes: to Accumulate where every aggregate is a sum, to Extreme where some are min or max and the rest are
sums, to Regroup otherwise.

For Accumulate, Catalyst evaluates the keys and the arguments below, and each aggregate's own
`evaluateExpression`, the rest of the select list and HAVING above. Python in between only adds up. Where the
select list shows nothing but keys and plain buffers, the view can be read straight from the totals
(`Direct`), and nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from slipstream.dataflow.accumulate import Accumulate
from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.eventtime import Timed
from slipstream.dataflow.extreme import Extreme
from slipstream.dataflow.graph import Step
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.eventtime import Timing
from slipstream.plan.stages import Columns, stage

_MOMENTS = {"VariancePop", "VarianceSamp", "StddevPop", "StddevSamp"}
_EXTREMES = {"Min", "Max"}
_ORDERED = (NumericType, StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType)
_SUMS = {"Count", "Sum", "Average"} | _MOMENTS


@dataclass(frozen=True)
class Direct:
    """How to read a view's columns straight from an aggregation's trace: `k0` a key, `b0` a buffer of the sums, `v5` a
    column of the trace.
    """

    sums: Accumulate
    stored: pa.Schema
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
    """Whether every aggregate of the node is a sum over whole numbers, doubles or decimals, or an extreme, and its
    groups are known by their rows: a session's are not, they merge.
    """
    if any(catalyst.is_session(key) for key in catalyst.items(node.groupingExpressions())):
        return False
    return all(
        _is_sum(catalyst, expr) or _is_extreme(catalyst, expr) for expr in aggregates_in(catalyst, node)
    )


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


def _is_extreme(catalyst: Catalyst, expr: Expr) -> bool:
    """Whether it is a min or max of values that Arrow orders as Spark does."""
    kind = catalyst.type_of(expr)
    collated = isinstance(kind, StringType) and kind != StringType()
    return (
        catalyst.kind(expr.aggregateFunction()) in _EXTREMES and isinstance(kind, _ORDERED) and not collated
    )


def _mode(function: Expr) -> str:
    """What a sum does when it overflows: ANSI (fail), LEGACY (wrap around) or TRY (NULL)."""
    mode: str = function.evalContext().evalMode().toString()
    return mode


def _buffer_type(catalyst: Catalyst, function: Expr, at: int) -> DataType:
    return catalyst.type_of(catalyst.items(function.aggBufferAttributes())[at])


@dataclass(frozen=True)
class Extremum:
    """A min or max: its value, a 64-bit prefix of its order, best first, and which of the two it is."""

    value: Column
    kind: DataType
    prefix: Column
    largest: bool


@dataclass(frozen=True)
class Sums:
    """What an aggregation adds up: its keys, its aggregates, their buffers, and the arguments in turn.

    values: the column of each argument; parts: the expressions that it is made of; extremes: what is not added up.
    """

    keys: list[Expr]
    found: list[Expr]
    buffers: list[list[Buffer]]
    arguments: list[Argument]
    values: list[tuple[Column, DataType]]
    parts: list[list[Expr]]
    extremes: list[Extremum]


def sums_of(build: Builder, node: Node) -> Sums:
    catalyst = build.catalyst
    found = aggregates_in(catalyst, node)
    gathered = _Gathered(build)
    buffers = [gathered.add(expr) for expr in found]
    keys = [catalyst.normalised(key) for key in catalyst.items(node.groupingExpressions())]
    return Sums(keys, found, buffers, gathered.arguments, gathered.columns, gathered.parts, gathered.extremes)


@dataclass(frozen=True)
class Feed:
    """The input of an Accumulate: columns k0.., x0.. and diff over a plan. `combined`: x0.. are totals already."""

    plan: Node
    columns: Columns
    step: Step
    combined: bool = False


def rows_feed(build: Builder, sums: Sums, child: Delta) -> Feed:
    """An Accumulate fed by rows."""
    catalyst = build.catalyst
    columns: Columns = {
        f"k{i}": (catalyst.column(key), catalyst.type_of(key)) for i, key in enumerate(sums.keys)
    }
    columns |= {f"x{i}": value for i, value in enumerate(sums.values)}
    columns |= {f"p{i}": (each.prefix, LongType()) for i, each in enumerate(sums.extremes)}
    columns |= {f"e{i}": (each.value, each.kind) for i, each in enumerate(sums.extremes)}
    if not child.inserts_only:
        columns["diff"] = (catalyst.column(child.diff), LongType())
    return Feed(child.plan, columns, child.step)


def combined_feed(build: Builder, sums: Sums, plan: Node, step: Step) -> Feed:
    """An Accumulate fed by what a `Combine` has added up."""
    catalyst = build.catalyst
    by_name = {each.name(): each for each in catalyst.output(plan)}
    columns: Columns = {
        f"k{i}": (catalyst.column(by_name[f"c{i}"]), catalyst.type_of(key)) for i, key in enumerate(sums.keys)
    }
    for name, each in by_name.items():
        if name.startswith("x") or name == "diff":
            columns[name] = (catalyst.column(each), catalyst.type_of(each))
    return Feed(plan, columns, step, combined=True)


def accumulate(
    build: Builder,
    node: Node,
    sums: Sums,
    feed: Feed,
    name: str,
    traces: Sequence[str],
    emits: bool,
    timing: Timing,
) -> tuple[Delta, Direct | None]:
    """An Accumulate or Extreme in the place of the node, and how to read its output directly if that can be done.
    Of the traces the first is for the totals, the others for the extremes.
    """
    catalyst = build.catalyst
    keys = [column for name, (column, _) in feed.columns.items() if name.startswith("k")]
    columns: Columns = {"h": (build.hash(keys), LongType()), **feed.columns}
    timed = () if feed.combined else timing.keyed(node, _sent_as_they_are(sums), columns, tuple(traces))
    made: list[Accumulate | Extreme] = []

    def make(schema: pa.Schema) -> Accumulate | Extreme:
        made.append(_operator(sums, schema, name, traces, emits, feed.combined, timed))
        return made[0]

    ran = stage(build, feed.plan, columns, make)
    direct = _direct(catalyst, node, sums, made[0])
    kind = "Extreme" if sums.extremes else "Accumulate"
    step = Step(kind, catalyst.line(node), (feed.step,), tuple(traces), timing.told(timed))
    if not emits:
        return Delta(ran, None, None, step, "sharded"), direct
    below, key_attributes = _restore(build, ran, sums.keys, sums.found, sums.buffers)
    diff, route = catalyst.attribute(below[0]), catalyst.attribute(below[1])
    replaced = _replacements(catalyst, node, sums.found, key_attributes)
    results = [catalyst.replace(result, replaced) for result in catalyst.items(node.aggregateExpressions())]
    named = [
        result if catalyst.kind(result) == "Alias" else catalyst.renamed(result, target)
        for result, target in zip(results, catalyst.output(node), strict=True)
    ]
    plan = catalyst.project([*named, diff, route], catalyst.project(below, ran))
    return Delta(plan, diff, route, step, "sharded"), direct


def _sent_as_they_are(sums: Sums) -> list[tuple[Expr, str]]:
    """Keys and arguments that are expressions and nothing more, and the columns that they are sent in."""
    arguments = enumerate(zip(sums.arguments, sums.parts, strict=True))
    plain = [
        (parts[0], f"x{i}") for i, (each, parts) in arguments if len(parts) == 1 and each.kind != "count"
    ]
    return [(key, f"k{i}") for i, key in enumerate(sums.keys)] + plain


def _operator(
    sums: Sums,
    schema: pa.Schema,
    name: str,
    traces: Sequence[str],
    emits: bool,
    combined: bool,
    timed: tuple[Timed, ...],
) -> Accumulate | Extreme:
    flat = [buffer for group in sums.buffers for buffer in group]
    buffers = tuple(buffer for buffer in flat if buffer.show != "extreme")
    own = pa.schema([field for field in schema if field.name[0] not in "pe"])
    counted = (tuple(sums.arguments), buffers)
    adding = Accumulate(name, traces[0], own, *counted, emits, not sums.keys, combined, timed)
    if not sums.extremes:
        return adding
    places = iter(range(len(buffers)))
    shown = [("extreme", each.argument) if each.show == "extreme" else ("sum", next(places)) for each in flat]
    largest = tuple(each.largest for each in sums.extremes)
    return Extreme(adding, tuple(traces[1:]), schema, largest, tuple(shown))  # type: ignore[arg-type]


def _direct(catalyst: Catalyst, node: Node, sums: Sums, made: Accumulate | Extreme) -> Direct | None:
    shown = _direct_columns(catalyst, node, sums.found, sums.buffers)
    if shown is None:
        return None
    if isinstance(made, Accumulate):
        return Direct(made, made.layer_schema(), shown)
    columns = []
    for name in shown:
        which, at = made.shown[int(name[1:])] if name[0] == "b" else ("key", 0)
        columns.append(
            f"v{made.first_extreme + at}" if which == "extreme" else f"b{at}" if which == "sum" else name
        )
    return Direct(made.sums, made.layer_schema(), tuple(columns))


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
        self.parts: list[list[Expr]] = []
        self.extremes: list[Extremum] = []

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
        if name in _EXTREMES:
            return [self._extremum(child, only, largest=name == "Max")]
        if name in _MOMENTS:
            at = self._argument(catalyst.cast(child, self._jtype(function, 0)), only, squares=True)
            return [
                Buffer("count", at, pa.float64()),
                Buffer("mean", at, pa.float64()),
                Buffer("m2", at, pa.float64()),
            ]
        kind = _buffer_type(catalyst, function, 0)
        own = catalyst.type_of(child)
        digits = own.precision if isinstance(own, DecimalType) else Argument.digits
        at = self._argument(catalyst.cast(child, self._jtype(function, 0)), only, digits=digits)
        shown = to_arrow_type(kind)
        if name == "Average":
            return [Buffer("total", at, shown), Buffer("count", at, pa.int64())]
        if isinstance(kind, DecimalType):
            return [Buffer("total", at, shown), Buffer("empty", at, pa.bool_())]
        return [Buffer("sum", at, shown, ansi)]

    def _extremum(self, child: Expr, only: Expr | None, largest: bool) -> Buffer:
        catalyst = self._catalyst
        value, kind = catalyst.column(child), catalyst.type_of(child)
        if only is not None:
            value = F.when(catalyst.column(only), value)
        prefix = catalyst.order_prefix(catalyst.sort_order(child, descending=largest))
        self.extremes.append(Extremum(value, kind, prefix, largest))
        return Buffer("extreme", len(self.extremes) - 1, to_arrow_type(kind, timezone="UTC"))

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
        self.parts.append([*arguments, *([] if only is None else [only])])
        self.arguments.append(Argument("count"))
        self.columns.append((condition, BooleanType()))
        return Buffer("count", len(self.arguments) - 1, pa.int64())

    def _argument(
        self, expr: Expr, only: Expr | None, squares: bool = False, digits: int = Argument.digits
    ) -> int:
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
        self.parts.append([expr] if only is None else [expr, only])
        self.arguments.append(Argument(name, squares, scale, digits))  # type: ignore[arg-type]
        self.columns.append((value, kind))
        return len(self.arguments) - 1
