"""Rows handed over by the program itself.

Each `append` or `retract` is atomic: its rows enter one epoch together. It is written to the app's store as one Arrow
IPC stream, numbered, before the call returns (before `attach` it is held, and written then), so that a restarted app
can replay it, and takes up what was appended and not yet cut. A range is `{"appends": [first, last]}`, with
`"without": [...]` where appends were lost before their epoch was computed and the user let them go.

The stored columns are those of the frame, those that say how rows apply included, so that reading a range needs
no transformation at all. What an append means is therefore checked when it is made: a memory source never has bad
rows, its caller gets a `BadRow` instead, and nothing of that call is taken.

Because rows can be retracted, a source without `key=` has the mode `diff`, even if no diff column is declared.

The file is written under a temporary name and renamed, not flushed: it survives the end of the process, not that
of the machine. Its name, `NUMBER-ROWS-DIGEST.arrow`, says what must be in it, so that a file that rotted is never taken
for what was appended, and a number that is missing before others is never passed over. What a power cut left of the
newest appends, without their end, is left out, if no epoch took it, with a line in the log. An engine that was
succeeded puts no file there any more; where two files have one number all the same, neither is believed. Files are in
folders of `TOGETHER` each, by number, so that a start looks at those that it goes on from and not at all that was ever
appended.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from slipstream.core.columns import DELETE, DIFF
from slipstream.core.errors import BadRow, BadSourceOption, InputLost, SourceClosed
from slipstream.core.permissions import make_folders
from slipstream.sources.base import JSON, Changes, Cut, Source, last_range, summed
from slipstream.sources.leaf import ArrowFrames, write_arrow_stream
from slipstream.sources.operations import BEFORE_IMAGES, DELETES, UPSERTS, hint
from slipstream.sources.rows import Rows, arrow_schema, table

TOGETHER = 4096
_LOG = logging.getLogger("slipstream.engine")
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream
_NAME = re.compile(r"(\d{12,})-(\d+)(?:-([0-9a-f]{16}))?\.arrow")


class Memory(Source):
    """See the module's docstring; made by `memory`."""

    forgets = True
    keeps_rows = True
    order_types = (LongType(), LongType())

    def __init__(
        self,
        schema: str | StructType,
        diff: str | None,
        op: str | None,
        key: str | Sequence[str] | None,
        max_appends_per_epoch: int | None,
    ) -> None:
        super().__init__(schema, diff, op, key)
        if max_appends_per_epoch is not None and max_appends_per_epoch < 1:
            raise BadSourceOption(
                f"max_appends_per_epoch={max_appends_per_epoch} is less than 1",
                "leave it out to have no limit",
            )
        self._max_appends = max_appends_per_epoch
        self._lock = threading.Lock()
        self._held: list[tuple[Any, int]] = []
        self._closed = False
        self._folder: Path | None = None
        self._rows: dict[int, int] = {}
        """Rows of each append that has a file, cut or not, in the folders that were looked at."""
        self._names: dict[int, str] = {}
        self._doubled: set[int] = set()
        self._looked: set[int] = set()
        self._cursor = 0
        self._next = 0

    @property
    def changes(self) -> Changes:
        declared = super().changes
        return Changes("diff") if declared.mode == "append" else declared

    @property
    def can_reject(self) -> bool:
        return False

    def append(self, rows: Rows) -> None:
        """Add rows."""
        self._take(rows, 1)

    def retract(self, rows: Rows) -> None:
        """Take rows out again, each once. Only where neither diff= nor key= was given."""
        if self._options != (None, None, None):
            raise BadSourceOption(
                "retract() was called on a memory source with diff=, op= or key=",
                "append a row with a negative diff, or with the operation 'delete'",
            )
        self._take(rows, -1)

    def attach(
        self, name: str, spark: SparkSession, folder: Path, consumed: Sequence[JSON], base: JSON = None
    ) -> None:
        if self._folder not in (None, folder):
            raise BadSourceOption(
                f"'{name}' is a memory source that is '{self._name}' already, with its rows in {self._folder}",
                "give each source of each app a memory of its own: sl.memory(...)",
            )
        super().attach(name, spark, folder, consumed, base)
        self._frames = ArrowFrames(spark, self._stored_schema())
        make_folders(folder, folder.parents[1])
        with self._lock:
            self._folder, self._closed = folder, False
            last = last_range(consumed, base)
            self._cursor = 0 if last is None else last["appends"][1] + 1
            for group in self._groups():
                if group >= self._cursor // TOGETHER:
                    self._look(group)
            self._next = max([self._cursor, *(number + 1 for number in self._rows)])
            self._leave_out_torn()
            held, self._held = self._held, []
            for rows, sign in held:
                self._write(self._stored(rows, sign, self._next))

    def folded(self, before: JSON, ranges: Sequence[JSON]) -> JSON:
        appends = sum(last - first + 1 for first, last in (taken["appends"] for taken in ranges))
        return {"last": ranges[-1], **summed(before, ranges, appends=appends)}

    def cut(self, budget: int | None) -> Cut | None:
        with self._lock:
            taken, amount = 0, 0
            for number in range(self._cursor, self._next):
                rows = self._count(number)
                if taken and (taken == self._max_appends or (budget is not None and amount + rows > budget)):
                    break
                taken, amount = taken + 1, amount + rows
            if not taken:
                return None
            first, self._cursor = self._cursor, self._cursor + taken
            return Cut({"appends": [first, self._cursor - 1]}, amount, amount)

    def backlog(self) -> int:
        with self._lock:
            return sum(self._count(number) for number in range(self._cursor, self._next))

    def left(self, range: JSON) -> tuple[JSON | None, tuple[str, ...]]:  # noqa: A002
        """A range has no holes: what is gone of it is named in it."""
        if self._folder is None:  # in a process that only looks on
            return range, ()
        gone = []
        for number in _numbers(range):
            try:
                self._checked(number)
            except InputLost:
                gone.append(number)
        without = sorted({*range.get("without", ()), *gone})
        names = tuple(f"append number {number}" for number in gone)
        return ({**range, "without": without} if gone else range), names

    def size(self, range: JSON) -> int | None:  # noqa: A002
        with self._lock:
            rows = [self._rows.get(number) for number in _numbers(range)]
        return None if None in rows else sum(each or 0 for each in rows)

    def frame(self, range: JSON) -> DataFrame:  # noqa: A002
        first, last = range["appends"]
        if first == last and "without" not in range:
            return self._frames.over(self._checked(first))
        tables = [arrow_schema(self._stored_schema()).empty_table()]
        for number in _numbers(range):
            with pa.memory_map(str(self._checked(number))) as file:
                tables.append(pa.ipc.open_stream(file).read_all())
        joined = self._home() / f".{first}-{last}-{threading.get_ident()}.joined"
        try:
            write_arrow_stream(pa.concat_tables(tables).combine_chunks(), joined)
            return self._frames.over(joined)
        finally:
            joined.unlink(missing_ok=True)

    def forget(self, upto: JSON) -> None:
        with self._lock:
            last = upto["appends"][1]
            for group in self._groups():
                if group <= last // TOGETHER:
                    self._look(group)
            for number in [number for number in self._rows if number <= last]:
                self._path(number).unlink()
                del self._rows[number], self._names[number]
            for group in self._groups():
                if group < last // TOGETHER:
                    self._group(group).rmdir()

    def close(self) -> None:
        """The store may have another engine from now on."""
        with self._lock:
            self._closed = True

    def _take(self, rows: Rows, sign: int) -> None:
        if not isinstance(
            rows, (DataFrame, pa.Table, pa.RecordBatch, pd.DataFrame, str, bytes, dict)
        ) and isinstance(rows, Iterable):
            rows = list(rows)
        with self._lock:
            if self._closed:
                raise SourceClosed(self.name)
            if self._folder is not None:
                self._write(self._stored(rows, sign, self._next))
                return
            if self._schema is not None:
                self._stored(rows, sign, 0)
            self._held.append((rows, sign))

    def _stored(self, rows: Rows, sign: int, number: int) -> pa.Table:
        """The rows as they are stored: `row_schema`, and the columns that say how they apply."""
        spark, name = self._spark, self._name or "memory"
        zone = str(spark.conf.get("spark.sql.session.timeZone")) if spark is not None else "UTC"
        given = table(rows, self.schema, zone, name)
        columns: list[pa.Array | pa.ChunkedArray]
        changes = self.changes
        if changes.op is not None:
            before = pc.is_in(_lower(given, changes.op), pa.array(BEFORE_IMAGES))
            given = given.filter(pc.invert(before))
            _check_all(
                pc.is_in(_lower(given, changes.op), pa.array([*UPSERTS, *DELETES])), given, changes.op, name
            )
        if changes.diff is not None:
            _check_all(pc.is_valid(given[changes.diff]), given, changes.diff, name)
        if changes.mode == "keyed":
            gone = (
                pc.is_in(_lower(given, changes.op), pa.array(DELETES))
                if changes.op is not None
                else pa.array(np.zeros(len(given), bool))
            )
            columns = [gone, pa.array(np.full(len(given), number)), pa.array(np.arange(len(given)))]
        elif changes.diff is not None:
            columns = [given[changes.diff].cast(pa.int64())]
        else:
            columns = [pa.array(np.full(len(given), sign))]
        visible = [given[field.name] for field in self.row_schema]
        return pa.Table.from_arrays([*visible, *columns], schema=arrow_schema(self._stored_schema()))

    def _stored_schema(self) -> StructType:
        if self.changes.mode == "keyed":
            how = [StructField(DELETE, BooleanType(), False)]
            how += [StructField(field.name, field.dataType, False) for field in self.order_fields]
        else:
            how = [StructField(DIFF, LongType(), False)]
        return StructType([*self.row_schema.fields, *how])

    def _write(self, stored: pa.Table) -> None:
        group = self._next // TOGETHER
        make_folders(self._group(group), self._home().parents[1])
        self._look(group)
        temporary = self._home() / f".{self._next:012d}.tmp"
        write_arrow_stream(stored, temporary)
        name = f"{self._next:012d}-{len(stored)}-{_digest(temporary)}.arrow"
        try:
            self.check_ours()
            temporary.rename(self._group(group) / name)
        finally:
            temporary.unlink(missing_ok=True)
        self._rows[self._next], self._names[self._next] = len(stored), name
        self._next += 1

    def _leave_out_torn(self) -> None:
        """Leave out the newest appends that no epoch took and that a power cut left without an end: as if it had come
        before them.
        """
        while self._next > self._cursor and (number := self._next - 1) in self._rows.keys() - self._doubled:
            path = self._path(number)
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - len(_END)))
                if file.read() == _END:
                    return
            self.check_ours()
            path.rename(path.with_name(f".{path.name}.torn"))
            del self._rows[number], self._names[number]
            self._next = number
            _LOG.warning(
                "append number %s of the source '%s' is left out: a power cut left it without its end, and no epoch "
                "took it",
                number,
                self.name,
            )

    def _home(self) -> Path:
        assert self._folder is not None, "frames are asked for only after attach"
        return self._folder

    def _group(self, group: int) -> Path:
        return self._home() / f"{group:09d}"

    def _groups(self) -> list[int]:
        """The folders of appends that there are."""
        return sorted(int(path.name) for path in self._home().iterdir() if path.name.isdecimal())

    def _look(self, group: int) -> None:
        """See what appends a folder has, once."""
        if group not in self._looked:
            self._looked.add(group)
            for path in self._group(group).glob("*.arrow"):
                found = _NAME.fullmatch(path.name)
                if found is None:
                    continue
                number = int(found[1])
                if self._names.get(number, path.name) != path.name:
                    self._doubled.add(number)
                self._rows[number], self._names[number] = int(found[2]), path.name

    def _path(self, number: int) -> Path:
        self._look(number // TOGETHER)
        if number not in self._rows:
            raise self._lost(number, "is gone")
        if number in self._doubled:
            raise self._lost(number, "is not the only one of that number")
        return self._group(number // TOGETHER) / self._names[number]

    def _checked(self, number: int) -> Path:
        """The file of an append, if it is what was written."""
        path = self._path(number)
        found = _NAME.fullmatch(path.name)
        try:
            if found is not None and found[3] is not None and _digest(path) != found[3]:
                raise self._lost(number, "is damaged")
        except FileNotFoundError:
            raise self._lost(number, "is gone") from None
        return path

    def _count(self, number: int) -> int:
        """The rows of an append that is still to be cut."""
        if number not in self._rows:
            raise self._lost(number, "is gone")
        return self._rows[number]

    def _lost(self, number: int, what: str) -> InputLost:
        return InputLost(
            self.name,
            f"append number {number} was taken as input, but its file in {self._home()} {what}",
            "put the file back from a copy of the store. In an app with replicas appends go once they are safe: for "
            "views that come later their rows are kept with app.source(..., keep=True)",
        )


def memory(
    schema: str | StructType,
    diff: str | None = None,
    op: str | None = None,
    key: str | Sequence[str] | None = None,
    max_appends_per_epoch: int | None = None,
) -> Memory:
    """A source that the program feeds itself, with `append` and `retract`."""
    return Memory(schema, diff, op, key, max_appends_per_epoch)


def _digest(path: Path) -> str:
    with pa.memory_map(str(path)) as file:
        return xxhash.xxh3_64_hexdigest(file.read_buffer())


def _numbers(taken: JSON) -> list[int]:
    """The appends of a range, without those that were gone before its epoch was computed."""
    without = set(taken.get("without", ()))
    return [number for number in _through(*taken["appends"]) if number not in without]


def _through(first: int, last: int) -> range:
    """The numbers from first to last, both included."""
    return range(first, last + 1)


def _lower(given: pa.Table, column: str) -> pa.ChunkedArray:
    return pc.utf8_lower(given[column])


def _check_all(fine: pa.ChunkedArray, given: pa.Table, column: str, source: str) -> None:
    for row, good in enumerate(fine.to_pylist()):
        if not good:
            value = given[column][row].as_py()
            wrong = (
                f"{column}: NULL is no diff"
                if value is None and pa.types.is_integer(given[column].type)
                else f"{column}: unknown operation {value!r}" + ("" if value is None else f": {hint(value)}")
            )
            raise BadRow(source, f"row {row}", wrong, f"{column} is one of {', '.join([*UPSERTS, *DELETES])}")
