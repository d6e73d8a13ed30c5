"""Any PySpark streaming data source: a `DataSource` whose stream reader reads by a range of offsets.

The driver asks the reader how far its input goes; a range is `{"start": offset, "end": offset}`. A frame asks it for
the partitions of a range, and reads them in tasks, one each. A *simple* stream reader can only read on: what `read`
returns is kept until the next cut, and read again with `readBetweenOffsets` whenever it is asked for later.

`forget` tells the reader that it may let go of what is before an offset (its `commit`); nothing else does.
How many rows a range has is known only for simple readers, so the amounts of others are 0.
"""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkNotImplementedError
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceStreamReader,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from slipstream.core.columns import INTERNAL
from slipstream.core.errors import BadSourceOption
from slipstream.core.permissions import make_folders
from slipstream.sources.base import JSON, Cut, Source, last_range, summed
from slipstream.sources.leaf import ArrowFrames, write_arrow_stream
from slipstream.sources.rows import arrow_schema
from slipstream.sources.shape import shaped

BATCH = 10_000
PLACE = [StructField(f"{INTERNAL}partition", LongType()), StructField(f"{INTERNAL}position", LongType())]


class Stream(Source):
    """See the module's docstring; made by `stream`."""

    order_types = (LongType(), LongType())
    forgets = True

    def __init__(
        self,
        source: type[DataSource] | str,
        schema: str | StructType | None,
        options: dict[str, str],
        diff: str | None,
        op: str | None,
        key: str | Sequence[str] | None,
    ) -> None:
        self._source = source
        self._reader_options = CaseInsensitiveDict(options)
        self._reader: DataSourceStreamReader | SimpleDataSourceStreamReader | None = None
        self._cursor: JSON = None
        self._read_ahead: tuple[JSON, JSON, list[Any]] | None = None
        self._data_source: DataSource | None = None
        if not isinstance(source, str):
            self._data_source = source(self._reader_options)
        own = None if self._data_source is None else self._data_source.schema()
        super().__init__(schema or own, diff, op, key)

    def stand_by(self, name: str, spark: SparkSession, folder: Path) -> bool:
        self._find(spark)
        return super().stand_by(name, spark, folder)

    def attach(
        self, name: str, spark: SparkSession, folder: Path, consumed: Sequence[JSON], base: JSON = None
    ) -> None:
        found = self._find(spark)
        super().attach(name, spark, folder, consumed, base)
        self._folder = folder
        self._reader = _reader(found, self.schema)
        last = last_range(consumed, base)
        self._cursor = self._attached().initialOffset() if last is None else last["end"]

    def folded(self, before: JSON, ranges: Sequence[JSON]) -> JSON:
        return {"last": ranges[-1], **summed(before, ranges)}

    def _find(self, spark: SparkSession) -> DataSource:
        """The data source that was given or named, which may be what knows the schema."""
        if self._data_source is None:
            self._data_source = _registered(spark, str(self._source))(self._reader_options)
            self._declared = self._declared or self._data_source.schema()
        return self._data_source

    def cut(self, budget: int | None) -> Cut | None:
        start, end, rows = self._next(budget)
        if end == start:
            return None
        self._cursor = end
        return Cut({"start": start, "end": end}, rows or 0, rows)

    def backlog(self) -> int:
        """The rows read ahead by a simple reader; for others 1 when there is something new."""
        start, end, rows = self._next(None)
        return 0 if end == start else (1 if rows is None else max(1, rows))

    def frame(self, range: JSON) -> DataFrame:  # noqa: A002
        reader = self._attached()
        if isinstance(reader, SimpleDataSourceStreamReader):
            read = self._simple_frame(reader, range)
        else:
            read = self._partitioned_frame(reader, range)
        return shaped(read, self.schema, self.changes, [F.col(field.name) for field in PLACE])

    def forget(self, upto: JSON) -> None:
        self._attached().commit(upto["end"])

    def close(self) -> None:
        if isinstance(self._reader, DataSourceStreamReader):
            self._reader.stop()
        self._reader = None

    def _attached(self) -> DataSourceStreamReader | SimpleDataSourceStreamReader:
        if self._reader is None:
            raise BadSourceOption(
                "the stream is closed or not part of an app", "add it with app.source('name', source)"
            )
        return self._reader

    def _next(self, budget: int | None) -> tuple[JSON, JSON, int | None]:
        """Where the input goes from the cursor, and its rows if they are known."""
        reader, start = self._attached(), self._cursor
        if not isinstance(reader, SimpleDataSourceStreamReader):
            return start, _plain(_latest(reader, start, budget)), None
        ahead = self._read_ahead
        if ahead is None or ahead[0] != start or ahead[1] == start:
            rows, end = reader.read(start)
            ahead = self._read_ahead = (start, _plain(end), list(rows))
        return start, ahead[1], len(ahead[2])

    def _partitioned_frame(self, reader: DataSourceStreamReader, range_: JSON) -> DataFrame:
        partitions = list(reader.partitions(range_["start"], range_["end"]))
        assert self._data_source is not None
        task = _partition_task(reader, partitions, self.schema, self._data_source)
        numbers = self.spark.range(0, len(partitions), 1, max(1, len(partitions)))
        return numbers.mapInArrow(task, StructType([*self.schema.fields, *PLACE]))

    def _simple_frame(self, reader: SimpleDataSourceStreamReader, range_: JSON) -> DataFrame:
        start, end = range_["start"], range_["end"]
        ahead = self._read_ahead
        known = ahead is not None and (ahead[0], ahead[1]) == (start, end)
        rows = ahead[2] if ahead is not None and known else reader.readBetweenOffsets(start, end)
        assert self._data_source is not None
        placed = StructType([*self.schema.fields, *PLACE])
        batches = records_to_arrow_batches(iter(rows), BATCH, self.schema, self._data_source)
        table = pa.Table.from_batches(_placed(batches, 0), arrow_schema(placed))
        make_folders(self._folder, self._folder.parents[1])
        path = self._folder / f".{threading.get_ident()}.read"
        try:
            write_arrow_stream(table, path)
            return ArrowFrames(self.spark, placed).over(path)
        finally:
            path.unlink(missing_ok=True)


