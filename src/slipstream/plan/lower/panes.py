"""Panes: an Accumulate or Extreme by pane, under one that makes windows of panes.

A pane's number takes the place of the window among the keys; where operators above take the change of windows, they are
given back as that key.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import LongType

from slipstream.dataflow.panes import LOWER
from slipstream.dataflow.panes import Panes as Paning
from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.direct import operator_of, windows_over
from slipstream.plan.lower.accumulate import row_columns, selected
from slipstream.plan.lower.builder import Builder, Columns, Delta
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.nodes import Panes, Sums

_HALF = (1 << 32) - 1


def panes(low: Lowering, op: Panes) -> Delta:
    catalyst, build = low.catalyst, low.build
    child = low.delta(op.input)
    plan = catalyst.where(child.plan, catalyst.column(op.time).isNotNull())
    columns = row_columns(low, op.sums, child)
    columns[f"k{op.at}"] = (_pane(catalyst, op), LongType())
    if op.whole:
        plan, columns = _added_up(build, op.sums, plan, columns)
    columns = {"h": (_hash(build, op, columns), LongType()), **columns}
    inner = operator_of(op, low.view, build.input_schema(columns))
    kind = to_arrow_type(op.kind, timezone="UTC")
    ran = build.stage(plan, columns, Paning(inner, windows_over(op, inner, build.hash_bits), kind, op.emits))
    return selected(catalyst, op, _with_windows(catalyst, op, ran) if op.emits else ran)


def _with_windows(catalyst: Catalyst, op: Panes, ran: Node) -> Node:
    """The operator's output with the window as a key."""
    given = catalyst.output(ran)
    named = [catalyst.alias(each, f"k{op.at}") if catalyst.name(each) == "w" else each for each in given]
    return catalyst.project(named, ran)


def _pane(catalyst: Catalyst, op: Panes) -> Column:
    """The number of the pane that a row is in."""
    moment = catalyst.moment(op.time) - F.lit(op.sliding.offset).cast("long")
    size = F.lit(op.sliding.pane).cast("long")
    return F.call_function("div", moment - F.pmod(moment, size), size)


def _hash(build: Builder, op: Panes, columns: Columns) -> Column:
    """`h` of a pane: the upper bits by the other keys, the lower ones the pane's number."""
    pane = columns[f"k{op.at}"][0]
    others = [each for name, (each, _) in columns.items() if name[0] == "k" and name != f"k{op.at}"]
    upper = F.xxhash64(*others) if others else F.lit(0).cast("long")
    return build.shortened(upper.bitwiseAND(F.lit(~LOWER)).bitwiseOR(pane.bitwiseAND(F.lit(LOWER))))


def _added_up(build: Builder, sums: Sums, plan: Node, columns: Columns) -> tuple[Node, Columns]:
    """Rows added up by their keys, as whole numbers (`Argument.to_sums`)."""
    catalyst = build.catalyst
    one = F.lit(1).cast("long")
    diff = columns["diff"][0] if "diff" in columns else one
    keys = [name for name in columns if name[0] == "k"]
    terms: list[Column] = []
    for at, argument in enumerate(sums.arguments):
        value = columns[f"x{at}"][0]
        nothing = F.lit(0).cast("long")
        if argument.kind == "count":
            terms.append(F.when(value, diff).otherwise(nothing))
            continue
        parts = (one, F.shiftright(value, 32), value.bitwiseAND(F.lit(_HALF)))
        terms += [F.when(value.isNotNull(), part * diff).otherwise(nothing) for part in parts]

    def added_up(frame: DataFrame) -> DataFrame:
        selected = [columns[name][0].alias(name) for name in keys]
        selected += [term.alias(f"x{i}") for i, term in enumerate(terms)]
        rows = frame.select(*selected, diff.alias("diff"))
        totals = [F.sum(name).alias(name) for name in (*(f"x{i}" for i in range(len(terms))), "diff")]
        return rows.groupBy(*keys).agg(*totals)

    made = catalyst.over(plan, added_up)
    known = {name: kind for name, (_, kind) in columns.items()}
    found: Columns = {
        name: (catalyst.column(each), known[name] if name in keys else LongType())
        for name, each in ((catalyst.name(each), each) for each in catalyst.output(made))
    }
    return made, found
