"""What a source is: a recorded range of input, turned into rows.

A source never hands over data that it remembers. `cut` says how far the input goes now, as a *range* of plain
JSON; `frame` turns a range into a DataFrame. The range is all that lineage records, so everything rests on one
promise: **the same range gives the same rows, always**, in this process or in one started next year. A source
that can no longer keep the promise for a range (a file is gone, or has other contents) must raise an error;
it must never return what it happens to find.

Rows are understood in one of three ways, the same for every source (`Changes`):

| mode | a row means | columns that `frame` adds |
| --- | --- | --- |
| append | one more row | none |
| diff | that many more (or fewer) of this row | `_slipstream_diff` long |
| keyed | the row of this key is now this, or is gone | `_slipstream_delete` boolean, `_slipstream_order0`, ... |

Changes of one key within a range are ordered by the order columns, ascending, compared one after another; the
last wins. Between ranges, the later range wins. A source with `can_reject` adds `_slipstream_bad`, NULL for a good
row and otherwise a reason. `frame` returns bad rows too: who counts or drops them is not decided here, and what is bad
never depends on which columns are used.

`cut` moves a cursor that lives in this process only. After a restart, `attach` is given what earlier epochs took, and
the cursor stands after it; a range that was cut and never recorded is simply cut again. In a process that stands by
for another, `stand_by` comes first, and `attach` when the process takes over.

An app may have taken a million ranges. So now and then the oldest are handed to `folded`, which makes a *summary* of
them, all that the source needs to go on, and after a restart `attach` is given that summary and the ranges since. A
source that can tell its place from its last range keeps that one. A summary is plain JSON; amounts in it, under the
names `epochs`, `files`, `bytes`, `rows` and `appends`, are shown to users. It may name files in the source's folder,
which are then believed only as far as they prove themselves: else `DamagedSummary`, and `attach` is called again with
all ranges and no summary.

Not promised: that the rows of a range come in any order, or in any number of partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from slipstream.core.columns import (
    BAD,
    INSTEAD,
    INTERNAL,
    ORDER,
    UNREAD,
    field_twice,
    quoted,
    repeated,
    type_in,
)
from slipstream.core.errors import BadSourceOption, SourceNotAttached, UnknownColumn, listed
from slipstream.sources.operations import with_hints

JSON = Any
"""A range or an offset: whatever `json.dumps` takes."""


@dataclass(frozen=True)
class Changes:
    """How the rows of a source are to be understood."""

    mode: Literal["append", "diff", "keyed"]
    diff: str | None = None
    op: str | None = None
    key: tuple[str, ...] = ()

    @property
    def hidden(self) -> tuple[str, ...]:
        """Declared columns that say how to apply a row and are no part of it."""
        return tuple(name for name in (self.diff, self.op) if name is not None)


@dataclass(frozen=True)
class Cut:
    """A slice of input: its range, how much it is in the source's unit, and its rows if they are known."""

    range: JSON
    amount: int
    rows: int | None = None


def changes(
    schema: StructType,
    diff: str | None = None,
    op: str | None = None,
    key: str | Sequence[str] | None = None,
) -> Changes:
    """Check the three options that every source takes against its schema."""
    keys = (key,) if isinstance(key, str) else tuple(key or ())
    names = set(schema.fieldNames())
    unknown = [name for name in (diff, op, *keys) if name is not None and name not in names]
    if unknown:
        raise UnknownColumn(unknown, names)
    for name in schema.fieldNames():
        if name.startswith(INTERNAL):
            raise BadSourceOption(
                f"the column name '{name}' is one that Slipstream uses itself",
                f"give the column a name that does not start with {INTERNAL}",
            )
    if (twice := repeated(schema.fieldNames())) is not None:
        raise BadSourceOption(
            f"its schema has two columns named '{twice}'", "give each column a name of its own"
        )
    _check_types(schema, UNREAD)
    if diff is not None and (op is not None or keys):
        raise BadSourceOption(
            "diff= was given together with op= or key=",
            "use diff= for rows that carry a count, or key= (with or without op=) for rows that replace others",
        )
    if op is not None and not keys:
        raise BadSourceOption(
            f"op='{op}' was given without key=", "name the columns that identify a row, e.g. key='id'"
        )
    if op is not None and op in keys:
        raise BadSourceOption(
            f"'{op}' is both op= and in key=", "the operation is no part of a row's identity"
        )
    if diff is not None:
        if not isinstance(schema[diff].dataType, (ByteType, ShortType, IntegerType, LongType)):
            raise BadSourceOption(
                f"diff='{diff}' is of type {type_name(schema[diff].dataType)}",
                "declare it as TINYINT, SMALLINT, INT or BIGINT",
            )
        return Changes("diff", diff=diff)
    if op is not None and not isinstance(schema[op].dataType, StringType):
        raise BadSourceOption(
            f"op='{op}' is of type {type_name(schema[op].dataType)}", "declare it as STRING"
        )
    return Changes("keyed", op=op, key=keys) if keys else Changes("append")


