"""New files in a folder, each read exactly once.

A range is `{"files": [[name, size, mtime_ns], ...]}`: names in the folder, so the folder itself may be moved; files
that are bad as a whole are in it too, and under `"bad"`, by name, why. Before a frame is made, every file is compared
with what was recorded; a file that changed or is gone is an error. That a file was read is never forgotten: what a
summary of old ranges names is in `taken`.

Which rows are bad must not depend on the query. Spark's readers skip what a query does not use: they parse only the
columns it needs, and drop rows that a pushed-down filter rejects before looking at the rest. So the frame of a JSON or
CSV source has, right above the file scan, a filter that is always true, mentions every declared column, and is not
deterministic in Spark's eyes: no column can be pruned and no other filter pushed below it. Its first term decides, so
it costs next to nothing.

The columns of a file are checked when it is cut: one that lacks a column, has one of a type that Spark cannot read as
the declared one, or is not of its format at all, is a single bad row, without a line. With `missing="null"` a column
that is not there is NULL instead, as in Spark, and as a key that is absent from JSON always is. CSV files with a header
are read by their own header, in whatever order its columns are.

A row of JSON that is not UTF-8 cannot be read, and is bad. In CSV and text Spark takes such bytes as they come, and so
does this.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from slipstream.core.clock import Clock, SystemClock
from slipstream.core.columns import BAD, INTERNAL, quoted
from slipstream.core.durations import seconds
from slipstream.core.errors import (
    BadSourceOption,
    ColumnOfAnotherType,
    FileChanged,
    FileMissing,
    MissingColumn,
    NotOfTheFormat,
    UnreadableName,
    listed,
)
from slipstream.core.permissions import make_folders
from slipstream.sources.base import JSON, Cut, Source, summed, type_name
from slipstream.sources.bundle import BLANK, is_bundle, lines_of
from slipstream.sources.leaf import ArrowFrames, FilesTemplate, write_arrow_stream
from slipstream.sources.listing import Listing
from slipstream.sources.operations import with_hints
from slipstream.sources.rejects import INPUT, OUTPUT, TextLayout, explain_batches
from slipstream.sources.shape import shaped
from slipstream.sources.taken import Seen, Taken

FORMATS = ("csv", "json", "orc", "parquet", "text")
PARSED = ("csv", "json")
LINES = (*PARSED, "text")
COLUMNAR = ("orc", "parquet")
OURS = ("mode", "columnnameofcorruptrecord", "columnpruning", "enforceschema", "path", "inferschema")
RAW = f"{INTERNAL}raw"
PATH, BLOCK, ROW, TEXT, NULLS, MARK, UNREAD, DECODED = (
    f"{INTERNAL}{each}" for each in ("path", "block", "row", "text", "nulls", "mark", "unread", "decoded")
)
ARCHIVE = "_archive"
_REFUSED = re.compile(
    "(SchemaColumnConvertNotSupported|IllegalEvolution|Analysis|ClassCast|UnsupportedOperation)Exception"
)
"""Why Spark does not read a column of a file as another type."""
_PLAIN = re.compile(r"[\w.,=+-]*", re.ASCII)

AfterSafe = Literal["keep", "delete", "archive"]
Missing = Literal["bad", "null"]

Layout = tuple[str, ...]
"""The columns of a CSV file by its header; empty where the declared schema says it all."""
NO_HEADER: Layout = ("",)
"""The columns of a file in which no header is found: none that is declared."""


class Files(Source):
    """See the module's docstring; made by `files`."""

    unit = "bytes"
    order_types = (LongType(), StringType(), LongType(), LongType())

    def __init__(
        self,
        path: str | Path,
        format: str,  # noqa: A002
        schema: str | StructType,
        pattern: str,
        max_files_per_epoch: int | None,
        diff: str | None,
        op: str | None,
        key: str | Sequence[str] | None,
        on_bad: Literal["reject", "fail"],
        options: Mapping[str, str | bool | int] | None,
        settle: str | float,
        clock: Clock,
        after_safe: AfterSafe,
        missing: Missing,
    ) -> None:
        self.path = self.input_folder = _local(path)
        if self.path.is_file():
            raise BadSourceOption(
                f"'{path}' is a file, and a source reads the files of a folder",
                f"give its folder: sl.files('{self.path.parent}', ..., pattern='{self.path.name}')",
            )
        self.format = format
        self.options = {name: _text(value) for name, value in (options or {}).items()}
        self.on_bad = on_bad
        self._max_files = max_files_per_epoch
        self._after_safe = after_safe
        self.forgets = self.forgets_each = after_safe != "keep"
        _check(format, on_bad, max_files_per_epoch, self.options)
        if after_safe not in get_args(AfterSafe):
            raise BadSourceOption(
                f"after_safe='{after_safe}' is not one of {listed(get_args(AfterSafe))}",
                "choose one of these",
            )
        if missing not in get_args(Missing):
            raise BadSourceOption(
                f"missing='{missing}' is not one of {listed(get_args(Missing))}", "choose one of these"
            )
        self._missing = missing
        self._listing = Listing(
            self.path, pattern, seconds(settle), clock, self._file_changed, in_order=key is not None
        )
        self._readable: dict[tuple[object, ...], bool] = {}
        self._templates: dict[Layout, FilesTemplate] = {}
        self._header = format == "csv" and self._option("header", "false").lower() == "true"
        super().__init__(schema, diff, op, key)

    @property
    def can_reject(self) -> bool:
        return self.format != "text" or super().can_reject

    @property
    def goes_by_zone(self) -> bool:
        told = self._option("timeZone", "")
        timed = re.search(r"\btimestamp\b", self.schema.simpleString())
        return self.format in PARSED and not told and timed is not None

    def attach(
        self, name: str, spark: SparkSession, folder: Path, consumed: Sequence[JSON], base: JSON = None
    ) -> None:
        super().attach(name, spark, folder, consumed, base)
        if self.format == "text" and [field.dataType for field in self.schema] != [StringType()]:
            raise BadSourceOption(
                f"format='text' with the schema {self.schema.simpleString()}", "declare one STRING column"
            )
        self._nothing = folder / "nothing"
        make_folders(self._nothing, folder.parents[1])
        self._folder = folder
        self._lines = ArrowFrames(spark, StructType([StructField("value", StringType())]))
        self._listing.settle(None if base is None else Taken(name, folder, base["segments"]))
        for range_ in consumed:
            self._listing.consume(_files(range_))
        self._listing.watch()

    def folded(self, before: JSON, ranges: Sequence[JSON]) -> JSON:
        """The names of all files ever taken go into segments of the source's folder; see `taken`."""
        files = [file for taken in ranges for file in _files(taken)]
        known = Taken(self.name, self._folder, before["segments"] if before is not None else ())
        more = known.with_more(files)
        self._listing.settle(more, files)
        amounts = summed(before, ranges, files=len(files), bytes=sum(file.size for file in files))
        return {**amounts, "segments": more.described()}

    def stand_by(self, name: str, spark: SparkSession, folder: Path) -> bool:
        self.attach(name, spark, folder, ())
        return True

    def cut(self, budget: int | None) -> Cut | None:
        self._listing.look()
        taken: list[Seen] = []
        bad: dict[str, str] = {}
        amount = 0
        for file in self._listing.ready():
            full = budget is not None and amount + file.size > budget
            if taken and (full or len(taken) == self._max_files):
                break
            if (wrong := self._wrong_with(file)) is not None:
                bad[file.name] = wrong
            taken.append(file)
            amount += file.size
        if not taken:
            return None
        self._listing.consume(taken)
        range_ = {"files": [[file.name, file.size, file.mtime_ns] for file in taken]}
        return Cut({**range_, "bad": bad} if bad else range_, amount)

    def settling(self) -> frozenset[str]:
        return self._listing.settling()

    def size(self, range: JSON) -> int | None:  # noqa: A002
        return sum(file.size for file in _files(range))

    def forget(self, upto: JSON) -> None:
        """Delete the files of a range, or move them to the folder's subfolder `_archive`. One that has come under the
        same name meanwhile was never read, and is left for the next look to find.
        """
        for file in _files(upto) if self._after_safe != "keep" else ():
            path = self.path / file.name
            try:
                details = path.stat()
            except FileNotFoundError:
                continue
            if Seen(file.name, details.st_size, details.st_mtime_ns) != file:
                continue
            if self._after_safe == "delete":
                path.unlink(missing_ok=True)
            else:
                (self.path / ARCHIVE).mkdir(exist_ok=True)
                path.rename(self.path / ARCHIVE / file.name)

    def close(self) -> None:
        self._listing.close()

    def backlog(self) -> int:
        self._listing.look()
        return self._listing.size()

    def together(self, ranges: Sequence[JSON]) -> list[JSON]:
        """One range; of files with keys one for each run of ranges whose files are in the order of epochs."""
        runs: list[list[JSON]] = []
        for taken in ranges:
            if runs and (self.changes.mode != "keyed" or _is_after(taken, runs[-1][-1])):
                runs[-1].append(taken)
            else:
                runs.append([taken])
        return [_as_one(run) for run in runs]

    def left(self, range: JSON) -> tuple[JSON | None, tuple[str, ...]]:  # noqa: A002
        gone = {file.name for file in _files(range) if not (self.path / file.name).exists()}
        files = [each for each in range["files"] if each[0] not in gone]
        return {**range, "files": files} if files else None, tuple(
            str(self.path / each) for each in sorted(gone)
        )

    def frame(self, range: JSON) -> DataFrame:  # noqa: A002
        layouts = self._by_layout(range)
        sizes = [file.size for file in _files(range)]
        bundled = self.format in LINES and is_bundle(sizes, self.options)
        if self.changes.mode == "keyed" and len(layouts) > 1:
            bundled = False  # rows of one file would not know their place among those of another
        frames = []
        for layout, paths in layouts.items():
            frame = self._bundle_frame(layout, paths) if bundled else None
            frames.append(self._layout_frame(layout, paths) if frame is None else frame)
        if bad := self._bad_files(range):
            frames.append(self._bad_frame(bad))
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def rejected(self, range: JSON) -> DataFrame:  # noqa: A002
        parts = [self._layout_rejects(layout, paths) for layout, paths in self._by_layout(range).items()]
        if bad := self._bad_files(range):
            told = [(path, None, None, reason) for path, reason in bad.items()]
            parts.append(self.spark.createDataFrame(told, OUTPUT))
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.unionByName(part)
        return whole.select(F.lit(self.name).alias("source"), "file", "line", "raw", "reason")

    def _by_layout(self, range_: JSON) -> dict[Layout, list[str]]:
        """The recorded files, checked to be unchanged, by the columns that they have."""
        groups: dict[Layout, list[str]] = {}
        bad, prefix = range_.get("bad", {}), f"{self.path}{os.sep}"
        for file in _files(range_):
            path = prefix + file.name
            try:
                details = os.stat(path)  # noqa: PTH116
            except FileNotFoundError:
                raise FileMissing(self.name, path) from None
            now = Seen(file.name, details.st_size, details.st_mtime_ns)
            if now != file:
                raise self._file_changed(file, now)
            if file.name in bad:
                continue
            layout = self._csv_header(Path(path)) if self._header else ()
            groups.setdefault(layout, []).append(path)
        return groups

    def _bad_files(self, range_: JSON) -> dict[str, str]:
        """Why files are bad as a whole, by path."""
        there = {file.name for file in _files(range_)}
        return {str(self.path / name): why for name, why in range_.get("bad", {}).items() if name in there}

    def _bad_frame(self, bad: Mapping[str, str]) -> DataFrame:
        """Files that are bad as a whole, each as a bad row."""
        none = self.spark.createDataFrame([(reason,) for reason in bad.values()], f"{BAD} string")
        empty = (F.lit(None).cast(field.dataType).alias(field.name) for field in self.schema)
        order = [F.lit(None).cast(field.dataType) for field in self.order_fields]
        return shaped(none.select(*empty, BAD), self.schema, self.changes, order, F.col(BAD))

    def _bundle_frame(self, layout: Layout, paths: Sequence[str]) -> DataFrame | None:
        """The frame of many small files of text, in their order; None where Spark is to read them."""
        lines = lines_of(paths, header=self._header)
        if lines is None:
            return None
        file = self._folder / f".{uuid.uuid4().hex[:12]}.lines"
        try:
            pieces = self.spark.sparkContext.defaultParallelism
            write_arrow_stream(lines, file, -(-lines.num_rows // pieces) or 1)
            given = self._lines.over(file)
        finally:
            file.unlink(missing_ok=True)
        return self._shaped(self._read(layout, given), from_lines=True)

    def _layout_frame(self, layout: Layout, paths: Sequence[str]) -> DataFrame:
        template = self._templates.get(layout)
        if template is None:
            template = self._templates[layout] = FilesTemplate(self._shaped(self._read(layout)))
        return template.over(paths)

    def _layout_rejects(self, layout: Layout, paths: Sequence[str]) -> DataFrame:
        mark = self.changes.op or self.changes.diff
        names = self.schema.fieldNames()
        nulls = F.array_compact(F.array(*(F.when(F.col(quoted(n)).isNull(), F.lit(n)) for n in names)))
        written = F.to_json(F.struct(*(quoted(name) for name in names)))
        raw = F.make_valid_utf8(RAW) if self.format in PARSED else written
        # A row that was read has a reason of its own; one that was not gets it from its text.
        unread = F.col(RAW).isNotNull() if self.format in PARSED else F.lit(False)
        extra = [
            F.col("_metadata.file_path").alias(PATH),
            F.col("_metadata.file_block_start").alias(BLOCK),
            F.monotonically_increasing_id().alias(ROW),
            raw.alias(TEXT),
            nulls.alias(NULLS),
            F.make_valid_utf8(
                F.col(quoted(mark)).cast("string") if mark else F.lit(None).cast("string")
            ).alias(MARK),
            unread.alias(UNREAD),
            (F.is_valid_utf8(RAW) if self.format in PARSED else F.lit(True)).alias(DECODED),
        ]
        bad = (
            FilesTemplate(self._shaped(self._read(layout), extra))
            .over(paths)
            .where(F.col(BAD).isNotNull())
            .select(
                F.expr(f"url_decode(replace(regexp_replace({PATH}, '^file:(//)?', ''), '+', '%2B'))").alias(
                    "path"
                ),
                F.col(TEXT).alias("raw"),
                F.col(NULLS).alias("nulls"),
                F.col(MARK).alias("mark"),
                F.when(~F.col(UNREAD), F.make_valid_utf8(BAD))
                .when(~F.col(DECODED), F.lit("not valid UTF-8"))
                .alias("reason"),
                BLOCK,
                ROW,
            )
            .repartition("path")
            .sortWithinPartitions("path", BLOCK, ROW)
            .select(*INPUT_NAMES)
        )
        if self.format not in PARSED:
            return bad.select(
                F.col("path").alias("file"),
                F.lit(None).cast("long").alias("line"),
                "raw",
                with_hints(F.col("reason")).alias("reason"),
            )
        types = {field.name: type_name(field.dataType) for field in self.schema}
        columns = tuple((name, types.get(name, "STRING")) for name in layout or names)
        text = TextLayout(self.format, columns, self.options, mark)
        return bad.mapInArrow(explain_batches(text, names), OUTPUT)

    def _read(self, layout: Layout, lines: DataFrame | None = None) -> DataFrame:
        """The declared columns of files (or lines) as Spark parses them, and the text of rows that it could not parse.

        It is read of an empty folder, for a template: given names of files, Spark's reader would take some characters
        in them as patterns.
        """
        reader = self.spark.read.format(self.format).options(**self.options)
        schema = self.schema
        if layout:
            fields = {field.name: field for field in self.schema}
            extra = (StructField(f"{INTERNAL}extra{i}", StringType()) for i in range(len(layout)))
            schema = StructType([fields.get(name, spare) for name, spare in zip(layout, extra, strict=True)])
        if self.format in PARSED:
            schema = StructType([*schema.fields, StructField(RAW, StringType())])
            reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=RAW, columnPruning="false")
        if lines is not None:
            reader = reader.schema(schema).options(header="false")
            if self.format == "json":
                read = reader.json(lines)
            else:
                read = reader.csv(lines) if self.format == "csv" else lines.toDF(*schema.names)
        else:
            read = reader.schema(schema).load(_literally(self._nothing))
        if self.format in PARSED and lines is None:
            every = (F.col(quoted(name)).isNotNull() for name in schema.fieldNames())
            barrier = F.spark_partition_id() >= 0
            for column in every:
                barrier = barrier | column
            read = read.where(barrier)
        lacking = [field for field in self.schema if field.name not in schema.names]
        return (
            read.withColumns({field.name: F.lit(None).cast(field.dataType) for field in lacking})
            if lacking
            else read
        )

    def _shaped(
        self, read: DataFrame, extra: Sequence[Column] = (), *, from_lines: bool = False
    ) -> DataFrame:
        order: list[Column] = []
        if self.changes.mode == "keyed" and from_lines:
            order = [F.lit(0).cast("long"), F.lit(""), F.lit(0).cast("long"), F.monotonically_increasing_id()]
        elif self.changes.mode == "keyed":
            order = [
                F.unix_millis("_metadata.file_modification_time"),
                F.col("_metadata.file_name"),
                F.col("_metadata.file_block_start"),
                F.monotonically_increasing_id(),
            ]
        unreadable = F.when(F.col(RAW).isNotNull(), F.lit("unreadable")) if self.format in PARSED else None
        if unreadable is None and self.can_reject:
            unreadable = F.lit(None).cast("string")
        return shaped(read, self.schema, self.changes, order, unreadable, extra)

    def _wrong_with(self, file: Seen) -> str | None:
        """Find out now what would else stop the epoch, or every replay of it: what is wrong with a file that is bad."""
        if ":" in file.name:
            raise UnreadableName(self.name, str(self.path / file.name))
        if self.format not in COLUMNAR and not self._header:
            return None
        path = self.path / file.name
        try:
            found = self._columns(path)
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # it is the system's, not the file's
                raise
            wrong = f"not a file of the format {self.format}: {str(error).splitlines()[0]}"
            if self.on_bad == "fail":
                raise NotOfTheFormat(self.name, str(path), self.format, str(error)) from None
            return wrong
        return self._lacking(path, found) or self._of_other_types(path)

    def _lacking(self, path: Path, found: Sequence[str]) -> str | None:
        """What is wrong with a file that lacks columns."""
        if self._missing == "null":
            return None
        missing = [name for name in self.schema.fieldNames() if name not in found]
        if missing and not self._header and not self._case_sensitive():
            there = {name.lower() for name in found}
            missing = [name for name in missing if name.lower() not in there]
        if not missing:
            return None
        if self.on_bad == "fail":
            raise MissingColumn(self.name, f"the file {path}", missing, found)
        return f"it has no column {listed(missing)}; it has {listed(found)}"

    def _of_other_types(self, path: Path) -> str | None:
        """What is wrong with a file of which Spark cannot read a column as what is declared. Spark reads many types as
        others, so where they are not the same it is asked, once for all files of these types.
        """
        others = self._other_types(path) if self.format in COLUMNAR else {}
        if not others:
            return None
        kinds = (*others.items(), *self._physical_types(path))
        if kinds not in self._readable:
            readable = self._can_read(path, list(others))
            if readable is None:
                return None
            self._readable[kinds] = readable
        if self._readable[kinds]:
            return None
        told = [
            f"its column '{name}' is of type {_told(found)}, and declared as {type_name(self.schema[name].dataType)}"
            for name, found in others.items()
        ]
        if self.on_bad == "fail":
            raise ColumnOfAnotherType(self.name, str(path), "; ".join(told))
        return "; ".join(told)

    def _other_types(self, path: Path) -> dict[str, pa.DataType]:
        """The declared columns that a file has as another type, as far as that can be told."""
        fold = str if self._case_sensitive() else str.lower
        there = {fold(field.name): field.type for field in self._arrow_schema(path)}
        types = {field.name: there.get(fold(field.name)) for field in self.schema}
        return {
            name: found
            for name, found in types.items()
            if found is not None and not _is_plainly(found, self.schema[name].dataType)
        }

    def _physical_types(self, path: Path) -> Sequence[str]:
        """How a file keeps its columns, where that says more than Arrow does."""
        if self.format != "parquet":
            return ()
        schema = pyarrow.parquet.read_metadata(path).schema
        return [schema.column(i).physical_type for i in range(len(schema))]

    def _can_read(self, path: Path, columns: Sequence[str]) -> bool | None:
        """Whether Spark reads columns of a file as they are declared; None where that is not known yet."""
        schema = StructType([self.schema[name] for name in columns])
        reader = self.spark.read.format(self.format).options(**self.options).schema(schema)
        try:
            return True if reader.load(_literally(path)).take(1) else None
        except Exception as error:
            # What is the system's fault, and not the file's, is for the epoch to say.
            return False if _REFUSED.search(str(error)) else None

    def _columns(self, path: Path) -> Sequence[str]:
        """The columns that a file says it has."""
        return self._csv_header(path) if self.format == "csv" else self._arrow_schema(path).names

    def _arrow_schema(self, path: Path) -> pa.Schema:
        if self.format == "parquet":
            return pyarrow.parquet.read_schema(path)
        return pyarrow.orc.ORCFile(path).schema

    def _case_sensitive(self) -> bool:
        return self.spark.conf.get("spark.sql.caseSensitive") == "true"

    def _csv_header(self, path: Path) -> Layout:
        encoding = self._option("encoding", self._option("charset", "utf-8"))
        with pa.input_stream(str(path), compression="detect") as stream:
            text = stream.read(1 << 16).decode(encoding, "replace").lstrip("\ufeff")
        lines = (line for line in re.split(r"\r\n|\r|\n", text) if line.strip(BLANK.decode()))
        layout = TextLayout("csv", (), self.options, None)
        return tuple(layout.tokens(next(lines, ""))) or NO_HEADER

    def _option(self, name: str, default: str) -> str:
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), default)

    def _file_changed(self, was: Seen, now: Seen) -> Exception:
        return FileChanged(self.name, str(self.path / was.name), str(was), str(now))


