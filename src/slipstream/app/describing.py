"""What the catalog says of an app's sources and views, and how its bad rows are kept."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slipstream.app.planning import Plans
from slipstream.dataflow.contents import Contents, recorded
from slipstream.dataflow.graph import Step
from slipstream.epoch import Rejects
from slipstream.plan import LateView, Record, View, in_turn
from slipstream.sources import Source
from slipstream.store.catalog import Catalog, SourceEntry, ViewEntry
from slipstream.store.records import JSON


def reads_of(steps: Mapping[str, Step]) -> dict[str, set[str]]:
    """The views that each view reads, directly or not."""
    reads: dict[str, set[str]] = {}
    for view, root in steps.items():
        direct = {step.detail for step in root.walk() if step.kind == "View"}
        reads[view] = direct.union(*(reads[name] for name in direct))
    return reads


def contents_of(plans: Plans, view: View) -> Contents:
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


def rejects_of(source: Source, there: Catalog, turn: str) -> Rejects:
    """How the bad rows of a source are kept: where they are already, or in a trace that begins in a turn."""
    kept = there.views.get(f"{source.name}_rejected")
    trace = in_turn(f"traces/{source.name}_rejected/1-view", turn) if kept is None else kept.trace
    names = [field.name for field in _rejected_schema()]
    values = [pa.field(f"v{i}", kind) for i, kind in enumerate(to_arrow_schema(_rejected_schema()).types)]
    schema = pa.schema([("h", pa.int64()), ("r", pa.int64()), *values, ("diff", pa.int64())])

    def read(range: JSON) -> pa.Table:  # noqa: A002
        frame = source.rejected(range)
        row = F.xxhash64(*names)
        columns = [F.col(name).alias(f"v{i}") for i, name in enumerate(names)]
        selected = frame.select(row.alias("h"), row.alias("r"), *columns, F.lit(1).cast("long").alias("diff"))
        return selected.toArrow().cast(schema)

    return Rejects(trace, schema, read)


def _rejected_schema() -> StructType:
    names = ("source", "file", "line", "raw", "reason")
    return StructType([StructField(name, LongType() if name == "line" else StringType()) for name in names])


def catalog_of(
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
