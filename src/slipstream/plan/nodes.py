"""A view's plan as data: what each operator is, before anything of it is built.

Rules (`plan/rules/`) turn Spark's optimised plan into these nodes, lowering (`plan/lower/`) turns them into the plan of
an epoch. In between they are all there is: frozen, with no shards, no readers of traces, no frames, no functions. So
what is asked about a plan is read off them: `plan/explain.py` what to tell a user, `plan/direct.py` what a reader of
the view needs, `walk` which traces it keeps, `begins` whether it has rows over no input, `Accumulate.addable` what
may be chosen while it runs (`plan/choosing.py`).

Every node has the node of Spark's plan whose change it stands for (`plan`): it outputs the same attributes. What it
reads are `inputs`; what it keeps are `traces`, named by what the node means (`plan/identity.py`), first the one that
the operator is known by. Expressions are those of Spark's plan, over the attributes of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql.types import DataType, StructField, StructType

from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.sliding import Sliding
from slipstream.plan.catalyst import Expr, Node


@dataclass(frozen=True)
class Following:
    """How an operator follows event time in one of its inputs: which attribute tells it, and which part of that.

    marks: the watermarks that it goes by, with their delays in milliseconds. late: the trace of rows that came too
    late, and `view` what shows them. states: the traces that forget. after: for how many milliseconds after their event
    time rows are kept; None where they are kept for ever. side: of a join.
    """

    time: Expr
    part: Literal["", "start", "end"]
    marks: tuple[tuple[str, int], ...]
    late: str
    view: str
    states: tuple[str, ...]
    after: int | None
    side: int | None = None


@dataclass(frozen=True)
class LateView:
    """A view of the rows that came too late for an operator."""

    name: str
    schema: StructType
    trace: str


@dataclass(frozen=True)
class Op:
    """An operator. See the module's docstring."""

    plan: Node

    @property
    def inputs(self) -> tuple[Op, ...]:
        return ()

    @property
    def traces(self) -> tuple[str, ...]:
        return ()

    @property
    def following(self) -> tuple[Following, ...]:
        return ()

    @property
    def begins(self) -> bool:
        """Whether it may have a row although there is none in its inputs."""
        return False


# What is read


@dataclass(frozen=True)
class Source:
    """A source as plans see it. mode: whether its rows are added (append), carry a diff (diff) or replace each other by
    key (keyed), in the order of `orders`. trace: where the rows are by key. rejects: whether some may be bad.
    """

    name: str
    schema: StructType
    mode: str
    key: tuple[str, ...]
    orders: tuple[StructField, ...]
    rejects: bool
    trace: str


@dataclass(frozen=True)
class Input(Op):
    """The change of a source, or of another view (its name). leaf: the placeholder that stands for it in queries."""

    leaf: int
    of: Source | str


@dataclass(frozen=True)
class Constant(Op):
    """A relation that is part of the query: its rows come in the first epoch."""

    @property
    def begins(self) -> bool:
        return True


@dataclass(frozen=True)
class Once(Op):
    """What is read in several places, and computed once: `of`, under the attributes of `plan`. key: tells it from
    others. owner: the view that has it, if it is told there and not here.
    """

    of: Op
    key: str
    owner: str = ""

    @property
    def inputs(self) -> tuple[Op, ...]:
        return (self.of,)


# Linear nodes, which keep nothing


