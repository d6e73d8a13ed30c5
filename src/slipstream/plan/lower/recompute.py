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

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from slipstream.dataflow.difference import Difference
from slipstream.dataflow.whole import Whole as Keeping
from slipstream.plan.catalyst import Node
from slipstream.plan.lower.builder import Columns, Delta
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.nodes import Input, Recompute, Whole


def recompute(low: Lowering, op: Recompute) -> Delta:
    catalyst, build = low.catalyst, low.build
    rows = {each.input.leaf: _whole(low, each) for each in op.wholes if isinstance(each.input, Input)}
    swapped = []
    for leaf in catalyst.nodes(op.plan):
        number = catalyst.leaf_id(leaf)
        if number is not None and number in rows:
            pairs = zip(catalyst.output(rows[number]), catalyst.output(leaf), strict=True)
            renamed = [catalyst.renamed(a, b) for a, b in pairs]
            swapped.append((leaf, catalyst.project(renamed, rows[number])))
    evaluated = catalyst.swap(op.plan, swapped)
    values, stored = build.store(catalyst.output(op.plan), [], "v")
    columns: Columns = build.whole_row(values)
    columns["diff"] = (F.lit(1).cast("long"), LongType())
    ran = build.stage(evaluated, columns, Difference(low.view, op.recorded, build.input_schema(columns)))
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    changed = catalyst.project([*build.restored(ran, stored), diff, route], ran)
    return Delta(changed, catalyst.attribute(diff), catalyst.attribute(route), "sharded")


def _whole(low: Lowering, op: Whole) -> Node:
    """All rows of an input, computed once for all that read them."""
    assert isinstance(op.input, Input)
    catalyst, build = low.catalyst, low.build
    delta = low.inputs[op.input.leaf]
    values, _ = build.store(catalyst.output(delta.plan)[: len(catalyst.output(op.plan))], [], "v")
    columns: Columns = build.whole_row(values)
    columns["diff"] = (catalyst.column(delta.diff), LongType())
    ran = build.stage(delta.plan, columns, Keeping(low.view, op.kept, build.input_schema(columns)))
    return build.share(catalyst.over(ran, lambda frame: build.together(frame, "h").drop("h")))
