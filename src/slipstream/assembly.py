"""From declarations to a running loop: compile every view, build the template, check the store, start the
loop.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slipstream.clock import Clock
from slipstream.dataflow.contents import Contents, recorded
from slipstream.dataflow.graph import Step
from slipstream.durability.lineage import JSON
from slipstream.durability.lineage import History as Past
from slipstream.durability.store import Claim
from slipstream.epoch import Budget, Loop, Rejects, Template, Upkeep, Watermarks
from slipstream.errors import ViewChanged
from slipstream.plan import (
    Builder,
    Catalyst,
    Commons,
    Compiled,
    Delta,
    LateView,
    Leaf,
    ViewCompiler,
    input_delta,
)
from slipstream.settings import History, Limits, Settings
from slipstream.sources import Source


@dataclass(frozen=True)
class Assembly:
    """Everything that is fixed while an app runs."""

    steps: dict[str, Step]
    loop: Callable[[Past], Loop]


def assemble(
    *,
    spark: SparkSession,
    claim: Claim,
    sources: Mapping[str, Source],
    views: Mapping[str, DataFrame],
    placeholders: Mapping[str, DataFrame],
    shards: int,
    target: float,
    history: History,
    settings: Settings,
    clock: Clock,
    past: Past,
) -> Assembly:
    build = Builder(Catalyst(spark), shards, settings.hash_bits)
    compiled, leaves = _compile(build, sources, views, placeholders)
    used = {name: sources[name] for name in leaves}
    contents = {view.name: _contents(view) for view in compiled}
    rejects = {name: _rejects(source) for name, source in used.items() if source.can_reject}
    catalog = _catalog(sources, compiled, contents, rejects)
    _check_unchanged(claim, past, catalog)

    late = {each.name: each.timed.late for view in compiled for each in view.late}
    delays = {name: delay for view in compiled for name, delay in view.watermarks.items()}

    def loop(past: Past) -> Loop:
        claim.store.write_catalog(catalog)
        terminals = [terminal for view in compiled for terminal in view.terminals]
        histories = [each.trace for each in contents.values()] + [each.trace for each in rejects.values()]
        histories += late.values()
        return Loop(
            spark=spark,
            claim=claim,
            template=Template(build, leaves, terminals),
            inputs=used,
            rejects=rejects,
            budgets={
                name: _budget(source, target, settings.limits.get(name)) for name, source in used.items()
            },
            upkeep=Upkeep(tuple(histories), _keeper(history, past)),
            watermarks=Watermarks(delays, past.watermarks, past.latest),
            late=late,
            clock=clock,
            shards=shards,
            frontier=past.frontier,
            pending=past.pending,
        )

    return Assembly({view.name: view.step for view in compiled}, loop)


def _compile(
    build: Builder,
    sources: Mapping[str, Source],
    views: Mapping[str, DataFrame],
    placeholders: Mapping[str, DataFrame],
) -> tuple[list[Compiled], dict[str, Leaf]]:
    """Every view, in the order in which they can be compiled, and the leaves of the sources that they read."""
    catalyst = build.catalyst
    names = {catalyst.leaf_of(frame): name for name, frame in placeholders.items()}
    readers: Counter[str] = Counter()
    for frame in views.values():
        for node in catalyst.nodes(catalyst.optimised(frame)):
            identity = catalyst.leaf_id(node)
            if identity in names:
                readers[names[identity]] += 1
    commons = Commons(catalyst, names)
    for name, frame in views.items():
        commons.count(catalyst.optimised(frame), readers[name])
    inputs: dict[int, Delta] = {}
    leaves: dict[str, Leaf] = {}
    for name, source in sources.items():
        if readers[name]:
            leaf, delta = input_delta(
                build,
                name,
                placeholders[name].schema,
                source.changes.mode,
                source.changes.key,
                source.order_fields,
                source.can_reject,
            )
            leaves[name] = leaf
            if readers[name] > 1:
                delta = replace(delta, plan=build.share(delta.plan))
            inputs[catalyst.leaf_of(placeholders[name])] = delta
    compiled = []
    for name, frame in views.items():
        view = ViewCompiler(build, name, inputs, commons).compile(frame, readers[name])
        compiled.append(view)
        if view.delta is not None:
            inputs[catalyst.leaf_of(placeholders[name])] = replace(view.delta, step=Step("View", name))
    return compiled, leaves


def _contents(view: Compiled) -> Contents:
    schema = to_arrow_schema(view.schema, timezone="UTC")
    if view.record is not None:
        return recorded(view.record.trace, schema, view.record.input)
    assert view.direct is not None
    sums = view.direct.sums
    return Contents(sums.trace, schema, view.direct.stored, view.direct.columns, sums.arguments, sums.buffers)


def _rejects(source: Source) -> Rejects:
    names = [field.name for field in _rejected_schema()]
    values = [pa.field(f"v{i}", kind) for i, kind in enumerate(to_arrow_schema(_rejected_schema()).types)]
    schema = pa.schema([("h", pa.int64()), ("r", pa.int64()), *values, ("diff", pa.int64())])

    def read(range: JSON) -> pa.Table:  # noqa: A002
        frame = source.rejected(range)
        row = F.xxhash64(*names)
        columns = [F.col(name).alias(f"v{i}") for i, name in enumerate(names)]
        selected = frame.select(row.alias("h"), row.alias("r"), *columns, F.lit(1).cast("long").alias("diff"))
        return selected.toArrow().cast(schema)

    return Rejects(f"traces/{source.name}_rejected/1-view", schema, read)


def _rejected_schema() -> StructType:
    names = ("source", "file", "line", "raw", "reason")
    return StructType([StructField(name, LongType() if name == "line" else StringType()) for name in names])


def _catalog(
    sources: Mapping[str, Source],
    compiled: list[Compiled],
    contents: Mapping[str, Contents],
    rejects: Mapping[str, Rejects],
) -> dict[str, Any]:
    views: dict[str, Any] = {}
    for view in compiled:
        views[view.name] = {
            "schema": view.schema.jsonValue(),
            "fingerprint": view.fingerprint,
            "order": [list(each) for each in view.order],
            "contents": contents[view.name].describe(),
            "traces": sorted({trace for step in view.step.walk() for trace in step.traces}),
        }
    for name, each in rejects.items():
        kept = recorded(each.trace, to_arrow_schema(_rejected_schema()), each.schema)
        views[f"{name}_rejected"] = {
            "schema": _rejected_schema().jsonValue(),
            "fingerprint": "rejected",
            "order": [],
            "contents": kept.describe(),
            "traces": [each.trace],
            "rejected": True,
        }
    for view in compiled:
        for late in view.late:
            views[late.name] = _late(late)
    kinds = {
        name: {"kind": type(source).__name__, "schema": source.schema.jsonValue()}
        for name, source in sources.items()
    }
    return {"sources": kinds, "views": views}


def _late(view: LateView) -> dict[str, Any]:
    schema = to_arrow_schema(view.schema, timezone="UTC")
    stored = pa.schema([(f"v{i}", kind) for i, kind in enumerate(schema.types)])
    whole = [pa.field(name, pa.int64()) for name in ("h", "r", "diff")]
    kept = recorded(view.timed.late, schema, pa.schema([*whole[:2], *stored, whole[2]]))
    return {
        "schema": view.schema.jsonValue(),
        "fingerprint": "late",
        "order": [],
        "contents": kept.describe(),
        "traces": [view.timed.late],
        "late": True,
    }


def _check_unchanged(claim: Claim, past: Past, catalog: dict[str, Any]) -> None:
    """State of one query is never used for another."""
    if past.frontier == 0:
        return
    known = claim.store.catalog()["views"]
    added = [name for name in catalog["views"] if name not in known]
    changed = [
        name
        for name, view in catalog["views"].items()
        if name in known
        and (known[name]["fingerprint"], known[name]["contents"]["columns"])
        != (view["fingerprint"], view["contents"]["columns"])
    ]
    if added or changed:
        raise ViewChanged(str(claim.store.root), changed, added)


def _budget(source: Source, target: float, limits: Limits | None) -> Budget:
    least, most = (limits.least, limits.most) if limits is not None else (None, None)
    return Budget.start(source.unit, target, least, most)


def _keeper(history: History, past: Past) -> Callable[[int, float], int]:
    """Which epochs to keep, with the times of those that are still of interest."""
    clocks: deque[tuple[float, int]] = deque((each.clock, each.epoch) for each in past.computed)

    def keep_from(computed: int, now: float) -> int:
        clocks.append((now, computed))
        oldest = history.keep_from(computed, now, clocks)
        while clocks and clocks[0][1] < oldest:
            clocks.popleft()
        return oldest

    return keep_from