def files(
    path: str | Path,
    format: str,  # noqa: A002
    schema: str | StructType = "value string",
    pattern: str = "*",
    max_files_per_epoch: int | None = None,
    diff: str | None = None,
    op: str | None = None,
    key: str | Sequence[str] | None = None,
    on_bad: Literal["reject", "fail"] = "reject",
    options: Mapping[str, str | bool | int] | None = None,
    settle: str | float = "1s",
    clock: Clock | None = None,
    after_safe: AfterSafe = "keep",
    missing: Missing = "bad",
) -> Files:
    """A source of the files that appear in the folder `path`, which need not exist yet.

    `options` are those of Spark's reader for the format. Files are best written elsewhere and renamed into the folder;
    one that is written in place is taken when it has not changed for `settle`. With `after_safe`, files are deleted or
    moved to the subfolder `_archive` once the epochs that read them are safe on the app's replicas. A file that lacks a
    column is bad as a whole, or has NULL there with `missing="null"`.
    """
    return Files(
        path,
        format,
        schema,
        pattern,
        max_files_per_epoch,
        diff,
        op,
        key,
        on_bad,
        options,
        settle,
        clock or SystemClock(),
        after_safe,
        missing,
    )


INPUT_NAMES = tuple(column.split()[0] for column in INPUT.split(", "))


