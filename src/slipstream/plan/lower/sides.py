"""Both inputs of a join in one stage, told apart by `side`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType

from slipstream.dataflow.join import SIDES, Summed
from slipstream.dataflow.operator import Operator
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.lower.builder import Builder, Columns, Delta, Layout, Stored
from slipstream.plan.nodes import Key


@dataclass(frozen=True)
class Added:
    """What a side of a join keeps as sums."""

    value: Expr
    of: Summed


@dataclass(frozen=True)
class Sides:
    """The inputs of a join with the columns of both. stored: where the attributes of each are."""

    plan: Node
    columns: Columns
    stored: tuple[list[Stored], list[Stored]]

    def schema(self, build: Builder) -> pa.Schema:
        return build.input_schema(self.columns)

    def stage(self, build: Builder, operator: Operator) -> Node:
        return build.stage(self.plan, self.columns, operator)


def pairs_of(keys: Sequence[Key]) -> list[tuple[Expr, Expr]]:
    return [(key.left, key.right) for key in keys]


def without_nulls(catalyst: Catalyst, keys: Sequence[Key], child: Delta, side: int) -> Delta:
    """An input without the rows whose NULLs never match."""
    plan = child.plan
    for key in keys:
        if not key.null_safe and catalyst.nullable(key.of(side)):
            plan = catalyst.where(plan, catalyst.column(key.of(side)).isNotNull())
    return replace(child, plan=plan)


def both_sides(
    build: Builder,
    keys: Collection[tuple[Expr, Expr]],
    inputs: tuple[Delta, Delta],
    kept: tuple[Sequence[Expr], Sequence[Expr]],
    added: Sequence[Added] = (),
) -> Sides:
    """kept: the attributes of each input that are kept. added: what is kept as sums."""
    catalyst = build.catalyst
    columns: list[Columns] = []
    stored: list[list[Stored]] = []
    for i, child in enumerate(inputs):
        own_keys = [catalyst.normalised(pair[i]) for pair in keys]
        values, held = build.store(kept[i], own_keys, SIDES[i])
        own = _own_columns(build, own_keys, values)
        own |= {f"y{j}": _typed(catalyst, each.value) for j, each in enumerate(added) if each.of.side == i}
        own["diff"] = _typed(catalyst, child.diff)
        columns.append(own)
        stored.append(held)
    kinds: dict[str, DataType] = {"side": IntegerType()}
    for own in columns:
        kinds = {**{name: kind for name, (_, kind) in own.items()}, **kinds}
    halves: list[tuple[Node, Layout]] = []
    for i, (child, own) in enumerate(zip(inputs, columns, strict=True)):
        given = {"side": F.lit(i), **{name: column for name, (column, _) in own.items()}}
        selected = [given.get(name, F.lit(None).cast(kind)).alias(name) for name, kind in kinds.items()]
        halves.append((catalyst.select(child.plan, selected), child.layout))
    both, _ = build.union(halves)
    in_both: Columns = {name: (F.col(name), kind) for name, kind in kinds.items()}
    return Sides(both, in_both, (stored[0], stored[1]))


def _own_columns(build: Builder, keys: Sequence[Expr], values: Columns) -> Columns:
    """The hashes, the keys and the values of one input."""
    of_keys = build.keys(keys)
    hashed = [column for column, _ in of_keys.values()]
    columns: Columns = {
        "h": (build.hash(hashed), LongType()),
        "r": (build.hash([*hashed, *build.hashable(values.values())]), LongType()),
    }
    return columns | of_keys | values


def _typed(catalyst: Catalyst, expr: Expr) -> tuple[Column, DataType]:
    return catalyst.column(expr), catalyst.type_of(expr)
