"""Event time with watermarks, against batch Spark over the input without its late rows.

Which rows are late is worked out here from what the watermark is said to be: the latest event time of all earlier
epochs, less the delay. View and view of late rows account for every row of the input between them. In the middle the
app is restarted, on another number of shards, after an epoch that was computed and not published.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import slipstream as sl
from slipstream.epoch import EpochReport
from slipstream.epoch.loop import Loop
from slipstream.testing.oracle import assert_equal, assert_equal_rows, rows_of
from slipstream.trace import Span, TraceReader

pytestmark = pytest.mark.spark

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DELAY = 10  # minutes
EVENTS = "k string, ts timestamp, v long"
CLICKS = "k string, at timestamp, n long"
Rows = list[tuple[Any, ...]]


def tumbling(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("ts", "10 minutes"), "k").agg(F.sum("v").alias("s"))


def largest(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("ts", "10 minutes"), "k").agg(F.max(F.col("v") * 2).alias("m"))


def sliding(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("ts", "10 minutes", "5 minutes")).agg(F.count("*").alias("c"))


def sliding_sums(events: DataFrame) -> DataFrame:
    """The slide does not divide the length; rows alike go through the windows together."""
    return events.groupBy(F.window("ts", "10 minutes", "4 minutes"), "k").agg(F.sum("v").alias("s"))


def sessions(events: DataFrame) -> DataFrame:
    return events.groupBy(F.session_window("ts", "4 minutes"), "k").agg(F.sum("v").alias("s"))


def moments(events: DataFrame) -> DataFrame:
    return events.select("k", "ts").distinct()


def deduplicated(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["k", "ts"])


def seen(events: DataFrame) -> DataFrame:
    return events.dropDuplicatesWithinWatermark(["k"])


def ranked(events: DataFrame) -> DataFrame:
    return events.select("k", "ts", "v", F.expr("rank() OVER (PARTITION BY ts ORDER BY v)").alias("r"))


def counted(events: DataFrame) -> DataFrame:
    """Not by event time: nothing is late, and nothing is dropped."""
    return events.groupBy("k").agg(F.count("*").alias("c"))


def of_tumbling(tumbling: DataFrame) -> DataFrame:
    return tumbling.groupBy(F.window("window", "20 minutes")).agg(F.sum("s").alias("s"))


def clicked(clicks: DataFrame) -> DataFrame:
    """A watermark of the query's own, on a column that it works out."""
    later = clicks.select("k", (F.col("at") + F.expr("INTERVAL 1 HOUR")).alias("later"))
    return later.withWatermark("later", f"{DELAY} minutes").groupBy("later").agg(F.count("*").alias("c"))


def joined(events: DataFrame, clicks: DataFrame) -> DataFrame:
    marked = clicks.withWatermark("at", f"{DELAY} minutes")
    near = F.expr("e.k = c.k AND e.ts BETWEEN c.at - INTERVAL 2 MINUTES AND c.at + INTERVAL 5 MINUTES")
    return events.alias("e").join(marked.alias("c"), near).select("e.k", "ts", "v", "at", "n")


def clicks_by_window(clicks: DataFrame) -> DataFrame:
    """No watermark: late data corrects the result, and all state is kept."""
    return clicks.groupBy(F.window("at", "10 minutes")).agg(F.count("*").alias("c"))


VIEWS = (
    *(tumbling, largest, sliding, sliding_sums, sessions, moments, deduplicated, seen, ranked, counted),
    *(of_tumbling, clicked, joined, clicks_by_window),
)


