"""Which operators of a view follow event time, by which column, and what they call late.

An operator follows event time where its groups end with it: an aggregation (DISTINCT and `dropDuplicates` are some) or
a window function with an event-time column, or a window over one, among its keys; `dropDuplicatesWithinWatermark`; an
inner join on an equality that bounds how far apart the event times of its sides may be. All others keep all their
state.

A view has one watermark: the least of those of the sources, and of the calls of `withWatermark`, that it reads,
directly or through other views. So what another view has let through is never late here: it was measured there by a
watermark that is not behind this one.

Outer, semi and anti joins keep all their state. What they show of a row depends on whether it has partners, so one
side could not be forgotten without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql.types import LongType, StructField, StructType, TimestampNTZType, TimestampType

from slipstream.dataflow.eventtime import LATE_COLUMNS, Timed
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.delta import Builder, Stored
from slipstream.plan.stages import Columns
from slipstream.plan.watermarks import measured_watermark

_MINUTE = 60_000
_PASSING = {"Filter", "CollectMetrics"}
_EQUALITIES = {"EqualTo", "EqualNullSafe"}


@dataclass(frozen=True)
class LateView:
    """A view of the rows that came too late for an operator."""

    name: str
    schema: StructType
    timed: Timed


def watermarks_in(catalyst: Catalyst, plan: Node) -> dict[str, int]:
    """The watermarks that a query reads, with their delays in milliseconds."""
    found: dict[str, int] = {}
    for node in catalyst.nodes(plan):
        marks = catalyst.leaf_id(node) is not None or measured_watermark(catalyst, node) is not None
        if marks and catalyst.has_event_time(node):
            for attribute in catalyst.output(node):
                mark = catalyst.watermark_of(attribute)
                if mark is not None:
                    found[mark[0]] = mark[1]
    return dict(sorted(found.items()))


def event_time(catalyst: Catalyst, attributes: Sequence[Expr]) -> Expr | None:
    """The first of some attributes that is an event time, or a window over one."""
    return next((each for each in attributes if _part(catalyst, each) is not None), None)


def follows(catalyst: Catalyst, node: Node) -> list[Expr]:
    """The event time of each input of a node that is to follow it; empty where the node keeps all its state."""
    kind = catalyst.kind(node)
    if kind == "Aggregate":
        found = event_time(catalyst, catalyst.items(node.groupingExpressions()))
    elif kind == "Window":
        found = event_time(catalyst, catalyst.items(node.partitionSpec()))
    elif kind == "DeduplicateWithinWatermark":
        found = event_time(catalyst, catalyst.output(node))
    elif kind == "Join" and node.joinType().toString() in ("Inner", "Cross"):
        return _join_times(catalyst, node)
    else:
        return []
    if found is None or (catalyst.is_session(found) and not _merges(catalyst, node, found)):
        return []
    return [found]


def late_names(catalyst: Catalyst, view: str, plan: Node) -> list[str]:
    """The views of late rows that a view comes with."""
    if not watermarks_in(catalyst, plan):
        return []
    count = sum(len(follows(catalyst, node)) for node in catalyst.nodes(plan))
    return [_late_name(view, i) for i in range(count)]


def kept_after(catalyst: Catalyst, node: Node, times: Sequence[Expr], side: int) -> int | None:
    """For how many milliseconds after its event time a row of one side of a join may find partners that are not late;
    None where the condition does not bound that.
    """
    own, other = times[side], times[1 - side]
    for part in catalyst.split_and(node.condition().get()):
        if catalyst.kind(part) in _EQUALITIES:
            pair = (part.left(), part.right())
            if any(catalyst.same(own, a) and catalyst.same(other, b) for a, b in (pair, pair[::-1])):
                return 0
    children = catalyst.children(node)
    for attribute in catalyst.items(node.condition().get().references().toSeq()):
        is_time = isinstance(catalyst.type_of(attribute), TimestampType | TimestampNTZType)
        if is_time and not (catalyst.same(attribute, own) or catalyst.same(attribute, other)):
            return None
    return catalyst.reach_after(children[side], children[1 - side], node.condition())


@dataclass
class Timing:
    """The event time of one view's operators, as they are compiled. late_trace: gives a trace for the late rows of a
    node.
    """

    build: Builder
    view: str
    marks: dict[str, int]
    late_trace: Callable[[Node], str]
    late: list[LateView] = field(default_factory=list)
    _suspended: bool = False

    def follows(self, node: Node) -> list[Expr]:
        """The event time of each input of a node; empty where it keeps all its state."""
        return follows(self.build.catalyst, node) if self.marks and not self._suspended else []

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """While this is open nothing follows event time: nodes are compiled that are not the query's own, but parts of
        one that keeps all its state.
        """
        before, self._suspended = self._suspended, True
        try:
            yield
        finally:
            self._suspended = before

    def keyed(
        self, node: Node, known: Sequence[tuple[Expr, str]], columns: Columns, traces: tuple[str, ...]
    ) -> tuple[Timed, ...]:
        """For a node with one input: how it follows event time, and the columns that its late rows need besides.

        known: expressions that the operator is sent, and in which column.
        """
        found = self.follows(node)
        if not found:
            return ()
        catalyst = self.build.catalyst
        stored = []
        for attribute in catalyst.output(catalyst.children(node)[0]):
            at = next((name for expr, name in known if catalyst.same(expr, attribute)), None)
            if at is None:
                at = f"l{sum(name.startswith('l') for name in columns)}"
                columns[at] = (catalyst.column(attribute), catalyst.type_of(attribute))
            stored.append(Stored(attribute, at))
        if "r" not in columns:
            row = (columns[each.column] for each in stored)
            columns["r"] = (self.build.hash(self.build.hashable(row)), LongType())
        delay = catalyst.watermark_of(found[0])
        assert delay is not None
        kept = delay[1] if catalyst.kind(node) == "DeduplicateWithinWatermark" else 0
        return (self._timed(node, found[0], stored, traces, kept),)

    def joined(
        self, node: Node, stored: Sequence[Sequence[Stored]], traces: tuple[str, str]
    ) -> tuple[Timed, ...]:
        """For an inner join: how each side follows event time. stored: where each side's attributes are."""
        found = self.follows(node)
        timed = []
        for side in range(len(found)):
            kept = kept_after(self.build.catalyst, node, found, side)
            timed.append(self._timed(node, found[side], stored[side], (traces[side],), kept, side))
        return tuple(timed)

    def told(self, timed: Sequence[Timed]) -> str:
        """What `explain` says of an operator that follows event time."""
        if not timed:
            return ""
        marks = ", ".join(f"{name} - {delay / 1000:g} s" for name, delay in self.marks.items())
        least = f"the least of {marks}" if len(self.marks) > 1 else marks
        views = ", ".join(each.name for each in self.late if each.timed in timed)
        forgetful = [each for each in timed if each.kept is not None]
        dropped = [
            trace + (f" {each.kept / 1e6:g} s later" if each.kept else "")
            for each in forgetful
            for trace in each.states
        ]
        return f"{least}: rows to {views}; state dropped from {', '.join(dropped) or 'nothing'}"

    def _timed(
        self,
        node: Node,
        attribute: Expr,
        stored: Sequence[Stored],
        traces: tuple[str, ...],
        kept: int | None,
        side: int | None = None,
    ) -> Timed:
        catalyst = self.build.catalyst
        part = _part(catalyst, attribute)
        assert part is not None
        at = next(each.column for each in stored if catalyst.same(each.attribute, attribute))
        timed = Timed(
            column=at,
            part=part,
            watermarks=tuple(self.marks),
            period=1000 * max(_MINUTE, max(self.marks.values()) // 4),
            states=traces,
            late=self.late_trace(node),
            shown=tuple(each.column for each in stored),
            kept=None if kept is None else 1000 * kept,
            side=side,
        )
        fields = [StructField(each.attribute.name(), catalyst.type_of(each.attribute)) for each in stored]
        fields += [StructField(name, LongType()) for name in LATE_COLUMNS]
        self.late.append(LateView(_late_name(self.view, len(self.late)), StructType(fields), timed))
        return timed


def _late_name(view: str, number: int) -> str:
    return f"{view}_late" if number == 0 else f"{view}_late_{number + 1}"


def _part(catalyst: Catalyst, attribute: Expr) -> Literal["", "start", "end"] | None:
    """Which part of an attribute is its event time; None for one that is none."""
    if catalyst.watermark_of(attribute) is None:
        return None
    if catalyst.is_session(attribute):
        return "start"
    kind = catalyst.type_of(attribute)
    if isinstance(kind, StructType):
        return "end" if kind.names == ["start", "end"] else None
    return "" if isinstance(kind, TimestampType | TimestampNTZType) else None


def _merges(catalyst: Catalyst, node: Node, session: Expr) -> bool:
    """Whether the node makes sessions out of rows' own, made right below it. The sessions that come out of an
    aggregation begin at any time, so their beginning tells nothing of whether they are late.
    """
    if catalyst.kind(node) != "Aggregate":
        return False
    below = catalyst.children(node)[0]
    while catalyst.kind(below) in ("Project", *_PASSING):
        if catalyst.kind(below) == "Project":
            for named in catalyst.items(below.projectList()):
                if catalyst.kind(named) == "Alias" and catalyst.expr_id(named) == catalyst.expr_id(session):
                    return catalyst.kind(named.child()) == "CreateNamedStruct"
        below = catalyst.children(below)[0]
    return False


def _join_times(catalyst: Catalyst, node: Node) -> list[Expr]:
    """The event times of a join's sides, if each has just one and the condition bounds how far apart they may be."""
    sides = []
    if not all(catalyst.has_event_time(child) for child in catalyst.children(node)):
        return []
    for child in catalyst.children(node):
        marked = [each for each in catalyst.output(child) if _part(catalyst, each) is not None]
        if len(marked) != 1 or catalyst.is_session(marked[0]):
            return []
        sides.append(marked[0])
    if not _equates(catalyst, node):
        return []
    bounded = any(kept_after(catalyst, node, sides, side) is not None for side in (0, 1))
    return sides if bounded else []


def _equates(catalyst: Catalyst, node: Node) -> bool:
    """Whether a join looks up its matches by an equality between its sides: without one, each row meets all others."""
    condition = catalyst.option(node.condition())
    left, right = (child.outputSet() for child in catalyst.children(node))
    for part in catalyst.split_and(condition) if condition is not None else []:
        if catalyst.kind(part) in _EQUALITIES:
            one, other = part.left().references(), part.right().references()
            for mine, theirs in ((one, other), (other, one)):
                both = mine.nonEmpty() and theirs.nonEmpty()
                if both and mine.subsetOf(left) and theirs.subsetOf(right):
                    return True
    return False
