"""Join nodes: an inner join with equal keys to Join, others with equal keys to Regroup.

Both inputs of a join go through one stage, told apart by `side` (`join_stage`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType

from slipstream.dataflow.eventtime import Timed
from slipstream.dataflow.graph import Step
from slipstream.dataflow.join import Join
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.delta import Builder, Delta, Stored
from slipstream.plan.eventtime import Timing
from slipstream.plan.stages import Columns, Operator, stage

EQUALITIES = {"EqualTo", "EqualNullSafe"}


def equal_keys(catalyst: Catalyst, node: Node) -> tuple[list[tuple[Expr, Expr, str]], list[Expr]]:
    """Pairs of expressions, left and right, that must be equal, with the kind of equality; and the rest of
    the condition.
    """
    condition = catalyst.option(node.condition())
    keys: list[tuple[Expr, Expr, str]] = []
    rest: list[Expr] = []
    left, right = (child.outputSet() for child in catalyst.children(node))
    for part in catalyst.split_and(condition) if condition is not None else []:
        kind = catalyst.kind(part)
        one, other = (part.left(), part.right()) if kind in EQUALITIES else (None, None)
        if one is not None and _from(one, left) and _from(other, right):
            keys.append((one, other, kind))
        elif one is not None and _from(one, right) and _from(other, left):
            keys.append((other, one, kind))
        else:
            rest.append(part)
    return keys, rest


def _from(expr: Expr, attributes: Expr) -> bool:
    references = expr.references()
    return bool(references.nonEmpty() and references.subsetOf(attributes))


def matching(
    build: Builder, node: Node, left: Delta, right: Delta
) -> tuple[list[tuple[Expr, Expr]], tuple[Delta, Delta]]:
    """The pairs of keys of an inner join, and its inputs without the rows whose NULLs never match."""
    catalyst = build.catalyst
    keys, _ = equal_keys(catalyst, node)
    sides = []
    for i, child in enumerate((left, right)):
        plan = child.plan
        for *pair, kind in keys:
            if kind == "EqualTo" and pair[i].nullable():
                plan = catalyst.where(plan, catalyst.column(pair[i]).isNotNull())
        sides.append(replace(child, plan=plan))
    return [(one, other) for one, other, _ in keys], (sides[0], sides[1])


def inner(
    build: Builder,
    node: Node,
    left: Delta,
    right: Delta,
    name: str,
    traces: tuple[str, str],
    timing: Timing,
) -> Delta:
    catalyst = build.catalyst
    pairs, sides = matching(build, node, left, right)
    timed: list[Timed] = []

    def make(schema: pa.Schema, stored: list[list[Stored]]) -> Join:
        timed.extend(timing.joined(node, stored, traces))
        return Join(name, traces, schema, timed=tuple(timed))

    ran, stored = join_stage(build, pairs, sides, outputs(catalyst, node), make)
    diff, route = build.out(ran, "diff"), build.out(ran, "h")
    columns = [*build.restored(ran, [*stored[0], *stored[1]]), diff, route]
    plan = catalyst.project(columns, ran)
    condition = catalyst.conjunction(equal_keys(catalyst, node)[1])
    if condition is not None:
        plan = catalyst.filter(condition, plan)
    step = Step("Join", catalyst.line(node), (left.step, right.step), traces, timing.told(timed))
    return Delta(plan, catalyst.attribute(diff), catalyst.attribute(route), step, "sharded")


def outputs(catalyst: Catalyst, node: Node) -> tuple[list[Expr], list[Expr]]:
    """The attributes of a join's two inputs."""
    left, right = (catalyst.output(child) for child in catalyst.children(node))
    return left, right


def join_stage(
    build: Builder,
    keys: list[tuple[Expr, Expr]],
    inputs: tuple[Delta, Delta],
    kept: tuple[list[Expr], list[Expr]],
    make: Callable[[pa.Schema, list[list[Stored]]], Operator],
) -> tuple[Node, list[list[Stored]]]:
    """Both inputs of a join in one stage, told apart by `side`; in which columns the attributes to be `kept` are."""
    catalyst = build.catalyst
    own_keys = [[catalyst.normalised(pair[i]) for pair in keys] for i in (0, 1)]
    values: list[Columns] = []
    stored: list[list[Stored]] = []
    types: dict[str, DataType] = {}
    for i, prefix in enumerate("ab"):
        columns, held = build.store(kept[i], own_keys[i], prefix)
        values.append(columns)
        stored.append(held)
        types |= {name: kind for name, (_, kind) in columns.items()}
    halves = []
    for i, child in enumerate(inputs):
        key_columns = [catalyst.column(key) for key in own_keys[i]]
        own = {name: column for name, (column, _) in values[i].items()}
        row = build.hash([*key_columns, *build.hashable(values[i].values())])
        selected = [F.lit(i).alias("side"), build.hash(key_columns).alias("h"), row.alias("r")]
        selected += [column.alias(f"k{j}") for j, column in enumerate(key_columns)]
        selected += [own.get(name, F.lit(None).cast(kind)).alias(name) for name, kind in types.items()]
        selected.append(catalyst.column(child.diff).alias("diff"))
        halves.append((catalyst.select(child.plan, selected), child.layout))
    kinds: dict[str, DataType] = {"side": IntegerType(), "h": LongType(), "r": LongType()}
    kinds |= {f"k{i}": catalyst.type_of(key) for i, key in enumerate(own_keys[0])}
    kinds |= {**types, "diff": LongType()}
    both, _ = build.union(halves)
    columns = {name: (F.col(name), kind) for name, kind in kinds.items()}
    return stage(build, both, columns, lambda schema: make(schema, stored)), stored
