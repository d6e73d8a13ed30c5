"""An app that stands by: it leaves the store alone, rehearses, and goes on where the other stopped.

Both are in one process here. A lock belongs to whoever opened the file, so that makes no difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.app import standing_by
from slipstream.core.errors import StandingBy, ViewChanged
from slipstream.epoch import Rehearsal
from slipstream.testing.oracle import assert_equal_rows, rows_of
from slipstream.trace import validate

pytestmark = pytest.mark.spark

TOTALS = "SELECT k, sum(v) s FROM t GROUP BY k"


@pytest.fixture
def opened(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    apps = []

    def made(source: Any, query: str = TOTALS) -> sl.App:
        app = sl.App("app", store=tmp_path / "store", spark=spark, shards=2)
        apps.append(app)
        app.source("t", source)
        app.view("totals", query)
        return app

    yield made
    for app in apps:
        app.close()


def land(folder: Path, name: str, rows: list[tuple[str, int]]) -> None:
    folder.mkdir(exist_ok=True)
    text = "\n".join(json.dumps({"k": k, "v": v}) for k, v in rows)
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / name)


def files(folder: Path) -> Any:
    return sl.files(folder, format="json", schema="k string, v long", settle=0)


def contents(store: Path) -> set[str]:
    return {str(path.relative_to(store)) for path in store.rglob("*") if not path.name.startswith(".")}


class Waiting:
    """Lets another app stand by for some attempts, then ends the first; notes how often it rehearsed."""

    def __init__(self, attempts: int, first: sl.App) -> None:
        self.left, self.first = attempts, first

    def __call__(self) -> bool:
        self.left -= 1
        if self.left == 0:
            self.first.close()
        return True


def test_it_takes_over_where_the_other_stopped(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = tmp_path / "landing"
    land(landing, "1", [("x", 1), ("y", 2)])
    first = opened(files(landing))
    first.run(until="caught_up")
    with standing_by():
        second = opened(files(landing))
    before = contents(tmp_path / "store")
    land(landing, "2", [("x", 10)])
    first.run(until="caught_up")  # after the second was opened, which must take note of it all the same
    land(landing, "3", [("z", 100)])
    rehearsed: list[tuple[int, bool]] = []
    run = Rehearsal.run

    def noted(self: Rehearsal, cut: Any) -> bool:
        went = run(self, cut)
        rehearsed.append((0 if cut is None else cut.epoch, went))
        return went

    monkeypatch.setattr(Rehearsal, "run", noted)
    assert second.stand_by(Waiting(10, first))
    assert rehearsed == [(2, True)] * 8
    by_agents = ("traces/", "sums/", "events/", "progress.json")
    added = {path for path in contents(tmp_path / "store") - before if not path.startswith(by_agents)}
    assert added == {"incarnations/2", "lineage/2.log"}, "nothing was written until it took over"
    assert second.epoch == 2
    second.run(until="caught_up")
    assert_equal_rows(rows_of(second.read("totals")), [("x", 11), ("y", 2), ("z", 100)], "totals")
    for trace in (tmp_path / "store").glob("traces/*/*"):
        validate(trace, second.epoch)


def test_rows_that_its_program_appended_are_taken_when_it_takes_over(opened: Any) -> None:
    source = sl.memory("k string, v long")
    first = opened(source)
    source.append([("x", 1)])
    first.run(until="caught_up")
    with standing_by():
        source = sl.memory("k string, v long")
        second = opened(source)
    source.append([("x", 5)])
    assert first.run(until="caught_up").epochs == 0
    assert second.stand_by(Waiting(2, first))
    second.run(until="caught_up")
    assert rows_of(second.read("totals")) == [("x", 6)]


def test_it_may_be_told_to_wait_no_longer(opened: Any, tmp_path: Path) -> None:
    opened(files(tmp_path))
    with standing_by():
        second = opened(files(tmp_path))
    assert not second.stand_by(lambda: False)


def test_until_then_it_is_neither_run_nor_read(opened: Any, tmp_path: Path) -> None:
    with standing_by():
        app = opened(files(tmp_path))
    for forbidden in (app.run, lambda: app.read("totals")):
        with pytest.raises(StandingBy) as error:
            forbidden()
        assert str(error.value) == (
            f"this process stands by for the engine that has the store '{tmp_path / 'store'}': until it takes over, "
            "its app can be declared, and neither run nor read. In a file for `slipstream run`, put what reads views "
            'under `if __name__ == "__main__":`.'
        )


def test_state_of_another_query_is_not_taken_over(opened: Any, tmp_path: Path) -> None:
    """The file was changed after the standby was started, and the engine was restarted with it."""
    landing = tmp_path / "landing"
    with standing_by():
        second = opened(files(landing))
    land(landing, "1", [("x", 1)])
    first = opened(files(landing), "SELECT k, max(v) s FROM t GROUP BY k")
    first.run(until="caught_up")
    with pytest.raises(ViewChanged):
        second.stand_by(Waiting(2, first))
