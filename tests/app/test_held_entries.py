"""Views that are held, as plain data: who is held with them, what the catalog says, when they are tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slipstream.app.holding import (
    FIRST,
    LONGEST,
    SHARE,
    Fault,
    Pauses,
    held_entries,
    told,
    with_their_readers,
)
from slipstream.core.errors import DamagedDocument
from slipstream.store.catalog import Catalog, Generation, HeldSince, ViewEntry


def entry(trace: str, **more: object) -> ViewEntry:
    made = ViewEntry(schema={"fields": []}, fingerprint=trace, contents={"trace": trace}, traces=(trace,))
    return replace(made, **more)  # type: ignore[arg-type]


INPUTS = {"a": ("t",), "b": ("a", "t"), "c": ("b",), "d": ("t",), "e": ("d", "c")}


def test_with_a_view_all_that_reads_it_is_held_and_says_which_it_reads() -> None:
    late = {"a_late": entry("traces/a/late-1", role="late"), "d_late": entry("traces/d/late-1", role="late")}
    found = with_their_readers({"a": Fault("it fails", "here")}, INPUTS, Catalog(views=late))
    assert {name: fault.because for name, fault in found.items()} == {
        "a": "",
        "b": "a",
        "c": "b",
        "e": "c",
        "a_late": "a",
    }
    assert told(found, 7) == (
        "from epoch 8 on without 'a' (it fails here); with 'a_late', 'b', 'c', 'e', which cannot be computed without"
    )


def test_the_catalog_says_since_when_and_keeps_nothing_but_what_is_read() -> None:
    known = Catalog(views={"a": entry("traces/a/1"), "b": entry("traces/b/1")})
    held = held_entries({"a": Fault("it fails", "on this")}, known, 7)
    assert held["a"].held == HeldSince(7, "it fails", "on this", "", 7)
    assert (held["a"].last, held["a"].traces, held["a"].trace) == (7, (), "traces/a/1")
    later = Catalog(views={"b": known.views["b"]}, held=held)
    still = held_entries({"a": Fault("it fails otherwise")}, later, 9)
    assert still["a"].held == HeldSince(7, "it fails otherwise", "", "", 9)
    assert later.traces() == ["traces/b/1"], "nobody asks for a cover of it"
    assert later.past_traces() == ["traces/a/1"]
    assert later.view("a").shown(9) == 7
    assert Catalog.decode(later.encode()) == later


def test_a_held_view_shows_what_it_showed_though_its_layers_may_be_lost() -> None:
    """Whoever reads it is told, and is not shown an empty view."""
    now, was = entry("traces/a/2"), entry("traces/a/1", last=7, held=HeldSince(7, "it failed"))
    held = held_entries({"a": Fault("it fails", entry=now)}, Catalog(held={"a": was}), 9)
    assert (held["a"].last, held["a"].trace) == (7, "traces/a/1")


def test_a_view_that_never_was_is_held_with_nothing() -> None:
    now = entry("traces/a/2")
    assert held_entries({"a": Fault("it fails", entry=now)}, Catalog(), 9)["a"].last == 0


def test_a_view_that_was_to_be_another_from_now_on_is_what_it_was() -> None:
    was = Generation(0, 7, {"fields": []}, {"trace": "traces/a/1"}, (), 3)
    joined = entry("traces/a/1-t2", since=8, past=(was,))
    held = held_entries({"a": Fault("it fails")}, Catalog(views={"a": joined}), 7)["a"]
    assert (held.trace, held.since, held.last, held.past) == ("traces/a/1", 0, 3, ())
    other = held_entries({"a": Fault("it fails")}, Catalog(views={"a": joined}), 8)["a"]
    assert (other.trace, other.since, other.last, other.past) == ("traces/a/1-t2", 8, 8, (was,))


def test_changes_are_told_across_the_epochs_in_which_a_view_was_held() -> None:
    was = Generation(0, 7, {"fields": []}, {"trace": "traces/a/1"}, (), 3)
    view = entry("traces/a/1-t2", since=8, past=(was,))

    def stretches(since: int, until: int) -> list[tuple[str, int, int]]:
        return [(each.trace, after, upto) for each, after, upto in view.between(since, until)]

    assert stretches(1, 9) == [("traces/a/1", 1, 3), ("traces/a/1-t2", 8, 9)]
    assert stretches(5, 9) == [("traces/a/1", 3, 3), ("traces/a/1-t2", 8, 9)]
    assert stretches(5, 6) == [("traces/a/1", 3, 3)]
    assert view.at(6).shown(6) == 3
    assert view.at(9).shown(9) == 9


def test_a_catalog_that_holds_a_view_for_no_reason_is_damaged() -> None:
    body = Catalog(held={"a": entry("traces/a/1", last=7, held=HeldSince(7, "it fails"))}).encode()
    body["held"]["a"]["held"] = None
    with pytest.raises(DamagedDocument, match="held for no reason"):
        Catalog.decode(body)


def test_a_held_view_is_tried_after_pauses_that_grow_and_cost_a_small_share() -> None:
    pauses = Pauses().begun(100.0)
    assert pauses.due == 100 + FIRST
    waited = []
    for _ in range(9):
        pauses = pauses.after(0.0, 0.01)
        waited.append(pauses.due)
    assert waited == sorted(waited)
    assert waited[0] == 2 * FIRST
    assert waited[-1] == LONGEST
    assert pauses.after(0.0, 3600.0).due == SHARE * 3600.0, "however long a try takes"
    assert pauses.after(0.0, 60.0).begun(0.0).due == SHARE * 60.0, "also if another view is held meanwhile"
    assert pauses.begun(0.0).after(0.0, 0.01).pause == 2 * FIRST
