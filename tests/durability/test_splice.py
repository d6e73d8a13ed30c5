"""One history out of many copies of lineage: whole, torn, with holes, swapped, foreign, parted."""

from __future__ import annotations

import random

import pytest

from slipstream.durability.splice import Copies, contradict, splice
from slipstream.store import chain
from slipstream.store.records import Began, Computed, Cut, Record, encode_record

APP = "a1"


def log(*records: Record) -> bytes:
    digest, raw = chain.START, b""
    for record in records:
        digest, line = chain.encode(digest, encode_record(record))
        raw += line
    return raw


def last(raw: bytes) -> str:
    return raw.split(b"\n")[-2][:16].decode()


def epochs(first: int, until: int, mark: float = 0.0) -> list[Record]:
    made: list[Record] = []
    for epoch in range(first, until + 1):
        made += [
            Cut(epoch, mark, {"t": epoch}),
            Computed(epoch=epoch, clock=mark, seconds=0.1, rows=1),
        ]
    return made


ONE = log(Began(1, 0, 0, APP), *epochs(1, 5))
TWO = log(Began(2, 5, 5, APP, (1, last(ONE))), *epochs(6, 8))
WHOLE: Copies = {1: [ONE], 2: [TWO]}


def test_whole_logs_are_one_history() -> None:
    found = splice([WHOLE], APP)
    assert (found.history.frontier, found.tip, found.lineage.torn, found.lineage.broken) == (8, 2, None, None)
    assert found.logs == {1: ONE, 2: TWO}
    assert [began.incarnation for began in found.begins] == [1, 2]
    assert found.computed_by[5] == 1
    assert found.computed_by[6] == 2
    assert found.lineage.digest == last(TWO)


def test_stretches_of_replicas_are_joined_in_any_order() -> None:
    cuts = [ONE[: ONE.index(b"\n", 100) + 1], ONE[ONE.index(b"\n", 100) + 1 :]]
    assert splice([{1: cuts[::-1]}, {2: [TWO]}], APP).logs == {1: ONE, 2: TWO}


def test_a_hole_in_one_copy_is_filled_from_another() -> None:
    lines = ONE.splitlines(keepends=True)
    holed = b"".join(lines[:3] + lines[5:])
    alone = splice([{1: [holed], 2: [TWO]}], APP)
    assert alone.history.frontier == 1
    assert alone.lineage.broken == (
        "lineage/1.log: lines after the first 3 are missing; "
        "lineage/1.log lacks the line that lineage/2.log follows"
    )
    newest = splice([{1: [holed]}], APP)
    assert newest.history.frontier == 1
    assert newest.gap == "lineage/1.log: lines after the first 3 are missing"
    other = b"".join(lines[:8])
    mended = splice([{1: [holed], 2: [TWO]}, {1: [other]}], APP)
    assert (mended.history.frontier, mended.lineage.broken) == (8, None)
    assert mended.logs[1] == ONE


@pytest.mark.parametrize("tail", [b"", b"\0" * 50, b"garbage", TWO[:30]])
def test_a_torn_tail_is_no_hole(tail: bytes) -> None:
    found = splice([{1: [ONE], 2: [TWO[:-10] + tail]}], APP)
    assert found.history.frontier == 7
    assert found.history.pending[0].epoch == 8
    assert found.lineage.broken is None
    assert found.lineage.torn == "lineage/2.log ends in something that is no line"


def test_a_log_that_lost_the_line_its_successor_follows_breaks_the_history() -> None:
    found = splice([{1: [ONE[:-10]], 2: [TWO]}], APP)
    assert found.history.frontier == 4
    assert found.lineage.broken == "lineage/1.log lacks the line that lineage/2.log follows"


def test_a_middle_log_that_is_gone_leaves_what_is_before_it() -> None:
    three = log(Began(3, 8, 8, APP, (2, last(TWO))), *epochs(9, 9))
    found = splice([{1: [ONE], 2: [b""], 3: [three]}], APP)
    assert found.history.frontier == 5
    assert found.lineage.broken == "lineage/2.log lacks the line that lineage/3.log follows"


def test_swapped_logs_are_read_for_what_they_are() -> None:
    assert splice([{1: [TWO], 2: [ONE]}], APP).logs == {1: ONE, 2: TWO}


def test_a_log_over_another_is_not_taken_for_it() -> None:
    found = splice([{1: [ONE], 2: [ONE]}], APP)
    assert found.history.frontier == 5
    assert found.lineage.broken == "lineage/2.log: it is the log of incarnation 1"


def test_a_log_of_another_app_is_not_read() -> None:
    foreign = log(Began(2, 5, 5, "b2", (1, last(ONE))), *epochs(6, 8))
    found = splice([{1: [ONE], 2: [foreign]}], APP)
    assert found.history.frontier == 5
    assert found.lineage.broken == "lineage/2.log: it is of another app (b2)"


def test_copies_contradict_each_other_where_two_lines_follow_one() -> None:
    other = log(Began(2, 5, 5, APP, (1, last(ONE))), *epochs(6, 9, mark=7.0))
    assert contradict(WHOLE, {1: [ONE], 2: [other]}, APP)
    assert not contradict(WHOLE, {1: [ONE], 2: [TWO[: TWO.index(b"\n") + 1]]}, APP)
    assert not contradict(WHOLE, {3: [other]}, APP)


def test_what_was_succeeded_counts_up_to_the_line_that_is_followed() -> None:
    """Incarnation 1 went on, and did not know."""
    lines = ONE.splitlines(keepends=True)
    two = log(Began(2, 3, 3, APP, (1, last(b"".join(lines[:7])))), *epochs(4, 4, mark=1.0))
    found = splice([{1: [ONE], 2: [two]}], APP)
    assert [done.clock for done in found.history.computed] == [0.0, 0.0, 0.0, 1.0]
    assert found.bounded(5, 1) == 3
    assert found.bounded(4, 2) == 4
    assert found.holds(1, last(b"".join(lines[:7])))
    assert not found.holds(1, last(ONE))


@pytest.mark.parametrize("seed", range(200))
def test_any_damage_leaves_a_beginning_of_the_truth(seed: int) -> None:
    rng = random.Random(seed)
    logs = {1: bytearray(ONE), 2: bytearray(TWO)}
    raw = logs[rng.choice([1, 2])]
    match rng.randrange(4):
        case 0:
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        case 1:
            del raw[rng.randrange(len(raw)) :]
        case 2:
            at = rng.randrange(len(raw))
            del raw[at : at + rng.randrange(1, 200)]
        case 3:
            at = rng.randrange(len(raw))
            raw[at : at + 64] = bytes(len(raw[at : at + 64]))
    found = splice([{number: [bytes(each)] for number, each in logs.items()}], APP)
    truth = splice([WHOLE], APP)
    assert found.history.cuts == truth.history.cuts[: len(found.history.cuts)]
    assert found.history.computed == truth.history.computed[: len(found.history.computed)]
    mended = splice([{number: [bytes(each)] for number, each in logs.items()}, WHOLE], APP)
    assert mended.history == truth.history
    assert (mended.lineage.broken, mended.gap) == (None, None)
