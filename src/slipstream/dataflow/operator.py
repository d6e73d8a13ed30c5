"""What a stage of an epoch's plan runs: one shard's input to one shard's output.

Spark hands a task its rows in batches and takes batches back; an operator is written over one table, all the rows that
its shard has in the epoch. It is a frozen description, pickled once when the plan is made; what differs from epoch to
epoch comes with the task (`task.Task`). It is a function of that table and of the traces that the task can read, and of
nothing else: run again, it gives the same and writes the same bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import pyarrow as pa

from slipstream.dataflow.task import Task, gather
from slipstream.dataflow.telling import telling


class Operator(ABC):
    """See the module's docstring. input: the columns that it is sent."""

    input: pa.Schema

    @property
    @abstractmethod
    def known_by(self) -> str:
        """The trace that is its own, or what else nobody else has."""

    @property
    def __name__(self) -> str:
        """Its name in Spark's plan, by which its metrics are found."""
        return self.known_by

    @abstractmethod
    def output(self) -> pa.Schema:
        """The columns that it gives."""

    @abstractmethod
    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """What it gives for all the rows that were handed to a task."""

    def sent(self) -> pa.Schema:
        """The columns that it is sent."""
        return self.input

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Task.current()
        with telling(task.token):
            yield from self.run(task, gather(batches, self.sent()))