@dataclass(frozen=True)
class _OneInput(Op):
    input: Op

    @property
    def inputs(self) -> tuple[Op, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Project(_OneInput):
    """A select list."""


@dataclass(frozen=True)
class Passing(_OneInput):
    """A node that takes its input's attributes by place, and adds some or drops rows: Filter, Generate, a UDF's."""


@dataclass(frozen=True)
class Expand(_OneInput):
    """Several rows for each, as of grouping sets."""


@dataclass(frozen=True)
class Union(Op):
    """All rows of several inputs."""

    parts: tuple[Op, ...]

    @property
    def inputs(self) -> tuple[Op, ...]:
        return self.parts


# Operators


@dataclass(frozen=True)
class Keyed(_OneInput):
    """Any operator with one input that keeps traces."""

    kept: tuple[str, ...]
    times: tuple[Following, ...]

    @property
    def traces(self) -> tuple[str, ...]:
        return self.kept

    @property
    def following(self) -> tuple[Following, ...]:
        return self.times


@dataclass(frozen=True)
class Summand:
    """An argument of an aggregation that is added up: a value, or for a count the expressions that must not be NULL.
    only: of which rows. kind: how it is added.
    """

    argument: Argument
    value: Expr | None
    present: tuple[Expr, ...] = ()
    only: Expr | None = None

    @property
    def parts(self) -> tuple[Expr, ...]:
        """All that it reads."""
        read = self.present if self.value is None else (self.value,)
        return read if self.only is None else (*read, self.only)


@dataclass(frozen=True)
class Extremum:
    """A minimum or a maximum of a value, of which rows."""

    value: Expr
    only: Expr | None
    largest: bool


@dataclass(frozen=True)
class Sums:
    """What an aggregation adds up: keys, as they are compared; its aggregates, the buffers of each, and over what.
    extremes: what is not added up.
    """

    keys: tuple[Expr, ...]
    aggregates: tuple[Expr, ...]
    buffers: tuple[tuple[Buffer, ...], ...]
    summands: tuple[Summand, ...]
    extremes: tuple[Extremum, ...]

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return tuple(each.argument for each in self.summands)


@dataclass(frozen=True)
class Accumulate(Keyed):
    """An aggregation of sums and extremes. The first trace has the totals, the others the values of each extreme.
    addable: whether its rows may be added up before they are shuffled. emits: whether anything reads its change.
    copies: whether its rows stand for several (`Alike`).
    """

    sums: Sums
    addable: bool
    emits: bool = True
    copies: bool = False

    @property
    def begins(self) -> bool:
        return not self.sums.keys


@dataclass(frozen=True)
class Panes(Accumulate):
    """An aggregation over sliding windows, by pane (`plan/panes.py`). written: the node as Spark has it, with windows.
    at: the number of the key that is the window, of that type; time: the event time. whole: whether rows are added up
    by pane before they are sent, because all that is added up are whole numbers.
    """

    written: Node = field(kw_only=True)
    at: int = field(kw_only=True)
    kind: DataType = field(kw_only=True)
    time: Expr = field(kw_only=True)
    sliding: Sliding = field(kw_only=True)
    whole: bool = field(kw_only=True)


@dataclass(frozen=True)
class Alike(_OneInput):
    """Rows that are alike, of one pane, as one row at the pane's beginning; with how many they are, where others have a
    route.
    """

    attributes: tuple[Expr, ...]
    time: Expr
    sliding: Sliding


@dataclass(frozen=True)
class Key:
    """An equality that a join goes by. null_safe: whether NULL equals NULL."""

    left: Expr
    right: Expr
    null_safe: bool

    def of(self, side: int) -> Expr:
        return self.right if side else self.left


@dataclass(frozen=True)
class Joined(Op):
    """Any operator with two inputs, and a trace for each."""

    left: Op
    right: Op
    kept: tuple[str, str]

    @property
    def inputs(self) -> tuple[Op, ...]:
        return (self.left, self.right)

    @property
    def traces(self) -> tuple[str, ...]:
        return self.kept


@dataclass(frozen=True)
class Join(Joined):
    """An inner join by equal keys. rest: what else its rows must meet."""

    keys: tuple[Key, ...]
    rest: tuple[Expr, ...]
    times: tuple[Following, ...]

    @property
    def following(self) -> tuple[Following, ...]:
        return self.times


@dataclass(frozen=True)
class CombinedJoin(Joined):
    """An inner join by equal keys alone that adds up what the aggregation above it wants. sides: which input each key
    and then each argument of it is made of. as_sums: whether it keeps that as sums.
    """

    keys: tuple[Key, ...]
    sums: Sums
    sides: tuple[int, ...]
    as_sums: bool


@dataclass(frozen=True)
class CrossJoin(Joined):
    """An inner join without an equality. repeated: the input whose rows are there once for each salt."""

    condition: Expr | None
    repeated: int


@dataclass(frozen=True)
class Semi(Joined):
    """Rows of the left input whose key the right one has; or, if anti, has not."""

    keys: tuple[Key, ...]
    anti: bool


@dataclass(frozen=True)
class RegroupJoin(Joined):
    """Any other join: its rows are paired anew for each key that changes."""

    keys: tuple[Key, ...]


@dataclass(frozen=True)
class RegroupAggregate(Keyed):
    """Any aggregation: evaluated anew for each key that changes. keys: by which rows are told apart. whole: whether it
    has none at all, and so a row over no input. orders: in which a group's rows are given.
    """

    keys: tuple[Expr, ...]
    whole: bool
    orders: tuple[Expr, ...]

    @property
    def begins(self) -> bool:
        return self.whole


@dataclass(frozen=True)
class RegroupWindow(Keyed):
    """Window functions: evaluated anew for each partition that changes."""

    keys: tuple[Expr, ...]


@dataclass(frozen=True)
class TopK(Keyed):
    """Rows of an order: those after the first `skipped`, up to the place `last`; None if there is no end."""

    orders: tuple[Expr, ...]
    skipped: int
    last: int | None


@dataclass(frozen=True)
class FirstSeen(Keyed):
    """The first row of each key to come."""

    keys: tuple[Expr, ...]


# Views


@dataclass(frozen=True)
class Whole(_OneInput):
    """All rows of an input, in every epoch."""

    kept: str

    @property
    def traces(self) -> tuple[str, ...]:
        return (self.kept,)


@dataclass(frozen=True)
class Recompute(Op):
    """A query computed anew over whole inputs, less what was recorded."""

    wholes: tuple[Whole, ...]
    recorded: str

    @property
    def inputs(self) -> tuple[Op, ...]:
        return self.wholes

    @property
    def traces(self) -> tuple[str, ...]:
        return (self.recorded,)

    @property
    def begins(self) -> bool:
        return True


@dataclass(frozen=True)
class Record(_OneInput):
    """A view's rows, in a trace of its own."""

    view: str
    kept: str

    @property
    def traces(self) -> tuple[str, ...]:
        return (self.kept,)


@dataclass(frozen=True)
class ReadElsewhere(Op):
    """A view that is read from the totals of another one's aggregation, and needs nothing of its own."""

    of: Op
    owner: str


def walk(op: Op) -> Iterator[Op]:
    """An operator and all below it."""
    yield op
    for each in op.inputs:
        yield from walk(each)
