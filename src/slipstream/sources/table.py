"""A table, or any other batch query of Spark's: read once, or again and again.

What is read is written into the store, so that a range always gives the same rows, whatever has become of the table
since. A *read* is numbered. The first gives all rows; each later one is compared with what the table held before, and
gives the difference, duplicates counted: rows with a diff. A read without a difference is none.

A range is `{"read": NUMBER, "at": TIME, "rows": ROWS, "parts": [...], "contents": [...], "schema": {...}}`. Its *parts*
are files of rows with a diff each (`sources/parts.py`); those of `contents` add up to all that the table held after it.
All have the columns of the first read, which every range says, and a later read finds these in the table by name,
whatever columns that has by now. So the last range is all that the next read needs. Parts that say little are joined by
the next read that finds a difference (`joined_from`), as layers are merged: a row is written anew a logarithmic number
of times. No part is ever removed, as a view that is added later needs all of them. The range of a table that is read
once has a digest of its files as they were `seen`.

A process may end between a read and its epoch. Then no range names the read; at the next start its parts are removed,
and the table is read anew.

The table is read in the session of the program, with its settings and its current database, and in the thread that
runs epochs: they wait for it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import xxhash
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from slipstream.core.clock import Clock, SystemClock
from slipstream.core.columns import DIFF, quoted
from slipstream.core.durations import seconds
from slipstream.core.errors import (
    BadSourceOption,
    InputLost,
    SourceNotAttached,
    TableChanged,
    TableMoved,
    TableUnreadable,
)
from slipstream.core.parts import named, problem_of
from slipstream.core.permissions import make_folders
from slipstream.core.types import kept_type
from slipstream.sources.base import JSON, Changes, Cut, Source, last_range, summed, type_name
from slipstream.sources.leaf import files_of, refreshed
from slipstream.sources.parts import Parts, Writing, joined_from, rows_in
from slipstream.sources.rows import arrow_schema
from slipstream.spark.jvm import text_of
from slipstream.spark.netting import difference, netted


class Table(Source):
    """See the module's docstring; made by `table`."""

    keeps_rows = True

    def __init__(self, table: str | DataFrame, refresh: float | None, clock: Clock) -> None:
        self._table, self._every, self._clock = table, refresh, clock
        self._session: SparkSession | None = None
        self._folder: Path | None = None
        self._last: JSON = None
        self._looked = 0.0
        super().__init__(None if isinstance(table, str) else _plain(table.schema), None, None, None)

    @property
    def changes(self) -> Changes:
        return Changes("diff" if self._every is not None else super().changes.mode)

    @property
    def exhausted(self) -> bool:
        return self._every is None and self._last is not None

    def asked_in(self, session: SparkSession) -> None:
        self._session = session

    def stand_by(self, name: str, spark: SparkSession, folder: Path) -> bool:
        self._find(name, spark)
        return super().stand_by(name, spark, folder)

    def attach(
        self, name: str, spark: SparkSession, folder: Path, consumed: Sequence[JSON], base: JSON = None
    ) -> None:
        if self._folder not in (None, folder):
            raise BadSourceOption(
                f"'{name}' is a table source that is '{self._name}' already, with its reads in {self._folder}",
                "give each source of each app a table of its own: sl.table(...)",
            )
        last = last_range(consumed, base)
        self._find(name, spark, None if last is None else last.get("schema"))
        super().attach(name, spark, folder, consumed, base)
        make_folders(folder, folder.parents[1])
        self._folder = folder
        self._last = last
        if self._last is not None:
            self._looked = self._last["at"]
            self._tell_if_moved()
        self._remove_unrecorded()

    def folded(self, before: JSON, ranges: Sequence[JSON]) -> JSON:
        return {"last": ranges[-1], **summed(before, ranges, rows=sum(each["rows"] for each in ranges))}

    def cut(self, budget: int | None) -> Cut | None:
        if not self._is_due():
            return None
        now = self._clock.now()
        number = 0 if self._last is None else self._last["read"] + 1
        session = self._in_session()
        try:
            table = self._now()
            before: list[str] = []
            if self._last is None:
                parts = self._written(table.withColumn(DIFF, F.lit(1).cast("long")), number)
            else:
                before = self._last["contents"]
                parts = self._written(difference(self._rows_of(session, before), table), number)
                before = self._joined(before, number) if parts else before
        except Exception as cause:
            if isinstance(cause, InputLost | TableChanged):
                raise
            raise TableUnreadable(self.name, text_of(cause)) from cause
        self._looked = now
        if self._last is not None and not parts:
            return None
        rows = sum(rows_in(parts))
        self._last = {
            "read": number,
            "at": now,
            "rows": rows,
            "parts": parts,
            "contents": before + parts,
            "schema": self.schema.jsonValue(),
        }
        if self._every is None:
            self._last["seen"] = self._files()
        return Cut(self._last, rows, rows)

    def backlog(self) -> int:
        """1 when the table is due to be read: what is new in it is not known without reading it."""
        return 1 if self._is_due() else 0

    def left(self, range: JSON) -> tuple[JSON | None, tuple[str, ...]]:  # noqa: A002
        if self._folder is None:  # in a process that only looks on
            return range, ()
        gone = [name for name in range["parts"] if problem_of(self._home() / name) is not None]
        if not gone:
            return range, ()
        kept = {
            key: [name for name in range[key] if name not in gone] if key in ("parts", "contents") else value
            for key, value in range.items()
        }
        return kept, tuple(f"{name} of the table" for name in gone)

    def frame(self, range: JSON) -> DataFrame:  # noqa: A002
        rows = self._rows_of(self.spark, range["parts"])
        return rows if self.changes.mode == "diff" else rows.drop(DIFF)

    def _is_due(self) -> bool:
        if self._last is None:
            return True
        return self._every is not None and not 0 <= self._clock.now() - self._looked < self._every

    def _find(self, name: str, spark: SparkSession, read: JSON = None) -> None:
        """See what columns the table has: those with which it was read, or where it was not yet, those that it has
        now. Views that a process declared while it stood by have the latter.
        """
        self._session = self._session or spark
        stood_by, self._name = self._name is not None, name
        if read is not None:
            was = StructType.fromJson(read)
            if stood_by and self._schema not in (None, was):
                columns = ", ".join(f"{field.name} {type_name(field.dataType)}" for field in was)
                raise TableChanged(name, f"has other columns than when it was first read ({columns})")
            self._declared, self._schema = was, None
        elif self._declared is None:
            try:
                self._declared = _plain(self._session.table(str(self._table)).schema)
            except Exception as cause:
                raise TableUnreadable(name, text_of(cause)) from cause

    def _in_session(self) -> SparkSession:
        """The session that the table is read in."""
        if not isinstance(self._table, str):
            return self._table.sparkSession
        if self._session is None:
            raise SourceNotAttached(type(self).__name__)
        return self._session

    def _now(self) -> DataFrame:
        """The table as it is now, with the columns that it was first read with."""
        table = self._table
        if isinstance(table, str):
            session = self._in_session()
            if session.catalog.tableExists(table):
                session.catalog.refreshTable(table)
            table = session.table(table)
        table = refreshed(table)
        is_now = {field.name: kept_type(field.dataType) for field in table.schema}
        for field in self.schema:
            if field.name not in is_now:
                raise TableChanged(self.name, f"has no column '{field.name}' any more")
            if is_now[field.name] != field.dataType:
                was, now = type_name(field.dataType), type_name(is_now[field.name])
                raise TableChanged(self.name, f"has a column '{field.name}' of type {now}, which was {was}")
        return table.select(*[F.col(quoted(name)) for name in self.schema.fieldNames()])

    def _files(self) -> str | None:
        """A digest of the names, sizes and times of the table's files; None if it is not known to have any."""
        try:
            paths = files_of(self._now())
            told = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in paths]  # noqa: PTH116
        except Exception:  # a table that cannot be looked at was read all the same
            return None
        return xxhash.xxh3_64_hexdigest(repr(sorted(told)).encode()) if told else None

    def _tell_if_moved(self) -> None:
        """Say so if the files of a table that is read once are others than when it was read."""
        was = self._last.get("seen")
        if self._every is None and was is not None and self._files() != was:
            warnings.warn(str(TableMoved(self.name)), TableMoved, stacklevel=4)

    # Parts

    def _written(self, rows: DataFrame, number: int) -> list[str]:
        """Write rows with a diff into parts, flushed; the names of those that are not empty."""
        home, context = self._home(), rows.sparkSession.sparkContext
        writing = Writing(str(home), number, arrow_schema(self._stored()))
        parts = rows.coalesce(context.defaultParallelism).mapInArrow(writing, "name string")
        names = sorted(row.name for row in parts.collect())
        handle = os.open(home, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return names

    def _joined(self, names: list[str], number: int) -> list[str]:
        """Parts that add up to the same, fewer of them if they are many."""
        at = joined_from(names)
        if at == len(names):
            return names
        rows = self._rows_of(self._in_session(), names[at:])
        return names[:at] + self._written(netted(rows), number)

    def _rows_of(self, session: SparkSession, names: Sequence[str]) -> DataFrame:
        """The rows of parts, with their diffs. Each part proves itself first."""
        for name in names:
            if (problem := problem_of(self._home() / name)) is not None:
                raise InputLost(
                    self.name,
                    f"'{name}' was read of the table, but this file in {self._home()} {problem}",
                    "put the file back from a copy of the store, or declare the table under another name, so that the "
                    "views that read it are computed anew",
                )
        paths = tuple(str(self._home() / name) for name in names)
        numbers = session.range(0, len(paths), 1, max(1, len(paths)))
        return numbers.mapInArrow(Parts(paths), self._stored())

    def _remove_unrecorded(self) -> None:
        """Remove what was read and is part of no epoch, and what was half written."""
        last = -1 if self._last is None else self._last["read"]
        for path in list(self._home().iterdir()):  # first: a successor's come later
            part = named(path.name)
            if path.name.endswith(".tmp") or (part is not None and part.read > last):
                self.check_ours()
                path.unlink(missing_ok=True)

    def _stored(self) -> StructType:
        return StructType([*self.row_schema.fields, StructField(DIFF, LongType(), False)])

    def _home(self) -> Path:
        assert self._folder is not None, "a table is read only after attach"
        return self._folder


def table(table: str | DataFrame, *, refresh: str | float | None = None, clock: Clock | None = None) -> Table:
    """A source over a table of Spark's catalog, by name, or over a DataFrame of the program's own session.

    Without `refresh` it is read once. With it ("10 minutes") it is read again so often, and what is new or gone in it
    is the change of one epoch.
    """
    if not isinstance(table, str | DataFrame):
        raise BadSourceOption(
            f"sl.table was given a {type(table).__name__}", "give the name of a table, or a DataFrame"
        )
    if isinstance(table, DataFrame) and table.isStreaming:
        raise BadSourceOption("the DataFrame is a stream", "use sl.stream(...), or read it with spark.read")
    every = None if refresh is None else seconds(refresh)
    return Table(table, every, clock or SystemClock())


def _plain(schema: StructType) -> StructType:
    """The columns of a table as a source's: anything may be NULL, and no marks."""
    return StructType([StructField(field.name, kept_type(field.dataType)) for field in schema])
