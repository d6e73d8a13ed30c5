"""`spark.read.format("slipstream")`: a view, now or in the past, in any PySpark program.

Options: `view` (its name), `asOf` (an epoch, or a timestamp such as 2026-01-31T12:00:00; the newest computed
epoch if absent), `since` and `until` (the changes between two epochs instead of the contents, with `_epoch`
and `_diff`; with `__epoch` and `__diff` where the view has columns of those names), `columns` (a list,
comma-separated). The path is the store.

PySpark's data source API does not tell a reader which columns a query uses, so columns are pruned by naming
them: `.option("columns", "country,revenue")`, or a schema given to `.schema(...)`. Only those are read.

The epoch is fixed when the DataFrame is made, so a DataFrame shows one epoch however long it lives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from slipstream.core.columns import repeated
from slipstream.core.errors import BadReadOption, SlipstreamError, UnknownView, listed
from slipstream.dataflow.contents import Contents, Reading
from slipstream.durability.timetravel import check_there, resolve_epoch
from slipstream.observe.switching import Parts, changes_of, check_columns
from slipstream.store.catalog import ViewEntry
from slipstream.store.store import Store

OPTIONS = ("view", "asOf", "since", "until", "columns")
_OPTIONS = {name.lower() for name in ("path", *OPTIONS)}
_SPANS = 8


class SlipstreamSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "slipstream"

    def schema(self) -> StructType:
        asked = self._asked()
        whole = StructType.fromJson(asked.entry.schema)
        schema = StructType([whole[name] for name in asked.columns])
        if asked.since is not None:
            added = Contents.described(asked.entry.contents).only(asked.columns).beside
            schema = StructType([*schema, *(StructField(name, LongType()) for name in added)])
        return schema

    def reader(self, schema: StructType) -> ViewReader:
        return ViewReader(self._asked(), schema)

    def _asked(self) -> _Asked:
        """What is asked for. Spark shows an error with all calls that led to it: ours has none."""
        try:
            return _Asked.of(self.options)
        except SlipstreamError as error:
            told = error.with_traceback(None)
        raise told


DefaultSource = SlipstreamSource


class _Asked:
    """The options of a read, looked up in the store."""

    def __init__(
        self, root: Path, view: str, now: ViewEntry, columns: list[str], as_of: int, since: int | None
    ) -> None:
        self.root, self.columns = root, columns
        self.entry, self._view, self._now = now.at(as_of), view, now
        self.as_of, self.since = as_of, since

    @staticmethod
    def of(options: Any) -> _Asked:
        unknown = [name for name in options if name.lower() not in _OPTIONS]
        if unknown:
            plain = {name.lower(): name for name in OPTIONS}
            near = get_close_matches(unknown[0].lower().replace("_", ""), plain, 1)
            hint = f" Did you mean '{plain[near[0]]}'?" if near else ""
            raise BadReadOption(f"there is no option {listed(unknown)}; there are {listed(OPTIONS)}.{hint}")
        path, view = options.get("path"), options.get("view")
        if not path or not view:
            raise BadReadOption('name the store and the view: .option("view", NAME).load(STORE)')
        store = Store.existing(path)
        now = store.view(view)
        since = options.get("since")
        if since is None and options.get("until") is not None:
            raise BadReadOption("'until' goes with 'since'; for the contents as of an epoch, give 'asOf'")
        if since is not None and options.get("asOf") is not None:
            raise BadReadOption("'since' and 'asOf' were given: for changes, say 'since' and 'until'")
        asked = options.get("until") if since is not None else options.get("asOf")
        as_of = resolve_epoch(store, asked, [now.trace])
        after = None if since is None else resolve_epoch(store, since, [now.trace])
        entry = now.at(as_of)
        columns = [each.strip() for each in (options.get("columns") or "").split(",") if each.strip()]
        known = [field["name"] for field in entry.schema["fields"]]
        for column in columns:
            if column not in known:
                raise UnknownView(column, known, f"column of '{view}'")
        columns = columns or known
        twice = repeated([name for name in known if name in columns])
        if twice is not None:
            raise BadReadOption(
                f"view '{view}' has two columns named '{twice}', which a data source of Spark cannot have: name others "
                'with .option("columns", ...), read it with app.read or sl.read_view, or give the columns names of '
                "their own in the view"
            )
        check_there(store, view, as_of, after, base=not Contents.described(entry.contents).is_bag)
        asked_for = _Asked(store.root, view, now, columns, as_of, after)
        asked_for.reading(columns)
        return asked_for

    def reading(self, columns: list[str]) -> Reading | Parts:
        """What reads some columns of it."""
        root = str(self.root)
        if self.since is None:
            epoch = self.entry.shown(self.as_of)
            return Reading(Contents.described(self.entry.contents).only(columns), root, _SPANS, epoch)
        stretches = [
            (Contents.described(was.contents), since, until)
            for was, since, until in self._now.between(self.since, self.as_of)
        ]
        if len(stretches) > 1:
            check_columns(self._view, stretches)
        some = [(contents.only(columns), since, until) for contents, since, until in stretches]
        return changes_of(self._view, some, root, _SPANS)


class ViewReader(DataSourceReader):
    """Reads the spans of a view's trace side by side."""

    def __init__(self, asked: _Asked, schema: StructType) -> None:
        self._asked = asked
        own = [field["name"] for field in asked.entry.schema["fields"]]
        self._names = [name for name in schema.fieldNames() if name in own]

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(i) for i in range(_SPANS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for table in self._asked.reading(self._names).span(partition.value):
            yield from table.to_batches()
