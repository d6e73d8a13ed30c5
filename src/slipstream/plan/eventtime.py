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

from slipstream.dataflow.eventtime import LATE_COLUMNS
from slipstream.plan.catalyst import Catalyst, Expr, Node
from slipstream.plan.kinds import EQUALITIES, INNER
from slipstream.plan.nodes import Following, LateView
from slipstream.plan.watermarks import measured_watermark

_PASSING = {"Filter", "CollectMetrics"}


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
        found = event_time(catalyst, catalyst.grouping(node))
    elif kind == "Window":
        found = event_time(catalyst, catalyst.partition_keys(node))
    elif kind == "DeduplicateWithinWatermark":
        found = event_time(catalyst, catalyst.output(node))
    elif kind == "Join" and catalyst.join_type(node) in INNER:
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
    condition = catalyst.join_condition(node)
    assert condition is not None
    for part in catalyst.split_and(condition):
        if catalyst.kind(part) in EQUALITIES:
            pair = catalyst.sides(part)
            if any(catalyst.same(own, a) and catalyst.same(other, b) for a, b in (pair, pair[::-1])):
                return 0
    children = catalyst.children(node)
    for attribute in catalyst.references(condition):
        is_time = isinstance(catalyst.type_of(attribute), TimestampType | TimestampNTZType)
        if is_time and not (catalyst.same(attribute, own) or catalyst.same(attribute, other)):
            return None
    return catalyst.reach_after(children[side], children[1 - side], condition)


@dataclass
class Timing:
    """The event time of one view's operators, as rules come upon them. late_trace: gives a trace for the late rows of a
    node.
    """

    catalyst: Catalyst
    view: str
    marks: dict[str, int]
    late_trace: Callable[[Node], str]
    late: list[LateView] = field(default_factory=list)
    _suspended: bool = False

    def follows(self, node: Node) -> list[Expr]:
        """The event time of each input of a node; empty where it keeps all its state."""
        return follows(self.catalyst, node) if self.marks and not self._suspended else []

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """While this is open nothing follows event time: rules are at nodes that are not the query's own, but parts of
        one that keeps all its state.
        """
        before, self._suspended = self._suspended, True
        try:
            yield
        finally:
            self._suspended = before

    def keyed(self, node: Node, traces: tuple[str, ...]) -> tuple[Following, ...]:
        """How a node with one input follows event time."""
        found = self.follows(node)
        if not found:
            return ()
        after = 0
        if self.catalyst.kind(node) == "DeduplicateWithinWatermark":
            delay = self.catalyst.watermark_of(found[0])
            assert delay is not None
            after = delay[1]
        return (self._following(node, found[0], self.catalyst.children(node)[0], traces, after),)

    def joined(self, node: Node, traces: tuple[str, str]) -> tuple[Following, ...]:
        """How each side of an inner join follows event time."""
        found = self.follows(node)
        sides = self.catalyst.children(node)
        return tuple(
            self._following(
                node, time, sides[i], (traces[i],), kept_after(self.catalyst, node, found, i), side=i
            )
            for i, time in enumerate(found)
        )

    def _following(
        self,
        node: Node,
        time: Expr,
        rows: Node,
        traces: tuple[str, ...],
        after: int | None,
        side: int | None = None,
    ) -> Following:
        catalyst = self.catalyst
        part = _part(catalyst, time)
        assert part is not None
        trace, name = self.late_trace(node), _late_name(self.view, len(self.late))
        fields = [StructField(catalyst.name(each), catalyst.type_of(each)) for each in catalyst.output(rows)]
        fields += [StructField(column, LongType()) for column in LATE_COLUMNS]
        self.late.append(LateView(name, StructType(fields), trace))
        return Following(
            time=time,
            part=part,
            marks=tuple(self.marks.items()),
            late=trace,
            view=name,
            states=traces,
            after=after,
            side=side,
        )


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
            for named in catalyst.project_list(below):
                if catalyst.kind(named) == "Alias" and catalyst.expr_id(named) == catalyst.expr_id(session):
                    return catalyst.kind(catalyst.child(named)) == "CreateNamedStruct"
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
    left, right = catalyst.children(node)
    for part in catalyst.split_and(catalyst.join_condition(node)):
        if catalyst.kind(part) in EQUALITIES:
            one, other = catalyst.sides(part)
            for mine, theirs in ((one, other), (other, one)):
                if catalyst.is_from(mine, left) and catalyst.is_from(theirs, right):
                    return True
    return False
