"""Watermarks from epoch to epoch: the latest event time of all earlier ones, less the delay, never less than before."""

from __future__ import annotations

from slipstream.epoch import Watermarks

MINUTE = 60_000


def test_there_is_none_before_an_event_time_was_seen() -> None:
    marks = Watermarks({"t.ts": MINUTE}, {}, {})
    assert marks.next() == {}
    assert marks.after({}, {}).next() == {}


def test_it_follows_what_earlier_epochs_have_seen() -> None:
    marks = Watermarks({"t.ts": MINUTE, "u.ts": 0}, {}, {}).after({}, {"t.ts": 600_000_999})
    assert marks.next() == {"t.ts": 600_000 - MINUTE}
    marks = marks.after(marks.next(), {"u.ts": -1, "t.ts": 700_000_000})
    assert marks.next() == {"t.ts": 700_000 - MINUTE, "u.ts": -1}


def test_it_never_falls() -> None:
    marks = Watermarks({"t.ts": MINUTE}, {"t.ts": 500_000}, {"t.ts": 560_000})
    assert marks.after({"t.ts": 500_000}, {"t.ts": 1}).next() == {"t.ts": 500_000}
    longer = Watermarks({"t.ts": 10 * MINUTE}, {"t.ts": 500_000}, {"t.ts": 560_000})
    assert longer.next() == {"t.ts": 500_000}
