"""The Nexmark generator."""

from __future__ import annotations

from collections import Counter

from slipstream.testing.nexmark import PERSONS, ROUND, events


def test_events_are_interleaved_1_to_3_to_46() -> None:
    made = events(0, 4 * ROUND)
    assert Counter(event.kind for event in made) == {"person": 4, "auction": 12, "bid": 184}
    assert [event.kind for event in made[:5]] == ["person", "auction", "auction", "auction", "bid"]


def test_a_stretch_of_events_is_the_same_alone_and_within_a_longer_one() -> None:
    assert events(70, 90, seed=5) == events(0, 200, seed=5)[70:90]
    assert events(70, 90, seed=5) != events(70, 90, seed=6)


def test_what_events_refer_to_is_there_before_them() -> None:
    persons, auctions = 0, 0
    for kind, row in events(0, 40 * ROUND):
        if kind == "person":
            persons += 1
        elif kind == "auction":
            auctions += 1
            assert 0 <= row[6] < persons
        else:
            assert 0 <= row[0] < auctions
            assert 0 <= row[1] < persons
    assert persons == 40 * PERSONS
