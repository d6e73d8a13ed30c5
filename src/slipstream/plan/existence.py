"""Whether there are rows, of which nobody asks which they are.

`EXISTS`, and a semi, anti or existence join whose condition says nothing of its right input, ask how many rows there
are: none, or some. So there a LIMIT or OFFSET without an order leaves nothing open. Under limits and offsets there is a
row if there are enough rows below them, and those are counted.

Spark's optimiser puts limits there of its own, and pushes the part of a limit that each partition can apply
(`LocalLimit`) far down below the whole one. That part saves work and says nothing: it is left out here, unless it
is right below the whole one, where the rules for limits take the two as one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from slipstream.plan.catalyst import Catalyst, Node
from slipstream.plan.stretch import limits_over

_TESTS = ("LeftSemi", "LeftAnti", "ExistenceJoin")


def without_idle_limits(catalyst: Catalyst, plan: Node) -> Node:
    """The plan without limits that say nothing, or nothing but whether there is a row."""
    if not catalyst.has_limit(plan):
        return plan
    children = catalyst.children(plan)
    rewritten = [without_idle_limits(catalyst, child) for child in children]
    kind = catalyst.kind(plan)
    if kind == "LocalLimit":
        return rewritten[0]
    if kind == "GlobalLimit" and catalyst.kind(children[0]) == "LocalLimit":
        rewritten = [catalyst.with_children(children[0], rewritten)]
    if kind == "Join" and _tests(catalyst, plan):
        rewritten[1] = _tested(catalyst, rewritten[1])
    return catalyst.with_children(plan, rewritten)


def enough(rows: Column, skipped: int, last: int | None) -> Column:
    """Whether that many rows leave any from the place after `skipped` up to `last`."""
    return rows > skipped if last is None or last > skipped else F.lit(False)


def some(catalyst: Catalyst, plan: Node, skipped: int = 0, last: int | None = None) -> Node:
    """One row if a plan has any after the first `skipped`, up to the place `last` if there is one; else none."""

    def counted(frame: DataFrame) -> DataFrame:
        rows = frame.agg(F.count(F.lit(1)).alias("n"))
        return rows.where(enough(F.col("n"), skipped, last)).select(F.lit(True).alias("some"))

    return catalyst.over(plan, counted)


def _tests(catalyst: Catalyst, join: Node) -> bool:
    """Whether a join asks of its right input only whether there is a row."""
    left, _ = catalyst.children(join)
    condition = catalyst.join_condition(join)
    tests = catalyst.join_type(join).startswith(_TESTS)
    return tests and (condition is None or catalyst.refers_only_to(condition, left))


def _tested(catalyst: Catalyst, plan: Node) -> Node:
    """A plan that has a row whenever another has one, which may be under limits."""
    found = limits_over(catalyst, plan)
    if found is None:
        return plan
    below, skipped, last, _ = found
    return plan if not skipped and last is None else some(catalyst, below, skipped, last)
