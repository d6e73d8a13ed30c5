"""Event time without a watermark: windows and sessions against batch Spark, where late data corrects the result."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.testing.scripted import Script, Scripted
from slipstream.trace import validate

pytestmark = pytest.mark.spark

ZONE = "America/New_York"
MIDNIGHT = datetime(2026, 3, 8, 4, 30, tzinfo=UTC)  # there, clocks go forward two and a half hours later

EVENTS = "k string, ts timestamp, local timestamp_ntz, gap int, v long"


def tumbling(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("ts", "10 minutes"), "k").agg(
        F.sum("v").alias("s"), F.count("*").alias("c")
    )


def sliding(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("ts", "10 minutes", "5 minutes")).agg(F.sum("v").alias("s"))


def uneven(events: DataFrame) -> DataFrame:
    """Windows that are no multiple of their slide, and begin at an odd time."""
    return events.groupBy(F.window("ts", "10 minutes", "4 minutes", "90 seconds"), "k").agg(
        F.max("v").alias("m")
    )


def by_day(events: DataFrame) -> DataFrame:
    days = events.groupBy(F.window("ts", "1 day").alias("day"), "k").agg(F.count_distinct("v").alias("c"))
    return days.select(
        "day.start", "day.end", "k", "c", F.date_format("day.start", "yyyy-MM-dd HH:mm").alias("text")
    )


def without_zone(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("local", "1 hour"), "k").agg(F.avg("v").alias("a"))


def of_windows(tumbling: DataFrame) -> DataFrame:
    """Windows of windows, over another view."""
    return tumbling.groupBy(F.window("window", "1 hour")).agg(F.sum("s").alias("s"), F.max("c").alias("c"))


def sessions(events: DataFrame) -> DataFrame:
    return events.groupBy(F.session_window("ts", "5 minutes"), "k").agg(
        F.sum("v").alias("s"), F.count("*").alias("c"), F.max("v").alias("m")
    )


def sessions_of_all(events: DataFrame) -> DataFrame:
    return events.groupBy(F.session_window("ts", "3 minutes")).agg(F.count("*").alias("c"))


def sessions_by_row(events: DataFrame) -> DataFrame:
    """A gap that each row brings along; rows whose gap is nothing are in no session."""
    gap = F.when(F.col("gap") > 2, "10 minutes").when(F.col("gap") > 0, "90 seconds").otherwise("0 seconds")
    grouped = events.groupBy("k", F.session_window("ts", gap).alias("session"))
    return grouped.agg(F.sum("v").alias("s")).select("k", "session.start", "session.end", "s")


def of_sessions(sessions: DataFrame) -> DataFrame:
    return sessions.groupBy("c").agg(F.count("*").alias("n"))


VIEWS = (
    *(tumbling, sliding, uneven, by_day, without_zone, of_windows),
    *(sessions, sessions_of_all, sessions_by_row, of_sessions),
)


@pytest.fixture
def app(spark: SparkSession, tmp_path: Path) -> Iterator[sl.App]:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", ZONE)
    settings = sl.Settings(hash_bits=3)
    with sl.App("times", store=tmp_path, spark=session, shards=2, history=None, settings=settings) as made:
        yield made
    for trace in tmp_path.glob("traces/*/*"):
        validate(trace, made.epoch)


def event(random: random.Random) -> tuple[Any, ...]:
    when = MIDNIGHT + timedelta(
        seconds=random.randrange(0, 3 * 3600, 30), microseconds=random.choice([0, 0, 1])
    )
    return (
        random.choice(["a", "b", None]),
        random.choice([when, when, when, when, None]),
        when.replace(tzinfo=None),
        random.choice([0, 1, 3, None]),
        random.choice([1, 2, 3, None]),
    )


def test_windows_and_sessions_are_those_of_batch_spark_in_any_order_of_arrival(app: sl.App) -> None:
    chance = random.Random(6)
    events = Scripted(EVENTS)
    app.source("events", events.source)
    for view in VIEWS:
        app.view(view)
    script = Script(app, {"events": events})
    script.step(lambda: events.append(event(chance) for _ in range(30)))
    script.step(lambda: events.append(event(chance) for _ in range(30)))
    script.step(lambda: events.retract(events.rows[::3]))
    script.step(
        lambda: events.append([("a", MIDNIGHT - timedelta(days=2), MIDNIGHT.replace(tzinfo=None), 1, 7)])
    )
    script.check(relative=1e-9)
