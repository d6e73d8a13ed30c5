"""Nodes that Regroup maintains: any Aggregate, Window, and outer, existence, semi and anti joins.

Below, Catalyst evaluates the keys. Above, the very node of the user's plan is evaluated over the touched
groups before and after the change, with `side` (-1 or 1) added to its keys; side becomes the diff. An
aggregate without keys is evaluated over all rows but the ghosts (`dataflow/regroup.py`). An Aggregate over a Sort goes
by the order of its rows (`plan/ordering.py`): a group's rows lie in one partition, where they are put into it.

An Aggregate by a session window is regrouped by its other keys: which rows make one session depends on all rows
of those keys, and Spark's own node above merges them.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType

from slipstream.dataflow.graph import Step
from slipstream.dataflow.regroup import Regroup
from slipstream.plan.aggregate import aggregates_in
from slipstream.plan.catalyst import Expr, Node
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.eventtime import Timing
from slipstream.plan.join import join_stage, outputs
from slipstream.plan.stages import Columns, stage


def aggregate(build: Builder, node: Node, child: Delta, name: str, trace: str, timing: Timing) -> Delta:
    catalyst = build.catalyst
    keys = catalyst.items(node.groupingExpressions())
    results = catalyst.items(node.aggregateExpressions())
    apart = [key for key in keys if not catalyst.is_session(key)]
    below, side, tag, told = _one_input(build, node, apart, child, name, trace, timing, everything=not keys)
    if not keys:
        real = catalyst.at_least_zero(tag)
        found = [(each, catalyst.filtered(each, real)) for each in aggregates_in(catalyst, node)]
        results = [catalyst.replace(result, found) for result in results]
    results = [*results, side]
    below = _sorted(build, catalyst.children(node)[0], below)
    return _signed(
        build,
        node,
        catalyst.aggregate([*keys, side], results, below),
        catalyst.column(side),
        child.step,
        (trace,),
        told,
    )


def _sorted(build: Builder, child: Node, rows: Node) -> Node:
    """The rows of a node's child in the order that the child gives them, ties as in `topk`."""
    catalyst = build.catalyst
    if catalyst.kind(child) != "Sort":
        return rows
    ties = [
        catalyst.sort_order(each, descending=False)
        for each in catalyst.output(child)
        if catalyst.orderable(each)
    ]
    return catalyst.sort([*catalyst.items(child.order()), *ties], rows, everywhere=False)


def window(build: Builder, node: Node, child: Delta, name: str, trace: str, timing: Timing) -> Delta:
    catalyst = build.catalyst
    keys = catalyst.items(node.partitionSpec())
    below, side, _, told = _one_input(build, node, keys, child, name, trace, timing)
    evaluated = catalyst.window(node, [*keys, side], below)
    return _signed(build, node, evaluated, catalyst.column(side), child.step, (trace,), told)


def join(
    build: Builder,
    node: Node,
    keys: list[tuple[Expr, Expr]],
    left: Delta,
    right: Delta,
    name: str,
    traces: tuple[str, str],
) -> Delta:
    """An outer, semi, anti or existence join by its equal keys, or over all rows where there are none; the whole
    condition is evaluated again above.
    """
    catalyst = build.catalyst
    ran, stored = join_stage(
        build, keys, (left, right), outputs(catalyst, node), lambda schema, _: Regroup(name, traces, schema)
    )
    both = build.share(ran)
    attributes = {attribute.name(): attribute for attribute in catalyst.output(both)}
    sides, inputs = [], []
    for tag in (0, 1):
        side = catalyst.alias(attributes["side"], "side")
        mine = catalyst.where(both, catalyst.column(attributes["tag"]) == tag)
        restored = [catalyst.renamed(attributes[s.column], s.attribute) for s in stored[tag]]
        inputs.append(catalyst.project([*restored, side], mine))
        sides.append(catalyst.attribute(side))
    own = catalyst.option(node.condition())
    parts = catalyst.split_and(own) if own is not None else []
    condition = catalyst.conjunction([*parts, catalyst.equal(*sides)])
    joined = catalyst.join(node, inputs[0], inputs[1], condition)
    kept = catalyst.output(joined)
    shown = [catalyst.column(s) for s in sides if any(s.semanticEquals(o) for o in kept)]
    step_inputs = (left.step, right.step)
    return _signed(build, node, joined, F.coalesce(*shown), step_inputs, traces)


def _one_input(
    build: Builder,
    node: Node,
    keys: list[Expr],
    child: Delta,
    name: str,
    trace: str,
    timing: Timing,
    everything: bool = False,
) -> tuple[Node, Expr, Expr, str]:
    """The rows of the touched groups, before and after, as the node's child; the attribute that tells them
    apart, and the one that tells ghosts; what is behind the watermark.
    """
    catalyst = build.catalyst
    normal = [catalyst.normalised(key) for key in keys]
    values, stored = build.store(catalyst.output(catalyst.children(node)[0]), normal, "a")
    key_columns = [catalyst.column(key) for key in normal]
    row = [*key_columns, *build.hashable(values.values())]
    columns: Columns = {
        "side": (F.lit(0), IntegerType()),
        "h": (build.hash(key_columns), LongType()),
        "r": (build.hash(row), LongType()),
    }
    columns |= {
        f"k{i}": (c, catalyst.type_of(key))
        for i, (c, key) in enumerate(zip(key_columns, normal, strict=True))
    }
    columns |= values
    timed = timing.keyed(node, [(each.attribute, each.column) for each in stored], columns, (trace,))
    columns["diff"] = (catalyst.column(child.diff), LongType())

    def make(schema: pa.Schema) -> Regroup:
        return Regroup(name, (trace,), schema, everything, timed)

    ran = stage(build, child.plan, columns, make)
    side, tag = build.out(ran, "side"), build.out(ran, "tag")
    rows = catalyst.project([*build.restored(ran, stored), side, tag], ran)
    return rows, catalyst.attribute(side), catalyst.attribute(tag), timing.told(timed)


def _signed(
    build: Builder,
    node: Node,
    evaluated: Node,
    side: Column,
    inputs: Step | tuple[Step, ...],
    traces: tuple[str, ...],
    watermark: str = "",
) -> Delta:
    """The node's output with the side as its diff."""
    catalyst = build.catalyst
    columns = [catalyst.column(attribute) for attribute in catalyst.output(node)]
    plan = catalyst.select(evaluated, [*columns, side.cast("long").alias("diff")])
    diff = catalyst.output(plan)[-1]
    fed = (inputs,) if isinstance(inputs, Step) else inputs
    return Delta(plan, diff, None, Step("Regroup", catalyst.line(node), fed, traces, watermark), "free")
