"""From declarations to a running loop: compile every view, build the template, check the store, start the
loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slipstream.clock import Clock
from slipstream.dataflow.contents import Contents, recorded
from slipstream.dataflow.graph import Step
from slipstream.durability.identity import traces_of
from slipstream.durability.lineage import JSON
from slipstream.durability.lineage import History as Past
from slipstream.durability.store import Claim
from slipstream.epoch import Budget, Loop, Rehearsal, Rejects, Upkeep, Watermarks
from slipstream.plan import Compiled, LateView
from slipstream.planning import Declared, Plans
from slipstream.rebuild import Rebuild, carry_out, plan_rebuild
from slipstream.settings import Durability, History, Limits, Settings, starting
from slipstream.sources import Source


@dataclass(frozen=True)
class Assembly:
    """Everything that is fixed while an app runs."""

    steps: dict[str, Step]
    loop: Callable[[Claim, Past, bool], Loop]
    rehearsal: Rehearsal


def assemble(
    *,
    spark: SparkSession,
    claim: Claim,
    sources: Mapping[str, Source],
    views: Mapping[str, DataFrame],
    recomputed: Collection[str],
    placeholders: Mapping[str, DataFrame],
    inputs: Mapping[str, tuple[str, ...]],
    shards: int,
    target: float,
    history: History,
    settings: Settings,
    clock: Clock,
    past: Past,
    durability: Durability,
) -> Assembly:
    declared = Declared(spark, sources, views, recomputed, placeholders, shards, settings)
    plans = Plans(declared, claim.store.root)
    compiled, leaves = plans.compiled, plans.leaves
    used = {name: sources[name] for name in leaves}
    contents = {view.name: _contents(view) for view in compiled}
    rejects = {name: _rejects(source) for name, source in used.items() if source.can_reject}
    catalog = _catalog(sources, compiled, contents, rejects)
    asked = starting().rebuild

    late = {each.name: each.timed.late for view in compiled for each in view.late}
    delays = {name: delay for view in compiled for name, delay in view.watermarks.items()}

    def compare(claim: Claim, past: Past) -> Rebuild:
        known = claim.store.catalog()["views"] if past.frontier else catalog["views"]
        return plan_rebuild(
            str(claim.store.root), known, catalog["views"], inputs, asked if past.frontier else ()
        )

    def rebuild(claim: Claim, past: Past, anew: Rebuild) -> None:
        bad = {each.trace: each.schema for each in rejects.values()}
        carry_out(spark, claim, plans.afresh(), used, past, shards, anew, traces_of(catalog), bad)

    compare(claim, past)

    def loop(claim: Claim, past: Past, catch_up: bool) -> Loop:
        anew = compare(claim, past)  # again: one that stood by was assembled long ago
        known = claim.store.catalog()["views"]
        for name, view in catalog["views"].items():
            rebuilt = claim.incarnation if name in anew.views else known.get(name, {}).get("rebuilt")
            if rebuilt is not None:
                view["rebuilt"] = rebuilt
        if anew.views:
            rebuild(claim, past, anew)
        plans.resumed(claim.store.root, past.frontier)
        claim.store.write_catalog(catalog)
        claim.fence(past.frontier, [claim.store.root / trace for trace in traces_of(catalog)])
        histories = [each.trace for each in contents.values()] + [each.trace for each in rejects.values()]
        histories += late.values()
        return Loop(
            spark=spark,
            claim=claim,
            plans=plans,
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
            past=past,
            durability=durability,
            catch_up=catch_up,
            begins=plans.begins,
            reads=_reads(compiled),
        )

    return Assembly(plans.steps, loop, Rehearsal(spark, plans.resumed, used, shards))


def _reads(compiled: list[Compiled]) -> dict[str, set[str]]:
    """The views that each view reads, directly or not."""
    reads: dict[str, set[str]] = {}
    for view in compiled:
        direct = {step.detail for step in view.step.walk() if step.kind == "View"}
        reads[view.name] = direct.union(*(reads[name] for name in direct))
    return reads


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
