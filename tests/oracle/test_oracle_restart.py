"""Restarts: closed, killed, failed, with another number of shards. Every row of the input counts once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.core.errors import EpochFailed, ViewChanged
from slipstream.core.settings import Starting, starting_with
from slipstream.epoch import Template
from slipstream.testing.oracle import assert_equal_rows, rows_of
from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

VIEWS = {
    "sums": "SELECT k, sum(v) s, count(*) c FROM t GROUP BY k",
    "pairs": "SELECT x.k, x.v, y.v AS w FROM t x JOIN t y ON x.k = y.k AND x.v < y.v",
    "largest": "SELECT k, max(v) m FROM t GROUP BY k",
    "top": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 3",
    "of_sums": "SELECT c, count(*) n FROM sums GROUP BY c",
}


def declare(app: sl.App, source: Any, views: dict[str, str] = VIEWS) -> None:
    app.source("t", source)
    for name, query in views.items():
        app.view(name, query)


def test_a_restart_goes_on_with_any_number_of_shards(open_app: Any) -> None:
    t = Scripted("k string, v long")
    held: dict[int, Any] = {}
    for start, shards in enumerate((2, 3, 1)):
        app = open_app(shards=shards, history=None)
        t.source = sl.memory("k string, v long")
        declare(app, t.source)
        script = Script(app, {"t": t})
        script.steps = held
        rows = [("abcdefg"[i % 7], start * 10 + i) for i in range(12)]
        script.step(partial(t.append, rows))
        script.step(lambda: t.retract(t.rows[::5]))
        script.check()
        app.close()
    assert list(held) == [1, 2, 3, 4, 5, 6]


def test_input_that_was_handed_over_and_not_run_is_taken_up_after_a_restart(open_app: Any) -> None:
    app = open_app()
    source = sl.memory("k string, v long")
    declare(app, source, {"sums": VIEWS["sums"]})
    source.append([("x", 1)])
    app.run(until="caught_up")
    source.append([("x", 2)])
    app.close()
    app = open_app()
    declare(app, sl.memory("k string, v long"), {"sums": VIEWS["sums"]})
    app.run(until="caught_up")
    assert rows_of(app.read("sums")) == [("x", 3, 2)]


def test_a_failed_epoch_publishes_nothing_and_is_taken_again(open_app: Any) -> None:
    source = sl.memory("k string, v long")
    app = open_app()
    declare(app, source, {"sums": VIEWS["sums"]})
    source.append([("x", 2**62)])
    app.run(until="caught_up")
    source.append([("x", 2**62), ("y", 1)])
    with pytest.raises(EpochFailed) as failed:
        app.run(until="caught_up")
    assert str(failed.value).startswith(
        "epoch 2 failed in view 'sums'; the app stays at epoch 1 and nothing is lost. Mend what the cause below names "
        "and run again: the same input is taken again.\nCause in sums: "
    )
    assert app.epoch == 1
    assert rows_of(app.read("sums")) == [("x", 2**62, 1)]
    with pytest.raises(EpochFailed, match="epoch 2 failed"):
        app.run(until="caught_up")
    app.close()

    app = open_app()  # a restart cuts anew: what was handed over since is in the same epoch
    source = sl.memory("k string, v long")
    declare(app, source, {"sums": VIEWS["sums"]})
    source.retract([("x", 2**62)])
    app.run(until="caught_up")
    assert_equal_rows(rows_of(app.read("sums")), [("x", 2**62, 1), ("y", 1, 1)], "sums")
    app.close()

    app = open_app()
    declare(app, sl.memory("k string, v long"), {"sums": VIEWS["sums"]})
    assert app.run(until="caught_up").epochs == 0


def test_an_epoch_that_succeeds_at_the_second_attempt_is_not_taken_a_third_time(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sl.memory("k string, v long")
    app = open_app()
    declare(app, source, {"sums": VIEWS["sums"]})
    source.append([("x", 1)])
    with monkeypatch.context() as patch:
        patch.setattr(Template, "run", Mock(side_effect=OSError("the disk is full")))
        with pytest.raises(OSError, match="the disk is full"):
            app.run(until="caught_up")
    assert app.epoch == 0
    app.run(until="caught_up")
    app.close()
    app = open_app()
    declare(app, sl.memory("k string, v long"), {"sums": VIEWS["sums"]})
    assert app.run(until="caught_up").epochs == 0
    assert rows_of(app.read("sums")) == [("x", 1, 1)]


def test_a_jvm_that_is_gone_is_a_failed_epoch(open_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = sl.memory("k string, v long")
    app = open_app()
    declare(app, source, {"sums": VIEWS["sums"]})
    source.append([("x", 1)])
    for gone in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError("refused")):
        with monkeypatch.context() as patch:
            patch.setattr(Template, "run", Mock(side_effect=gone))
            with pytest.raises(EpochFailed, match="epoch 1 failed; the app stays at epoch 0"):
                app.run(until="caught_up")


def open_dated(open_app: Any, spark: SparkSession, zone: str) -> tuple[sl.App, Any]:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    app, source = open_app(spark=session), sl.memory("id long, at timestamp")
    app.source("t", source)
    app.view("days", "SELECT cast(at AS date) d, count(*) n FROM t GROUP BY cast(at AS date)")
    app.view("flat", "SELECT id, cast(at AS date) d FROM t")
    app.view("counted", "SELECT id, count(*) n FROM t GROUP BY id")
    return app, source


def test_state_of_one_time_zone_is_never_used_in_another(open_app: Any, spark: SparkSession) -> None:
    early, late = (datetime(2026, 1, 2, hour, tzinfo=UTC) for hour in (2, 12))
    app, source = open_dated(open_app, spark, "UTC")
    source.append([(1, early), (2, late)])
    app.run(until="caught_up")
    app.close()
    app, source = open_dated(open_app, spark, "America/New_York")
    source.retract([(1, early)])
    with pytest.raises(ViewChanged) as error:
        app.run(until="caught_up")
    why = "(the session time zone was UTC and is America/New_York)"
    assert f"Changed: 'days' {why}, 'flat' {why}; new: none" in str(error.value)
    assert "unchanged, and going on: 'counted'" in str(error.value)
    assert app.epoch == 1
    app.close()
    app, _ = open_dated(open_app, spark, "UTC")
    app.run(until="caught_up")
    assert_equal_rows(rows_of(app.read("days")), [(date(2026, 1, 2), 1)], "days")
    assert_equal_rows(rows_of(app.read("flat")), [(2, date(2026, 1, 2))], "flat")
    app.close()
    with starting_with(Starting(rebuild=("days", "flat"))):
        app, source = open_dated(open_app, spark, "Asia/Tokyo")
        source.append([(3, datetime(2026, 1, 2, 20, tzinfo=UTC))])
        app.run(until="caught_up")
    assert_equal_rows(
        rows_of(app.read("days")), [(date(2026, 1, 2), 1), (date(2026, 1, 3), 1)], "days in Tokyo"
    )
    kept = {path.parent.name for path in (app.store / "traces").glob("*/*")}
    assert kept == {"days", "flat", "counted"}
    assert len(list((app.store / "traces").glob("days/*"))) == 1, "computed anew by request: its history, too"


def open_charged(open_app: Any, body: Callable[[int], int]) -> tuple[sl.App, Any]:
    app, source = open_app(), sl.memory("k string, cents long")
    fee = F.udf(body, "long", useArrow=False)
    app.source("t", source)
    app.view("fees", lambda t: t.groupBy("k").agg(F.sum(fee("cents")).alias("s"), F.count("*").alias("n")))
    app.view("each", lambda t: t.select("k", "cents", fee("cents").alias("f")))
    app.view("of_fees", "SELECT max(s) m FROM fees")
    app.view("plain", "SELECT k, sum(cents) s FROM t GROUP BY k")
    return app, source


def test_state_of_one_function_is_never_used_for_another(open_app: Any) -> None:
    def tenth() -> Callable[[int], int]:
        def charge(cents: int) -> int:
            return cents // 10

        return charge

    def fifth() -> Callable[[int], int]:
        def charge(cents: int) -> int:
            return cents // 5

        return charge

    app, source = open_charged(open_app, tenth())
    source.append([("a", 100), ("a", 200)])
    app.run(until="caught_up")
    app.close()
    app, source = open_charged(open_app, fifth())
    source.append([("b", 100)])
    source.retract([("a", 200)])
    with pytest.raises(ViewChanged) as error:
        app.run(until="caught_up")
    why = "(the code of the Python function 'charge' changed)"
    assert f"Changed: 'each' {why}, 'fees' {why}; new: none; views that read these: 'of_fees'" in str(
        error.value
    )
    assert "going on: 'plain'" in str(error.value)
    app.close()
    app, _ = open_charged(open_app, tenth())
    app.run(until="caught_up")
    assert_equal_rows(rows_of(app.read("fees")), [("a", 10, 1), ("b", 10, 1)], "fees")
    assert_equal_rows(rows_of(app.read("each")), [("a", 100, 10), ("b", 100, 10)], "each")


KILLED = """
import os, signal, sys
import slipstream as sl
from slipstream.epoch.loop import Loop

