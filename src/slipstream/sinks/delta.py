"""A Delta table, through the library `deltalake`: no Spark takes part.

A delivery is one commit of the table's log, with the stamp in it (`delta_stamp`). The table that the stamp was read
from is the one that is written, at that version, and what makes that safe differs:

- A commit that only adds (`Append`, keys that are new to the table, a stamp alone) may follow commits of others that
  came in between, as Delta's rules have it: it is put after them. One that has our application transaction is none of
  those: then the commit fails.
- A commit that takes rows away (`Replace`, `Upsert`) must be the very next after what was read. The library would let
  an overwrite follow somebody's OPTIMIZE, and remove the files that it read, which are gone, and leave the new one,
  which has the same rows.

When a commit fails, the stamp that is there by then tells why: another engine's, and this one is fenced; the one that
was expected, or our own, and the follower tries again, from the beginning.

The library commits nothing where a merge finds nothing to do. Then the stamp is committed alone.

*Not promised.* Files that were written and not committed, because the engine ended or somebody was quicker, stay until
a VACUUM removes them. What others write into the table is left alone, and is nobody's concern, but for a RESTORE: it
takes rows away that would never come again, so the sink stops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.types as pt

from slipstream.core.errors import (
    BadSinkOption,
    KeyNotUnique,
    MissingLibrary,
    SinkStopped,
    TargetAhead,
    TargetColumns,
    TargetFenced,
    TargetNotOurs,
)
from slipstream.sinks.base import (
    Append,
    Delivery,
    Mode,
    Replace,
    Sink,
    Stamp,
    Tables,
    Upsert,
    keys_of,
)
from slipstream.sinks.delta_columns import Columns, NoSuchColumn, fitted, has_local_time, landed
from slipstream.sinks.delta_keys import first_there, quoted
from slipstream.sinks.delta_stamp import FENCE, METADATA, from_numbers, numbered, without_lineage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import CommitProperties, DeltaTable

_LOOK_BACK = (1, 20, None)
"""Commits in which the newest stamp is looked for. It is the newest, unless others write the table as well."""
_LOCAL_TIME = "timestampNtz"
_UNSAFE = "allow_unsafe_rename"


@dataclass(frozen=True)
class DeltaSink(Sink):
    """See the module's docstring; made by `to_delta`."""

    uri: str = ""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    kind: str = field(default="delta", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if find_spec("deltalake") is None:
            raise MissingLibrary("to_delta", "deltalake", "delta")
        if not self.uri:
            raise BadSinkOption("to_delta('')", "name a folder, or a URL like s3://bucket/table")
        for name, value in self.storage_options.items():
            if name.lower().endswith(_UNSAFE) and str(value).lower() in ("true", "1"):
                raise BadSinkOption(
                    f"to_delta(storage_options={{'{name}': ...}}): two engines could commit at once",
                    "leave it out; without it, commits take the object store's conditional writes",
                )

    @property
    def shown(self) -> str:
        if "://" not in self.uri:
            return self.uri
        parts = urlsplit(self.uri)
        user, _, host = parts.netloc.rpartition("@")
        place = (
            f"{user}@{host}" if user and ":" not in user else host
        )  # a container of Azure's stands there as well
        return urlunsplit((parts.scheme, place, parts.path, "", ""))

    def opened(self, name: str) -> DeltaTarget:
        return DeltaTarget(name, self)


@dataclass(frozen=True)
class Found:
    """A table as of one version, with its stamp. restored: whether it was restored to an earlier one since that."""

    table: DeltaTable
    stamp: Stamp | None
    restored: bool = False


class DeltaTarget:
    """A Delta table that one sink writes."""

    def __init__(self, name: str, sink: DeltaSink) -> None:
        self._name, self._sink = name, sink
        self._options = dict(sink.storage_options)

    def stamp(self) -> Stamp | None:
        found = self._found()
        if found is None:
            return None
        if found.stamp is None:
            self._check_empty(found.table)
        return found.stamp

    def deliver(self, delivery: Delivery) -> None:
        found = self._found()
        stamp = None if found is None else found.stamp
        if without_lineage(stamp) != without_lineage(delivery.before):
            raise TargetFenced(self._name, self._sink.shown, _told(stamp))
        failed: list[BaseException] = []
        try:
            commit = Commit(self._sink, delivery, self._landed(delivery.schema), failed)
            if found is None:
                commit.create()
            else:
                self._write(commit, found)
        except SinkStopped:
            raise
        except Exception:
            if failed:
                raise failed[0] from None  # what the view's rows raised, as it was
            self._check_fence(delivery)
            raise

    def close(self) -> None:
        pass

    # Inside

    def _found(self) -> Found | None:
        """The table as it is now; None if there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            table = DeltaTable(self._sink.uri, storage_options=self._options)
        except TableNotFoundError:
            return None
        return _stamped(table, self._sink.shown)

    def _write(self, commit: Commit, found: Found) -> None:
        table, work = found.table, commit.delivery.work
        if found.stamp is None:
            self._check_empty(table)
            self._check_same(commit.schema, table)
        elif found.restored and not isinstance(work, Replace):
            why = "and was restored to an earlier version since"
            raise TargetAhead(self._name, self._sink.shown, found.stamp.epoch, why)
        match work:
            case None:
                commit.stamp_alone(table)
            case Replace():
                commit.replace(table, work)
            case Append():
                commit.append(table, work.tables, self._fitted(commit, table))
            case Upsert():
                columns = self._fitted(commit, table)
                if _lacks_local_time(table, columns):
                    _allow_local_time(table)
                    self.deliver(commit.delivery)  # to the table as it is now
                else:
                    self._check_keys(table, work, columns.schema)
                    commit.upsert(table, work, columns)

    def _check_empty(self, table: DeltaTable) -> None:
        """Rows that no sink wrote are not mixed with what one does."""
        if table.file_uris() and _has_rows(table):
            raise TargetNotOurs(self._name, self._sink.shown, "has rows that no sink wrote")

    def _landed(self, schema: pa.Schema) -> pa.Schema:
        try:
            return landed(schema)
        except NoSuchColumn as error:
            raise TargetColumns(self._name, self._sink.shown, str(error)) from None

    def _fitted(self, commit: Commit, table: DeltaTable) -> Columns:
        try:
            return fitted(commit.schema, columns_of(table))
        except NoSuchColumn as error:
            raise TargetColumns(self._name, self._sink.shown, str(error)) from None

    def _check_same(self, schema: pa.Schema, table: DeltaTable) -> None:
        """A table that somebody made for the sink has the columns that it is to have."""
        try:
            lacking = fitted(schema, columns_of(table)).added
        except NoSuchColumn as error:
            raise TargetNotOurs(self._name, self._sink.shown, f"has other columns: {error}") from None
        if lacking:
            raise TargetNotOurs(self._name, self._sink.shown, f"has no column '{lacking[0]}'")

    def _check_keys(self, table: DeltaTable, work: Upsert, schema: pa.Schema) -> None:
        """Keys that came must not be there."""
        for name in self._sink.key:
            if pt.is_nested(schema.field(name).type):
                why = (
                    f"key column '{name}' is {schema.field(name).type}, by which Delta tables are not merged"
                )
                raise TargetColumns(self._name, self._sink.shown, why)
        keys = work.inserted.select(list(self._sink.key))
        keys = keys.cast(pa.schema([schema.field(name) for name in self._sink.key]))
        there = first_there(table, keys, self._sink.key)
        if there is not None:
            raise KeyNotUnique(self._name, None, ", ".join(map(repr, there)))

    def _check_fence(self, delivery: Delivery) -> None:
        """After a commit that failed: raise if another engine's is there."""
        try:
            found = self._found()
        except Exception:
            return  # then the first error tells more
        stamp = None if found is None else found.stamp
        if without_lineage(stamp) not in map(without_lineage, (delivery.before, delivery.after)):
            raise TargetFenced(self._name, self._sink.shown, _told(stamp)) from None


class Commit:
    """One commit of a delivery. schema: of the delivery's rows, as Delta has it. failed: takes what reading them
    raises, of which the library passes on the text alone.
    """

    def __init__(
        self, sink: DeltaSink, delivery: Delivery, schema: pa.Schema, failed: list[BaseException]
    ) -> None:
        self._sink, self.delivery, self.schema, self._failed = sink, delivery, schema, failed

    def create(self) -> None:
        """The table, with its first rows. It must not be there yet."""
        from deltalake import write_deltalake

        match self.delivery.work:
            case Append(tables=tables) | Replace(tables=tables):
                rows = self._reader(tables, self.schema)
            case None:
                rows = self._reader(lambda: iter([]), self.schema)
            case Upsert():
                raise AssertionError("what a table is given first is given as a whole")
        write_deltalake(
            self._sink.uri,
            rows,
            mode="error",
            storage_options=dict(self._sink.storage_options),
            commit_properties=self._properties(at_once=True),
        )

    def stamp_alone(self, table: DeltaTable) -> None:
        """No rows. It has what a commit must have to be fenced."""
        self.append(table, lambda: iter([]), Columns(columns_of(table)))

    def append(self, table: DeltaTable, tables: Tables, columns: Columns, *, at_once: bool = False) -> None:
        """at_once: whether nobody may have come in between."""
        from deltalake import write_deltalake

        write_deltalake(
            table,
            self._reader(tables, columns.schema),
            mode="append",
            schema_mode="merge" if columns.added else None,
            commit_properties=self._properties(at_once=at_once or self.delivery.before is None),
        )

    def replace(self, table: DeltaTable, work: Replace) -> None:
        """All rows, and the columns too if they became others."""
        from deltalake import write_deltalake

        try:
            columns = fitted(self.schema, columns_of(table))
        except NoSuchColumn:
            columns = None
        same = columns is not None and not columns.added
        write_deltalake(
            table,
            self._reader(work.tables, columns.schema if columns is not None and same else self.schema),
            mode="overwrite",
            schema_mode=None if same else "overwrite",
            commit_properties=self._properties(at_once=True),
        )

    def upsert(self, table: DeltaTable, work: Upsert, columns: Columns) -> None:
        """The keys of rows that came are not in the table."""
        if not work.updated.num_rows and not work.deleted.num_rows:
            self.append(table, lambda: iter([work.inserted]), columns, at_once=True)
            return
        marker = "_op"
        while marker in map(str.lower, columns.schema.names):
            marker += "_"
        source = pa.concat_tables(
            _widened(rows, columns.schema).append_column(marker, pa.repeat(pa.scalar(what), rows.num_rows))
            for what, rows in (("set", work.inserted), ("set", work.updated), ("delete", work.deleted))
        )
        read = table.version()
        (
            table.merge(
                source,
                " AND ".join(f"target.{quoted(name)} = source.{quoted(name)}" for name in self._sink.key),
                source_alias="source",
                target_alias="target",
                merge_schema=bool(columns.added),
                streamed_exec=False,  # else all files are read, whatever their statistics say
                commit_properties=self._properties(at_once=True),
            )
            .when_matched_delete(f"source.{marker} = 'delete'")
            .when_matched_update_all(except_cols=[marker])
            .when_not_matched_insert_all(f"source.{marker} <> 'delete'", except_cols=[marker])
            .execute()
        )
        if table.version() == read:
            self.stamp_alone(table)

    def _properties(self, *, at_once: bool) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        after = self.delivery.after
        return CommitProperties(
            custom_metadata={METADATA: after.encode()},
            max_commit_retries=0 if at_once else None,
            app_transactions=[Transaction(name, version) for name, version in numbered(after).items()],
        )

    def _reader(self, tables: Tables, schema: pa.Schema) -> pa.RecordBatchReader:
        """Rows one after another, never all at once."""

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for table in tables():
                    yield from _widened(table, schema).to_batches()
            except GeneratorExit:  # nobody wants more
                raise
            except BaseException as error:
                self._failed.append(error)
                raise

        return pa.RecordBatchReader.from_batches(schema, batches())


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns of a schema, in its order; NULL in those that they lack."""
    columns: Sequence[Any] = [
        rows.column(each.name).cast(each.type) if each.name in rows.column_names else _nothing(each, rows)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def _nothing(column: pa.Field, rows: pa.Table) -> pa.Array:
    return pa.nulls(rows.num_rows, column.type)


def columns_of(table: DeltaTable) -> pa.Schema:
    """The columns of a table; raises if a sink cannot have made them."""
    return landed(pa.schema(table.schema().to_arrow()))


def _lacks_local_time(table: DeltaTable, columns: Columns) -> bool:
    """Whether columns are added that a table must be declared to have. A merge does not see to that by itself."""
    added = (columns.schema.field(name).type for name in columns.added)
    return any(map(has_local_time, added)) and _LOCAL_TIME not in (table.protocol().reader_features or ())


def _allow_local_time(table: DeltaTable) -> None:
    """A commit of its own, which changes nothing that is there."""
    from deltalake import TableFeatures

    table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)


def _has_rows(table: DeltaTable) -> bool:
    from deltalake import QueryBuilder

    rows = QueryBuilder().register("target", table).execute("SELECT 1 FROM target LIMIT 1")
    return bool(pa.RecordBatchReader.from_stream(rows).read_all().num_rows)


def _stamped(table: DeltaTable, where: str) -> Found:
    """A table with its stamp: as its commit has it, or without lineage if that commit's file is gone."""
    restored = False
    for newest in _LOOK_BACK:
        if newest is None and table.transaction_version(FENCE) is None:
            return Found(table, None)
        commits: list[dict[str, Any]] = table.history(newest)
        restored = False
        for commit in commits:
            if METADATA in commit:
                return Found(table, Stamp.decode(str(commit[METADATA]), where), restored)
            restored = restored or commit.get("operation") == "RESTORE"
    return Found(table, from_numbers(table.transaction_version, where), restored)


def _told(stamp: Stamp | None) -> str:
    if stamp is None:
        return "its stamp is gone"
    return f"epoch {stamp.epoch} by incarnation {stamp.incarnation}"


def to_delta(
    uri: str | Path,
    mode: Mode = "changes",
    key: str | Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaSink:
    """A Delta table, which is made if it is not there: a folder, or a URL like s3://bucket/table.

    mode: "changes" appends every change, with the columns `_epoch` and `_diff`; "upsert" keeps one row for each `key`;
    "replace" writes the whole view anew, where anything changed. storage_options: as `deltalake` takes them.
    """
    return DeltaSink(mode=mode, key=keys_of(key), uri=str(uri), storage_options=dict(storage_options or {}))
