"""Plans of an epoch: which one is taken, and that all of them keep the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.testing.scripted import Script, Scripted
from slipstream.trace import epoch_layers

pytestmark = pytest.mark.spark

VIEWS = {
    "joined": "SELECT o.k, count(*) c, sum(o.v * u.v) s FROM o JOIN u ON o.k = u.k GROUP BY o.k",
    "outer_joined": "SELECT o.k, o.v, u.v w FROM o LEFT JOIN u ON o.k = u.k AND u.v > 2",
    "ranked": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) r FROM (SELECT DISTINCT k, v FROM o)",
    "listed": "SELECT k, sort_array(collect_list(DISTINCT v)) l, max(v) m FROM o GROUP BY k",
    "above": "SELECT * FROM o WHERE v > (SELECT avg(v) FROM u)",
    "least": "SELECT k, s FROM joined ORDER BY s, k LIMIT 3",
    "either": "SELECT k FROM o UNION ALL SELECT k FROM u EXCEPT SELECT k FROM outer_joined WHERE w > 3",
}
LITTLE = 20


def layers_by_epoch(app: sl.App, epochs: int) -> list[int]:
    """The most layers that an epoch has made of one trace."""
    traces = [trace for trace in app.store.glob("traces/*/*") if trace.is_dir()]
    return [max(len(epoch_layers(trace, epoch)) for trace in traces) for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize("seed", [1, 2])
def test_epochs_by_one_task_and_by_shards_go_on_from_each_other(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    settings = sl.Settings(little=LITTLE)
    with sl.App("app", tmp_path, spark=spark, shards=3, history=None, settings=settings) as app:
        o, u = Scripted("k int, v int"), Scripted("k int, v int")
        for name, source in (("o", o), ("u", u)):
            app.source(name, source.source)
        for name, query in VIEWS.items():
            app.view(name, query)
        script = Script(app, {"o": o, "u": u})
        chance = random.Random(seed)
        sizes = [60, 4, 7, 80, 3, 2, 40, 5]
        for size in sizes:

            def change(size: int = size) -> None:
                o.append((chance.randrange(9), chance.randrange(6)) for _ in range(size))
                u.append((chance.randrange(9), chance.randrange(6)) for _ in range(size // 3))
                held = o.rows
                chance.shuffle(held)
                o.retract(held[: size // 4])

            script.step(change)
        script.check()
        made = layers_by_epoch(app, len(sizes))
        assert [1 < most <= 3 for most in made] == [size > LITTLE / 2 for size in sizes], made


def test_an_epoch_of_little_input_is_one_task_for_each_view(spark: SparkSession, tmp_path: Path) -> None:
    jobs = []
    with sl.App("app", tmp_path, spark=spark, shards=2) as app:
        o = sl.memory("k int, v int")
        app.source("o", o)
        app.view(
            "ranked",
            "SELECT k, v, c, rank() OVER (PARTITION BY c ORDER BY k) r FROM "
            "(SELECT k, max(v) v, count(*) c FROM o GROUP BY k HAVING count(*) < 9)",
        )
        for _ in range(2):
            o.append([(1, 2), (3, 4)])
            before = set(app.spark.sparkContext.statusTracker().getJobIdsForGroup(None))
            app.run(until="caught_up")
            tracker = app.spark.sparkContext.statusTracker()
            new = sorted(set(tracker.getJobIdsForGroup(None)) - before)
            infos = [tracker.getJobInfo(job) for job in new]
            stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
            jobs.append([stage.numTasks for stage in stages if stage])
    assert jobs[-1] == [1], jobs
