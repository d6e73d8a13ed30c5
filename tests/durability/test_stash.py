"""Cuts that are not durable yet: what goes with an output, and what a start takes up from outside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slipstream.core.errors import DamagedLineage
from slipstream.durability.board import Progress, Replication
from slipstream.durability.stash import (
    Outside,
    Stash,
    contradicts,
    digest_of,
    durable_lineage,
    missing_cuts,
)
from slipstream.store.history import History
from slipstream.store.records import Computed, Cut, encode_record


def cut(epoch: int, takes: int | None = None) -> Cut:
    return Cut(epoch, float(epoch), {"t": {"appends": [epoch, takes or epoch]}})


def history(computed: int, pending: int = 0) -> History:
    """Epochs that are computed, and some that are cut after them."""
    past = History()
    for epoch in range(1, computed + 1):
        past = past.after(cut(epoch)).after(Computed(epoch, 1.0, 0.1, 1))
    for epoch in range(computed + 1, computed + pending + 1):
        past = past.after(cut(epoch))
    return past


def outside(epoch: int, first: int, takes: int | None = None) -> Outside:
    """Somebody who has seen epochs up to one, with the cuts from another on."""
    lines = tuple(encode_record(cut(each, takes)) for each in range(first, epoch + 1))
    return Outside("sink 'a'", epoch, digest_of(cut(epoch, takes)), lines)


def test_an_output_takes_along_what_is_not_durable() -> None:
    stash = Stash(cut(epoch) for epoch in range(1, 9))
    assert [each["cut"] for each in stash.forwarded(6, 3)] == [4, 5, 6]
    assert stash.forwarded(6, 6) == ()
    assert stash.digest(6) == digest_of(cut(6))


def test_what_is_durable_is_let_go() -> None:
    stash = Stash(cut(epoch) for epoch in range(1, 9))
    stash.forwarded(8, 5)
    assert [stash.digest(epoch) != "" for epoch in range(4, 9)] == [False, True, True, True, True]


def test_an_epoch_that_was_cut_again_goes_as_it_is_now() -> None:
    stash = Stash([cut(1)])
    stash.add(cut(1, 7))
    assert stash.forwarded(1, 0) == (encode_record(cut(1, 7)),)
    assert digest_of(cut(1)) != digest_of(cut(1, 7))


@pytest.mark.parametrize(
    ("replicas", "safe_on", "durable"),
    [
        ({}, 1, 5),
        ({"a": Progress(durable=2, lineage=4)}, 1, 4),
        ({"a": Progress(durable=2, lineage=4), "b": Progress(durable=3)}, 1, 4),
        ({"a": Progress(durable=2, lineage=4), "b": Progress(durable=3)}, 2, 3),
        ({"a": Progress(durable=2, lineage=4), "b": Progress()}, 2, 0),
        ({"a": Progress(durable=2, lineage=4)}, 0, 4),
    ],
)
def test_durable_is_what_arrived_where_it_counts(
    replicas: dict[str, Progress], safe_on: int, durable: int
) -> None:
    said = Replication(persisted=5, replicas=replicas, safe_on=safe_on)
    assert durable_lineage(said, replicated=bool(replicas)) == durable


def test_a_start_takes_up_what_it_lacks() -> None:
    assert missing_cuts(history(3), [outside(6, 2)]) == (cut(4), cut(5), cut(6))
    assert missing_cuts(history(3, pending=1), [outside(6, 2)]) == (cut(5), cut(6))
    assert missing_cuts(history(0), [outside(2, 1)]) == (cut(1), cut(2))


def test_of_several_the_one_that_reaches_furthest() -> None:
    assert missing_cuts(history(3), [outside(4, 1), outside(6, 1), outside(5, 1)])[-1] == cut(6)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(outside(3, 1), id="nothing more"),
        pytest.param(outside(6, 5), id="a gap"),
        pytest.param(outside(6, 1, takes=9), id="another history"),
        pytest.param(replace(outside(6, 1), lineage=()), id="no lineage"),
    ],
)
def test_what_does_not_fit_is_not_taken_up(seen: Outside) -> None:
    assert missing_cuts(history(3), [seen]) == ()


def test_what_was_taken_up_fits_the_history() -> None:
    past = history(3)
    for each in missing_cuts(past, [outside(6, 4)]):
        past = past.after(each)
    assert [each.epoch for each in past.pending] == [4, 5, 6]


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (outside(3, 1), None),
        (outside(2, 2), None),
        (replace(outside(2, 2), cut=""), None),
        (outside(2, 2, takes=9), "other input"),
        (outside(4, 4), "come to epoch 3"),
    ],
)
def test_an_output_of_another_history_is_told(seen: Outside, why: str | None) -> None:
    said = contradicts(seen, 3, digest_of(cut(seen.epoch)))
    assert said is None if why is None else said is not None and why in said


@pytest.mark.parametrize("line", [{}, {"dropped": 4}, {"cut": "x", "clock": 0, "ranges": {}}])
def test_a_line_that_is_no_cut_is_told(line: dict[str, Any]) -> None:
    with pytest.raises(DamagedLineage):
        missing_cuts(history(3), [Outside("sink 'a'", 4, "", (line,))])