def stream(
    source: type[DataSource] | str,
    schema: str | StructType | None = None,
    *,
    diff: str | None = None,
    op: str | None = None,
    key: str | Sequence[str] | None = None,
    **options: str,
) -> Stream:
    """A source over a PySpark `DataSource` class, or the name of one registered with `spark.dataSource.register`.

    Without `schema` the data source's own is used; `options` are passed to it.
    """
    return Stream(source, schema, options, diff, op, key)


def _plain(offset: JSON) -> JSON:
    """The offset as it will be after it was recorded and read back."""
    return json.loads(json.dumps(offset))


def _reader(source: DataSource, schema: StructType) -> DataSourceStreamReader | SimpleDataSourceStreamReader:
    try:
        return source.streamReader(schema)
    except PySparkNotImplementedError:
        pass
    try:
        return source.simpleStreamReader(schema)
    except PySparkNotImplementedError:
        raise BadSourceOption(
            f"the data source '{source.name()}' cannot be read as a stream",
            "give it a streamReader() or simpleStreamReader(), or use sl.ranged()",
        ) from None


def _latest(reader: DataSourceStreamReader, start: JSON, budget: int | None) -> JSON:
    """The reader's latest offset. A reader that counts rows hears of the budget; one made for Spark 4.1 has no say."""
    latest: Callable[..., JSON] = reader.latestOffset
    if not inspect.signature(latest).parameters:
        return latest()
    limit: ReadLimit = reader.getDefaultReadLimit()
    if isinstance(limit, ReadMaxRows) and budget is not None:
        limit = ReadMaxRows(min(limit.max_rows, max(1, budget)))
    return latest(start, limit)


def _registered(spark: SparkSession, name: str) -> type[DataSource]:
    """The class registered under a name, which the JVM keeps as Python pickled it."""
    manager: Any = spark._jsparkSession.sessionState().dataSourceManager()
    if not manager.dataSourceExists(name):
        raise BadSourceOption(
            f"no Python data source is registered as '{name}'",
            "pass the DataSource class itself, or register it with spark.dataSource.register first",
        )
    found: Any = manager.lookupDataSource(name)
    pickled = bytes(int(byte) & 255 for byte in found.dataSourceCls().command().mkString(",").split(","))
    loads: Callable[[bytes], type[DataSource]] = CPickleSerializer().loads
    return loads(pickled)


def _partition_task(
    reader: DataSourceStreamReader, partitions: Sequence[Any], schema: StructType, source: DataSource
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            rows = iter(reader.read(partitions[number]))
            yield from _placed(records_to_arrow_batches(rows, BATCH, schema, source), number)

    return read


def _placed(batches: Any, partition: int) -> Iterator[pa.RecordBatch]:
    """Each batch with the place of its rows, by which changes of one key are ordered."""
    position = 0
    for batch in batches:
        places = [
            pa.array([partition] * len(batch), pa.int64()),
            pa.array(range(position, position + len(batch))),
        ]
        fields = [pa.field(field.name, pa.int64()) for field in PLACE]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, *places], schema=pa.schema([*batch.schema, *fields])
        )
        position += len(batch)
