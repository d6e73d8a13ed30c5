"""Map-side partial aggregation: rows are added up where they are, and only totals are shuffled.

Which aggregations do so is not a matter of their shape: it pays where an epoch's rows are many and its keys few. So
the plan is built either way, as it is told (`Builder.partial`), and told from measurements (`epoch.advice`).
"""

from __future__ import annotations

import pyarrow as pa

from slipstream.dataflow.combine import Combine, Partial
from slipstream.dataflow.graph import Step
from slipstream.plan.aggregate import Feed, Sums, combined_feed
from slipstream.plan.combine import told_apart
from slipstream.plan.delta import Builder
from slipstream.plan.stages import Columns, stage


def can_be_partial(build: Builder, sums: Sums, feed: Feed) -> bool:
    """Whether an aggregation's input can be added up before it is shuffled."""
    return not feed.combined and not sums.extremes and told_apart(build.catalyst, sums.keys)


def partial_feed(build: Builder, sums: Sums, feed: Feed, trace: str) -> Feed:
    """The same input, added up task by task."""
    named = {"k": "c", "x": "y", "d": "d"}
    columns: Columns = {f"{named[name[0]]}{name[1:]}": each for name, each in feed.columns.items()}

    def make(schema: pa.Schema) -> Partial:
        keys = tuple(name for name in columns if name.startswith("c"))
        values = tuple(name for name in columns if name.startswith("y"))
        return Partial(trace, schema, Combine(keys, values, tuple(sums.arguments)))

    ran = stage(build, feed.plan, columns, make, shuffle=False)
    step = Step("Partial", "added up by each task, because rows are many and keys are few", (feed.step,))
    return combined_feed(build, sums, ran, step)
