"""Frames made by exchanging the leaf of a plan that was analysed once.

`spark.read...select...` costs tens of milliseconds of py4j calls and analysis, and an epoch pays them for every
source. So a source builds its frame once, for whatever range comes first, and keeps the analysed plan as a
*template*. The frame of another range is the template with another leaf: same attributes, other files or
numbers. One `transformUp` does it, since a Scala `Map` is a partial function.

This is the only module of `sources` that touches Spark's own classes; all it relies on are the constructors of
`LogicalRelation`, `HadoopFsRelation`, `InMemoryFileIndex` and `Range`, as they are in Spark 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slipstream.core.permissions import make_empty
from slipstream.spark.jvm import Remembered

SESSION_SETTINGS = {
    # A large file is split over the cores, ten small ones are not ten tasks.
    "spark.sql.files.openCostInBytes": str(1 << 20),
    # Many files make several tasks a core, of like size, so that no core waits long for another's last one.
    "spark.sql.files.maxPartitionBytes": str(16 << 20),
    # Above this many files Spark lists them with a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
"""Settings of the epoch's session that sources are fast with; none of them changes a result."""


class Template:
    """An analysed plan with one leaf."""

    def __init__(self, frame: DataFrame) -> None:
        self._spark: SparkSession = frame.sparkSession
        jvm: Any = Remembered(self._spark._jvm)
        self._session: Any = self._spark._jsparkSession
        self._plan: Any = frame._jdf.queryExecution().analyzed()
        leaves = self._plan.collectLeaves()
        assert leaves.size() == 1, leaves.toString()
        self.leaf: Any = leaves.head()
        self._hash_map: Any = jvm.java.util.HashMap
        self._utils: Any = jvm.PythonUtils
        self._dataset: Any = getattr(getattr(jvm, "org.apache.spark.sql.classic.Dataset$"), "MODULE$")

    def with_leaf(self, leaf: Any) -> DataFrame:
        """The template's frame over another leaf that has the same attributes."""
        swap = self._hash_map()
        swap.put(self.leaf, leaf)
        plan = self._plan.transformUp(self._utils.toScalaMap(swap))
        return DataFrame(self._dataset.ofRows(self._session, plan), self._spark)


class FilesTemplate(Template):
    """A template whose leaf reads files, all of one format and layout."""

    def __init__(self, frame: DataFrame) -> None:
        super().__init__(frame)
        jvm: Any = Remembered(self._spark._jvm)
        package = jvm.org.apache.spark.sql.execution.datasources
        self._index: Any = package.InMemoryFileIndex
        self._relation: Any = package.HadoopFsRelation
        self._no_cache: Any = getattr(
            getattr(jvm, "org.apache.spark.sql.execution.datasources.NoopCache$"), "MODULE$"
        )
        self._none: Any = jvm.scala.Option.empty()
        self._strings: Any = jvm.org.apache.hadoop.util.StringUtils
        self._array_seq: Any = getattr(getattr(jvm, "scala.collection.immutable.ArraySeq$"), "MODULE$")
        files = self.leaf.relation()
        self._fixed = (
            files.partitionSchema(),
            files.dataSchema(),
            self._none,
            files.fileFormat(),
            files.options(),
        )
        self._output: Any = self.leaf.output()

    def over(self, paths: Sequence[str]) -> DataFrame:
        """The frame of these files."""
        index = self._index(
            self._session,
            self._paths(paths),
            self._fixed[-1],
            self._none,
            self._no_cache,
            self._none,
            self._none,
        )
        relation = self._relation(index, *self._fixed, self._session)
        return self.with_leaf(self.leaf.copy(relation, self._output, self._none, False, self._none))

    def _paths(self, paths: Sequence[str]) -> Any:
        """Scala paths, made in three calls however many they are: no path can have the character NUL in it."""
        parts = self._strings.split("\0".join("file:" + path for path in paths), "\0")
        return self._array_seq.unsafeWrapArray(self._strings.stringToPath(parts))


class RangeTemplate(Template):
    """A template whose leaf is `spark.range`."""

    def between(self, start: int, end: int) -> DataFrame:
        """The frame of the numbers from `start` up to but not including `end`."""
        leaf = self.leaf
        return self.with_leaf(leaf.copy(start, end, 1, leaf.numSlices(), leaf.output(), False))


class ArrowFrames:
    """Frames of Arrow IPC streams that have exactly the columns of `schema`, as `rows.arrow_schema` gives them."""

    def __init__(self, spark: SparkSession, schema: StructType) -> None:
        jvm: Any = Remembered(spark._jvm)
        self._spark = spark
        self._read: Any = jvm.PythonSQLUtils.readArrowStreamFromFile
        self._types: Any = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        name = "org.apache.spark.sql.execution.arrow.ArrowConverters$"
        self._converters: Any = getattr(getattr(jvm, name), "MODULE$")

    def over(self, path: Path) -> DataFrame:
        """The rows of one stream; the file is not needed any more when this returns."""
        batches = self._read(str(path))
        session = self._spark._jsparkSession
        # Said here and not left to settings: the stream has 32-bit offsets, and instants in UTC.
        frame = self._converters.toDataFrame(batches, self._types, session, "UTC", False, False)
        return DataFrame(frame, self._spark)


def refreshed(frame: DataFrame) -> DataFrame:
    """A frame that is run anew, over the files that there are now."""
    frame._jdf.queryExecution().analyzed().refresh()
    return frame.select("*")


def files_of(frame: DataFrame) -> list[str]:
    """The files of this machine that a frame reads; none if it reads any that is not."""
    files = frame.inputFiles()
    local = [unquote(urlsplit(file).path) for file in files if urlsplit(file).scheme == "file"]
    return local if len(local) == len(files) else []


def write_arrow_stream(table: pa.Table, path: Path, rows: int = 100_000) -> None:
    """Write what `ArrowFrames` reads, in pieces of so many rows that Spark may give to several tasks."""
    make_empty(path)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
