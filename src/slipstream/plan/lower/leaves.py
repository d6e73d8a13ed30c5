"""Inputs, constants, and what is computed once."""

from __future__ import annotations

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from slipstream.core.columns import DIFF
from slipstream.plan.lower.builder import Builder, Delta, Leaf
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.nodes import Constant, Input, Once


def given(low: Lowering, op: Input) -> Delta:
    """The change of an input under the expression ids that this view's plan has for it."""
    return low.renamed(low.inputs[op.leaf], op.plan)


def once(low: Lowering, op: Once) -> Delta:
    return low.renamed(low.once(op.key, op.of), op.plan)


def constant(low: Lowering, op: Constant) -> Delta:
    rows = low.build.constant(op.plan)
    plan = low.catalyst.over(rows, lambda frame: frame.select("*", F.lit(1).cast("long").alias("diff")))
    return Delta(plan, low.catalyst.output(plan)[-1], None, "free", inserts_only=True)


def handed_in(build: Builder, rows: StructType, readers: int, *, unplaced: bool) -> tuple[Leaf, Delta]:
    """A leaf for the change of a collection with these columns, with how often each row is added at the end. unplaced:
    whether the change has a route where it is computed.
    """
    fields = [StructField(f"c{i}", field.dataType) for i, field in enumerate(rows)]
    leaf = build.leaf(build.catalyst.placeholder(StructType([*fields, StructField(DIFF, LongType())])))
    plan = build.share(leaf.node) if readers > 1 else leaf.node
    delta = Delta(plan, build.catalyst.output(plan)[-1], None, "free", unplaced=unplaced)
    return leaf, delta
