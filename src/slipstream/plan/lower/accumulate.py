"""Accumulate and Extreme: columns below, the operator, and the select list over Spark's own buffers above.

Where it is chosen so (`plan/choosing.py`), rows are added up by each task before they are shuffled (`Partial`): then
only totals are. An aggregation over a join that adds up its pairs is given totals in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType

from slipstream.dataflow.combine import Combine, Partial
from slipstream.dataflow.eventtime import COPIES
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.direct import operator_of
from slipstream.plan.lower import eventtime
from slipstream.plan.lower.builder import Columns, Delta
from slipstream.plan.lower.combined import combined_join
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.lower.summands import summand_column
from slipstream.plan.nodes import Accumulate, CombinedJoin, Extremum, Sums
from slipstream.plan.sums import summand_type


@dataclass(frozen=True)
class _Feed:
    """The input of an aggregation: columns k0.., x0.. and diff over a plan. combined: x0.. are totals already."""

    plan: Node
    columns: Columns
    combined: bool = False


def accumulate(low: Lowering, op: Accumulate) -> Delta:
    catalyst, build, sums = low.catalyst, low.build, op.sums
    feed = _feed(low, op)
    keys = [column for name, (column, _) in feed.columns.items() if name.startswith("k")]
    columns: Columns = {"h": (build.hash(keys), LongType()), **feed.columns}
    more, timed = eventtime.keyed(build, op, _sent_as_they_are(sums), columns)
    columns |= more
    operator = operator_of(op, low.view, build.input_schema(columns), combined=feed.combined, timed=timed)
    return selected(catalyst, op, build.stage(feed.plan, columns, operator))


def selected(catalyst: Catalyst, op: Accumulate, ran: Node) -> Delta:
    """The change of an aggregation: the select list over what the operator gives."""
    if not op.emits:
        return Delta(ran, catalyst.output(ran)[0], None, "sharded")
    below, key_attributes = _restored(catalyst, ran, op.sums)
    diff, route = catalyst.attribute(below[0]), catalyst.attribute(below[1])
    replaced = _replacements(catalyst, op, key_attributes)
    results = [catalyst.replace(result, replaced) for result in catalyst.results(op.plan)]
    named = [
        result if catalyst.kind(result) == "Alias" else catalyst.renamed(result, target)
        for result, target in zip(results, catalyst.output(op.plan), strict=True)
    ]
    plan = catalyst.project([*named, diff, route], catalyst.project(below, ran))
    return Delta(plan, diff, route, "sharded")


def _feed(low: Lowering, op: Accumulate) -> _Feed:
    if isinstance(op.input, CombinedJoin):
        return _totals(low.catalyst, op.sums, combined_join(low, op.input))
    child = low.delta(op.input)
    feed = _Feed(child.plan, row_columns(low, op.sums, child))
    if op.copies:
        assert child.route is not None, "where others have a route, rows alike have how many they are"
        feed.columns[COPIES] = (low.catalyst.column(child.route), LongType())
    return _added_up(low, op, feed) if op.addable and op.traces[0] in low.partial else feed


def row_columns(low: Lowering, sums: Sums, child: Delta) -> Columns:
    """k0.., x0.., for extremes p0.. and e0.., and diff of an aggregation's rows."""
    catalyst = low.catalyst
    columns = low.build.keys(sums.keys)
    columns |= {
        f"x{i}": (summand_column(catalyst, each), summand_type(catalyst, each))
        for i, each in enumerate(sums.summands)
    }
    columns |= {f"p{i}": (_prefix(catalyst, each), LongType()) for i, each in enumerate(sums.extremes)}
    columns |= {f"e{i}": _extreme(catalyst, each) for i, each in enumerate(sums.extremes)}
    if not child.inserts_only:
        columns["diff"] = (catalyst.column(child.diff), LongType())
    return columns


def _extreme(catalyst: Catalyst, extremum: Extremum) -> tuple[Column, DataType]:
    value = catalyst.column(extremum.value)
    if extremum.only is not None:
        value = F.when(catalyst.column(extremum.only), value)
    return value, catalyst.type_of(extremum.value)


def _prefix(catalyst: Catalyst, extremum: Extremum) -> Column:
    """64 bits that order the values, best first."""
    return catalyst.order_prefix(catalyst.sort_order(extremum.value, descending=extremum.largest))


def _added_up(low: Lowering, op: Accumulate, feed: _Feed) -> _Feed:
    """Rows added up by the task that has them."""
    named = {"k": "c", "x": "y", "d": "d"}
    columns: Columns = {f"{named[name[0]]}{name[1:]}": each for name, each in feed.columns.items()}
    keys = tuple(name for name in columns if name.startswith("c"))
    values = tuple(name for name in columns if name.startswith("y"))
    adding = Combine(keys, values, op.sums.arguments)
    operator = Partial(op.traces[0], low.build.input_schema(columns), adding)
    return _totals(low.catalyst, op.sums, low.build.stage(feed.plan, columns, operator, shuffle=False))


def _totals(catalyst: Catalyst, sums: Sums, plan: Node) -> _Feed:
    """What a `Combine` has added up: c0.. keys, x0.. totals, diff."""
    by_name = {catalyst.name(each): each for each in catalyst.output(plan)}
    columns: Columns = {
        f"k{i}": (catalyst.column(by_name[f"c{i}"]), catalyst.type_of(key)) for i, key in enumerate(sums.keys)
    }
    for name, each in by_name.items():
        if name.startswith("x") or name == "diff":
            columns[name] = (catalyst.column(each), catalyst.type_of(each))
    return _Feed(plan, columns, combined=True)


def _sent_as_they_are(sums: Sums) -> list[tuple[Expr, str]]:
    """Keys and arguments that are expressions and nothing more, and the columns that they are sent in."""
    plain = [
        (each.value, f"x{i}")
        for i, each in enumerate(sums.summands)
        if each.value is not None and each.only is None
    ]
    return [(key, f"k{i}") for i, key in enumerate(sums.keys)] + plain


def _restored(catalyst: Catalyst, ran: Node, sums: Sums) -> tuple[list[Expr], list[Expr]]:
    """The stage's output under the attributes of Spark's aggregation buffers; diff and route first."""
    by_name = {catalyst.name(attribute): attribute for attribute in catalyst.output(ran)}
    columns = [catalyst.alias(by_name["diff"], "diff"), catalyst.alias(by_name["h"], "h")]
    keys = [catalyst.alias(by_name[f"k{i}"], f"k{i}") for i in range(len(sums.keys))]
    position = 0
    for expr, group in zip(sums.aggregates, sums.buffers, strict=True):
        for target in catalyst.buffers(catalyst.function(expr))[: len(group)]:
            columns.append(catalyst.renamed(by_name[f"b{position}"], target))
            position += 1
    return columns + keys, [catalyst.attribute(column) for column in keys]


def _replacements(catalyst: Catalyst, op: Accumulate, key_attributes: list[Expr]) -> list[tuple[Expr, Expr]]:
    """What stands for aggregates and keys in the select list."""
    pairs = [(expr, catalyst.evaluated(catalyst.function(expr))) for expr in op.sums.aggregates]
    return [*pairs, *zip(catalyst.grouping(op.plan), key_attributes, strict=True)]
