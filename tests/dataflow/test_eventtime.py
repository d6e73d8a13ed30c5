"""Event time in operators: what is late, what is dropped and when, the first row of a key, beside plain models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.dataflow.accumulate import Accumulate
from slipstream.dataflow.accumulators import Argument, Buffer
from slipstream.dataflow.eventtime import Timed
from slipstream.dataflow.firstseen import FirstSeen
from slipstream.dataflow.regroup import Regroup
from slipstream.dataflow.task import Task
from slipstream.trace import Span, TraceReader, validate

MINUTE = 60_000  # milliseconds
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
TIME = pa.timestamp("us", "UTC")
HASH = 3

Run = Callable[..., list[dict[str, Any]]]


def at(minute: float | None) -> Any:
    return None if minute is None else pa.scalar(int(minute * MINUTE * 1000), pa.int64()).cast(TIME).as_py()


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], tuple[Path, Run]]:
    """Runs epochs of an operator: its rows, with the watermark of the epoch and of the one before, in minutes."""

    def made() -> tuple[Path, Run]:
        root = tmp_path_factory.mktemp("store") / "view"
        seen: list[float | None] = [None]

        def epoch(operator: Any, rows: list[dict[str, Any]], mark: float | None) -> list[dict[str, Any]]:
            now, before = ({} if each is None else {"w": int(each * MINUTE)} for each in (mark, seen[-1]))
            task = Task(root, len(seen), 1, 0, 1, watermarks=now, watermarks_before=before)
            seen.append(mark)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Task, "current", staticmethod(lambda: task))
                batch = pa.RecordBatch.from_pylist(rows, schema=operator.input)
                return [row for made in operator(iter([batch])) for row in made.to_pylist()]

        return root, epoch

    return made


def held(root: Path, trace: str, epoch: int) -> list[dict[str, Any]]:
    """What a trace holds."""
    validate(root / trace, epoch)
    tables = TraceReader(root / trace, epoch, Span.whole()).snapshot()
    return [row for table in tables for row in table.to_pylist()]


def timed(column: str, part: Any, shown: tuple[str, ...], kept: int | None = 0, period: int = 1) -> Timed:
    return Timed(column, part, ("w",), period, ("state",), "late", shown, kept)


SUMS = pa.schema(
    [
        ("h", pa.int64()),
        ("k0", WINDOW),
        ("x0", pa.int64()),
        ("r", pa.int64()),
        ("diff", pa.int64()),
    ]
)


def sums(period: int = 1) -> Accumulate:
    followed = timed("k0", "end", ("k0", "x0"), period=period)
    shown = (Buffer("sum", 0, pa.int64()),)
    return Accumulate("v", "state", SUMS, (Argument("long"),), shown, emits=True, timed=(followed,))


def summed(start: float | None, value: int, diff: int = 1) -> dict[str, Any]:
    window = None if start is None else {"start": at(start), "end": at(start + 10)}
    return {"h": hash(start) % HASH, "k0": window, "x0": value, "r": value, "diff": diff}


def test_a_row_is_late_once_its_window_has_ended_and_is_kept_with_its_sign(run: Any) -> None:
    root, epoch = run()
    epoch(sums(), [summed(0, 1), summed(10, 2), summed(None, 3)], None)
    out = epoch(sums(), [summed(0, 4), summed(0, 1, -1), summed(10, 5), summed(None, 6)], 10)
    assert sorted((row["b0"], row["diff"]) for row in out) == [(2, -1), (3, -1), (7, 1), (9, 1)]
    assert sorted((row["v1"], row["v2"], row["v3"]) for row in held(root, "late", 2)) == [
        (1, 2, -1),
        (4, 2, 1),
    ]
    assert epoch(sums(), [summed(0, 9)], 10) == []


def test_state_is_dropped_when_the_watermark_enters_another_period_and_not_before(run: Any) -> None:
    root, epoch = run()
    quarter = sums(period=15 * MINUTE * 1000)
    epoch(quarter, [summed(minute, 1) for minute in (0, 10, 20, 30)], None)
    epoch(quarter, [summed(40, 1)], 9)
    epoch(quarter, [summed(40, 1)], 14)
    epoch(quarter, [], 14.9)
    assert len(held(root, "state", 4)) == 5
    epoch(quarter, [], 20)
    assert sorted(row["k0"]["start"] for row in held(root, "state", 5)) == [at(20), at(30), at(40)]
    epoch(quarter, [], 1000)
    assert held(root, "state", 6) == []


def test_a_null_is_never_late_and_its_state_never_dropped(run: Any) -> None:
    root, epoch = run()
    epoch(sums(), [summed(None, 1)], None)
    epoch(sums(), [summed(None, 2)], 10_000)
    assert [row["v0"] for row in held(root, "state", 2)] == [2]


SESSIONS = pa.schema(
    [
        ("side", pa.int32()),
        ("h", pa.int64()),
        ("r", pa.int64()),
        ("k0", pa.int64()),
        ("a0", WINDOW),
        ("diff", pa.int64()),
    ]
)
rows = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60), st.integers(1, 9)), max_size=25)


def merged(spans: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Sessions as Spark makes them: a row goes into the one before if it begins no later than that one ends."""
    made: list[list[tuple[int, int]]] = []
    for span in sorted(spans):
        if made and span[0] <= max(end for _, end in made[-1]):
            made[-1].append(span)
        else:
            made.append([span])
    return made


