"""A Delta table, through the library `deltalake`: no Spark takes part.

A delivery is one commit of the table's log, with the stamp in it (`stamps`). The table that the stamp was read
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
from contextlib import contextmanager
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
    Upsert,
    keys_of,
    told,
)
from slipstream.sinks.delta.columns import Columns, NoSuchColumn, fitted, has_local_time, landed
from slipstream.sinks.delta.commit import Commit, columns_of
from slipstream.sinks.delta.keys import first_there
from slipstream.sinks.delta.stamps import FENCE, METADATA, from_numbers, without_lineage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

_LOOK_BACK = (1, 20, None)
"""Commits in which the newest stamp is looked for. It is the newest, unless others write the table as well."""
_LOCAL_TIME = "timestampNtz"
_PANIC = "PanicException"
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
            raise TargetFenced(self._name, self._sink.shown, told(stamp))
        schema = self._landed(delivery.schema)
        commit = Commit(self._sink.uri, self._options, self._sink.key, delivery, schema)
        try:
            with _no_panic():
                if found is None:
                    commit.create()
                else:
                    self._write(commit, found)
        except SinkStopped:
            raise
        except Exception:
            if commit.failed:
                raise commit.failed[0] from None  # what the view's rows raised, as it was
            self._check_fence(delivery)
            raise

    def close(self) -> None:
        pass

    # Inside

    def _found(self) -> Found | None:
        """The table as it is now; None if there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with _no_panic():
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
            raise TargetFenced(self._name, self._sink.shown, told(stamp)) from None


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


@contextmanager
def _no_panic() -> Iterator[None]:
    """A panic in the library is an error like others. As it comes, it is none that `except Exception` sees."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise RuntimeError(f"the library deltalake failed: {error}") from error


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
