"""Apps that are changed at random: views come, are replaced, dropped and rebuilt, and programs end, between epochs and
beside them. After each step all views equal batch Spark over what was appended, and the changes of each add up to it.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.durability.fsck import check_store
from slipstream.testing.oracle import assert_equal, quick, recompute, rows_of

pytestmark = pytest.mark.spark
SCHEMA = "k string, v long"
STEPS = 14
QUERIES = {
    "base": [
        "SELECT k, sum(v) s FROM t GROUP BY k",
        "SELECT k, sum(v) + 1 s FROM t GROUP BY k",
        "SELECT k, v s FROM t",
    ],
    "joined": [
        "SELECT t.k, t.v, b.s FROM t JOIN base b ON t.k = b.k",
        "SELECT t.k, t.v, b.s FROM t LEFT JOIN base b ON t.k = b.k AND b.s > 5",
    ],
    "top": ["SELECT k, s FROM base ORDER BY s DESC, k LIMIT 2", "SELECT k, v s FROM t ORDER BY v, k LIMIT 3"],
    "whole": ["SELECT count(*) n, max(v) m FROM t", "SELECT count(DISTINCT k) n, min(v) m FROM t"],
    "again": ["SELECT k, max(s) m FROM base GROUP BY k", "SELECT DISTINCT k, 1L m FROM joined"],
}


class History:
    """One random history."""

    def __init__(self, spark: SparkSession, store: Path, seed: int) -> None:
        self.spark, self.store, self.random = spark, store, random.Random(seed)
        self.rows: list[tuple[str, int]] = []
        self.views: dict[str, str] = {}
        self.told: list[str] = []
        self.open()

    def open(self) -> None:
        self.source = sl.memory(SCHEMA)
        self.app = sl.App("random", store=self.store, spark=self.spark, shards=2)
        self.app.source("t", self.source)
        for name in QUERIES:
            if name in self.views:
                self.app.view(name, self.views[name])

    def step(self) -> None:
        verbs = [self.add, self.replace, self.drop, self.rebuild, self.restart, self.append, self.append]
        verb = self.random.choice(verbs)
        self.told.append(verb.__name__)
        verb()

    def append(self) -> None:
        some = [
            (f"k{self.random.randrange(4)}", self.random.randrange(9))
            for _ in range(self.random.randrange(1, 5))
        ]
        if self.rows and self.random.random() < 0.4:
            gone = self.rows.pop(self.random.randrange(len(self.rows)))
            self.source.retract([gone])
        self.rows += some
        self.source.append(some)

    def add(self) -> None:
        free = [name for name in QUERIES if name not in self.views]
        if free:
            self._declare(self.random.choice(free))

    def replace(self) -> None:
        if self.views:
            self._declare(self.random.choice(list(self.views)))

    def _declare(self, name: str) -> None:
        query = self.random.choice(
            [each for each in QUERIES[name] if self._reads(each) <= self.views.keys()] or [""]
        )
        if query:
            self.views[name] = query
            self.app.view(name, query, replace=True)

    def drop(self) -> None:
        free = [
            name for name in self.views if not any(name in self._reads(each) for each in self.views.values())
        ]
        if free:
            name = self.random.choice(free)
            del self.views[name]
            self.app.drop(name)

    def rebuild(self) -> None:
        if self.views:
            self.app.rebuild(self.random.choice(list(self.views)))

    def restart(self) -> None:
        self.app.run(until="caught_up")
        self.app.close()
        self.open()

    def beside(self) -> None:
        """A step while epochs run in another thread."""
        self.app.start()
        self.step_beside()
        assert self.app.await_views(120)
        self.app.stop()

    def step_beside(self) -> None:
        verb = self.random.choice([self.add, self.replace, self.drop])
        self.told.append(f"{verb.__name__} beside")
        self.append()
        verb()
        self.append()

    def check(self) -> None:
        self.app.run(until="caught_up")
        inputs = {"t": self.spark.createDataFrame(self.rows, SCHEMA)}
        for view in self.views:
            found = rows_of(self.app.read(view))
            assert_equal(self.app.read(view), recompute(self.app, view, inputs), f"{view} after {self.told}")
            since = self.app._claim.store.view(view).since
            first = max(0, since - 1 if self.app._claim.store.view(view).past else since)
            added = Counter(rows_of(self.app.read(view, as_of=first)))
            for *row, _, diff in rows_of(self.app.changes(view, first)):
                added[tuple(row)] += diff
            assert not -added, f"changes of {view} after {self.told}"
            assert +added == Counter(found), f"changes of {view} after {self.told}"

    @staticmethod
    def _reads(query: str) -> set[str]:
        return {name for name in QUERIES if f" {name} " in f"{query} "}


@pytest.mark.parametrize("seed", [1, 2])
def test_random_changes_equal_batch_after_each_step(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    history = History(spark, tmp_path, seed)
    with quick(spark):
        history.append()
        for _ in range(STEPS):
            if history.random.random() < 0.25:
                history.beside()
            else:
                history.step()
            history.check()
    history.app.close()
    found = check_store(tmp_path).findings
    assert found == (), found
