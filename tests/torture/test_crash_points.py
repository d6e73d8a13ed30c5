"""Every crash point is visited, and each crash is followed by a recovery that equals a clean run.

A process that dies takes its JVM along, and a JVM takes long to start. So one process starts Spark and forks: each
child opens the app on a store of its own with Spark as it found it, runs, and dies at its point, between two of its
calls to the JVM. Points that lie in a Python worker or in the agent do not end the engine; they are armed through the
environment, which those processes inherit: for workers in a process with a JVM of its own, whose epoch fails, for
agents in this one.

After the crash, the app is opened anew, in the test's own process, with more input, and must hold what a run without
a crash holds: now and as of every epoch that both have.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slipstream
import slipstream as sl
from slipstream.core.crashing import POINTS, VARIABLE
from slipstream.durability.agent import process
from slipstream.durability.agent.process import LocalProcess
from slipstream.testing.oracle import assert_equal_rows, rows_of
from slipstream.testing.pretend import eventually
from slipstream.trace import validate

pytestmark = [pytest.mark.spark, pytest.mark.slow]

VIEWS = {
    "totals": "SELECT k, sum(v) s, count(*) c FROM t GROUP BY k",
    "largest": "SELECT k, max(v) m FROM t GROUP BY k",
    "pairs": "SELECT x.v, y.v AS w FROM t x JOIN t y ON x.k = y.k AND x.v < y.v",
    "top": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 3",
}
EPOCHS = 7


@dataclass(frozen=True)
class Case:
    """A point, the how many-eth visit is fatal, and whose death it is."""

    point: str
    times: int = 2
    of: str = "engine"

    def __str__(self) -> str:
        return f"{self.point} of the {self.of}, visit {self.times}"


CASES = [
    Case("store.before_claim", 1),
    Case("store.after_claim", 1),
    Case("epoch.before_cut"),
    Case("epoch.after_cut"),
    Case("epoch.before_publish"),
    Case("epoch.after_publish"),
    Case("store.in_discard", 1),
    Case("layer.before_rename", 3, "worker"),
    Case("layer.after_rename", 3, "worker"),
    Case("layer.before_rename", 2, "agent"),
    Case("layer.after_rename", 2, "agent"),
    Case("upkeep.before_merge", 1, "agent"),
    Case("upkeep.after_merge", 1, "agent"),
    Case("upkeep.before_remove", 1, "agent"),
    Case("upkeep.after_remove", 1, "agent"),
]

ELSEWHERE = (
    "replica.",
    "restore.",
    "backfill.",
    "hold.",
    "store.before_begin",
    "store.after_begin",
    "store.before_takeover",
    "sink.",
)
"""Points that need no Spark, which tests/durability/test_crashes.py visits, or an app that is changed:
tests/app/test_changing_crashes.py.
"""

SCRIPT = """
import json, os, sys
from pathlib import Path
import slipstream as sl
from slipstream.core.crashing import arm
from slipstream.spark.session import start_session

views, epochs, cases, folder = json.loads(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), Path(sys.argv[4])
spark = start_session("crashes", "local[2]", 2)

def run(store):
    app = sl.App("crash", store=store, spark=spark, shards=2, history=None)
    schema = "k string, v long"
    app.source("t", sl.files(folder / "input", format="json", schema=schema, max_files_per_epoch=1, settle=0))
    for name, query in views.items():
        app.view(name, query)
    app.run(until=epochs)

def died(store, point, times):
    child = os.fork()
    if child == 0:
        if point == "store.in_discard":  # there is something to discard only after another crash
            grandchild = os.fork()
            if grandchild == 0:
                arm("epoch.before_publish:2")
                run(store)
                os._exit(1)
            os.waitpid(grandchild, 0)
        arm(f"{point}:{times}")
        try:
            run(store)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(json.dumps({store: died(folder / store, point, times) for store, point, times in cases}), flush=True)
"""

ARMED = (
    SCRIPT.partition("def died")[0]
    + """
try:
    run(folder / cases)
except Exception as error:
    print(type(error).__name__, flush=True)
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crashes")
    (folder / "input").mkdir()
    for number in range(EPOCHS):
        land(folder / "input", number)
    return folder


