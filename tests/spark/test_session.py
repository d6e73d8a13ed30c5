"""What a session is set up with, and what is said of one that is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from slipstream.app import App
from slipstream.core.errors import SessionWarning, SparkConnectSession
from slipstream.plan.catalyst import Catalyst
from slipstream.sources import memory
from slipstream.spark.java import java_home
from slipstream.spark.session import (
    EPOCH,
    LOCAL,
    REQUIRED,
    check_session,
    epoch_session,
    missing,
    session_settings,
    start_session,
    wrong_python,
)

REQUIRED_VALUES = {setting.key: setting.value for setting in REQUIRED}


def test_settings_hold_the_required_ones_and_a_partition_a_shard() -> None:
    settings = session_settings({"spark.master": "local[2]"}, shards=4)
    assert REQUIRED_VALUES.items() <= settings.items()
    assert settings["spark.sql.shuffle.partitions"] == "4"


def test_what_the_user_has_set_goes_before_ours() -> None:
    given = {"spark.ui.enabled": "true", "spark.scheduler.mode": "FIFO", "spark.sql.shuffle.partitions": "7"}
    assert given.items() <= session_settings(given, shards=4).items()


def test_without_a_master_tasks_are_run_again_that_lost_their_worker() -> None:
    for given in ({}, {"spark.master": "local[*]"}):
        assert session_settings(given, shards=1)["spark.master"] == "local[*,4]"
    assert session_settings({"spark.master": "local[2]"}, shards=1)["spark.master"] == "local[2]"


def test_only_a_local_master_is_kept_to_this_machine() -> None:
    keys = {setting.key for setting in LOCAL}
    assert keys <= session_settings({"spark.master": "local[*]"}, shards=1).keys()
    assert not keys & session_settings({"spark.master": "spark://host:7077"}, shards=1).keys()


def test_a_session_that_has_what_is_required_is_not_warned_about() -> None:
    assert missing({**REQUIRED_VALUES, "spark.cleaner.periodicGC.interval": "10min"}) == []


def test_each_missing_setting_is_named_with_its_reason_and_remedy() -> None:
    texts = missing({"spark.scheduler.mode": "FIFO", "spark.cleaner.periodicGC.interval": "1min"})
    assert texts == [
        (
            "The Spark session has spark.python.unix.domain.socket.enabled=(unset): over TCP every Python stage "
            "waits 40 ms for a delayed acknowledgement. "
            "Build it with .config('spark.python.unix.domain.socket.enabled', 'true')."
        ),
        (
            "The Spark session has spark.scheduler.mode=FIFO: a long interactive query holds up every epoch "
            "behind it. Build it with .config('spark.scheduler.mode', 'FAIR')."
        ),
    ]


def test_a_spark_connect_session_is_refused_with_what_to_do() -> None:
    with pytest.raises(SparkConnectSession, match=r'\.config\("spark\.api\.mode", "classic"\)'):
        check_session(cast(SparkSession, object()))


def fake_python(folder: Path, answer: str) -> str:
    folder.mkdir()
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return str(path)


def test_workers_that_run_another_python_are_told_of_before_an_epoch_fails(tmp_path: Path) -> None:
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    lacking = fake_python(tmp_path / "lacking", f"echo {ours} False")
    other = fake_python(tmp_path / "other", "echo 3.7 True")
    broken = fake_python(tmp_path / "broken", "exit 1")
    same = fake_python(tmp_path / "same", f"echo {ours} True")
    end = f"Set PYSPARK_PYTHON={sys.executable} before the session is built."
    assert wrong_python(lacking) == f"Spark's workers run '{lacking}', which has no slipstream. {end}"
    assert wrong_python(other) == f"Spark's workers run '{other}', which is Python 3.7, not {ours}. {end}"
    for nothing in (broken, str(tmp_path / "nowhere")):
        assert wrong_python(nothing) == f"Spark's workers run '{nothing}', which does not start. {end}"
    assert wrong_python(same) is None
    assert wrong_python(sys.executable) is None


@pytest.mark.spark
def test_a_session_says_which_python_its_workers_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_session(spark) == []
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "nowhere"))
    (told,) = check_session(spark)
    assert "nowhere" in told


@pytest.mark.spark
def test_a_session_started_here_lacks_nothing(spark: SparkSession) -> None:
    assert check_session(spark) == []
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.spark
def test_a_second_start_uses_the_running_context_and_says_so(spark: SparkSession) -> None:
    with pytest.warns(
        SessionWarning, match=r"'tests' on 'local\[2\]' is running already: 'other' uses it as it is"
    ):
        second = start_session("other", "local[1]", shards=9)
    assert second.sparkContext is spark.sparkContext
    assert second.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.spark
def test_the_epoch_session_has_settings_of_its_own(spark: SparkSession) -> None:
    epochs = epoch_session(spark, shards=3)
    assert {setting.key: epochs.conf.get(setting.key) for setting in EPOCH} == {
        setting.key: setting.value for setting in EPOCH
    }
    assert epochs.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert epochs.sparkContext is spark.sparkContext


@pytest.mark.spark
def test_the_epoch_session_means_by_a_query_what_the_user_s_session_means(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Chatham")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        epochs = epoch_session(spark, shards=2)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
        spark.conf.unset("spark.sql.ansi.enabled")
    assert epochs.conf.get("spark.sql.session.timeZone") == "Pacific/Chatham"
    assert epochs.conf.get("spark.sql.ansi.enabled") == "false"


@pytest.mark.spark
def test_an_app_leaves_the_user_s_session_active(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads queries with the settings of the active session, whichever session they are written in."""
    mine = spark.newSession()
    mine.conf.set("spark.sql.session.timeZone", "Pacific/Chatham")
    mine.createDataFrame([(1,)], "n int")  # which makes it the active one
    _assert_active(mine)
    with App("active", tmp_path / "store", spark=mine) as app:
        numbers = memory("n int")
        app.source("numbers", numbers)
        app.view("total", "SELECT sum(n) AS n FROM numbers")
        numbers.append([(1,)])
        app.run(until="caught_up")
        _assert_active(mine)
        app.start()
        numbers.append([(2,)])
        app.await_epoch(2)
        _assert_active(mine)
    _assert_active(mine)
    spark.range(1).count()


