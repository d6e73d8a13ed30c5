"""Any batch format that can be read by a range of offsets, through two functions.

`latest(spark, start)` says how far the input goes now: an offset, which is any JSON value, or `start` itself (or None)
when there is nothing new. `read(spark, start, end)` returns the rows after `start` up to `end`. The first start is the
one given, or None. `order` names columns that `read` returns: of type long, unless declared in the schema as
string. That the same two offsets always give the same rows is for `read` to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from slipstream.core.columns import ORDER, quoted
from slipstream.core.errors import BadSourceOption, MissingColumn
from slipstream.sources.base import JSON, Cut, Source, last_range, summed
from slipstream.sources.shape import shaped

Latest = Callable[[SparkSession, JSON], JSON]
Read = Callable[[SparkSession, JSON, JSON], DataFrame]


class Ranged(Source):
    """See the module's docstring; made by `ranged`."""

    def __init__(
        self,
        latest: Latest,
        read: Read,
        schema: str | StructType,
        start: JSON,
        order: Sequence[str],
        diff: str | None,
        op: str | None,
        key: str | Sequence[str] | None,
    ) -> None:
        if key and not order:
            raise BadSourceOption(
                "ranged() with key= but without order=",
                "name the columns that order the changes of one key, e.g. order=['partition', 'offset']",
            )
        self._latest = latest
        self._read = read
        self._cursor = start
        self._order = tuple(order)
        super().__init__(schema, diff, op, key)

    @property
    def order_fields(self) -> tuple[StructField, ...]:
        declared = {field.name: field.dataType for field in self.schema}
        kinds = (declared.get(name) for name in self._order if self.changes.mode == "keyed")
        return tuple(
            StructField(f"{ORDER}{i}", kind if isinstance(kind, StringType) else LongType())
            for i, kind in enumerate(kinds)
        )

    def attach(
        self, name: str, spark: SparkSession, folder: Path, consumed: Sequence[JSON], base: JSON = None
    ) -> None:
        super().attach(name, spark, folder, consumed, base)
        last = last_range(consumed, base)
        if last is not None:
            self._cursor = last["end"]

    def folded(self, before: JSON, ranges: Sequence[JSON]) -> JSON:
        return {"last": ranges[-1], **summed(before, ranges)}

    def cut(self, budget: int | None) -> Cut | None:
        end = self._latest(self.spark, self._cursor)
        if end is None or end == self._cursor:
            return None
        start, self._cursor = self._cursor, end
        return Cut({"start": start, "end": end}, 0)

    def backlog(self) -> int:
        """1 when there is something new: how much is not known without reading it."""
        end = self._latest(self.spark, self._cursor)
        return 0 if end is None or end == self._cursor else 1

    def frame(self, range: JSON) -> DataFrame:  # noqa: A002
        read = self._read(self.spark, range["start"], range["end"])
        wanted = {*self.schema.fieldNames(), *self._order}
        if missing := wanted - set(read.columns):
            raise MissingColumn(self.name, "what its read function returned", missing, read.columns)
        typed = read.select(
            *(F.col(quoted(field.name)).cast(field.dataType).alias(field.name) for field in self.schema),
            *(
                F.col(quoted(name)).cast(field.dataType).alias(f"{field.name}_by")
                for name, field in zip(self._order, self.order_fields, strict=False)
            ),
        )
        order = [F.col(f"{field.name}_by") for field in self.order_fields]
        return shaped(typed, self.schema, self.changes, order)


def ranged(
    latest: Latest,
    read: Read,
    schema: str | StructType,
    start: JSON = None,
    order: str | Sequence[str] = (),
    diff: str | None = None,
    op: str | None = None,
    key: str | Sequence[str] | None = None,
) -> Ranged:
    """A source over a batch reader, such as Kafka's; the module's docstring says what the two functions do."""
    names = (order,) if isinstance(order, str) else tuple(order)
    return Ranged(latest, read, schema, start, names, diff, op, key)
