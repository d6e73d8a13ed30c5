"""One commit of a Delta table: what is written, in which of the library's ways, with which stamp.

Which commits may follow what others commit meanwhile, and which may not, is in `target`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slipstream.sinks.base import Append, Delivery, Replace, Tables, Upsert
from slipstream.sinks.delta.columns import Columns, NoSuchColumn, fitted, landed
from slipstream.sinks.delta.keys import quoted
from slipstream.sinks.delta.stamps import METADATA, numbered

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


@dataclass(frozen=True)
class Commit:
    """One commit of a delivery. schema: of the delivery's rows, as Delta has it. failed: takes what reading them
    raises, of which the library passes on the text alone.
    """

    uri: str
    storage_options: Mapping[str, str]
    key: Sequence[str]
    delivery: Delivery
    schema: pa.Schema
    failed: list[BaseException] = field(default_factory=list)

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
            self.uri,
            rows,
            mode="error",
            storage_options=dict(self.storage_options),
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
                " AND ".join(f"target.{quoted(name)} = source.{quoted(name)}" for name in self.key),
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
                self.failed.append(error)
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
