"""The epoch checksum: over values, cumulative, chained, and never made up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.durability.agent import sums as sums_module
from slipstream.durability.checksum import change_sum, mismatches, read_totals, state_sum, sums_line
from slipstream.durability.hashing import row_hashes
from slipstream.durability.work import LocalWork
from slipstream.store import chain
from slipstream.store.layout import sums_log
from slipstream.store.store import Store
from slipstream.testing.pretend import BAG, KEYED, Pretend
from slipstream.trace import Span, TraceWriter
from slipstream.trace.equality import texts


@pytest.fixture
def pretend(tmp_path: Path) -> Iterator[Pretend]:
    engine = Pretend.on(tmp_path / "store")
    yield engine
    engine.close()


def totals_of(pretend: Pretend) -> dict[int, int]:
    known, problems = read_totals(pretend.store.disk)
    assert problems == []
    return {epoch: totals[BAG] for epoch, totals in known.items() if BAG in totals}


def states_of(pretend: Pretend, *epochs: int) -> dict[int, int]:
    return {epoch: state_sum(pretend.root / BAG, epoch) for epoch in epochs}


def test_the_total_of_each_round_is_the_checksum_of_what_the_view_holds(pretend: Pretend) -> None:
    agent = pretend.agent()
    pretend.window = 3
    agent.all(pretend.run(1))
    agent.all(pretend.run(5))
    agent.all(pretend.run(1))
    assert totals_of(pretend) == states_of(pretend, 1, 6, 7)


@pytest.mark.parametrize("trace", [BAG, KEYED])
def test_epochs_add_up_to_the_state_whatever_is_merged(pretend: Pretend, trace: str) -> None:
    word = pretend.run(30)
    states = {epoch: state_sum(pretend.root / trace, epoch) for epoch in range(31)}
    for since, until in [(0, 30), (0, 1), (4, 5), (4, 9), (29, 30), (7, 7)]:
        change = change_sum(pretend.root / trace, since, until)
        assert (states[since] + change - states[until]) % (1 << 64) == 0
    before = states[30]
    agent = pretend.agent()
    agent.all(word)
    assert state_sum(pretend.root / trace, 30) == before


def test_a_value_that_is_not_what_it_was_changes_the_checksum(tmp_path: Path) -> None:
    """Layers that prove themselves, with all hashes as they were: only a value differs."""
    for name, text in (("a", "one"), ("b", "two")):
        row = {"h": [5], "r": [7], "v0": [text], "diff": [1]}
        TraceWriter(tmp_path / "traces" / "v" / name, 1).write(1, Span.whole(), pa.table(row))
    a, b = (tmp_path / "traces" / "v" / name for name in "ab")
    assert state_sum(a, 1) != state_sum(b, 1)
    assert change_sum(a, 0, 1) == state_sum(a, 1)


def test_sums_of_a_bag_count(tmp_path: Path) -> None:
    for name, added in (("a", 3), ("b", 4)):
        row = {"h": [5], "r": [7], "v0": [1], "diff": [1], "s0": [added]}
        TraceWriter(tmp_path / "traces" / "v" / name, 1).write(1, Span.whole(), pa.table(row))
    assert state_sum(tmp_path / "traces/v/a", 1) != state_sum(tmp_path / "traces/v/b", 1)


def test_an_agent_that_is_started_again_goes_on_adding_up(pretend: Pretend) -> None:
    pretend.agent().all(pretend.run(3))
    pretend.agent().all(pretend.run(3))
    assert totals_of(pretend) == states_of(pretend, 3, 6)


def test_an_incarnation_goes_on_from_the_total_where_it_began(pretend: Pretend, tmp_path: Path) -> None:
    pretend.agent().all(pretend.run(3))
    pretend.close()
    second = Pretend.on(tmp_path / "store")
    agent = second.agent()
    agent.all(second.run(2))
    assert totals_of(second) == states_of(second, 3, 5)
    second.close()


def test_what_an_earlier_incarnation_noted_past_its_successors_beginning_does_not_count(
    tmp_path: Path,
) -> None:
    def log(number: int, *lines: tuple[int, int]) -> None:
        digest, raw = chain.START, b""
        for epoch, total in lines:
            digest, line = sums_line(digest, epoch, {"k": total})
            raw += line
        (tmp_path / sums_log(number)).write_bytes(raw)

    (tmp_path / "sums").mkdir()
    log(1, (0, 0), (1, 11), (2, 12), (3, 13))
    log(2, (2, 12), (3, 23))
    known, problems = read_totals(Store.at(tmp_path).disk)
    assert (known, problems) == ({0: {"k": 0}, 1: {"k": 11}, 2: {"k": 12}, 3: {"k": 23}}, [])


@pytest.mark.parametrize("damage", ["torn", "flipped", "zeros", "empty", "gone"])
def test_a_damaged_log_of_sums_is_gone_on_with_as_far_as_it_holds(pretend: Pretend, damage: str) -> None:
    pretend.agent().all(pretend.run(4))
    log = pretend.root / sums_log(1)
    raw = log.read_bytes()
    if damage == "gone":
        log.unlink()
    else:
        log.write_bytes(
            {
                "torn": raw[:-5],
                "flipped": raw[:-30] + bytes([raw[-30] ^ 1]) + raw[-29:],
                "zeros": bytes(len(raw)),
                "empty": b"",
            }[damage]
        )
    pretend.agent().all(pretend.run(2))
    found = totals_of(pretend)
    assert found[6] == state_sum(pretend.root / BAG, 6)
    assert found.items() <= states_of(pretend, *range(1, 7)).items()


def test_a_view_whose_epochs_are_gone_begins_anew_with_what_it_holds(pretend: Pretend) -> None:
    pretend.histories = ()
    alone = pretend.agent()
    alone.board.tell(pretend.run(20))
    alone.upkeep()
    agent = pretend.agent()
    agent.hear(pretend.run(1))
    assert totals_of(pretend) == states_of(pretend, 21)
    agent.hear(pretend.run(1))
    assert totals_of(pretend) == states_of(pretend, 21, 22)


def test_the_log_of_sums_is_bounded(pretend: Pretend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums_module, "_LARGEST", 500)
    agent = pretend.agent()
    for _ in range(20):
        agent.hear(pretend.run(1))
    assert (pretend.root / sums_log(1)).stat().st_size <= 500
    found = totals_of(pretend)
    assert max(found) == 20
    assert found.items() <= states_of(pretend, *range(1, 21)).items()


def test_what_does_not_add_up_is_found(pretend: Pretend) -> None:
    pretend.run(3)
    work = LocalWork(pretend.store)
    total = work.state_sum(BAG, 3)
    assert mismatches({"k": total}, {"k": BAG, "unknown": KEYED}, 3, work.state_sum) == []
    assert mismatches({"k": total + 1}, {"k": BAG}, 3, work.state_sum) == [BAG]


VALUES = st.one_of(st.none(), st.integers(-5, 5))
FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]))
TEXTS = st.one_of(st.none(), st.text(max_size=20), st.sampled_from(["a" * 600, "a" * 601, "", "\0", "\0\0"]))
KINDS = {
    "int": (pa.int64(), VALUES),
    "small": (pa.int8(), VALUES),
    "float": (pa.float64(), FLOATS),
    "text": (pa.string(), TEXTS),
    "bytes": (pa.binary(), TEXTS.map(lambda text: None if text is None else text.encode())),
    "large": (pa.large_string(), TEXTS),
    "date": (pa.date32(), VALUES),
    "time": (pa.timestamp("us"), VALUES),
    "bool": (pa.bool_(), st.one_of(st.none(), st.booleans())),
    "decimal": (pa.decimal128(20, 2), VALUES),
    "list": (pa.list_(pa.int64()), st.one_of(st.none(), st.lists(VALUES, max_size=3))),
    "texts": (pa.list_(pa.string()), st.one_of(st.none(), st.lists(TEXTS, max_size=3))),
    "struct": (
        pa.struct([("a", pa.float64()), ("b", pa.string())]),
        st.one_of(st.none(), st.fixed_dictionaries({"a": FLOATS, "b": TEXTS})),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.one_of(
            st.none(),
            st.dictionaries(st.text(max_size=2), VALUES, max_size=3).flatmap(
                lambda made: st.permutations(list(made.items()))
            ),
        ),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_have_one_hash_exactly_when_they_are_equal(kind: str, data: st.DataObject) -> None:
    made, values = KINDS[kind]
    drawn = data.draw(st.lists(values, min_size=1, max_size=8))
    array = pa.array(drawn, made)
    said = texts([array], np.arange(len(array)))
    hashes = row_hashes(pa.table({"v0": array})).tolist()
    for i in range(len(drawn)):
        for j in range(i):
            assert (hashes[i] == hashes[j]) == (said[i] == said[j])
    if len(drawn) > 1:
        assert row_hashes(pa.table({"v0": array.slice(1)})).tolist() == hashes[1:], "a slice is no different"
    assert row_hashes(pa.table({"v0": array, "v1": array})).tolist() != hashes


PINNED = ["df5f0ff8f8732439", "13c3f8e226de8b39"]


def test_the_hash_is_what_it_always_was() -> None:
    """It is in stores and on replicas."""
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int64()),
            "f": pa.array([1.5, None]),
            "t": pa.array(["some text of more than eight bytes", "x" * 600]),
            "d": pa.array([3, None], pa.int32()).cast(pa.date32()),
            "l": pa.array([[1, 2], []]),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    assert [f"{each:x}" for each in row_hashes(table).tolist()] == PINNED