def land(folder: Path, number: int) -> None:
    rows = [{"k": "abcdef"[(number + i) % 6], "v": number * 10 + i} for i in range(8)]
    path = folder / f"{number}.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def store_of(case: Case) -> str:
    return f"{case.point}-{case.of}"


@pytest.fixture(scope="module")
def deaths(folder: Path) -> dict[str, int]:
    """How the engines ended that died in a fork, by store."""
    cases = [(store_of(case), case.point, case.times) for case in CASES if case.of == "engine"]
    arguments = [json.dumps(VIEWS), str(EPOCHS), json.dumps(cases), str(folder)]
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, timeout=900
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    codes: dict[str, int] = json.loads(ran.stdout.splitlines()[-1])
    return codes


@pytest.fixture(scope="module")
def clean(spark: SparkSession, folder: Path) -> dict[str, dict[int, list[Any]]]:
    """Every view at every epoch of a run without a crash."""
    with opened(spark, folder, "clean") as app:
        app.run(until=EPOCHS)
        return contents(app)


def opened(spark: SparkSession, folder: Path, store: str) -> sl.App:
    app = sl.App("crash", store=folder / store, spark=spark, shards=2, history=None)
    schema = "k string, v long"
    app.source("t", sl.files(folder / "input", format="json", schema=schema, max_files_per_epoch=1, settle=0))
    for name, query in VIEWS.items():
        app.view(name, query)
    return app


def contents(app: sl.App) -> dict[str, dict[int, list[Any]]]:
    epochs = (1, 2, 3, EPOCHS)
    return {view: {epoch: rows_of(app.read(view, as_of=epoch)) for epoch in epochs} for view in VIEWS}


def test_every_point_has_a_case() -> None:
    for module in pkgutil.walk_packages(slipstream.__path__, "slipstream."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert {case.point for case in CASES} == {point for point in POINTS if not point.startswith(ELSEWHERE)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_crash_is_followed_by_a_recovery_equal_to_a_clean_run(
    case: Case,
    folder: Path,
    spark: SparkSession,
    clean: Any,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if case.of == "engine":
        assert request.getfixturevalue("deaths")[store_of(case)] == -signal.SIGKILL, (
            "the point was not visited"
        )
    elif case.of == "agent":
        with monkeypatch.context() as patch:
            patch.setenv(VARIABLE, f"{case.point}:{case.times}")
            agent_dies(opened(spark, folder, store_of(case)), patch)
    else:
        assert worker_dies(case, folder) == "EpochFailed", "the point was not visited"
    with opened(spark, folder, store_of(case)) as app:
        app.run(until="caught_up")
        assert app.epoch == EPOCHS
        for view, epochs in contents(app).items():
            for epoch, rows in epochs.items():
                assert_equal_rows(rows, clean[view][epoch], f"{view} as of {epoch}, after a crash at {case}")
    for trace in (folder / store_of(case)).glob("traces/*/*"):
        validate(trace, EPOCHS)


def agent_dies(app: sl.App, patch: pytest.MonkeyPatch) -> None:
    """Run an app until an agent of it is dead: agents are started in this process's environment, and again when they
    end.
    """
    agents: list[LocalProcess] = []

    class Noted(LocalProcess):
        def __init__(self) -> None:
            super().__init__()
            agents.append(self)

    patch.setattr(process, "LocalProcess", Noted)
    with app:
        app.run(until=EPOCHS)
        killed = eventually(lambda: any(agent.code() == -signal.SIGKILL for agent in agents), 300)
        assert killed, "the point was not visited"


def worker_dies(case: Case, folder: Path) -> str:
    """The error that ends an engine whose worker dies."""
    arguments = [json.dumps(VIEWS), str(EPOCHS), json.dumps(store_of(case)), str(folder)]
    environment = {**os.environ, VARIABLE: f"{case.point}:{case.times}"}
    ran = subprocess.run(
        [sys.executable, "-c", ARMED, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        env=environment,
    )
    assert ran.stdout, ran.stderr[-4000:]
    return ran.stdout.splitlines()[-1]