def _assert_active(session: SparkSession) -> None:
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active.conf.get("spark.sql.session.timeZone") == session.conf.get("spark.sql.session.timeZone")
    assert active.conf.get("spark.sql.adaptive.enabled") == "true"


SUBMITTED = """
from slipstream.spark.session import start_session
spark = start_session("submitted", "local[1]", shards=2)
conf = spark.sparkContext.getConf()
print("GOT", conf.get("spark.ui.retainedJobs"), conf.get("spark.scheduler.mode"), spark.range(4).count())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_options_of_spark_submit_go_before_ours(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SUBMITTED)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [submit, "--conf", "spark.ui.retainedJobs=5", tmp_path / "app.py"],
        env={**os.environ, "JAVA_HOME": str(java_home(os.environ)), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "GOT 5 FAIR 4" in done.stdout


STARTED = """
import os
from slipstream.spark.session import start_session
before = dict(os.environ)
spark = start_session("started", None, shards=2, settings={"spark.driver.memory": "600m"})
changed = {key for key in before | os.environ if before.get(key) != os.environ.get(key)}
print("GOT", spark.sparkContext.getConf().get("spark.driver.memory"), sorted(changed & {"JAVA_HOME", "PYSPARK_PYTHON"}))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_with_java_hidden_the_bundled_one_is_used_and_the_environment_put_back(tmp_path: Path) -> None:
    hidden = tmp_path / "bin"
    hidden.mkdir()
    for tool in ("bash", "dirname", "ps", "sh", "uname"):
        (hidden / tool).symlink_to(str(shutil.which(tool)))
    environ = {key: value for key, value in os.environ.items() if key not in {"JAVA_HOME", "PYSPARK_PYTHON"}}
    done = subprocess.run(
        [sys.executable, "-c", STARTED],
        env={**environ, "PATH": str(hidden), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "GOT 600m []\n"
    assert list((tmp_path / "slipstream").glob("java-*/bin/java"))


def _size_of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "python": [sys.executable]})


@pytest.mark.spark
def test_an_epoch_job_gets_one_batch_a_shard_in_this_very_python(spark: SparkSession) -> None:
    rows = epoch_session(spark, shards=2).range(0, 50_000, 1, 2)
    got = rows.mapInArrow(_size_of_batches, "rows long, python string").collect()
    assert [row["rows"] for row in got] == [25_000, 25_000]
    assert {row["python"] for row in got} == {os.environ.get("PYSPARK_PYTHON", sys.executable)}


@pytest.mark.spark
def test_kept_rows_are_counted_whichever_stages_compute_them(spark: SparkSession) -> None:
    epochs = epoch_session(spark, shards=2)
    rows = epochs.range(0, 80, 1, 8).observe("seen", F.count(F.lit(1)), F.max("id"))
    catalyst = Catalyst(epochs)
    frame, relation = catalyst.kept(catalyst.analysed(rows))
    try:
        assert catalyst.frame(relation).take(1), "computes the first partition, in a stage of its own"
        rest = catalyst.frame(relation)
        assert len(rest.collect()) == 80
        assert catalyst.observed(rest) == {"seen": (80, 79)}
    finally:
        catalyst.dropped(frame)
