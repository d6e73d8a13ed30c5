"""Join nodes: an inner join with equal keys to Join, others with equal keys to Semi and Regroup.

Both inputs of a join go through one stage, told apart by `side` (`join_stage`). Where one input lies in shards already
and the other is small and does not change, the first may be joined where it lies (`dataflow.broadcast`). Which way it
is done goes by measurements (`epoch.advice`), so a join that may be done so has no route: by which hash its rows lie
depends on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType

from slipstream.dataflow.aside import Aside
from slipstream.dataflow.broadcast import Broadcast, Move, Still
from slipstream.dataflow.eventtime import Timed
from slipstream.dataflow.graph import Step
from slipstream.dataflow.join import SIDES, Join, Summed, brought_columns
from slipstream.dataflow.presum import Presum
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.delta import Builder, Delta, Layout, Small, Stored
from slipstream.plan.eventtime import Timing
from slipstream.plan.stages import Columns, Operator, stage

EQUALITIES = {"EqualTo", "EqualNullSafe"}


@dataclass(frozen=True)
class Keeping:
    """What a join keeps: a trace for each side and, where one may be broadcast, one to put rows of the other aside.
    presummed: the sides whose rows are added up before they are shuffled.
    """

    sides: tuple[str, str]
    aside: Aside | None = None
    broadcast: bool = False
    presummed: frozenset[int] = frozenset()

    @property
    def traces(self) -> tuple[str, ...]:
        return self.sides if self.aside is None else (*self.sides, self.aside.trace)

    @property
    def moving(self) -> int | None:
        """The side whose rows that were put aside are moved back."""
        return self.aside.large if self.aside is not None and self.aside.moving else None

    @property
    def kind(self) -> str:
        """The kind of step."""
        return "Broadcast" if self.broadcast else "Join"


@dataclass(frozen=True)
class Added:
    """What a side of a join keeps as sums."""

    value: Expr
    of: Summed


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
    build: Builder, node: Node, left: Delta, right: Delta, without_nulls: tuple[int, ...] = (0, 1)
) -> tuple[list[tuple[Expr, Expr]], tuple[Delta, Delta]]:
    """The pairs of keys of a join, and its inputs, those to be so without the rows whose NULLs never match."""
    catalyst = build.catalyst
    keys, _ = equal_keys(catalyst, node)
    sides = []
    for i, child in enumerate((left, right)):
        plan = child.plan
        for *pair, kind in keys:
            if i in without_nulls and kind == "EqualTo" and pair[i].nullable():
                plan = catalyst.where(plan, catalyst.column(pair[i]).isNotNull())
        sides.append(replace(child, plan=plan))
    return [(one, other) for one, other, _ in keys], (sides[0], sides[1])


def to_keep(
    build: Builder, left: Delta, right: Delta, sides: tuple[str, str], aside: Callable[[], str]
) -> Keeping:
    """What an inner join keeps, and how it is to be done. aside: gives a trace to put rows aside in."""
    large = 0 if left.placed else 1 if right.placed else None
    if large is None:
        return Keeping(sides)
    trace, small = aside(), 1 - large
    build.can_be_broadcast[trace] = Small(sides[small], build.leaves_below((left, right)[small].plan))
    way = build.way(trace)
    return Keeping(sides, Aside(trace, large, way == "moving"), way == "broadcast")


def inner(
    build: Builder,
    node: Node,
    left: Delta,
    right: Delta,
    name: str,
    kept: Keeping,
    timing: Timing,
) -> Delta:
    catalyst = build.catalyst
    pairs, sides = matching(build, node, left, right)
    timed: list[Timed] = []

    def make(schema: pa.Schema, stored: list[list[Stored]]) -> Join:
        timed.extend(timing.joined(node, stored, kept.sides))
        return Join(name, kept.sides, schema, timed=tuple(timed), aside=kept.aside)

    ran, stored = inner_stage(build, pairs, sides, outputs(catalyst, node), make, kept)
    diff = build.out(ran, "diff")
    route = build.out(ran, "h") if kept.aside is None else None
    columns = [*build.restored(ran, [*stored[0], *stored[1]]), diff]
    plan = catalyst.project(columns if route is None else [*columns, route], ran)
    condition = catalyst.conjunction(equal_keys(catalyst, node)[1])
    if condition is not None:
        plan = catalyst.filter(condition, plan)
    step = Step(kept.kind, catalyst.line(node), (left.step, right.step), kept.traces, timing.told(timed))
    lies = None if route is None else catalyst.attribute(route)
    return Delta(plan, catalyst.attribute(diff), lies, step, "sharded", unrouted=route is None)


def outputs(catalyst: Catalyst, node: Node) -> tuple[list[Expr], list[Expr]]:
    """The attributes of a join's two inputs."""
    left, right = (catalyst.output(child) for child in catalyst.children(node))
    return left, right


def inner_stage(
    build: Builder,
    keys: list[tuple[Expr, Expr]],
    inputs: tuple[Delta, Delta],
    kept: tuple[list[Expr], list[Expr]],
    make: Callable[[pa.Schema, list[list[Stored]]], Join],
    keeping: Keeping,
    added: Sequence[Added] = (),
) -> tuple[Node, list[list[Stored]]]:
    """The stage of an inner join, in the way in which it is to be done. added: what is kept as sums."""
    aside = keeping.aside
    halves = _halves(build, keys, inputs, kept, added, keeping)
    if aside is not None and keeping.broadcast:
        theirs = {"side", *(name for name in halves.columns if name[0] == SIDES[aside.small])}
        theirs |= {f"y{i}" for i, each in enumerate(added) if each.of.side == aside.small}
        own = {name: each for name, each in halves.columns.items() if name not in theirs}
        join = make(halves.schema(build), halves.stored)
        plan, _ = halves.plans[aside.large]
        ran = stage(build, plan, own, lambda schema: Broadcast(join, aside, schema), shuffle=False)
        _keep_running(build, halves, aside.small, keeping.sides[aside.small])
        return ran, halves.stored
    if aside is not None and aside.moving:
        plan, layout = halves.plans[aside.large]
        moved = stage(build, plan, halves.columns, lambda schema: Move(aside, schema), shuffle=False)
        halves.plans[aside.large] = (moved, layout)
    return _shuffled(build, halves, make), halves.stored


