"""From declarations to a running loop: compile every view, build the template, check the store, start the
loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slipstream.app.planning import Declared, Plans
from slipstream.app.rebuild import Rebuild, carry_out, idle_traces, plan_rebuild
from slipstream.core.clock import Clock
from slipstream.core.settings import Durability, History, Limits, Settings
from slipstream.dataflow.contents import Contents, recorded
from slipstream.dataflow.graph import Step
from slipstream.durability.agent import Agent, Charge, rest_within
from slipstream.durability.frontiers import Watching
from slipstream.durability.ledger import StoreLedger, Upkeep
from slipstream.durability.restore import heal_store
from slipstream.durability.start import Started
from slipstream.durability.work import LocalWork
from slipstream.epoch import (
    Budget,
    Loop,
    Options,
    Place,
    Policy,
    Rehearsal,
    Rejects,
    SparkJob,
    Watermarks,
)
from slipstream.epoch.rejects import begin_rejects
from slipstream.plan import LateView, Record, View
from slipstream.sources import Source
from slipstream.store.catalog import Catalog, SourceEntry, ViewEntry
from slipstream.store.history import History as Past
from slipstream.store.lineage import read_whole
from slipstream.store.records import JSON
from slipstream.store.store import Claim
from slipstream.trace import Span, shard_span


@dataclass(frozen=True)
class Assembly:
    """Everything that is fixed while an app runs."""

    steps: dict[str, Step]
    loop: Callable[[Started], Loop]
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
    asked: Collection[str],
) -> Assembly:
    known = claim.store.catalog().views if past.frontier else {}
    declared = Declared(
        spark=spark,
        sources=sources,
        views=views,
        recomputed=recomputed,
        placeholders=placeholders,
        shards=shards,
        settings=settings,
        known={name: view.traces for name, view in known.items() if name not in asked},
    )
    plans = Plans(declared, claim.store.root)
    compiled = plans.compiled.views
    used = {source.name: sources[source.name] for source in plans.compiled.sources}
    contents = {view.name: _contents(plans, view) for view in compiled}
    rejects = {name: _rejects(source) for name, source in used.items() if source.can_reject}
    catalog = _catalog(sources, plans, contents, rejects)

    late = {each.name: each.trace for view in compiled for each in view.late}
    delays = {name: delay for view in compiled for name, delay in view.watermarks.items()}

    def compare(claim: Claim, past: Past) -> Rebuild:
        known = claim.store.catalog().views if past.frontier else catalog.views
        idle = idle_traces(claim.store.root, known, past.frontier)
        wanted = asked if past.frontier else ()
        return plan_rebuild(str(claim.store.root), known, catalog.views, inputs, wanted, idle)

    def rebuild(claim: Claim, anew: Rebuild) -> None:
        """Over all the input that was ever consumed, so the base of the lineage is not enough."""
        past = read_whole(claim.store.disk)
        bad = {each.trace: each.schema for each in rejects.values()}
        carry_out(spark, claim, plans.by_shards(), used, past, anew, catalog, bad)

    compare(claim, past)

    def loop(started: Started) -> Loop:
        claim, past = started.claim, started.lineage.history
        anew = compare(claim, past)  # again: one that stood by was assembled long ago
        known = claim.store.catalog().views
        final = _rebuilt(catalog, known, anew.views, claim.incarnation, past.frontier)
        if anew.views:
            rebuild(claim, anew)
        had = {name for name in rejects if f"{name}_rejected" in known}
        begin_rejects(claim.store.root, claim.incarnation, rejects, had, past.frontier)
        claim.write_catalog(final)
        claim.fence(past.frontier, final.traces())
        histories = [each.trace for each in contents.values()] + [each.trace for each in rejects.values()]
        histories += late.values()
        whole = {each.trace for each in rejects.values()}
        spans = [shard_span(shard, shards) for shard in range(shards)]
        either = ([Span.whole()], spans)
        agent = Agent(_charge(started, durability))
        ledger = StoreLedger(
            claim=claim,
            lineage=started.writer,
            past=past,
            durability=durability,
            agent=agent,
            watching=Watching(claim.store.disk),
            traces={trace: either[:1] if trace in whole else either for trace in final.traces()},
            upkeep=Upkeep(tuple(histories), _keeper(history, past)),
            sources=used,
            heal=lambda: heal_store(claim, durability.replicas, LocalWork(claim.store)),
        )
        job = SparkJob(
            spark=spark,
            plans=plans,
            inputs=used,
            place=Place(claim.store.root, claim.incarnation),
            rejects=rejects,
            late=late,
            reads=_reads(plans.steps),
            clock=clock,
        )
        options = Options(
            budgets={
                name: _budget(source, target, settings.limits.get(name)) for name, source in used.items()
            },
            watermarks=Watermarks(delays, past.watermarks, past.latest),
            policy=Policy(limit=durability.max_unsafe, begins=plans.compiled.begins),
            computed_before=started.plan.frontier,
            forgetting=bool(durability.written),
        )
        return Loop(job, used, ledger, past, options, clock)

    return Assembly(plans.steps, loop, Rehearsal(spark, (plans.by_one_task, plans.by_shards), used))


def _charge(started: Started, durability: Durability) -> Charge:
    return Charge(
        root=str(started.claim.store.root),
        app=started.identity.app,
        id=started.identity.id,
        incarnation=started.claim.incarnation,
        after=started.lineage.history.frontier,
        replicas=durability.written,
        safe_on=durability.safe_on,
        rest=rest_within(durability.max_unsafe),
    )


def _rebuilt(
    catalog: Catalog, known: Mapping[str, ViewEntry], anew: Collection[str], incarnation: int, epoch: int
) -> Catalog:
    """The catalog with the incarnation that computed each view anew last, and the epoch at which its history begins."""
    views = {}
    for name, view in catalog.views.items():
        before = known.get(name)
        if before is None or name in anew:
            views[name] = replace(view, rebuilt=incarnation if name in anew else 0, since=epoch)
        else:
            views[name] = replace(view, rebuilt=before.rebuilt, since=before.since)
    return replace(catalog, views=views)


def _reads(steps: Mapping[str, Step]) -> dict[str, set[str]]:
    """The views that each view reads, directly or not."""
    reads: dict[str, set[str]] = {}
    for view, root in steps.items():
        direct = {step.detail for step in root.walk() if step.kind == "View"}
        reads[view] = direct.union(*(reads[name] for name in direct))
    return reads


def _contents(plans: Plans, view: View) -> Contents:
    schema = to_arrow_schema(view.schema, timezone="UTC")
    if isinstance(view.root, Record):
        return recorded(view.root.kept, schema, plans.recorded_schema(view.root))
    assert view.direct is not None
    direct = view.direct
    return Contents(
        trace=direct.trace,
        schema=schema,
        stored=direct.stored,
        columns=direct.columns,
        arguments=direct.arguments,
        buffers=direct.buffers,
        windows=direct.windows,
    )


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
    plans: Plans,
    contents: Mapping[str, Contents],
    rejects: Mapping[str, Rejects],
) -> Catalog:
    views: dict[str, ViewEntry] = {}
    for view in plans.compiled.views:
        steps = plans.steps[view.name].walk()
        views[view.name] = ViewEntry(
            schema=view.schema.jsonValue(),
            fingerprint=view.meaning.query,
            contents=contents[view.name].describe(),
            traces=tuple(sorted({trace for step in steps for trace in step.traces})),
            order=tuple(view.order),
            settings=dict(view.meaning.settings),
            functions=dict(view.meaning.functions),
        )
    for name, each in rejects.items():
        kept = recorded(each.trace, to_arrow_schema(_rejected_schema()), each.schema)
        views[f"{name}_rejected"] = ViewEntry(
            schema=_rejected_schema().jsonValue(),
            fingerprint="rejected",
            contents=kept.describe(),
            traces=(each.trace,),
            role="rejected",
        )
    for view in plans.compiled.views:
        for late in view.late:
            views[late.name] = _late(late)
    kinds = {
        name: SourceEntry(type(source).__name__, source.schema.jsonValue())
        for name, source in sources.items()
    }
    return Catalog(kinds, views)


def _late(view: LateView) -> ViewEntry:
    schema = to_arrow_schema(view.schema, timezone="UTC")
    stored = pa.schema([(f"v{i}", kind) for i, kind in enumerate(schema.types)])
    whole = [pa.field(name, pa.int64()) for name in ("h", "r", "diff")]
    kept = recorded(view.trace, schema, pa.schema([*whole[:2], *stored, whole[2]]))
    return ViewEntry(
        schema=view.schema.jsonValue(),
        fingerprint="late",
        contents=kept.describe(),
        traces=(view.trace,),
        role="late",
    )


def _budget(source: Source, target: float, limits: Limits | None) -> Budget:
    least, most = (limits.least, limits.most) if limits is not None else (None, None)
    return Budget.start(source.unit, target, least, most)


def _keeper(history: History, past: Past) -> Callable[[int, float], int]:
    """Which epochs to keep, with the times of those that are still of interest."""
    clocks: deque[tuple[float, int]] = deque(past.clocks())

    def keep_from(computed: int, now: float) -> int:
        clocks.append((max(now, clocks[-1][0]), computed))
        oldest = history.keep_from(computed, now, clocks)
        while clocks and clocks[0][1] < oldest:
            clocks.popleft()
        return oldest

    return keep_from