@given(rows, st.integers(0, 70))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_session_is_dropped_whole_once_it_is_over(run: Any, events: list[Any], mark: int) -> None:
    root, epoch = run()
    late = (timed("a0", "start", ("k0", "a0")),)
    operator = Regroup("v", ("state",), SESSIONS, timed=late)
    given = [
        {
            "side": 0,
            "h": key % HASH,
            "r": n,
            "k0": key,
            "a0": {"start": at(start), "end": at(start + gap)},
            "diff": 1,
        }
        for n, (key, start, gap) in enumerate(events)
    ]
    epoch(operator, given, None)
    epoch(operator, [], mark)
    expected: Counter[Any] = Counter()
    for key in range(5):
        for session in merged([(start, start + gap) for k, start, gap in events if k == key]):
            if max(end for _, end in session) > mark:
                expected.update((key, at(start), at(end)) for start, end in session)
    left = held(root, "state", 2)
    kept = [(row["k0"], row["v0"]["start"], row["v0"]["end"]) for row in left for _ in range(row["diff"])]
    assert Counter(kept) == expected


SEEN = pa.schema(
    [
        ("h", pa.int64()),
        ("r", pa.int64()),
        ("k0", pa.int64()),
        ("v0", TIME),
        ("v1", pa.int64()),
        ("diff", pa.int64()),
    ]
)
DELAY = 5
arrivals = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 2)), max_size=6),
        st.integers(0, 12),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(arrivals)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_first_row_of_a_key_is_shown_until_the_delay_has_passed(run: Any, epochs: list[Any]) -> None:
    root, epoch = run()
    followed = Timed(
        "v0", "", ("w",), 7 * MINUTE * 1000, ("state",), "late", ("k0", "v0", "v1"), DELAY * MINUTE * 1000
    )
    operator = FirstSeen("v", "state", SEEN, (followed,))
    state: dict[int, tuple[int, int]] = {}
    result: Counter[Any] = Counter()
    got: Counter[Any] = Counter()
    late = 0
    mark = -1
    for arrived, advance, retracts in epochs:
        mark += advance
        taken = [(key, *state[key]) for key in list(state)[:1]] if retracts else []
        signed = [(row, 1) for row in arrived] + [(row, -1) for row in taken if row not in arrived]
        given = [
            {"h": k % HASH, "r": (k + w + v) % HASH, "k0": k, "v0": at(w), "v1": v, "diff": diff}
            for (k, w, v), diff in signed
        ]
        for row in epoch(operator, given, mark):
            got[(row["k0"], row["v0"], row["v1"])] += row["diff"]
        state = {key: shown for key, shown in state.items() if shown[0] > mark - DELAY}
        for (key, when, value), diff in signed:
            late += when <= mark
            if diff < 0 and when > mark and state.get(key) == (when, value):
                del state[key]
                result[(key, at(when), value)] -= 1
        fresh: dict[int, list[tuple[int, int]]] = {}
        for key, when, value in arrived:
            if when > mark and key not in state:
                fresh.setdefault(key, []).append((when, value))
        for key, candidates in fresh.items():
            earliest = [each for each in candidates if each[0] == min(when for when, _ in candidates)]
            shown = next(
                each
                for each in earliest
                if got[(key, at(each[0]), each[1])] > result[(key, at(each[0]), each[1])]
            )
            state[key] = shown
            result[(key, at(shown[0]), shown[1])] += 1
    assert +got == +result
    assert sum(abs(row["v4"]) * row["diff"] for row in held(root, "late", len(epochs))) == late


@given(arrivals, st.randoms(use_true_random=False))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_another_order_of_arrival_gives_the_same_bytes(run: Any, epochs: list[Any], random: Any) -> None:
    followed = Timed("v0", "", ("w",), 1, ("state",), "late", ("k0", "v0", "v1"), DELAY * MINUTE * 1000)
    operator = FirstSeen("v", "state", SEEN, (followed,))
    written = []
    for attempt in (0, 1):
        root, epoch = run()
        mark = -1
        for arrived, advance, _ in epochs:
            mark += advance
            rows = [
                {"h": k % HASH, "r": (k + w + v) % HASH, "k0": k, "v0": at(w), "v1": v, "diff": 1}
                for k, w, v in arrived
            ]
            if attempt:
                random.shuffle(rows)
            epoch(operator, rows, mark)
        files = sorted(path for path in root.rglob("*.arrow"))
        written.append({str(path.relative_to(root)): path.read_bytes() for path in files})
    assert written[0] == written[1]
    assert written[0]


def test_a_follower_of_event_time_needs_a_watermark() -> None:
    with pytest.raises(ValueError, match="event time needs a watermark and a period"):
        Timed("k0", "", (), 1, ("state",), "late", ())
