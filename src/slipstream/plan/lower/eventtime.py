"""How an operator that follows event time is told so: by which of the columns that it is sent, and what is late."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import LongType

from slipstream.dataflow.eventtime import Timed
from slipstream.plan.catalyst import Catalyst, Expr
from slipstream.plan.lower.builder import Builder, Columns, Stored
from slipstream.plan.nodes import Following, Keyed

_MINUTE = 60_000


def keyed(
    build: Builder, op: Keyed, known: Sequence[tuple[Expr, str]], columns: Columns
) -> tuple[Columns, tuple[Timed, ...]]:
    """For an operator with one input: the columns that its late rows need besides, and how it follows event time.

    known: expressions that the operator is sent, and in which column.
    """
    if not op.following:
        return {}, ()
    catalyst, more, stored = build.catalyst, Columns(), []
    for attribute in catalyst.output(catalyst.children(op.plan)[0]):
        at = next((name for expr, name in known if catalyst.same(expr, attribute)), None)
        if at is None:
            at = f"l{len(more)}"
            more[at] = (catalyst.column(attribute), catalyst.type_of(attribute))
        stored.append(Stored(attribute, at))
    if "r" not in columns:
        row = [(columns | more)[each.column] for each in stored]
        more["r"] = (build.hash(build.hashable(row)), LongType())
    return more, tuple(timed(catalyst, each, stored) for each in op.following)


def timed(catalyst: Catalyst, following: Following, stored: Sequence[Stored]) -> Timed:
    """stored: where the attributes of the rows are."""
    delays = [delay for _, delay in following.marks]
    return Timed(
        column=next(each.column for each in stored if catalyst.same(each.attribute, following.time)),
        part=following.part,
        watermarks=tuple(name for name, _ in following.marks),
        period=1000 * max(_MINUTE, max(delays) // 4),
        states=following.states,
        late=following.late,
        shown=tuple(each.column for each in stored),
        kept=None if following.after is None else 1000 * following.after,
        side=following.side,
    )
