"""Spark sessions: one to run apps in, and one inside it for the epochs' own jobs.

Settings are plain data, in three groups, each with the reason why it is there.

- `REQUIRED` belong to the Spark context and cannot be changed once it runs. Results are right without them,
  but epochs are slow or a long run fills the disk; `check_session` names those that a user's own session
  lacks.
- `DEFAULTS` are what a session that Slipstream starts has besides. Whatever the user has set (`settings=`,
  the options of `spark-submit`, `spark-defaults.conf`) goes before both groups. Driver memory is left alone:
  Spark's own default bounds it to 1 GB. So is the session time zone.
- `EPOCH` are SQL settings of the session in which epochs run. A user's interactive queries want adaptive
  execution and an optimiser with all its rules; epoch jobs, tiny and built once from a template, want
  neither.

The epoch session is a `newSession()`: it shares the context and its cached data, and has SQL settings of its
own. Those start from what the *context* was given, so `epoch_session` copies what the user has since changed
on the session: a time zone or ANSI mode decides what a query means, and an epoch must mean the same.

Two things reach Spark only through the environment: the Java to start and the Python of the workers. They are
set while the JVM starts and put back after. Settings that a JVM must have at its start count only if this
process has not started one before: a JVM outlives its Spark contexts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from slipstream.core.errors import SessionWarning, SparkConnectSession
from slipstream.spark.console import quiet_errors, quiet_start
from slipstream.spark.java import java_home
from slipstream.spark.jvm import Remembered

_CONF = Path(__file__).parent / "conf"

_ABSENT_SERVICES = (
    *("yarn.", "ipc.", "ha.", "hadoop.http.", "hadoop.registry.", "hadoop.zk."),
    *(f"mapreduce.{part}" for part in ("job", "task.", "map.", "reduce.", "shuffle.", "client.")),
)

_ANSWERS_WITHIN = 20.0  # seconds that a Python may take to start
_ASKED = (
    "import sys; from importlib.util import find_spec; "
    "print('%d.%d' % sys.version_info[:2], find_spec('slipstream') is not None)"
)

EPOCH_POOL = "epochs"
"""The scheduler pool of epoch jobs: the local property `spark.scheduler.pool` of the thread that runs them."""
BACKFILL_POOL = "backfill"
"""That of jobs that compute a new view while epochs go on."""


@dataclass(frozen=True)
class Setting:
    """One Spark setting, and why it matters."""

    key: str
    value: str
    why: str


REQUIRED = (
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "over TCP every Python stage waits 40 ms for a delayed acknowledgement",
    ),
    Setting("spark.scheduler.mode", "FAIR", "a long interactive query holds up every epoch behind it"),
    Setting(
        "spark.cleaner.periodicGC.interval",
        "2min",
        "past epochs' shuffle files stay on disk until the JVM collects garbage, by default every 30 minutes",
    ),
)

DEFAULTS = (
    Setting(
        "spark.python.unix.domain.socket.dir", "/tmp", "a socket's path has a limit of about 100 characters"
    ),
    Setting(
        "spark.python.daemon.module", "slipstream.spark.daemon", "a worker is there most of a second sooner"
    ),
    Setting(
        "spark.scheduler.allocation.file", str(_CONF / "fairscheduler.xml"), "the weight of the epochs' pool"
    ),
    Setting("spark.ui.enabled", "false", "no port is opened that nobody asked for"),
    Setting("spark.ui.retainedJobs", "50", "thousands of epochs must not fill the driver's heap"),
    Setting("spark.ui.retainedStages", "100", "the same"),
    Setting("spark.ui.retainedTasks", "1000", "the same"),
    Setting("spark.ui.dagGraph.retainedRootRDDs", "50", "the same"),
    Setting("spark.sql.ui.retainedExecutions", "20", "the same"),
    Setting(
        "spark.sql.codegen.cache.maxEntries",
        "1000",
        "by default Spark remembers 100 pieces of generated code; with more in an epoch, each is compiled every epoch",
    ),
    Setting(
        "spark.sql.execution.arrow.pyspark.enabled", "true", "toPandas and createDataFrame by way of Arrow"
    ),
)

LOCAL = (
    Setting(
        "spark.driver.host", "localhost", "a laptop's name may not resolve, and no other host need reach it"
    ),
    Setting("spark.driver.bindAddress", "127.0.0.1", "the same"),
    Setting(
        "spark.shuffle.compress", "false", "a shuffle that never leaves the machine is not worth compressing"
    ),
)
"""Further defaults where the master is this process."""

PLAIN_LOCAL, MASTER = "local[*]", "local[*,4]"
"""Spark's own default, and ours in its place: a task whose Python worker died is run again, up to three times, where it
would have failed the epoch.
"""

CLUSTER = (
    Setting("spark.speculation", "true", "a straggler is run again elsewhere: safe, because tasks are pure"),
)
"""Further defaults where it is not."""

LAUNCH = (
    Setting(
        "spark.driver.defaultJavaOptions",
        f"-Dlog4j2.configurationFile={(_CONF / 'log4j2.properties').as_uri()} -XX:+UseG1GC "
        "-XX:+ExplicitGCInvokesConcurrent -XX:G1HeapRegionSize=8m",
        "only errors on the console; no collection that stops an epoch for long, not even the periodic one",
    ),
    Setting("spark.ui.showConsoleProgress", "false", "spark-submit turns it on unless told at the start"),
)
"""What the JVM must be started with."""

EPOCH = (
    Setting("spark.sql.adaptive.enabled", "false", "re-planning a tiny stage costs more than it saves"),
    Setting(
        "spark.sql.autoBroadcastJoinThreshold", "-1", "a broadcast is a job of its own before the epoch's"
    ),
    Setting(
        "spark.sql.constraintPropagation.enabled",
        "false",
        "what it infers was inferred already, and its time is exponential in columns that are renamed again and again",
    ),
    Setting(
        "spark.sql.legacy.observeMetricsAggregateAllAttempts",
        "true",
        "rows that are kept may be computed by several stages, and by default Spark counts those of one only",
    ),
    Setting(
        "spark.sql.inMemoryColumnarStorage.partitionPruning",
        "false",
        "Spark leaves NaN out of the bounds of what it keeps in memory, and so passes over rows that `1.5 <= x` wants",
    ),
    Setting("spark.sql.unionOutputPartitioning", "false", "a task finds its shard by its partition's number"),
    Setting(
        "spark.sql.execution.arrow.maxRecordsPerBatch", "65536", "few batches a shard, bounded in memory"
    ),
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "2147483647",
        "no limit: with any other, Spark measures the whole batch again after every row",
    ),
    Setting(
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold",
        str(2**31 - 1),
        "beyond it Spark aggregates a group in two parts, whose sum of doubles is not that of the group in one",
    ),
    Setting(
        "spark.sql.legacy.allowHashOnMapType",
        "true",
        "Spark sorts the entries of a map that is grouped by, so that equal maps have equal hashes",
    ),
    Setting(
        "spark.sql.optimizer.excludedRules",
        "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation,"
        "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation,"
        "org.apache.spark.sql.execution.planmerging.MergeSubplans",
        "an epoch without input keeps its plan's shape, so that every operator still publishes its layer; and no "
        "aggregate is made a subquery, which Spark would run as a job of its own",
    ),
)


def start_session(
    name: str, master: str | None, shards: int, *, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session to run apps in. `master=None` leaves the choice to Spark: its own settings, or all local cores.

    A process can have one Spark context. If one is running, that one is used, and a `SessionWarning` says so;
    further ones say what it lacks.
    """
    if SparkContext._active_spark_context is not None:
        return _running_session(name)
    given = {**_launched(settings or {}), **(settings or {})}
    if master is not None:
        given["spark.master"] = master
    conf = SparkConf().setAll(list(session_settings(given, shards).items())).setAppName(name)
    conf.set("spark.api.mode", "classic")
    with _worker_python(conf.get("spark.master")):
        spark = _classic(SparkSession.builder.config(conf=conf).getOrCreate())
    quiet_errors()
    if _is_local(conf.get("spark.master")):
        _lighten(spark)
    return spark