def _files(range_: JSON) -> list[Seen]:
    return [Seen(name, size, mtime_ns) for name, size, mtime_ns in range_["files"]]


def _is_after(range_: JSON, other: JSON) -> bool:
    """Whether the order columns surely have all files of a range after those of another. Spark gives names as they are
    in a URL, which may be in another order.
    """
    last, first = max(file.place for file in _files(other)), min(file.place for file in _files(range_))
    plain = all(_PLAIN.fullmatch(file.name) for file in (*_files(other), *_files(range_)))
    return last[0] < first[0] or (plain and last < first)


def _as_one(ranges: Sequence[JSON]) -> JSON:
    whole = {"files": [file for taken in ranges for file in taken["files"]]}
    bad = {name: why for taken in ranges for name, why in taken.get("bad", {}).items()}
    return {**whole, "bad": bad} if bad else whole


def _local(path: str | Path) -> Path:
    text = str(path).removeprefix("file://")
    if "://" in text:
        raise BadSourceOption(
            f"the folder '{path}' is not on a file system of this machine",
            "mount it, or use sl.ranged() or sl.stream() with a reader for that storage",
        )
    return Path(text).expanduser().absolute()


def _plain(found: pa.DataType) -> DataType | None:
    """The type that a column of a file is of and no other, as far as Arrow tells."""
    if pa.types.is_timestamp(found) and found.unit != "us":
        return None
    try:
        return from_arrow_type(found)
    except PySparkTypeError:
        return None


def _is_plainly(found: pa.DataType, declared: DataType) -> bool:
    plain = _plain(found)
    return plain is not None and plain.simpleString() == declared.simpleString()


def _told(found: pa.DataType) -> str:
    plain = _plain(found)
    return str(found) if plain is None else type_name(plain)


def _literally(path: Path) -> str:
    """A path for Spark's reader, which takes patterns."""
    return "file:" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(format_: str, on_bad: str, max_files: int | None, options: Mapping[str, str]) -> None:
    if format_ not in FORMATS:
        raise BadSourceOption(f"format='{format_}' is not one of {listed(FORMATS)}", "choose one of these")
    if on_bad not in ("reject", "fail"):
        raise BadSourceOption(f"on_bad='{on_bad}' is not one of 'fail', 'reject'", "choose one of these")
    if max_files is not None and max_files < 1:
        raise BadSourceOption(
            f"max_files_per_epoch={max_files} is less than 1", "leave it out to have no limit"
        )
    ours = [name for name in options if name.lower() in OURS]
    if ours:
        raise BadSourceOption(f"options= has {listed(ours)}, which the source sets itself", "leave it out")
