"""A view's query to the plan of its change.

Spark analyses and optimises the query over placeholders of its inputs. Each node of the optimised plan is
then replaced, bottom up, by a plan for its change (`Delta`): linear nodes as they are, stateful ones by a
shuffle and a Python stage. A view that is read directly from an Accumulate's totals needs nothing more; any
other is recorded in a trace of its own. A view that was declared with `maintain="recompute"` is computed anew in
every epoch instead (`plan/recompute.py`).

The traces of an operator are named by what its node means (`plan/identity.py`), and so is the view: by what its query
means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from slipstream.dataflow.graph import Step
from slipstream.dataflow.record import Record
from slipstream.plan import aggregate, combine, cross, firstseen, join, linear, partial, regroup, semi, topk
from slipstream.plan.aggregate import Direct
from slipstream.plan.catalyst import Catalyst, Node, kept_schema
from slipstream.plan.collation import with_collations
from slipstream.plan.delta import Builder, Delta
from slipstream.plan.distinct import without_distinct
from slipstream.plan.eventtime import LateView, Timing, watermarks_in
from slipstream.plan.existence import without_idle_limits
from slipstream.plan.identity import Meanings, TraceNames
from slipstream.plan.meaning import Meaning, of_recomputed
from slipstream.plan.ordering import with_orders
from slipstream.plan.recompute import recompute
from slipstream.plan.refuse import CONSTANTS
from slipstream.plan.sharing import STATEFUL, Common, Commons, readable_root
from slipstream.plan.stages import stage
from slipstream.plan.subqueries import without_subqueries


@dataclass(frozen=True)
class Compiled:
    """One view, compiled."""

    name: str
    schema: StructType
    step: Step
    terminals: tuple[Node, ...]
    delta: Delta | None
    direct: Direct | None
    record: Record | None
    order: tuple[tuple[str, bool, bool], ...]
    meaning: Meaning
    watermarks: Mapping[str, int]
    late: tuple[LateView, ...]


def maintainable(catalyst: Catalyst, frame: DataFrame) -> Node:
    """A query as it is compiled: as Spark optimised it, without limits that only ask whether there is a row, without
    subqueries in expressions, with orders where they are needed, without a DISTINCT in aggregations unless they follow
    event time, and with groups by collation keys.
    """
    plan = without_subqueries(catalyst, without_idle_limits(catalyst, catalyst.optimised(frame)))
    plan = with_orders(catalyst, plan)
    plan = plan if watermarks_in(catalyst, plan) else without_distinct(catalyst, plan)
    return with_collations(catalyst, plan)


class ViewCompiler:
    """Compiles one view, over the changes of its inputs."""

    def __init__(
        self,
        build: Builder,
        view: str,
        inputs: Mapping[int, Delta],
        commons: Commons,
        meanings: Meanings,
        names: TraceNames,
    ) -> None:
        self._build = build
        self._catalyst = build.catalyst
        self._view = view
        self._inputs = dict(inputs)
        self._commons = commons
        self._meanings = meanings
        self._names = names
        self._timing = self._timed({})
        self._recorded: Node | None = None

    def compile(self, plan: Node, schema: StructType, readers: int, recomputed: bool = False) -> Compiled:
        """The view's plans, of what `maintainable` makes of its query. `readers`: how many times other views take its
        change as their input.
        """
        schema = kept_schema(schema)
        order, meaning = self._order(plan), self._meanings.of_query(plan)
        if recomputed:
            meaning = of_recomputed(meaning)
        marks = {} if recomputed else watermarks_in(self._catalyst, plan)
        self._timing = self._timed(marks)
        root = None if recomputed else readable_root(self._catalyst, plan)
        if root is not None:
            step, terminals, delta, direct = self._direct(root, readers)
            said = (order, meaning, marks, tuple(self._timing.late))
            return Compiled(self._view, schema, step, terminals, delta, direct, None, *said)
        trace = self._names.name("view", meaning)
        if recomputed:
            delta = recompute(self._build, plan, self._inputs, self._view, self._whole, trace)
            self._build.begins = True
        else:
            self._recorded = linear.below(self._catalyst, plan)
            delta = self._delta(plan)
        if readers:
            delta = self._shared(plan, delta)
        record, terminal = self._record(plan, delta, trace)
        step = Step("Record", self._view, (delta.step,), (record.trace,))
        said = (order, meaning, marks, tuple(self._timing.late))
        return Compiled(self._view, schema, step, (terminal,), delta, None, record, *said)

    def _shared(self, plan: Node, delta: Delta) -> Delta:
        """The view's change, computed once for all that read it."""
        attributes = [*self._catalyst.output(plan), *delta.extras()]
        shared = self._build.share(self._catalyst.project(attributes, delta.plan))
        return replace(delta, plan=shared)

    def _direct(self, root: Node, readers: int) -> tuple[Step, tuple[Node, ...], Delta | None, Direct | None]:
        """A view that is read from the totals of the aggregation at its root."""
        common = self._commons.find(root)
        if common is not None and common.taken:
            delta = self._common(root, common)
            return delta.step, (), delta if readers else None, common.direct
        if common is not None and common.direct is not None:
            return self._taken_over(common), (), None, common.direct
        with self._names.sharing(common is not None):
            delta, direct = self._accumulate(root, emits=readers > 0)
        if common is not None:
            common.view, common.delta, common.direct = self._view, delta, direct
        if not readers:
            return delta.step, (delta.plan,), None, direct
        return delta.step, (), delta if readers == 1 else self._shared(root, delta), direct

    def _common(self, node: Node, common: Common) -> Delta:
        """The change of a node that is used in several places, under this one's attributes."""
        catalyst = self._catalyst
        if common.delta is None:
            with self._names.sharing():
                made, common.direct = self._stateful(node)
            common.view, common.delta = self._view, self._shared(node, made)
            step = made.step
        else:
            step = self._taken_over(common)
        delta = common.delta
        given = catalyst.output(delta.plan)
        extras = [catalyst.alias(each, each.name()) for each in given[len(catalyst.output(node)) :]]
        renamed = [catalyst.renamed(a, b) for a, b in zip(given, catalyst.output(node), strict=False)]
        plan = catalyst.project([*renamed, *extras], delta.plan)
        new = [catalyst.attribute(each) for each in extras]
        return replace(delta, plan=plan, diff=new[0], route=new[1] if len(new) > 1 else None, step=step)

    def _taken_over(self, common: Common) -> Step:
        assert common.delta is not None
        step = common.delta.step
        return Step("Shared", f"{step.detail}, of {common.view}", (), step.traces)

    def _accumulate(self, node: Node, emits: bool) -> tuple[Delta, Direct | None]:
        """An aggregation of sums, added up by the join below it where that can be done."""
        catalyst, build = self._catalyst, self._build
        self._note_whole(node)
        over = combine.folded(catalyst, node)
        sums = aggregate.sums_of(build, over)
        join_node = catalyst.children(over)[0]
        late = self._timing.follows(node) or self._timing.follows(join_node)
        if not late and combine.can_combine(catalyst, over, sums) and self._commons.find(join_node) is None:
            left, right = self._sides(join_node)
            summed = combine.keeps_sums(catalyst, join_node, sums)
            kinds = [f"{side}-sums" if i in summed else side for i, side in enumerate(("left", "right"))]
            sides = (self._trace(kinds[0], over), self._trace(kinds[1], over))
            kept = partial.presummed(build, self._keeping(join_node, left, right, sides, over), summed)
            joined = combine.combine(build, join_node, sums, left, right, self._view, kept, bool(summed))
            feed = aggregate.combined_feed(build, sums, joined.plan, joined.step)
        else:
            over, sums = node, aggregate.sums_of(build, node)
            feed = aggregate.rows_feed(build, sums, self._delta(catalyst.children(node)[0]))
        traces = [self._trace("accumulate", over), *(self._trace("extreme", over) for _ in sums.extremes)]
        if not late:
            feed = partial.partial_feed(build, sums, feed, traces[0])
        return aggregate.accumulate(build, over, sums, feed, self._view, traces, emits, self._timing)

    def _stateful(self, node: Node) -> tuple[Delta, Direct | None]:
        """A node that keeps state, and how it can be read directly, if it can."""
        kind = self._catalyst.kind(node)
        if kind == "Aggregate":
            return self._aggregate(node)
        if kind == "Join":
            return self._join(node), None
        if kind == "Window":
            return self._window(node), None
        return self._limit(node), None

    def _delta(self, node: Node) -> Delta:
        catalyst, build = self._catalyst, self._build
        common = self._commons.find(node)
        if common is not None:
            return self._common(node, common)
        leaf = catalyst.leaf_id(node)
        if leaf is not None and leaf in self._inputs:
            return self._input(node, leaf)
        kind = catalyst.kind(node)
        if kind in STATEFUL:
            return self._stateful(node)[0]
        if kind in CONSTANTS:
            return self._constant(node)
        children = [self._delta(child) for child in catalyst.children(node)]
        if kind == "Union":
            return linear.union(build, node, children)
        (child,) = children
        if kind in linear.IDENTITY:
            return child
        if kind in linear.PASSING:
            return linear.passing(build, node, child)
        if kind == "Project":
            return linear.project(build, node, child)
        if kind == "Expand":
            return linear.expand(build, node, child)
        if kind == "DeduplicateWithinWatermark":
            trace = self._trace("firstseen", node)
            return firstseen.first_seen(build, node, child, self._view, trace, self._timing)
        raise AssertionError(f"refuse.check_plan lets no {kind} through")

    def _input(self, leaf: Node, identity: int) -> Delta:
        """The change of an input under the expression ids that this view's plan has for it."""
        catalyst, delta = self._catalyst, self._inputs[identity]
        carried = catalyst.output(delta.plan)[: len(catalyst.output(leaf))]
        extras = [catalyst.alias(each, each.name()) for each in delta.extras()]
        renamed = [catalyst.renamed(a, b) for a, b in zip(carried, catalyst.output(leaf), strict=True)]
        plan = catalyst.project([*renamed, *extras], delta.plan)
        new = [catalyst.attribute(each) for each in extras]
        return replace(delta, plan=plan, diff=new[0], route=new[1] if len(new) > 1 else None)

    def _aggregate(self, node: Node) -> tuple[Delta, Direct | None]:
        if aggregate.accumulates(self._catalyst, node):
            return self._accumulate(node, emits=True)
        self._note_whole(node)
        child = self._delta(self._catalyst.children(node)[0])
        trace = self._trace("regroup", node)
        return regroup.aggregate(self._build, node, child, self._view, trace, self._timing), None

    def _window(self, node: Node) -> Delta:
        child = self._delta(self._catalyst.children(node)[0])
        trace = self._trace("regroup", node)
        return regroup.window(self._build, node, child, self._view, trace, self._timing)

    def _note_whole(self, node: Node) -> None:
        """An aggregate without keys has a row over no input."""
        self._build.begins |= bool(node.groupingExpressions().isEmpty())

    def _join(self, node: Node) -> Delta:
        catalyst = self._catalyst
        keys, _ = join.equal_keys(catalyst, node)
        inner = node.joinType().toString() in ("Inner", "Cross")
        if not keys and not inner and cross.can_match_rows(catalyst, node):
            return self._join_by_rows(node)
        if semi.is_plain(catalyst, node):
            left, right, traces = self._join_inputs(node, of_right="keys")
            return semi.semi(self._build, node, left, right, self._view, traces)
        left, right, traces = self._join_inputs(node)
        if inner and not keys:
            return cross.inner(self._build, node, left, right, self._view, traces)
        if inner:
            kept = self._keeping(node, left, right, traces, node)
            return join.inner(self._build, node, left, right, self._view, kept, self._timing)
        pairs = [(one, other) for one, other, _ in keys]
        return regroup.join(self._build, node, pairs, left, right, self._view, traces)

    def _join_inputs(self, node: Node, of_right: str = "right") -> tuple[Delta, Delta, tuple[str, str]]:
        left, right = self._sides(node)
        return left, right, (self._trace("left", node), self._trace(of_right, node))

    def _sides(self, node: Node) -> tuple[Delta, Delta]:
        """The changes of a join's inputs."""
        left, right = (self._delta(child) for child in self._catalyst.children(node))
        return left, right

    def _keeping(
        self, node: Node, left: Delta, right: Delta, traces: tuple[str, str], named: Node
    ) -> join.Keeping:
        """What an inner join keeps, under the name of a node: itself, or what it is a part of. One whose rows a view
        records where they lie, or that drops old state, is always done by key.
        """
        recorded = self._recorded is not None and node.equals(self._recorded)
        if recorded or self._timing.follows(node):
            return join.Keeping(traces)
        return join.to_keep(self._build, left, right, traces, lambda: self._trace("aside", named))

    def _join_by_rows(self, node: Node) -> Delta:
        """A join other than inner without an equality, put together from joins that have one."""
        catalyst = self._catalyst
        sides = [self._stand_in(child, self._delta(child)) for child in catalyst.children(node)]
        node = catalyst.with_children(node, sides)
        with self._timing.suspended():
            return self._joined_by_rows(node)

    def _joined_by_rows(self, node: Node) -> Delta:
        catalyst = self._catalyst
        if not node.joinType().toString().endswith("Outer"):
            return self._delta(cross.semi(catalyst, node))
        pairs = cross.pairs(catalyst, node)
        return self._delta(cross.outer(catalyst, node, self._stand_in(pairs, self._delta(pairs))))

    def _stand_in(self, plan: Node, delta: Delta) -> Node:
        """A relation with a plan's output whose change is known: it can be read more than once."""
        catalyst = self._catalyst
        leaf = self._build.leaf(catalyst.placeholder(catalyst.schema(plan)))
        identity = catalyst.leaf_id(leaf.node)
        assert identity is not None
        self._inputs[identity] = self._shared(plan, delta)
        self._meanings.know(identity, self._meanings.of(plan))
        pairs = zip(leaf.attributes, catalyst.output(plan), strict=True)
        return catalyst.project([catalyst.renamed(mine, theirs) for mine, theirs in pairs], leaf.node)

    def _constant(self, node: Node) -> Delta:
        catalyst = self._catalyst
        rows = self._build.constant(node)
        plan = catalyst.over(rows, lambda frame: frame.select("*", F.lit(1).cast("long").alias("diff")))
        step = Step("Constant", catalyst.line(node))
        return Delta(plan, catalyst.output(plan)[-1], None, step, "free", inserts_only=True)

    def _limit(self, node: Node) -> Delta:
        catalyst = self._catalyst
        rows = topk.stretch(catalyst, node)
        assert rows is not None, "refuse.check_plan lets only a limit over a sort through"
        own = catalyst.children(rows.sort)[0]
        child, trace = self._delta(own), self._trace("topk", node)
        if rows.last is None:
            child = self._shared(own, child)
            delta = topk.rest(self._build, rows.sort, rows.skipped, child, self._view, trace)
        else:
            delta = topk.topk(self._build, rows, child, self._view, trace)
        for project in reversed(rows.between):
            delta = linear.project(self._build, project, delta)
        return delta

    def _record(self, plan: Node, delta: Delta, trace: str) -> tuple[Record, Node]:
        """The terminal that writes the view's own trace: where the rows lie, or by a hash of the row."""
        catalyst, build = self._catalyst, self._build
        columns, _ = build.store(catalyst.output(plan), [], "v")
        row = build.hash(build.hashable(columns.values()))
        route = row if delta.route is None else catalyst.column(delta.route)
        selected = {"h": (route, LongType()), "r": (row, LongType()), **columns}
        selected["diff"] = (catalyst.column(delta.diff), LongType())
        made: list[Record] = []

        def make(schema: pa.Schema) -> Record:
            made.append(Record(self._view, trace, schema))
            return made[0]

        terminal = stage(build, delta.plan, selected, make, shuffle=delta.route is None)
        return made[0], terminal

    def _order(self, plan: Node) -> tuple[tuple[str, bool, bool], ...]:
        """The order that a reader expects: output column, ascending, NULLs first. Empty where there is none, and where
        the column's name is that of one before it.
        """
        catalyst = self._catalyst
        numbers = {a.name(): catalyst.expr_id(a) for a in reversed(catalyst.output(plan))}
        names = {number: name for name, number in numbers.items()}
        while catalyst.kind(plan) in (*topk.LIMITS, "Project"):
            plan = catalyst.children(plan)[0]
        order = []
        for each in catalyst.items(plan.order()) if catalyst.kind(plan) == "Sort" else []:
            if (
                catalyst.kind(each.child()) != "AttributeReference"
                or catalyst.expr_id(each.child()) not in names
            ):
                break
            ascending = catalyst.kind(each.direction()).startswith("Ascending")
            first = catalyst.kind(each.nullOrdering()).startswith("NullsFirst")
            order.append((names[catalyst.expr_id(each.child())], ascending, first))
        return tuple(order)

    def _timed(self, marks: dict[str, int]) -> Timing:
        return Timing(self._build, self._view, marks, lambda node: self._trace("late", node))

    def _whole(self, leaf: Node) -> str:
        return self._trace("whole", leaf)

    def _trace(self, kind: str, node: Node) -> str:
        return self._names.name(kind, self._meanings.of(node))
