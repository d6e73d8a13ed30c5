"""What `explain` tells of a plan, read off its nodes: the steps of `dataflow/graph.py`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slipstream.dataflow.graph import Step
from slipstream.plan import nodes
from slipstream.plan.catalyst import Catalyst
from slipstream.plan.nodes import Following, Op

_LINEAR = (nodes.Project, nodes.Passing, nodes.Expand, nodes.Union)
_KINDS: dict[type[Op], str] = {
    nodes.Join: "Join",
    nodes.CombinedJoin: "Join",
    nodes.CrossJoin: "CrossJoin",
    nodes.Semi: "Semi",
    nodes.RegroupJoin: "Regroup",
    nodes.RegroupAggregate: "Regroup",
    nodes.RegroupWindow: "Regroup",
    nodes.TopK: "TopK",
    nodes.FirstSeen: "FirstSeen",
    nodes.Whole: "Whole",
    nodes.Recompute: "Recompute",
    nodes.Record: "Record",
    nodes.Accumulate: "Accumulate",
    nodes.Panes: "Panes",
    nodes.Constant: "Constant",
}


def step_of(catalyst: Catalyst, op: Op, partial: Collection[str] = ()) -> Step:
    """An operator and what feeds it. partial: the aggregations whose rows are added up before they are shuffled, by
    their first traces.
    """
    match op:
        case nodes.Input(of=str() as name):
            return Step("View", name)
        case nodes.Input(of=nodes.Source() as source):
            return _source(source)
        case nodes.Once(of=of, owner=owner) if not owner:
            return step_of(catalyst, of, partial)
        case nodes.Once(of=of, owner=owner) | nodes.ReadElsewhere(of=of, owner=owner):
            return Step("Shared", f"{_detail(catalyst, of)}, of {owner}", (), of.traces)
    fed = tuple(step_of(catalyst, each, partial) for each in op.inputs)
    if isinstance(op, _LINEAR):
        return Step("Linear", _detail(catalyst, op), fed)
    if isinstance(op, nodes.Alike):
        return Step("Partial", "equal rows of a pane together", fed)
    kind = _KINDS[type(op)]
    if isinstance(op, nodes.Panes):
        fed = (Step("Partial", "added up by pane and keys", fed),) if op.whole else fed
    elif isinstance(op, nodes.Accumulate):
        kind = "Extreme" if op.sums.extremes else kind
        if op.addable and op.traces[0] in partial:
            fed = (Step("Partial", "added up by each task, because rows are many and keys are few", fed),)
    return Step(kind, _detail(catalyst, op), fed, op.traces, behind(op.following))


def behind(following: Sequence[Following]) -> str:
    """What becomes of rows and state behind the watermark."""
    if not following:
        return ""
    known = following[0].marks
    marks = ", ".join(f"{name} - {delay / 1000:g} s" for name, delay in known)
    least = f"the least of {marks}" if len(known) > 1 else marks
    views = ", ".join(each.view for each in following)
    dropped = [
        trace + (f" {each.after / 1e3:g} s later" if each.after else "")
        for each in following
        if each.after is not None
        for trace in each.states
    ]
    return f"{least}: rows to {views}; state dropped from {', '.join(dropped) or 'nothing'}"


def _source(source: nodes.Source) -> Step:
    read = Step("Source", source.name)
    if source.mode != "keyed":
        return read
    return Step("Upsert", f"{source.name} by {', '.join(source.key)}", (read,), (source.trace,))


def _detail(catalyst: Catalyst, op: Op) -> str:
    """What an operator does, in Spark's words."""
    match op:
        case nodes.Union(parts=parts):
            return f"Union of {len(parts)}"
        case nodes.Record(view=view):
            return view
        case nodes.Whole():
            return "all rows"
        case nodes.TopK():
            return _places(catalyst, op)
        case nodes.Panes():
            told = f"{catalyst.line(op.written)}, by panes of {op.sliding.pane / 1e6:g} s"
            return f"{told}, and of each window that changes" if op.emits else told
        case nodes.CombinedJoin(as_sums=as_sums):
            return f"{catalyst.line(op.plan)}, added up by group" + (" and kept as sums" if as_sums else "")
    return catalyst.line(op.plan)


def _places(catalyst: Catalyst, op: nodes.TopK) -> str:
    orders = ", ".join(catalyst.sql(order) for order in op.orders)
    if op.last is None:
        return f"all but the first {op.skipped} by {orders}"
    places = f"first {op.last}" if not op.skipped else f"places {op.skipped + 1} to {op.last}"
    return f"{places} by {orders}"