store, when = sys.argv[1:]
app = sl.App("oracle", store=store, master="local[1]", shards=2)
source = sl.memory("k string, v long")
app.source("t", source)
app.view("sums", "SELECT k, sum(v) s, count(*) c FROM t GROUP BY k")
source.append([("x", 1), ("y", 2)])
app.run(until="caught_up")

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(Loop, when, killed)
source.append([("x", 10)])
app.run(until="caught_up")
"""


@pytest.mark.parametrize("when", ["_compute", "_publish"])
def test_a_killed_process_loses_nothing_and_doubles_nothing(open_app: Any, tmp_path: Path, when: str) -> None:
    """Killed once the epoch's input was cut, before and after its layers were written."""
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "store"), when],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    app = open_app()
    source = sl.memory("k string, v long")
    declare(app, source, {"sums": VIEWS["sums"]})
    assert app.epoch == 1
    assert_equal_rows(rows_of(app.read("sums")), [("x", 1, 1), ("y", 2, 1)], "sums before")
    source.append([("y", 5)])
    app.run(until="caught_up")
    assert_equal_rows(rows_of(app.read("sums")), [("x", 11, 2), ("y", 7, 2)], "sums after")
    assert_equal_rows(rows_of(app.read("sums", as_of=2)), [("x", 11, 2), ("y", 2, 1)], "sums as of 2")
