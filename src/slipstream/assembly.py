"""From declarations to a running loop: compile every view, build the template, check the store, start the
loop.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slipstream.clock import Clock
from slipstream.dataflow.combine import PARTIAL
from slipstream.dataflow.contents import Contents, recorded
from slipstream.dataflow.graph import Step
from slipstream.durability.identity import traces_of
from slipstream.durability.lineage import JSON
from slipstream.durability.lineage import History as Past
from slipstream.durability.store import Claim
from slipstream.epoch import (
    Budget,
    Looks,
    Loop,
    Rehearsal,
    Rejects,
    Seen,
    Template,
    Upkeep,
    Watermarks,
    advise,
)
from slipstream.plan import (
    Builder,
    Catalyst,
    Commons,
    Compiled,
    Delta,
    LateView,
    Leaf,
    Node,
    ViewCompiler,
    input_delta,
    maintainable,
)
from slipstream.rebuild import Rebuild, carry_out, plan_rebuild
from slipstream.settings import Durability, History, Limits, Settings, starting
from slipstream.sources import Source
from slipstream.trace import epoch_layers


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
    declared = _Declared(spark, sources, views, recomputed, placeholders, shards, settings.hash_bits)
    plans = _Plans(declared, settings.partial)
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
        carry_out(spark, claim, plans.template, used, past, shards, anew, traces_of(catalog), bad)

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
        claim.store.write_catalog(catalog)
        claim.fence(past.frontier, [claim.store.root / trace for trace in traces_of(catalog)])
        histories = [each.trace for each in contents.values()] + [each.trace for each in rejects.values()]
        histories += late.values()
        return Loop(
            spark=spark,
            claim=claim,
            template=plans.template,
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
            replan=lambda epoch, rows: plans.better(claim.store.root, epoch, rows),
        )

    return Assembly(plans.steps, loop, Rehearsal(spark, plans.template, used, shards))


@dataclass(frozen=True)
class _Declared:
    """What plans are made of."""

    spark: SparkSession
    sources: Mapping[str, Source]
    views: Mapping[str, DataFrame]
    recomputed: Collection[str]
    placeholders: Mapping[str, DataFrame]
    shards: int
    hash_bits: int


class _Plans:
    """The epoch's plan as it is now. It is made anew when measurements say that another would be better."""

    def __init__(self, declared: _Declared, forced: bool | None) -> None:
        self._declared, self._forced = declared, forced
        self._looks = Looks()
        self._partial: frozenset[str] = frozenset()
        self.steps: dict[str, Step] = {}
        self._make()

    def better(self, root: Path, epoch: int, rows: int) -> Template | None:
        """Another plan, if what the epoch measured speaks for one."""
        if not self._able or self._forced is not None or not self._looks.due(rows):
            return None
        advised = advise(self._partial, self._seen(root, epoch))
        if advised == self._partial:
            return None
        self._partial = advised
        self._make()
        return self.template

    def _make(self) -> None:
        declared, forced = self._declared, self._forced
        wanted = self._partial.__contains__ if forced is None else lambda trace: bool(forced)
        build = Builder(Catalyst(declared.spark), declared.shards, declared.hash_bits, wanted)
        self.compiled, self.leaves = _compile(build, declared)
        terminals = [terminal for view in self.compiled for terminal in view.terminals]
        alone = {view.name: view.terminals or _read_by_others(view) for view in self.compiled}
        self.template = Template(build, self.leaves, terminals, alone)
        self.begins, self._able = build.begins, frozenset(build.can_be_partial)
        self.steps.update((view.name, view.step) for view in self.compiled)

    def _seen(self, root: Path, epoch: int) -> dict[str, Seen]:
        measured = self.template.measured()
        found = {}
        for trace in self._able:
            figures = measured.get(f"{trace}{PARTIAL}") or measured.get(trace, {})
            with suppress(FileNotFoundError):  # merged already: there is another epoch to look at
                layers = epoch_layers(root / trace, epoch)
                if "rows_in" in figures and layers:
                    found[trace] = Seen(figures["rows_in"], sum(layer.rows for layer in layers))
        return found


def _compile(build: Builder, declared: _Declared) -> tuple[list[Compiled], dict[str, Leaf]]:
    """Every view, in the order in which they can be compiled, and the leaves of the sources that they read."""
    catalyst = build.catalyst
    views, recomputed, placeholders = declared.views, declared.recomputed, declared.placeholders
    names = {catalyst.leaf_of(frame): name for name, frame in placeholders.items()}
    readers: Counter[str] = Counter()
    plans = {name: maintainable(catalyst, frame) for name, frame in views.items()}
    for plan in plans.values():
        for node in catalyst.nodes(plan):
            identity = catalyst.leaf_id(node)
            if identity in names:
                readers[names[identity]] += 1
    commons = Commons(catalyst, names)
    for name, plan in plans.items():
        if name not in recomputed:
            commons.count(plan, readers[name])
    inputs: dict[int, Delta] = {}
    leaves: dict[str, Leaf] = {}
    for name, source in declared.sources.items():
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
        compiler = ViewCompiler(build, name, inputs, commons)
        view = compiler.compile(plans[name], frame.schema, readers[name], name in recomputed)
        compiled.append(view)
        if view.delta is not None:
            inputs[catalyst.leaf_of(placeholders[name])] = replace(view.delta, step=Step("View", name))
    return compiled, leaves


def _read_by_others(view: Compiled) -> tuple[Node, ...]:
    """The plan of a view that has no terminal of its own, because others read its change."""
    return () if view.delta is None else (view.delta.plan,)


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