def _check_types(schema: StructType, refused: Mapping[type[DataType], str]) -> None:
    for field in schema:
        if (kind := type_in(field.dataType, refused)) is not None:
            raise BadSourceOption(
                f"the column '{field.name}' is of type {type_name(field.dataType)}, which a source cannot have",
                refused[kind],
            )
        if (twice := field_twice(field.dataType)) is not None:
            raise BadSourceOption(
                f"a struct in the column '{field.name}' has two fields named '{twice}'",
                "give each field a name of its own",
            )


def type_name(data_type: DataType) -> str:
    """The type as Spark SQL writes it."""
    return data_type.simpleString().upper()


class Source(ABC):
    """See the module's docstring. A subclass says how it cuts and how it reads."""

    unit: Literal["bytes", "rows"] = "rows"
    on_bad: str = "reject"
    forgets_each: bool = False
    """Whether `forget` is to be told of every range, and destroys input for good. Else it hears of the last only."""
    forgets: bool = False
    """Whether input cannot be read again once it was forgotten."""
    keeps_rows: bool = False
    """Whether rows are kept as they are given, as rows with a key are in any case."""
    input_folder: Path | None = None
    """The folder that input arrives in, if it is one of this machine."""
    order_types: tuple[DataType, ...] = ()
    """Types of the order columns that a frame has in the mode keyed: long or string."""

    given: tuple[tuple[object, ...], dict[str, object]]
    """What it was made with, by place and by name: what another one must have been given to be the same."""

    def __new__(cls, *arguments: object, **options: object) -> Self:
        source = super().__new__(cls)
        source.given = arguments, options
        return source

    def __init__(
        self,
        schema: str | StructType | None,
        diff: str | None,
        op: str | None,
        key: str | Sequence[str] | None,
    ) -> None:
        self.check_ours: Callable[[], None] = _unasked
        """Raises where the app's store is another engine's by now: to be asked right before something is put into the
        source's folder under a name that the other could use too.
        """
        self._declared = schema  # None: known only to a source that `attach` will find
        self._options = (diff, op, key)
        self._schema: StructType | None = None
        self._changes: Changes | None = None
        self._name: str | None = None
        self._spark: SparkSession | None = None
        # Spark alone can read a DDL string. Where it already runs, a mistake is reported at once.
        running = SparkContext._active_spark_context is not None
        if isinstance(schema, StructType) or (running and schema is not None):
            self._resolve()

    @property
    def schema(self) -> StructType:
        """The declared input schema, with the diff or op column."""
        self._resolve()
        assert self._schema is not None
        return self._schema

    @property
    def changes(self) -> Changes:
        self._resolve()
        assert self._changes is not None
        return self._changes

    @property
    def row_schema(self) -> StructType:
        """What views see: the schema without the diff and op columns."""
        return StructType([field for field in self.schema if field.name not in self.changes.hidden])

    @property
    def order_fields(self) -> tuple[StructField, ...]:
        """The order columns of a frame."""
        types = self.order_types if self.changes.mode == "keyed" else ()
        return tuple(StructField(f"{ORDER}{i}", kind) for i, kind in enumerate(types))

    @property
    def can_reject(self) -> bool:
        """Whether `frame` has the column `BAD`. Known before the schema is."""
        diff, op, _ = self._options
        return diff is not None or op is not None

    @property
    def goes_by_zone(self) -> bool:
        """Whether the same range is other rows in a session with another time zone."""
        return False

    @property
    def name(self) -> str:
        if self._name is None:
            raise SourceNotAttached(type(self).__name__)
        return self._name

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            raise SourceNotAttached(type(self).__name__)
        return self._spark

    def attach(
        self, name: str, spark: SparkSession, folder: Path, consumed: Sequence[JSON], base: JSON = None
    ) -> None:
        """Take the place in an app.

        `folder` is a directory of the app's store that is this source's own; `consumed` are the ranges of earlier
        epochs, oldest first, that come after those of which `base` is the summary.
        """
        self._name = name
        self._spark = spark
        self._resolve()
        names = [field.name.lower() for field in self.schema]
        if (twice := repeated(names)) is not None and spark.conf.get("spark.sql.caseSensitive") != "true":
            both = listed(field.name for field in self.schema if field.name.lower() == twice)
            raise BadSourceOption(
                f"the columns {both} of '{name}' differ in case only, and Spark does not tell them apart",
                "give each column a name of its own, or set spark.sql.caseSensitive to true",
            )

    def folded(self, before: JSON, ranges: Sequence[JSON]) -> JSON:
        """A summary of ranges, oldest first, that come after those of which `before` is the summary (None: there are
        none). None where the source makes no summary: then it is always given all ranges.
        """
        return None

    def asked_in(self, session: SparkSession) -> None:
        """Hear in which session the program has declared the source, before anything else. Most have no use for it."""
        return

    def stand_by(self, name: str, spark: SparkSession, folder: Path) -> bool:
        """Take the place in an app that another process runs, as far as that writes nothing; `attach` follows once
        the other is gone. Returns whether frames can be made already.
        """
        Source.attach(self, name, spark, folder, ())
        return False

    @abstractmethod
    def cut(self, budget: int | None) -> Cut | None:
        """The next slice of new input, of at most `budget` units but at least one indivisible part; None if none."""

    def size(self, range: JSON) -> int | None:  # noqa: A002
        """How much a range is, in units; None where that is not known without reading it."""
        return None

    def settling(self) -> frozenset[str]:
        """What is there already and may not be cut yet: its writer may not be done. Asked after `cut` gave nothing."""
        return frozenset()

    @abstractmethod
    def backlog(self) -> int:
        """How much is there that was not yet cut, in units. Cheap."""

    @abstractmethod
    def frame(self, range: JSON) -> DataFrame:  # noqa: A002
        """The rows of a range: the fields of `row_schema`, then the columns that the docstring above lists."""

    def together(self, ranges: Sequence[JSON]) -> list[JSON]:
        """Ranges that have the rows of these, as few as can be. With keys they may be made one only where the order
        columns have the rows in the order of the ranges.
        """
        return list(ranges)

    def left(self, range: JSON) -> tuple[JSON | None, tuple[str, ...]]:  # noqa: A002
        """What is left of a range, None for nothing, and the names of what is gone. A source that cannot tell says that
        all of it is there, and `frame` says otherwise.
        """
        return range, ()

    def rejected(self, range: JSON) -> DataFrame:  # noqa: A002
        """The bad rows of a range: source, file, line, raw, reason. Only asked for where some were counted."""
        bad = self.frame(range).where(F.col(BAD).isNotNull())
        return bad.select(
            F.lit(self.name).alias("source"),
            F.lit(None).cast("string").alias("file"),
            F.lit(None).cast("long").alias("line"),
            F.to_json(F.struct(*(quoted(field) for field in self.row_schema.fieldNames()))).alias("raw"),
            with_hints(F.col(BAD)).alias("reason"),
        )

    def forget(self, upto: JSON) -> None:
        """Ranges up to and including `upto` are safe on replicas, and will never be asked for again. Most sources have
        nothing to do.
        """
        return

    def close(self) -> None:
        """Let go of whatever is held open."""
        return

    def _resolve(self) -> None:
        if self._schema is not None:
            return
        declared = self._declared
        if not isinstance(declared, StructType):
            if declared is None or SparkContext._active_spark_context is None:
                raise SourceNotAttached(type(self).__name__)
            parsed = DataType.fromDDL(declared)
            if not isinstance(parsed, StructType):
                raise BadSourceOption(
                    f"the schema '{declared}' is no list of columns", "write 'id long, name string'"
                )
            declared = parsed
        if not declared.fields:
            raise BadSourceOption("the schema has no columns", "declare at least one, e.g. 'id long'")
        understood = changes(declared, *self._options)
        if self.keeps_rows or understood.mode == "keyed":
            _check_types(
                declared, dict.fromkeys(INSTEAD, "declare it as INT or STRING, and cast it in the view")
            )
        self._schema, self._changes = declared, understood


def _unasked() -> None:
    """Before a source is part of an app nobody else can have its folder."""


def summed(before: JSON, ranges: Sequence[JSON], **amounts: int) -> dict[str, JSON]:
    """What a summary shows to users: amounts that add up."""
    known = before or {}
    amounts = {"epochs": len(ranges), **amounts}
    return {name: known.get(name, 0) + amount for name, amount in amounts.items()}


def last_range(consumed: Sequence[JSON], base: JSON) -> JSON:
    """The last range that was taken; None if none was."""
    if consumed:
        return consumed[-1]
    return None if base is None else base["last"]
