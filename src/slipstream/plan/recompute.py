"""A query that is computed anew in every epoch: the way out for what no rule can maintain.

Each input's rows are kept, whole, beside the query (`dataflow/whole.py`). Catalyst evaluates the user's plan over
them as it would in batch, and what comes out is compared with what the view recorded before
(`dataflow/difference.py`). From there on it is a change as any other: views can read it, history is kept.

The plan is closed off by a shuffle at either end, because within it Spark may lay out partitions as it likes, and an
operator's task knows its shard by its partition's number.

Not promised: that two computations over the same input agree where the query leaves something open, as the last
digits of a sum of doubles, or ties of an ORDER BY with LIMIT. The view then shows whichever was computed last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from slipstream.dataflow.difference import Difference
from slipstream.dataflow.graph import Step
from slipstream.dataflow.whole import Whole
from slipstream.plan.catalyst import Node
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.stages import Columns, stage


def recompute(
    build: Builder,
    plan: Node,
    inputs: Mapping[int, Delta],
    name: str,
    new_trace: Callable[[Node], str],
    recorded: str,
) -> Delta:
    """The change of a view that is computed anew. new_trace: gives a trace for all rows of an input. recorded: the
    trace that the view's rows are written to.
    """
    catalyst = build.catalyst
    leaves = [node for node in catalyst.nodes(plan) if catalyst.leaf_id(node) in inputs]
    wholes: dict[int, tuple[Node, Step]] = {}
    for leaf in leaves:
        identity = catalyst.leaf_id(leaf)
        assert identity is not None
        if identity not in wholes:
            trace = new_trace(leaf)
            wholes[identity] = _whole(build, leaf, inputs[identity], name, trace)
    swapped = []
    for leaf in leaves:
        rows, _ = wholes[catalyst.leaf_id(leaf) or 0]
        pairs = zip(catalyst.output(rows), catalyst.output(leaf), strict=True)
        swapped.append((leaf, catalyst.project([catalyst.renamed(a, b) for a, b in pairs], rows)))
    evaluated = catalyst.swap(plan, swapped)
    steps = tuple(step for _, step in wholes.values())
    return _difference(build, plan, evaluated, name, recorded, steps)


def _whole(build: Builder, leaf: Node, delta: Delta, name: str, trace: str) -> tuple[Node, Step]:
    """All rows of an input, computed once for all that read them."""
    catalyst = build.catalyst
    carried = catalyst.output(delta.plan)[: len(catalyst.output(leaf))]
    values, _ = build.store(carried, [], "v")
    row = build.hash(build.hashable(values.values()))
    columns: Columns = {"h": (row, LongType()), "r": (row, LongType()), **values}
    columns["diff"] = (catalyst.column(delta.diff), LongType())

    def make(schema: pa.Schema) -> Whole:
        return Whole(name, trace, schema)

    ran = stage(build, delta.plan, columns, make)
    spread = catalyst.over(ran, lambda frame: frame.repartition(build.shards, "h").drop("h"))
    return build.share(spread), Step("Whole", "all rows", (delta.step,), (trace,))


def _difference(
    build: Builder, plan: Node, evaluated: Node, name: str, recorded: str, steps: tuple[Step, ...]
) -> Delta:
    catalyst = build.catalyst
    values, stored = build.store(catalyst.output(plan), [], "v")
    row = build.hash(build.hashable(values.values()))
    columns: Columns = {"h": (row, LongType()), "r": (row, LongType()), **values}
    columns["diff"] = (F.lit(1).cast("long"), LongType())

    def make(schema: pa.Schema) -> Difference:
        return Difference(name, recorded, schema)

    ran = stage(build, evaluated, columns, make)
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    changed = catalyst.project([*build.restored(ran, stored), diff, route], ran)
    step = Step("Recompute", catalyst.line(plan), steps, (recorded,))
    return Delta(changed, catalyst.attribute(diff), catalyst.attribute(route), step, "sharded")
