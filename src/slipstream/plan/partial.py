"""Map-side partial aggregation: rows are added up where they are, and only totals are shuffled.

It is done for an aggregation, and for a join below one that keeps sums. Which of them do so is not a matter of their
shape: it pays where an epoch's rows are many and its keys few. So the plan is built either way, as it is told
(`Builder.partial`), and told from measurements (`epoch.advice`).
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from slipstream.dataflow.combine import PARTIAL, Combine, Partial
from slipstream.plan.aggregate import Feed, Sums, combined_feed
from slipstream.plan.combine import added_up_first, told_apart
from slipstream.plan.delta import Builder, Counted
from slipstream.plan.join import Keeping
from slipstream.plan.stages import Columns, stage


def partial_feed(build: Builder, sums: Sums, feed: Feed, trace: str) -> Feed:
    """The input of an aggregation, added up task by task if it can be and is to be."""
    if feed.combined or sums.extremes or not told_apart(build.catalyst, sums.keys):
        return feed
    if not build.partial(trace):
        build.can_be_partial[trace] = Counted((trace,), (trace,))
        return feed
    build.can_be_partial[trace] = Counted((f"{trace}{PARTIAL}",))
    return _added_up(build, sums, feed, trace)


def _added_up(build: Builder, sums: Sums, feed: Feed, trace: str) -> Feed:
    named = {"k": "c", "x": "y", "d": "d"}
    columns: Columns = {f"{named[name[0]]}{name[1:]}": each for name, each in feed.columns.items()}

    def make(schema: pa.Schema) -> Partial:
        keys = tuple(name for name in columns if name.startswith("c"))
        values = tuple(name for name in columns if name.startswith("y"))
        return Partial(trace, schema, Combine(keys, values, tuple(sums.arguments)))

    ran = stage(build, feed.plan, columns, make, shuffle=False)
    return combined_feed(build, sums, ran, added_up_first(feed.step))


def presummed(build: Builder, keeping: Keeping, summed: frozenset[int]) -> Keeping:
    """What a join keeps, with the sides that keep sums (`summed`) added up before they are shuffled if that is to be.
    Where they are not shuffled there is nothing to be saved.
    """
    if keeping.broadcast or not summed:
        return keeping
    join = keeping.sides[0]
    if not build.partial(join):
        build.can_be_partial[join] = Counted((join,), keeping.sides)
        return keeping
    build.can_be_partial[join] = Counted(tuple(f"{keeping.sides[i]}{PARTIAL}" for i in sorted(summed)))
    return replace(keeping, presummed=summed)
