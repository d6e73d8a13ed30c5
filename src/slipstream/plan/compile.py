"""An app's queries to operators.

Spark analyses and optimises each query over placeholders of its inputs. `maintainable` rewrites what comes out, plan to
plan; rules (`plan/rules/`) turn it into operators, nodes that say what is kept and what is computed from what
(`plan/nodes.py`); lowering (`plan/lower/`) turns these into the plan of an epoch. A view that can be read from an
aggregation's totals needs nothing more; any other is recorded in a trace of its own. A view that was declared with
`maintain="recompute"` is computed anew in every epoch instead.

The traces of an operator are named by what its node means (`plan/identity.py`), and so is the view: by what its query
means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from slipstream.plan.catalyst import Catalyst, Node, kept_schema
from slipstream.plan.collation import with_collations
from slipstream.plan.direct import Direct, direct_of
from slipstream.plan.distinct import without_distinct
from slipstream.plan.eventtime import watermarks_in
from slipstream.plan.existence import without_idle_limits
from slipstream.plan.identity import Known, Meanings, TraceNames
from slipstream.plan.kinds import LIMITS
from slipstream.plan.meaning import Meaning, of_recomputed, of_view
from slipstream.plan.nodes import (
    Accumulate,
    Input,
    LateView,
    Op,
    ReadElsewhere,
    Recompute,
    Record,
    Source,
    Whole,
    walk,
)
from slipstream.plan.ordering import with_orders
from slipstream.plan.panes import with_few_windows
from slipstream.plan.rules import RULES, Query
from slipstream.plan.settled import settled
from slipstream.plan.sharing import Commons, readable_root
from slipstream.plan.subqueries import without_subqueries


@dataclass(frozen=True)
class View:
    """One view's plan. root: a Record, or the aggregation whose totals it is read from (`direct`). readers: how many
    times other views take its change as their input. order: in which a reader expects its rows: column, ascending,
    NULLs first.
    """

    name: str
    schema: StructType
    root: Op
    readers: int
    direct: Direct | None
    order: tuple[tuple[str, bool, bool], ...]
    meaning: Meaning
    watermarks: Mapping[str, int]
    late: tuple[LateView, ...]


@dataclass(frozen=True)
class Compiled:
    """The views of an app, in the order in which each comes after those that it reads, and the sources that they read.
    leaves: the placeholders of both, by name. readers: how many times each is read.
    """

    sources: tuple[Source, ...]
    views: tuple[View, ...]
    leaves: Mapping[str, int]
    readers: Mapping[str, int]

    @property
    def begins(self) -> bool:
        """Whether some view has rows before there is any input, so that the first epoch must not wait for it."""
        return any(op.begins for view in self.views for op in walk(view.root))

    def addable(self) -> set[str]:
        """The aggregations whose rows may be added up before they are shuffled, by their first traces."""
        found = (op for view in self.views for op in walk(view.root))
        return {op.traces[0] for op in found if isinstance(op, Accumulate) and op.addable}


@dataclass(frozen=True)
class Declared:
    """What is compiled. sources: each with what it means. known: the traces that views have in the store already, and
    go on with. session: the settings of the session in which the views were written. hash_bits: how long hashes are.
    turn: that of new traces' names. left_out: views that are held. They are compiled with the others, so that what
    these share with them stays what it is, but after them, and then left out.
    """

    sources: Mapping[str, tuple[Source, Meaning]]
    views: Mapping[str, DataFrame]
    recomputed: Collection[str]
    placeholders: Mapping[str, DataFrame]
    known: Known
    session: Mapping[str, str]
    hash_bits: int = 64
    turn: str = ""
    left_out: Collection[str] = ()


def maintainable(catalyst: Catalyst, frame: DataFrame, recomputed: bool = False) -> Node:
    """A query as it is compiled: as Spark optimised it, with sets of distinct values in their order, without limits
    that only ask whether there is a row, without subqueries in expressions, with orders where they are needed, without
    a DISTINCT in aggregations unless they follow event time, with groups by collation keys, and unless it is to be
    recomputed, with few of many sliding windows.
    """
    plan = settled(catalyst, catalyst.optimised(frame))
    plan = without_subqueries(catalyst, without_idle_limits(catalyst, plan))
    plan = with_orders(catalyst, plan)
    marked = bool(watermarks_in(catalyst, plan))
    plan = with_collations(catalyst, plan if marked else without_distinct(catalyst, plan))
    return plan if marked or recomputed else with_few_windows(catalyst, plan)


def compile_views(catalyst: Catalyst, declared: Declared) -> Compiled:
    """Every view, in the order in which they are declared."""
    leaves = {name: catalyst.leaf_of(frame) for name, frame in declared.placeholders.items()}
    names = {leaf: name for name, leaf in leaves.items()}
    frames = dict(sorted(declared.views.items(), key=lambda view: view[0] in declared.left_out))
    plans = {
        name: maintainable(catalyst, frame, name in declared.recomputed) for name, frame in frames.items()
    }
    readers = _readers(catalyst, plans, names)
    commons = Commons(catalyst, names)
    for name, plan in plans.items():
        if name not in declared.recomputed:
            commons.count(plan, readers[name])
    meanings = Meanings(catalyst, declared.session)
    read = {name: each for name, each in declared.sources.items() if readers[name]}
    inputs: dict[int, Source | str] = {}
    for name, (source, meaning) in read.items():
        meanings.know(leaves[name], meaning)
        inputs[leaves[name]] = source
    views = []
    for name, frame in frames.items():
        compiling = _Compiling(
            catalyst=catalyst,
            name=name,
            inputs=inputs,
            commons=commons,
            meanings=meanings,
            names=TraceNames(name, declared.known, declared.turn),
            hash_bits=declared.hash_bits,
        )
        view = compiling.view(plans[name], frame.schema, readers[name], name in declared.recomputed)
        views.append(view)
        meanings.know(leaves[name], of_view(name, view.meaning))
        inputs[leaves[name]] = name
    left = _readers(catalyst, {name: plans[name] for name in plans if name not in declared.left_out}, names)
    return Compiled(
        tuple(source for source, _ in read.values() if left[source.name]),
        tuple(replace(view, readers=left[view.name]) for view in views if view.name not in declared.left_out),
        leaves,
        left,
    )


def _readers(catalyst: Catalyst, plans: Mapping[str, Node], names: Mapping[int, str]) -> Counter[str]:
    """How many times each source and view is read."""
    leaves = (catalyst.leaf_id(node) for plan in plans.values() for node in catalyst.nodes(plan))
    return Counter(names[leaf] for leaf in leaves if leaf is not None and leaf in names)


@dataclass(frozen=True)
class _Compiling:
    """One view on its way."""

    catalyst: Catalyst
    name: str
    inputs: Mapping[int, Source | str]
    commons: Commons
    meanings: Meanings
    names: TraceNames
    hash_bits: int

    def view(self, plan: Node, schema: StructType, readers: int, recomputed: bool) -> View:
        meaning = self.meanings.of_query(plan)
        if recomputed:
            meaning = of_recomputed(meaning)
        marks = {} if recomputed else watermarks_in(self.catalyst, plan)
        query = self._query(marks)
        totals = None if recomputed else readable_root(self.catalyst, plan)
        direct: Direct | None = None
        root: Op
        if totals is not None:
            root, direct = self._read_directly(query, totals, readers)
        else:
            trace = self.names.name("view", meaning)
            below = self._recompute(query, plan, trace) if recomputed else query.op(plan)
            root = Record(plan, below, self.name, trace)
        return View(
            name=self.name,
            schema=kept_schema(schema),
            root=root,
            readers=readers,
            direct=direct,
            order=order_of(self.catalyst, plan),
            meaning=meaning,
            watermarks=marks,
            late=tuple(query.timing.late),
        )

    def _query(self, marks: Mapping[str, int]) -> Query:
        return Query(
            catalyst=self.catalyst,
            view=self.name,
            rules=RULES,
            inputs=self.inputs,
            commons=self.commons,
            meanings=self.meanings,
            names=self.names,
            marks=marks,
        )

    def _read_directly(self, query: Query, totals: Node, readers: int) -> tuple[Op, Direct | None]:
        """A view that is read from the totals of the aggregation at its root."""
        common = self.commons.find(totals)
        if common is not None and common.taken:
            root: Op = query.common(totals, common)
            made = common.op
        elif common is not None and common.op is not None:
            root, made = ReadElsewhere(totals, common.op, common.view), common.op
        else:
            with self.names.sharing(common is not None):
                made = query.alone(totals)
            assert isinstance(made, Accumulate)
            root = made = replace(made, emits=readers > 0)
            if common is not None:
                common.view, common.op = self.name, made
        assert isinstance(made, Accumulate), "what is read from totals is an aggregation of sums"
        return root, direct_of(self.catalyst, made, self.hash_bits)

    def _recompute(self, query: Query, plan: Node, recorded: str) -> Recompute:
        """A view that is computed anew, over all rows of each input."""
        wholes: dict[int, Whole] = {}
        for node in self.catalyst.nodes(plan):
            given = query.given(node)
            if isinstance(given, Input) and given.leaf not in wholes:
                wholes[given.leaf] = Whole(node, given, query.trace("whole", node))
        return Recompute(plan, tuple(wholes.values()), recorded)


def order_of(catalyst: Catalyst, plan: Node) -> tuple[tuple[str, bool, bool], ...]:
    """The order that a reader expects: output column, ascending, NULLs first. Empty where there is none, and where
    the column's name is that of one before it.
    """
    numbers = {catalyst.name(a): catalyst.expr_id(a) for a in reversed(catalyst.output(plan))}
    names = {number: name for name, number in numbers.items()}
    while catalyst.kind(plan) in (*LIMITS, "Project"):
        plan = catalyst.children(plan)[0]
    order = []
    for each in catalyst.sort_orders(plan) if catalyst.kind(plan) == "Sort" else []:
        key = catalyst.child(each)
        if catalyst.kind(key) != "AttributeReference" or catalyst.expr_id(key) not in names:
            break
        order.append((names[catalyst.expr_id(key)], catalyst.ascending(each), catalyst.nulls_first(each)))
    return tuple(order)