def minute(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


def batch(chance: random.Random, now: int) -> tuple[Rows, Rows]:
    """Rows around a time, some of them late; a value is a function of the rest, so that duplicates are alike."""
    events: Rows = []
    for _ in range(14):
        when = now - chance.choice([0, 1, 2, 4, 6, 9, 20, 35]) + chance.choice([0, 0.5])
        key = chance.choice(["a", "b", "c"])
        if key == "b" and chance.random() < 0.2:
            events.append((key, None, 0))
        else:
            events.append((key, minute(when), int(when * 2) + ord(key)))
    clicks = [
        (chance.choice(["a", "b", "d"]), minute(now - chance.choice([0, 3, 8, 25])), n) for n in range(5)
    ]
    return events, clicks


class Model:
    """What was handed over, epoch by epoch, and what the watermark was."""

    def __init__(self) -> None:
        self.events: list[Rows] = []
        self.clicks: list[Rows] = []

    @staticmethod
    def mark(batches: list[Rows], epoch: int) -> datetime | None:
        """The watermark of an epoch, from 0, over the second column of earlier batches."""
        times = [row[1] for rows in batches[:epoch] for row in rows if row[1] is not None]
        return max(times) - timedelta(minutes=DELAY) if times else None

    def both(self, epoch: int) -> datetime | None:
        one, other = self.mark(self.events, epoch), self.mark(self.clicks, epoch)
        return None if one is None or other is None else min(one, other)

    def split(
        self,
        batches: list[Rows],
        reaches: Callable[[datetime], datetime],
        mark: Callable[[int], datetime | None],
    ) -> tuple[Rows, Rows]:
        """Rows on time, and late ones with their epoch: those that reach no further than the watermark."""
        applied, late = [], []
        for epoch, rows in enumerate(batches):
            watermark = mark(epoch)
            for row in rows:
                if row[1] is not None and watermark is not None and reaches(row[1]) <= watermark:
                    late.append((*row, epoch + 1))
                else:
                    applied.append(row)
        return applied, late


def open_all(open_app: Any, shards: int, reports: list[EpochReport]) -> tuple[sl.App, Any, Any]:
    app = open_app(shards=shards, hash_bits=4, history=None)
    events, clicks = sl.memory(EVENTS), sl.memory(CLICKS)
    app.source("events", events, watermark=("TS", f"{DELAY} minutes"))
    app.source("clicks", clicks)
    for view in VIEWS:
        app.view(view)
    app.on_epoch(reports.append)
    return app, events, clicks


def window_end(when: datetime) -> datetime:
    return minute(((when - NOON) // timedelta(minutes=10) + 1) * 10)


def live_rows(app: sl.App, trace: str) -> int:
    tables = TraceReader(app.store / "traces" / trace, app.epoch, Span.whole()).snapshot()
    return sum(table.num_rows for table in tables)


def test_results_are_those_of_batch_spark_without_the_late_rows(
    open_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, model, reports = random.Random(3), Model(), list[EpochReport]()
    app, events, clicks = open_all(open_app, 2, reports)
    live: dict[str, list[int]] = {}
    for number in range(9):
        made = batch(chance, 30 + 9 * number)
        model.events.append(made[0])
        model.clicks.append(made[1])
        events.append(made[0])
        clicks.append(made[1])
        if number == 4:  # computed, and killed before it was published
            with monkeypatch.context() as patch:
                patch.setattr(Loop, "_publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
                with pytest.raises(KeyboardInterrupt):
                    app.run(until="caught_up")
            app.close()
            app, events, clicks = open_all(open_app, 3, reports)
        app.run(until="caught_up")
        assert app.epoch == number + 1
        for view, kind in STATE.items():
            (trace,) = (app.store / "traces" / view).glob(f"{kind}-*")
            live.setdefault(view, []).append(live_rows(app, f"{view}/{trace.name}"))
    check_watermarks(model, reports)
    check_views(app, model)
    check_late(app, model, reports)
    check_state(live)


def check_watermarks(model: Model, reports: list[EpochReport]) -> None:
    """They are those of the model, whatever happened to the app, in every epoch."""
    for epoch, report in enumerate(reports):
        mark = model.mark(model.events, epoch)
        expected = {} if mark is None else {"events.ts": round(mark.timestamp() * 1000)}
        assert {name: said for name, said in report.watermarks.items() if name == "events.ts"} == expected
        assert report.epoch == epoch + 1


def frames(app: sl.App, events: Rows, clicks: Rows) -> dict[str, DataFrame]:
    return {
        "events": app.spark.createDataFrame(events, EVENTS),
        "clicks": app.spark.createDataFrame(clicks, CLICKS),
    }


def check_views(app: sl.App, model: Model) -> None:
    everything = [row for rows in model.events for row in rows]
    all_clicks = [row for rows in model.clicks for row in rows]
    events_mark = lambda epoch: model.mark(model.events, epoch)  # noqa: E731
    clicks_mark = lambda epoch: model.mark(model.clicks, epoch)  # noqa: E731
    by_window, _ = model.split(model.events, window_end, events_mark)
    by_time, _ = model.split(model.events, lambda when: when, events_mark)
    clicks_by_time, _ = model.split(model.clicks, lambda when: when, clicks_mark)
    both_events, _ = model.split(model.events, lambda when: when, model.both)
    both_clicks, _ = model.split(model.clicks, lambda when: when, model.both)
    inputs = {
        **dict.fromkeys(("tumbling", "largest"), (by_window, [])),
        **dict.fromkeys(("sessions", "moments", "deduplicated", "ranked"), (by_time, [])),
        "counted": (everything, []),
        "clicked": ([], clicks_by_time),
        "joined": (both_events, both_clicks),
        "clicks_by_window": ([], all_clicks),
    }
    for view, (events, clicks) in inputs.items():
        given = frames(app, events, clicks)
        definition = app.definitions[view]
        expected = definition.query(*[given[name] for name in definition.inputs])
        assert_equal(app.read(view), expected, view)
    expected = of_tumbling(tumbling(frames(app, by_window, [])["events"]))
    assert_equal(app.read("of_tumbling"), expected, "of_tumbling")
    pairs = "struct(window.start, window.end) AS window"
    spread = app.spark.createDataFrame(everything, EVENTS).select(F.window("ts", "10 minutes", "5 minutes"))
    on_time = spread.selectExpr(pairs).exceptAll(app.read("sliding_late").selectExpr(pairs))
    assert_equal_rows(rows_of(app.read("sliding")), rows_of(on_time.groupBy("window").count()), "sliding")
    assert_equal_rows(rows_of(app.read("seen").select("k", "v")), first_seen(model), "seen")


def first_seen(model: Model) -> Rows:
    """The first row of each key in the order of epochs, and then of times, unless one was shown within the delay."""
    shown: Rows = []
    held: dict[str, datetime | None] = {}
    for epoch, rows in enumerate(model.events):
        mark = model.mark(model.events, epoch)
        end = datetime.max.replace(tzinfo=UTC)
        for key, when, value in sorted(set(rows), key=lambda row: row[1] or end):
            if mark is not None and when is not None and when <= mark:
                continue
            last = held.get(key, minute(-10_000))
            if (
                last is None
                or (mark is None and key in held)
                or (mark is not None and last + timedelta(minutes=DELAY) > mark)
            ):
                continue
            held[key] = when
            shown.append((key, value))
    return shown


def check_late(app: sl.App, model: Model, reports: list[EpochReport]) -> None:
    events_mark = lambda epoch: model.mark(model.events, epoch)  # noqa: E731
    clicks_mark = lambda epoch: model.mark(model.clicks, epoch)  # noqa: E731
    by_window = model.split(model.events, window_end, events_mark)[1]
    by_time = model.split(model.events, lambda when: when, events_mark)[1]
    by_click = model.split(model.clicks, lambda when: when, clicks_mark)[1]
    left = model.split(model.events, lambda when: when, model.both)[1]
    right = model.split(model.clicks, lambda when: when, model.both)[1]
    assert len(by_window) > 5
    assert len(by_time) > len(by_window)
    shown = ["k", "v", "_epoch"]
    for view in ("tumbling", "largest"):
        assert_equal_rows(
            rows_of(app.read(f"{view}_late").select(*shown)), [(k, v, e) for k, _, v, e in by_window], view
        )
    for view in ("sessions", "deduplicated", "ranked", "seen"):
        assert_equal_rows(
            rows_of(app.read(f"{view}_late").select(*shown)), [(k, v, e) for k, _, v, e in by_time], view
        )
    assert_equal_rows(
        rows_of(app.read("clicked_late").select("_epoch")), [(row[3],) for row in by_click], "clicked"
    )
    assert_equal_rows(
        rows_of(app.read("joined_late").select(*shown)), [(k, v, e) for k, _, v, e in left], "left"
    )
    assert_equal_rows(
        rows_of(app.read("joined_late_2").select("k", "n", "_epoch")),
        [(k, n, e) for k, _, n, e in right],
        "right",
    )
    assert app.read("of_tumbling_late").count() == 0
    told = reduce(lambda one, other: one + Counter(other.late), reports, Counter[str]())
    assert told["tumbling_late"] == len(by_window)
    assert told["sessions_late"] == len(by_time)
    assert told["joined_late"] + told["joined_late_2"] == len(left) + len(right)
    changed = rows_of(app.changes("tumbling_late", 3, 6).select("_epoch", "_times", "_diff"))
    assert sorted(changed) == sorted((e, 1, 1) for *_, e in by_window if 3 < e <= 6)
    rows = sum(len(rows) for rows in model.events)
    dated = sum(row[1] is not None for rows in model.events for row in rows)
    assert app.read("counted").agg(F.sum("c")).collect()[0][0] == rows
    assert app.read("ranked").count() + app.read("ranked_late").count() == rows
    spread = app.read("sliding").agg(F.sum("c")).collect()[0][0] + app.read("sliding_late").count()
    assert spread == 2 * dated
    check_sliding(app, model)


def check_sliding(app: sl.App, model: Model) -> None:
    """Of each row the windows that it is too late for, and those that it is not."""
    sums: Counter[tuple[datetime, str]] = Counter()
    late: Rows = []
    for epoch, rows in enumerate(model.events):
        mark = model.mark(model.events, epoch)
        for key, when, value in (row for row in rows if row[1] is not None):
            last = int(when.timestamp()) // 240 * 240
            for start in range(last, last - 600, -240):
                if start + 600 <= when.timestamp():
                    continue
                end = datetime.fromtimestamp(start + 600, UTC)
                if mark is not None and end <= mark:
                    late.append((key, value, epoch + 1, 1))
                else:
                    sums[end, key] += value
    assert len(set(late)) < len(late)
    shown = app.read("sliding_sums_late").select("k", "v", "_epoch", "_times")
    assert_equal_rows(rows_of(shown), late, "sliding_sums_late")
    seconds = app.read("sliding_sums").selectExpr("unix_seconds(window.end)", "k", "s")
    expected = [(int(end.timestamp()), key, total) for (end, key), total in sums.items()]
    assert_equal_rows(rows_of(seconds), expected, "sliding_sums")


STATE = {
    **dict.fromkeys(("tumbling", "sliding", "sliding_sums", "moments", "clicked"), "accumulate"),
    **dict.fromkeys(("sessions", "deduplicated", "ranked"), "regroup"),
    "largest": "extreme",
    "joined": "left",
    "seen": "firstseen",
    "clicks_by_window": "accumulate",
    "counted": "accumulate",
}


def check_state(live: dict[str, list[int]]) -> None:
    """With a watermark that moves on, the state is that of the first few epochs, however many there are; without one,
    it grows.
    """
    for view, rows in live.items():
        if view not in ("clicks_by_window", "counted", "seen"):
            assert max(rows[4:]) <= 2 * max(rows[:4]), (view, rows)
    assert live["clicks_by_window"] == sorted(live["clicks_by_window"])
    assert live["clicks_by_window"][-1] >= live["clicks_by_window"][2] + 5
    assert live["counted"][-1] == live["seen"][-1] == 3


def test_what_becomes_of_rows_behind_the_watermark_is_explained(open_app: Any) -> None:
    app, _, _ = open_all(open_app, 2, [])
    near = "a.ts < b.ts AND a.ts > b.ts - INTERVAL 1 MINUTE"
    for how in (
        "LEFT",
        "LEFT SEMI",
        "INNER",
    ):  # without an equality: what such joins are made of follows no time either
        name = how.lower().replace(" ", "_")
        app.view(name, f"SELECT a.k, a.ts FROM events a {how} JOIN events b ON {near}")
    app.view("anew", tumbling, maintain="recompute")
    assert re.search(
        r"behind the least of events\.ts - 600 s, joined\.at - 600 s: rows to joined_late, joined_late_2; state "
        r"dropped from traces/joined/left-\w{12} 120\.001 s later, traces/joined/right-\w{12} 300\.001 s later",
        app.explain("joined"),
    )
    assert "behind events.ts - 600 s: rows to tumbling_late; state dropped from" in app.explain("tumbling")
    for view in ("counted", "clicks_by_window", "left", "left_semi", "inner", "anew"):
        assert "behind" not in app.explain(view)
