"""What a task tells of itself, and what it leaves to its rows."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.errors import DamagedLayer, LayerAway, MissingLayer
from slipstream.dataflow.operator import Operator
from slipstream.dataflow.task import Task
from slipstream.dataflow.telling import TaskTrouble, trouble_told
from slipstream.trace import LayerName

TOKEN = "0f" * 16
SENT = pa.schema([("h", pa.int64())])
DAMAGED = DamagedLayer("traces/v/1-view", LayerName(1, 3, 3, 0, 8), "a part")


@dataclass(frozen=True)
class Failing(Operator):
    """An operator that gives nothing and fails."""

    error: Exception
    input: pa.Schema = SENT

    @property
    def known_by(self) -> str:
        return "v/1-view"

    def output(self) -> pa.Schema:
        return self.input

    def run(self, task: Task, table: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        raise self.error


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = Task(tmp_path, 3, 1, 0, 2, token=TOKEN)
    monkeypatch.setattr(Task, "current", staticmethod(lambda: here))


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (DAMAGED, "damage"),
        (MissingLayer("traces/v/1-view", 1, 2, 0, 8), "damage"),
        (LayerAway("layer", "replica", "down"), "hindered"),
        (OSError(errno.ENOSPC, "No space left on device"), "hindered"),
        (OSError(errno.EROFS, "Read-only file system"), "hindered"),
    ],
)
def test_what_became_of_a_task_is_told_under_its_token(error: Exception, trouble: str) -> None:
    with pytest.raises(TaskTrouble) as raised:
        list(Failing(error)([]))
    around = f"Job aborted: Traceback\nslipstream.dataflow.telling.TaskTrouble: {raised.value}\n\tat java"
    assert trouble_told(around, TOKEN) == (trouble, " ".join(str(error).split()))
    assert trouble_told(around, "1e" * 16) is None, "another engine's"


@pytest.mark.parametrize("error", [ValueError("a row"), OSError(errno.EIO, "Input/output error")])
def test_any_other_failure_is_left_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error.args[-1])):
        list(Failing(error)([]))


@given(st.text())
def test_no_row_is_taken_for_what_a_task_says(row: str) -> None:
    for said in (row, f"\nslipstream.dataflow.telling.TaskTrouble: damage: {row}", f"\n damage: {row}"):
        assert trouble_told(f"The value '{said}' cannot be cast", TOKEN) is None
