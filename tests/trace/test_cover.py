from __future__ import annotations

import pytest

from slipstream.core.errors import MissingLayer
from slipstream.trace import LayerName, Piece, Span, cover, history_reach, tile
from slipstream.trace.naming import Kind

WHOLE = Span.whole()
HALF = WHOLE.stop // 2


def layer(lo: int, hi: int, kind: Kind = "log", *, incarnation: int = 1, span: Span = WHOLE) -> LayerName:
    return LayerName(incarnation, lo, hi, span.start, span.stop, kind)


def chosen(pieces: list[Piece]) -> list[tuple[int, int]]:
    return [(piece.first, piece.last) for piece in pieces]


def test_a_flat_layer_is_preferred_to_what_it_was_made_of() -> None:
    names = [layer(1, 1), layer(2, 2), layer(3, 3), layer(1, 2, "flat")]
    assert chosen(cover(names, 3, WHOLE)) == [(1, 2), (3, 3)]


def test_a_flat_layer_that_reaches_past_the_epoch_is_not_used() -> None:
    names = [layer(1, 1), layer(2, 2), layer(1, 2, "flat")]
    assert chosen(cover(names, 1, WHOLE)) == [(1, 1)]


def test_a_log_is_taken_in_stretches_on_both_sides() -> None:
    pieces = cover([layer(1, 5, "flat"), layer(3, 9)], 7, WHOLE)
    assert chosen(pieces) == [(1, 5), (6, 7)]
    assert [piece.exact for piece in pieces] == [True, False]


def test_the_longest_reach_is_not_taken_where_it_leads_nowhere() -> None:
    names = [layer(1, 6, "flat"), layer(1, 4, "flat"), layer(5, 8, "flat")]
    assert chosen(cover(names, 8, WHOLE)) == [(1, 4), (5, 8)]


def test_the_highest_incarnation_wins() -> None:
    assert cover([layer(1, 1), layer(1, 1, incarnation=2)], 1, WHOLE)[0].layer.incarnation == 2


def test_a_change_of_shards_takes_slices() -> None:
    left, right = Span(0, HALF), Span(HALF, WHOLE.stop)
    names = [layer(1, 1), layer(2, 2, span=left), layer(2, 2, span=right)]
    pieces = cover(names, 2, Span(5, HALF))
    assert [(piece.layer, piece.span) for piece in pieces] == [
        (names[0], Span(5, HALF)),
        (names[1], Span(5, HALF)),
    ]
    assert len(cover(names, 2, WHOLE)) == 3  # the old layer is one piece again


def test_epoch_zero_is_empty() -> None:
    assert cover([], 0, WHOLE) == []


def test_a_gap_is_an_error_that_names_it() -> None:
    names = [layer(1, 2, "flat"), layer(5, 5), layer(6, 6)]
    with pytest.raises(MissingLayer, match=r"'/t' has no layer for epochs 3 to 4 .*never taken as empty"):
        cover(names, 6, WHOLE, directory="/t")
    with pytest.raises(MissingLayer, match="has no layer for epoch 7 "):
        cover([*names, layer(3, 4)], 7, WHOLE)


def test_a_gap_in_one_strip_is_an_error() -> None:
    names = [layer(1, 1, span=Span(0, HALF))]
    with pytest.raises(MissingLayer, match=f"in the places {HALF} to {WHOLE.stop}"):
        cover(names, 1, WHOLE)


def test_the_log_alone_takes_the_fewest_files_and_knows_how_far_it_reaches() -> None:
    names = [layer(1, 3, "flat"), layer(4, 4), layer(5, 5), layer(6, 6), layer(4, 6), layer(7, 7)]
    assert chosen(tile(names, 5, 7, WHOLE, whole=False)) == [(5, 6), (7, 7)]
    assert history_reach(names, 7, WHOLE) == 3
    assert history_reach(names, 8, WHOLE) == 8