def _keep_running(build: Builder, halves: _Halves, small: int, trace: str) -> None:
    """Have what computes a side that is broadcast run all the same, if there is an operator in it."""
    plan, layout = halves.plans[small]
    if layout == "free" and not build.reads_shared(plan):
        return
    seen = {name: halves.columns[name] for name in ("h", "diff")}
    sharded = layout == "sharded"
    build.idle.append(stage(build, plan, seen, lambda schema: Still(trace, schema), shuffle=not sharded))


def join_stage(
    build: Builder,
    keys: list[tuple[Expr, Expr]],
    inputs: tuple[Delta, Delta],
    kept: tuple[list[Expr], list[Expr]],
    make: Callable[[pa.Schema, list[list[Stored]]], Operator],
) -> tuple[Node, list[list[Stored]]]:
    """Both inputs of a join in one stage, told apart by `side`; in which columns the attributes to be `kept` are."""
    halves = _halves(build, keys, inputs, kept)
    return _shuffled(build, halves, make), halves.stored


@dataclass(frozen=True)
class _Halves:
    """Both inputs of a join with the same columns, and where the attributes of each are."""

    plans: list[tuple[Node, Layout]]
    columns: Columns
    stored: list[list[Stored]]

    def schema(self, build: Builder) -> pa.Schema:
        return build.catalyst.schema_of({name: kind for name, (_, kind) in self.columns.items()})


def _shuffled(
    build: Builder, halves: _Halves, make: Callable[[pa.Schema, list[list[Stored]]], Operator]
) -> Node:
    both, _ = build.union(halves.plans)
    return stage(build, both, halves.columns, lambda schema: make(schema, halves.stored))


def _halves(
    build: Builder,
    keys: list[tuple[Expr, Expr]],
    inputs: tuple[Delta, Delta],
    kept: tuple[list[Expr], list[Expr]],
    added: Sequence[Added] = (),
    keeping: Keeping | None = None,
) -> _Halves:
    catalyst = build.catalyst
    own_keys = [[catalyst.normalised(pair[i]) for pair in keys] for i in (0, 1)]
    plans: list[Node] = []
    columns: list[Columns] = []
    stored: list[list[Stored]] = []
    for i, child in enumerate(inputs):
        values, held = build.store(kept[i], own_keys[i], SIDES[i])
        own = _own_columns(build, own_keys[i], values)
        own |= {f"y{j}": _typed(catalyst, each.value) for j, each in enumerate(added) if each.of.side == i}
        plan = child.plan
        if keeping is not None and i in keeping.presummed:
            plan, own = _presummed(build, child, own, i, keeping.sides[i], added)
        else:
            own["diff"] = _typed(catalyst, child.diff)
        plans.append(plan)
        columns.append(own)
        stored.append(held)
    kinds: dict[str, DataType] = {"side": IntegerType()}
    for own in columns:
        kinds = {**{name: kind for name, (_, kind) in own.items()}, **kinds}
    if keeping is not None and keeping.moving is not None:
        kinds |= dict.fromkeys(brought_columns([each.of for each in added], keeping.moving), LongType())
    halves: list[tuple[Node, Layout]] = []
    for i, (plan, own) in enumerate(zip(plans, columns, strict=True)):
        given = {"side": F.lit(i), **{name: column for name, (column, _) in own.items()}}
        selected = [given.get(name, F.lit(None).cast(kind)).alias(name) for name, kind in kinds.items()]
        halves.append((catalyst.select(plan, selected), inputs[i].layout))
    return _Halves(halves, {name: (F.col(name), kind) for name, kind in kinds.items()}, stored)


def _own_columns(build: Builder, keys: list[Expr], values: Columns) -> Columns:
    """The hashes, the keys and the values of one input."""
    catalyst = build.catalyst
    of_keys = [_typed(catalyst, key) for key in keys]
    hashed = [column for column, _ in of_keys]
    columns: Columns = {
        "h": (build.hash(hashed), LongType()),
        "r": (build.hash([*hashed, *build.hashable(values.values())]), LongType()),
    }
    return columns | {f"k{i}": each for i, each in enumerate(of_keys)} | values


def _typed(catalyst: Catalyst, expr: Expr) -> tuple[Column, DataType]:
    return catalyst.column(expr), catalyst.type_of(expr)


def _presummed(
    build: Builder, child: Delta, own: Columns, side: int, trace: str, added: Sequence[Added]
) -> tuple[Node, Columns]:
    """One input with its rows added up by each task, and its columns then."""
    if not child.inserts_only:
        own = {**own, "diff": _typed(build.catalyst, child.diff)}
    summed = tuple(each.of for each in added)
    ran = stage(build, child.plan, own, lambda schema: Presum(trace, side, summed, schema), shuffle=False)
    made = build.catalyst.schema(ran)
    return ran, {field.name: (F.col(field.name), field.dataType) for field in made.fields}