def session_settings(given: Mapping[str, str], shards: int) -> dict[str, str]:
    """What the context gets: our settings, under what the user has given."""
    where = LOCAL if _is_local(given.get("spark.master")) else CLUSTER
    ours = {setting.key: setting.value for setting in (*REQUIRED, *DEFAULTS, *where)}
    settings = {**ours, "spark.sql.shuffle.partitions": str(shards), **given}
    if settings.get("spark.master", PLAIN_LOCAL) == PLAIN_LOCAL:
        settings["spark.master"] = MASTER
    return settings


def check_session(spark: SparkSession) -> list[str]:
    """What a user's own session lacks of `REQUIRED`, one sentence each, and whether its workers on this machine can
    run epochs; empty if all is well.
    """
    context = _classic(spark).sparkContext
    python = wrong_python(context.pythonExec) if _is_local(context.master) else None
    return missing(dict(context.getConf().getAll())) + ([python] if python is not None else [])


def wrong_python(python: str) -> str | None:
    """Why an epoch would fail in workers that run a Python; None if it would not. Without PYSPARK_PYTHON, Spark takes
    the first `python3` of the PATH, which is not the one of a virtual environment that nobody activated.
    """
    if python == sys.executable:
        return None
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    try:
        asked = [python, "-c", _ASKED]
        said = subprocess.run(
            asked, capture_output=True, text=True, check=True, timeout=_ANSWERS_WITHIN
        ).stdout
        version, has_it = said.split()
    except (OSError, subprocess.SubprocessError, ValueError):
        wrong = "does not start"
    else:
        if version != ours:
            wrong = f"is Python {version}, not {ours}"
        elif has_it != "True":
            wrong = "has no slipstream"
        else:
            return None
    return (
        f"Spark's workers run '{python}', which {wrong}. Set PYSPARK_PYTHON={sys.executable} before the session is "
        "built."
    )


