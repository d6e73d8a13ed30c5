"""Record: the terminal that writes a view's own trace, where the rows lie, or by a hash of the row."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import LongType

from slipstream.dataflow.record import Record as Recording
from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.lower.builder import Columns, Delta, Unplaced
from slipstream.plan.lower.lowering import Lowering
from slipstream.plan.nodes import Record


def record(low: Lowering, op: Record, delta: Delta) -> Node:
    catalyst, build = low.catalyst, low.build
    if delta.unplaced:
        raise Unplaced(op.view)
    values, _ = build.store(catalyst.output(op.plan), [], "v")
    columns: Columns = build.whole_row(values)
    if delta.route is not None:
        columns["h"] = (catalyst.column(delta.route), LongType())
    columns["diff"] = (catalyst.column(delta.diff), LongType())
    operator = Recording(op.view, op.kept, build.input_schema(columns))
    return build.stage(delta.plan, columns, operator, shuffle=delta.route is None)


def recorded_schema(catalyst: Catalyst, op: Record) -> pa.Schema:
    """The columns that a view's trace is made of: hashes, values, diffs."""
    kinds = {f"v{i}": catalyst.type_of(each) for i, each in enumerate(catalyst.output(op.plan))}
    return catalyst.schema_of({"h": LongType(), "r": LongType(), **kinds, "diff": LongType()})
