"""Building one Python stage of the epoch's template: columns in, an operator, columns out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from slipstream.plan.catalyst import Node
from slipstream.plan.delta import Builder

Columns = dict[str, tuple[Column, DataType]]


class Operator(Protocol):
    """What a stage runs: a callable over Arrow batches that knows its output."""

    def output(self) -> pa.Schema: ...
    def __call__(self, batches: Any) -> Any: ...


def stage(
    build: Builder, child: Node, columns: Columns, make: Callable[[pa.Schema], Operator], shuffle: bool = True
) -> Node:
    """The node that runs `make(input schema)` over `columns` of `child`, by shard."""
    types = {name: kind for name, (_, kind) in columns.items()}
    operator = make(build.catalyst.schema_of(types))
    known = from_arrow_schema(operator.output(), prefer_timestamp_ntz=True)
    output = StructType([StructField(f.name, types.get(f.name, f.dataType)) for f in known])

    def run(frame: DataFrame) -> DataFrame:
        selected = frame.select(*[column.alias(name) for name, (column, _) in columns.items()])
        routed = build.by_shard(selected) if shuffle else selected
        return routed.mapInArrow(operator, output)

    return build.catalyst.over(child, run)