def missing(actual: Mapping[str, str]) -> list[str]:
    """The required settings that these do not have, as sentences that say what to do."""
    return [
        f"The Spark session has {setting.key}={actual.get(setting.key, '(unset)')}: {setting.why}. "
        f"Build it with .config('{setting.key}', '{setting.value}')."
        for setting in REQUIRED
        if not _as_good(setting, actual.get(setting.key))
    ]


def epoch_session(spark: SparkSession, shards: int) -> SparkSession:
    """A session for epoch jobs on the same context: the user's SQL settings, with `EPOCH` over them."""
    epochs = _classic(spark).newSession()
    quiet_errors()
    theirs, fresh = spark.conf.getAll, epochs.conf.getAll
    for key in sorted(theirs):
        if theirs[key] != fresh.get(key) and key.startswith("spark.sql.") and epochs.conf.isModifiable(key):
            epochs.conf.set(key, theirs[key])
    for setting in EPOCH:
        epochs.conf.set(setting.key, setting.value)
    epochs.conf.set("spark.sql.shuffle.partitions", shards)
    return epochs


@contextmanager
def active_session_kept(jvm: Remembered) -> Iterator[None]:
    """Spark's active session afterwards is what it was. Whatever runs in the epochs' session makes that one active, and
    a user's next query would be read with its settings.
    """
    sessions = jvm.SparkSession
    before, ours = sessions.getActiveSession(), SparkSession._activeSession
    try:
        yield
    finally:
        SparkSession._activeSession = ours
        with suppress(
            Py4JError, ConnectionError
        ):  # the JVM may be gone, and what happened to it is told already
            sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()


def _lighten(spark: SparkSession) -> None:
    """Drop Hadoop's settings for services that a local session has not got. Every scan of files sends all of
    Hadoop's settings to its tasks, a thousand of them, and that takes longer than reading a small file.
    """
    context: Any = spark.sparkContext
    settings = context._jsc.hadoopConfiguration()
    names: str = context._jvm.java.lang.String.join("\n", settings.getValByRegex(".").keySet())
    for name in names.split("\n"):
        if name.startswith(_ABSENT_SERVICES):
            settings.unset(name)


def _running_session(name: str) -> SparkSession:
    spark = _classic(SparkSession.builder.getOrCreate())
    running = spark.sparkContext
    warnings.warn(
        f"A Spark context '{running.appName}' on '{running.master}' is running already: '{name}' uses it as it "
        "is. Pass spark= to say so, or stop it first to have a session with the settings asked for.",
        SessionWarning,
        stacklevel=3,
    )
    for text in check_session(spark):
        warnings.warn(text, SessionWarning, stacklevel=3)
    return spark


def _launched(settings: Mapping[str, str]) -> dict[str, str]:
    """Starts the JVM if this process has none, and returns the settings that the user's own files gave it."""
    if SparkContext._gateway is None:
        launch = {**{setting.key: setting.value for setting in LAUNCH}, **settings}
        with _environment(_launch_environment(os.environ)), quiet_start():
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(launch.items())))
    return dict(SparkConf().getAll())


def _launch_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The Java to start and the Python beside it; nothing under `spark-submit`, which has started its JVM."""
    if "PYSPARK_GATEWAY_PORT" in environ:
        return {}
    python = environ.get("PYSPARK_DRIVER_PYTHON", environ.get("PYSPARK_PYTHON", sys.executable))
    return {"JAVA_HOME": str(java_home(environ)), "PYSPARK_DRIVER_PYTHON": python}


@contextmanager
def _worker_python(master: str | None) -> Iterator[None]:
    """On this machine, workers run this very Python unless the user has named one; elsewhere, Spark's choice."""
    if "PYSPARK_PYTHON" in os.environ or not _is_local(master):
        yield
    else:
        with _environment({"PYSPARK_PYTHON": sys.executable}):
            yield


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _classic(spark: object) -> SparkSession:
    if not isinstance(spark, SparkSession):
        raise SparkConnectSession
    return spark


def _is_local(master: str | None) -> bool:
    return master is None or master.startswith("local")


def _as_good(setting: Setting, actual: str | None) -> bool:
    """Whether a value serves as well as ours. An interval that the user chose is the user's business."""
    if actual is None:
        return False
    return setting.key.endswith(".interval") or actual.lower() == setting.value.lower()
