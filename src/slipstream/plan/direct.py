"""Views that are read from the totals of the aggregation at their root, and write nothing twice.

That can be done where the select list shows nothing but keys and plain buffers; by pane also parts of windows, and what
a reader can work out of buffers. What a reader needs is then read off
the node: which columns of the trace, or which buffers over the totals, are those of the view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import DataType, DoubleType, LongType

from slipstream.dataflow.accumulate import Accumulate as Accumulating
from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.eventtime import Timed
from slipstream.dataflow.extreme import Extreme
from slipstream.dataflow.panes import Windows
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.nodes import Accumulate, Panes, Sums
from slipstream.plan.sums import aggregates_in, summand_type

_FORMULAS = {
    "VariancePop": "var_pop",
    "VarianceSamp": "var_samp",
    "StddevPop": "stddev_pop",
    "StddevSamp": "stddev_samp",
}


@dataclass(frozen=True)
class Direct:
    """How to read a view's columns straight from an aggregation's trace (`Contents.columns`). windows: how they are
    made, where the trace is by pane.
    """

    trace: str
    stored: pa.Schema
    columns: tuple[str, ...]
    arguments: tuple[Argument, ...]
    buffers: tuple[Buffer, ...]
    windows: Windows | None = None


def reads_directly(catalyst: Catalyst, node: Node, by_pane: bool = False) -> bool:
    """Whether an Aggregate's output is nothing but what can be read from totals."""
    found = aggregates_in(catalyst, node)
    return _columns(catalyst, node, found, [0] * len(found), by_pane) is not None


def direct_of(catalyst: Catalyst, op: Accumulate, hash_bits: int) -> Direct | None:
    """How to read an aggregation's output from its trace, if that can be done."""
    sums, by_pane = op.sums, isinstance(op, Panes)
    shown = _columns(catalyst, op.plan, sums.aggregates, [len(group) for group in sums.buffers], by_pane)
    if shown is None:
        return None
    made = operator_of(op, "", _sent(catalyst, sums, op.at if isinstance(op, Panes) else None))
    adding = made if isinstance(made, Accumulating) else made.sums
    return Direct(
        trace=op.traces[0],
        stored=made.layer_schema(),
        columns=shown if isinstance(made, Accumulating) else tuple(_of_extreme(made, name) for name in shown),
        arguments=adding.arguments,
        buffers=adding.buffers,
        windows=windows_over(op, made, hash_bits) if isinstance(op, Panes) else None,
    )


def _of_extreme(made: Extreme, name: str) -> str:
    """A column that was found by the number of a buffer among all, as an Extreme keeps it."""
    letter, (first, colon, formula) = name[0], name[1:].partition(":")
    if letter not in "bf":
        return name
    which, at = made.shown[int(first)]
    return f"v{made.first_extreme + at}" if which == "extreme" else f"{letter}{at}{colon}{formula}"


def windows_over(op: Panes, inner: Accumulating | Extreme, hash_bits: int) -> Windows:
    """How windows are made of panes."""
    sums = inner if isinstance(inner, Accumulating) else inner.sums
    return Windows(
        sliding=op.sliding,
        at=op.at,
        arguments=sums.arguments,
        buffers=sums.buffers,
        largest=() if isinstance(inner, Accumulating) else inner.largest,
        hash_bits=hash_bits,
    )


def operator_of(
    op: Accumulate,
    view: str,
    schema: pa.Schema,
    *,
    combined: bool = False,
    timed: tuple[Timed, ...] = (),
) -> Accumulating | Extreme:
    """The operator of an aggregation over input columns. combined: whether these hold totals already."""
    sums = op.sums
    flat = [buffer for group in sums.buffers for buffer in group]
    buffers = tuple(buffer for buffer in flat if buffer.show != "extreme")
    adding = Accumulating(
        name=view,
        trace=op.traces[0],
        input=pa.schema([field for field in schema if field.name[0] not in "pe"]),
        arguments=sums.arguments,
        buffers=buffers,
        emits=op.emits,
        everything=not sums.keys,
        combined=combined,
        timed=timed,
        summed=isinstance(op, Panes) and op.whole,
    )
    if not sums.extremes:
        return adding
    places = iter(range(len(buffers)))
    shown = [("extreme", each.argument) if each.show == "extreme" else ("sum", next(places)) for each in flat]
    largest = tuple(each.largest for each in sums.extremes)
    return Extreme(adding, op.traces[1:], schema, largest, tuple(shown))  # type: ignore[arg-type]


def _sent(catalyst: Catalyst, sums: Sums, pane: int | None) -> pa.Schema:
    """The columns that the operator is sent, as far as its trace goes by them. pane: which key is a pane's number."""
    kinds: dict[str, DataType] = {"h": LongType()}
    kinds |= {f"k{i}": catalyst.type_of(key) for i, key in enumerate(sums.keys)}
    if pane is not None:
        kinds[f"k{pane}"] = LongType()
    kinds |= {f"x{i}": summand_type(catalyst, each) for i, each in enumerate(sums.summands)}
    kinds |= {f"e{i}": catalyst.type_of(each.value) for i, each in enumerate(sums.extremes)}
    return catalyst.schema_of(kinds)


def _columns(
    catalyst: Catalyst, node: Node, found: Sequence[Expr], buffers: Sequence[int], by_pane: bool
) -> tuple[str, ...] | None:
    """For each output column where it comes from (`Contents.columns`); None where one can not be read directly.
    buffers: how many each aggregate has.
    """
    keys = catalyst.grouping(node)
    names = []
    for result in catalyst.results(node):
        expr = catalyst.unnamed(result)
        at_key = [i for i, key in enumerate(keys) if catalyst.same(key, expr)]
        at_aggregate = [i for i, known in enumerate(found) if expr == known]
        if at_key:
            names.append(f"k{at_key[0]}")
        elif at_aggregate and _is_plain(catalyst, found[at_aggregate[0]]):
            names.append(f"b{sum(buffers[: at_aggregate[0]])}")
        elif by_pane and (part := _part_of_key(catalyst, keys, expr)) is not None:
            names.append(part)
        elif by_pane and at_aggregate and (formula := _formula(catalyst, found[at_aggregate[0]])):
            names.append(f"f{sum(buffers[: at_aggregate[0]])}:{formula}")
        else:
            return None
    return tuple(names)


def _is_plain(catalyst: Catalyst, aggregate: Expr) -> bool:
    """Whether an aggregate shows its buffer as it is."""
    return catalyst.kind(catalyst.evaluated(catalyst.function(aggregate))) == "AttributeReference"


def _part_of_key(catalyst: Catalyst, keys: list[Expr], expr: Expr) -> str | None:
    """Which part of a window that is a key an expression is, if it is one."""
    if catalyst.kind(expr) != "GetStructField":
        return None
    window = catalyst.child(expr)
    at = [i for i, key in enumerate(keys) if catalyst.is_time_window(key) and catalyst.same(key, window)]
    return f"k{at[0]}.{catalyst.field_number(expr)}" if at else None


def _formula(catalyst: Catalyst, aggregate: Expr) -> str:
    """How a reader works an aggregate out of its buffers; empty where it can not."""
    function = catalyst.function(aggregate)
    name = catalyst.kind(function)
    if name == "Average":
        return "avg" if isinstance(catalyst.type_of(function), DoubleType) else ""
    return _FORMULAS[name] if name in _FORMULAS and catalyst.null_on_zero(function) else ""
