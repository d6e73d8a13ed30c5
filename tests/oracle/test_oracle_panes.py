"""Sliding windows by panes against batch Spark: in every epoch, as of every epoch, by changes, and after restarts."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.testing.scripted import Script, Scripted

pytestmark = pytest.mark.spark

SCHEMA = "k string, ts timestamp, local timestamp_ntz, v long, d double, m decimal(12,2)"
Row = tuple[Any, ...]
OpenApp = Callable[..., sl.App]


def _grouped(events: DataFrame, *window: str) -> GroupedData:
    return events.groupBy(F.window("ts", *window), "k")


def counted(events: DataFrame) -> DataFrame:
    return _grouped(events, "6 seconds", "1 second").agg(F.count("*").alias("n"), F.count("v").alias("c"))


def longer(events: DataFrame) -> DataFrame:
    return _grouped(events, "20 seconds", "1 second").agg(F.sum("v").alias("s"), F.count("*").alias("n"))


def uneven(events: DataFrame) -> DataFrame:
    """The slide does not divide the length, and windows begin before the hour."""
    return _grouped(events, "7 seconds", "3 seconds", "-1500 milliseconds").agg(F.sum("d").alias("d"))


def without_keys(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("ts", "5 seconds", "2 seconds", "1 second")).agg(F.sum("m").alias("m"))


def of_local_time(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("local", "2 hours", "45 minutes"), "v").agg(F.count("*").alias("n"))


def averages(events: DataFrame) -> DataFrame:
    return _grouped(events, "6 seconds", "2 seconds").agg(
        F.avg("v").alias("a"), F.var_samp("d").alias("s"), F.avg("m").alias("m")
    )


def extremes(events: DataFrame) -> DataFrame:
    return _grouped(events, "6 seconds", "1 second").agg(
        F.max("v").alias("h"), F.min("d").alias("l"), F.count("*").alias("n"), F.max("k").alias("k2")
    )


def distinct(events: DataFrame) -> DataFrame:
    return _grouped(events, "6 seconds", "1 second").agg(F.count_distinct("v").alias("c"))


def by_expression(events: DataFrame) -> DataFrame:
    """Event time, keys and arguments that are worked out, and a condition on rows."""
    later = F.col("ts") + F.expr("INTERVAL 1 MINUTE")
    return (
        events.where("v > 1")
        .groupBy(F.window(later, "4 seconds", "2 seconds").alias("w"), F.upper("k").alias("u"))
        .agg(F.sum(F.col("v") * 2).alias("s"), F.expr("count(*) FILTER (WHERE d > 0)").alias("c"))
    )


STARTS = """SELECT window.start, window.end AS until, k, avg(v) AS a, stddev(d) AS s, count(*) AS n FROM events
GROUP BY window(ts, '6 seconds', '1 second'), k"""
ODD_KEYS = """SELECT window, d, map('x', coalesce(v, 0)) AS x, struct(v, k) AS y, count(*) AS n FROM events
GROUP BY window(ts, '4 seconds', '2 seconds'), d, map('x', coalesce(v, 0)), struct(v, k)"""
HAVING = """SELECT window.start AS begins, k, sum(v) AS s FROM events
GROUP BY window(ts, '6 seconds', '1 second'), k HAVING count(*) > 1"""
OF_WINDOW = """SELECT k, window, sum(unix_seconds(window.end) - v) AS s FROM events
GROUP BY window(ts, '6 seconds', '3 seconds'), k"""
LATER = """SELECT window, count(*) n FROM events GROUP BY window(ts, '6 seconds', '3 seconds')
HAVING window.start > timestamp_seconds(5)"""
LISTED = """SELECT window, sort_array(collect_list(v)) l FROM events GROUP BY window(ts, '6 seconds', '3 seconds')"""
UNIONED = """SELECT window, k, count(*) n FROM (SELECT ts, k FROM events UNION ALL SELECT ts, upper(k) FROM events)
GROUP BY window(ts, '3 seconds', '1 second'), k"""


def of_windows(longer: DataFrame) -> DataFrame:
    """Over another view, whose windows must reach it."""
    return longer.groupBy("k").agg(F.sum("s").alias("s"), F.max("n").alias("n"), F.count("*").alias("c"))


def joined(extremes: DataFrame, distinct: DataFrame) -> DataFrame:
    return extremes.join(distinct, ["window", "k"], "left").select("window", "k", "h", "c")


def slid_again(counted: DataFrame) -> DataFrame:
    """Windows of windows."""
    return counted.groupBy(F.window(F.window_time("window"), "10 seconds", "5 seconds"), "k").agg(
        F.sum("n").alias("n")
    )


VIEWS: dict[str, Any] = {
    each.__name__: each
    for each in (
        *(counted, longer, uneven, without_keys, of_local_time, averages, extremes, distinct),
        *(by_expression, of_windows, joined, slid_again),
    )
} | {
    "starts": STARTS,
    "odd_keys": ODD_KEYS,
    "having": HAVING,
    "of_window": OF_WINDOW,
    "later": LATER,
    "listed": LISTED,
    "unioned": UNIONED,
}


def row(chance: random.Random) -> Row:
    """Times before and after 1970, and some that are NULL; values that come up again."""
    seconds = chance.choice([*(chance.randint(-20, 20) for _ in range(4)), 30_000, 0.25, -0.001])
    at = None if chance.random() < 0.1 else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    local = None if at is None else (at + timedelta(seconds=59 * seconds)).replace(tzinfo=None)
    value = chance.choice([None, -2, 1, 2, 3, 5])
    number = chance.choice([None, 0.5, -1.25, 0.0, -0.0, 1e15, float("inf"), float("nan")])
    amount = None if value is None else Decimal(f"{value}.25")
    return (chance.choice(["a", "b", None]), at, local, value, number, amount)


def declare(app: sl.App, source: Any) -> None:
    app.source("events", source)
    for name, query in VIEWS.items():
        app.view(query) if callable(query) else app.view(name, query)


def test_oracle_sliding_windows_at_every_epoch(open_app: OpenApp, spark: SparkSession) -> None:
    """With inserts and deletes, a restart on another number of shards, merges, time travel and changes. Hashes are so
    short that those of panes collide, and now and then those of keys.
    """
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    chance = random.Random(1)
    events = Scripted(SCHEMA)
    held: dict[int, Any] = {}
    try:
        for shards in (2, 3):
            app = open_app(hash_bits=4, shards=shards, history=None)
            events.source = sl.memory(SCHEMA)
            declare(app, events.source)
            script = Script(app, {"events": events})
            script.steps = held
            script.step(lambda: events.append([row(chance) for _ in range(9)]))
            script.step(lambda: events.retract(chance.sample(events.rows, 4)))
            script.step(partial(replaced, chance, events))
            script.merge()
            script.check(relative=1e-12)
            app.close()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert len(held) == 6


def replaced(chance: random.Random, events: Scripted) -> None:
    """Rows taken away and others added, in one epoch."""
    events.retract(chance.sample(events.rows, 2))
    events.append([row(chance) for _ in range(5)])
