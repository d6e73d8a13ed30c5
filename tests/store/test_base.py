"""A base: what it adds up to, when it moves on, that reading from it gives what reading everything gives, and that it
is never believed over the logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipstream.core.errors import DamagedLineage, DamagedSummary, StoreFull, Superseded
from slipstream.store import base as bases
from slipstream.store import history as histories
from slipstream.store.base import due, fold, move_base
from slipstream.store.disk import LocalDisk
from slipstream.store.history import Base, History, Mark, Place
from slipstream.store.layout import BASE, EARLIER_BASE, lineage_log
from slipstream.store.lineage import (
    Lineage,
    LineageWriter,
    read_lineage,
    read_stretch,
    read_whole,
    write_base,
)
from slipstream.store.records import Began, Computed, Cut, Dropped
from slipstream.store.store import Claim, Identity, Store, claim_store

IDENTITY = Identity("shop", "id")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "EVERY", 4)
    monkeypatch.setattr(bases, "BEHIND", 2)


_CLAIMS: list[Claim] = []


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    yield Store.at(tmp_path / "store")
    while _CLAIMS:
        _CLAIMS.pop().release()


class Counted:
    """A source whose summary counts the files of its ranges and keeps the last."""

    def folded(self, before: Any, ranges: Sequence[Any]) -> Any:
        names = [name for each in ranges for name in each["files"]]
        return {"files": (before or {"files": 0})["files"] + len(names), "last": names[-1]}


class Untouched:
    """A source that must not be asked."""

    def folded(self, before: Any, ranges: Sequence[Any]) -> Any:
        raise AssertionError("a process that was succeeded writes nothing")


SOURCES = {"orders": Counted()}


def started(store: Store, after: int | None = None) -> tuple[Claim, LineageWriter]:
    claim = claim_store(store, "shop", takeover=True)
    _CLAIMS.append(claim)
    known = read_lineage(store.disk)
    frontier = known.history.frontier if after is None else after
    return claim, claim.begin(IDENTITY, known, frontier, frontier)


def cut(epoch: int) -> Cut:
    return Cut(epoch, float(epoch), {"orders": {"files": [f"{epoch}.json"]}}, {"orders": 10 * epoch})


def computed(epoch: int, clock: float | None = None) -> Computed:
    return Computed(
        epoch=epoch,
        clock=100.0 + epoch if clock is None else clock,
        seconds=0.1,
        rows=10,
        rejected={"orders": 1},
        late={"v": 2},
        latest={"orders": epoch},
        safe=epoch - 1,
    )


def epochs(writer: LineageWriter, first: int, last: int) -> None:
    for epoch in range(first, last + 1):
        writer.append(cut(epoch))
        writer.append(computed(epoch))


def moved(store: Store, upto: int) -> tuple[Claim, LineageWriter]:
    """A store with a base as of the last multiple of 4 that is at least 2 behind."""
    claim, writer = started(store)
    epochs(writer, 1, upto)
    move_base(claim, writer, SOURCES, upto)
    return claim, writer


def test_a_base_is_due_at_a_place_that_is_allowed_and_not_near_the_newest_epoch() -> None:
    places = [Place(epoch, 1, 10 * epoch, "ab") for epoch in (4, 8, 12)]
    assert due(places, frontier=20, upto=20) == places
    assert due(places, frontier=13, upto=13) == places[:2]
    assert due(places, frontier=20, upto=11) == places[:2]
    assert due(places, frontier=20, upto=3) == []


def test_a_base_adds_up_what_is_behind_it() -> None:
    history = History(
        base=Base(epoch=4, rows=40, safe=9, rejected={"orders": 4}, sources={"orders": {"files": 4}}),
        cuts=tuple(cut(epoch) for epoch in range(5, 11)),
        computed=tuple(computed(epoch) for epoch in range(5, 11)),
    )
    made = fold(history, "id", [Place(8, 3, 800, "cd")], {"orders": {"files": 8}})
    assert made == Base(
        epoch=8,
        clock=108.0,
        log=3,
        end=800,
        digest="cd",
        app="id",
        rows=80,
        safe=9,
        rejected={"orders": 8},
        late={"v": 8},
        latest={"orders": 8},
        watermarks={"orders": 80},
        sources={"orders": {"files": 8}},
        marks=(Mark(Place(8, 3, 800, "cd"), 108.0),),
    )


def test_what_is_read_from_a_base_is_what_is_read_from_everything(store: Store) -> None:
    _, writer = moved(store, 11)
    writer.append(cut(12))
    found, whole = read_lineage(store.disk), read_lineage(store.disk, whole=True)
    assert (found.history.base.epoch, whole.history.base.epoch) == (8, 0)
    assert found.history.computed == whole.history.computed[8:]
    assert found.history.cuts == whole.history.cuts[8:]
    for name in ("frontier", "safe", "clock", "pending", "watermarks", "latest", "failing"):
        assert getattr(found.history, name) == getattr(whole.history, name), name
    assert (found.incarnation, found.digest, found.app) == (whole.incarnation, whole.digest, "id")
    assert found.history.summary("orders") == {"files": 8, "last": "8.json"}
    assert found.history.taken("orders") == [{"files": [f"{n}.json"]} for n in (9, 10, 11, 12)]


def test_a_writer_goes_on_from_a_base_as_a_reader_would(store: Store) -> None:
    claim, writer = moved(store, 11)
    epochs(writer, 12, 15)
    made = move_base(claim, writer, SOURCES, 15)
    assert made is not None
    assert made.sources == {"orders": {"files": 12, "last": "12.json"}}
    found = read_lineage(store.disk)
    assert found.history == writer.history()[0]
    assert found.history.base == made
    assert [mark.place.epoch for mark in made.marks] == [4, 8, 12]


def test_a_base_is_moved_no_further_than_it_may(store: Store) -> None:
    claim, writer = started(store)
    epochs(writer, 1, 11)
    assert move_base(claim, writer, SOURCES, 3) is None
    made = move_base(claim, writer, SOURCES, 7)
    assert made is not None
    assert made.epoch == 4
    assert move_base(claim, writer, SOURCES, 7) is None


def test_a_long_tail_is_folded_at_a_start(store: Store) -> None:
    _, writer = started(store)
    epochs(writer, 1, 11)
    claim, writer = started(store)
    made = move_base(claim, writer, SOURCES, 11)
    assert made is not None
    assert (made.epoch, made.log) == (8, 1)
    epochs(writer, 12, 14)
    assert read_lineage(store.disk).history == writer.history()[0]
    assert read_lineage(store.disk).history.frontier == 14


def test_ranges_of_a_source_that_is_not_there_stay(store: Store) -> None:
    claim, writer = started(store)
    epochs(writer, 1, 7)
    move_base(claim, writer, {}, 7)
    found = read_lineage(store.disk).history
    assert found.base.epoch == 4
    assert found.taken("orders") == [{"files": [f"{n}.json"]} for n in range(1, 8)]
    epochs(writer, 8, 11)
    move_base(claim, writer, SOURCES, 11)
    assert read_lineage(store.disk).history.summary("orders") == {"files": 8, "last": "8.json"}
    assert len(read_lineage(store.disk).history.taken("orders")) == 3


def test_a_log_that_lost_what_a_base_knows_is_broken(store: Store) -> None:
    moved(store, 11)
    places = read_lineage(store.disk, whole=True).places
    LocalDisk(store.root).truncate(lineage_log(1), places[0].end)
    found = read_lineage(store.disk)
    assert found.broken == "lineage/1.log: it does not hold epoch 8, which lineage/base.json says it had"
    assert found.history.frontier == 4
    LocalDisk(store.root).remove(lineage_log(1))
    assert read_lineage(store.disk).broken is not None


def test_a_log_that_ends_where_a_base_stands_is_whole(store: Store) -> None:
    moved(store, 11)
    LocalDisk(store.root).truncate(lineage_log(1), read_lineage(store.disk).history.base.end)
    found = read_lineage(store.disk)
    assert (found.broken, found.history.frontier, found.history.base.epoch) == (None, 8, 8)


def test_a_base_whose_line_was_changed_is_not_believed(store: Store) -> None:
    moved(store, 11)
    disk = store.disk
    base = read_lineage(disk).history.base
    raw = bytearray(disk.read(lineage_log(1)))
    raw[base.end - 3] ^= 1
    LocalDisk(store.root).replace(lineage_log(1), bytes(raw), flushed=True)
    found = read_lineage(disk)
    assert found.broken is not None
    assert found.history.frontier == 7


def test_a_damaged_base_costs_the_way_from_the_one_before(store: Store) -> None:
    claim, writer = moved(store, 11)
    epochs(writer, 12, 15)
    move_base(claim, writer, SOURCES, 15)
    whole = read_lineage(store.disk).history
    assert whole.base.epoch == 12
    LocalDisk(store.root).replace(BASE, b"\0" * 100, flushed=True)
    found = read_lineage(store.disk)
    assert (found.history.base.epoch, found.history.frontier, found.broken) == (8, 15, None)
    assert found.torn == "lineage/base.json: it is filled with zeros"
    LocalDisk(store.root).replace(EARLIER_BASE, b"{}", flushed=True)
    assert read_lineage(store.disk).history.base == Base()
    assert read_lineage(store.disk).history.frontier == 15


def test_stepping_back_behind_a_base_reads_from_the_one_before(store: Store) -> None:
    claim, writer = moved(store, 11)
    epochs(writer, 12, 15)
    move_base(claim, writer, SOURCES, 15)
    _, again = started(store, after=10)
    found = read_lineage(store.disk)
    assert (found.history.base.epoch, found.history.frontier, found.broken) == (8, 10, None)
    epochs(again, 11, 12)
    assert read_lineage(store.disk).history.frontier == 12
    assert again.history()[0].base == Base(), "it read everything to know what it goes on from"


def test_places_of_epochs_that_were_stepped_back_over_are_forgotten(store: Store) -> None:
    _, first = started(store)
    epochs(first, 1, 9)
    claim, second = started(store, after=6)
    assert [place.epoch for place in second.places] == [4]
    assert [place.epoch for place in read_lineage(store.disk).places] == [4]
    epochs(second, 7, 11)
    made = move_base(claim, second, SOURCES, 11)
    assert made is not None
    assert (made.epoch, made.log) == (8, 2)


def test_what_was_once_safe_stays_so(store: Store) -> None:
    _, writer = moved(store, 7)
    writer.append(cut(8))
    writer.append(replace(computed(8), safe=0))
    LocalDisk(store.root).truncate(lineage_log(1), read_lineage(store.disk).history.base.end)
    _, writer = started(store)
    writer.append(cut(5))
    writer.append(replace(computed(5), safe=0))
    assert read_lineage(store.disk).history.safe == 3


def test_a_base_of_a_process_that_was_succeeded_is_not_believed(store: Store) -> None:
    claim, first = started(store)
    epochs(first, 1, 3)
    _, second = started(store)
    epochs(first, 4, 9)
    with pytest.raises(Superseded):
        move_base(claim, first, {"orders": Untouched()}, 9)
    assert not store.disk.exists(BASE)
    history, app = first.history()
    write_base(
        LocalDisk(store.root), fold(history, app, first.places[:1], {})
    )  # woken between asking and writing
    epochs(second, 4, 5)
    found = read_lineage(store.disk)
    assert (found.history.base, found.history.frontier, found.broken) == (Base(), 5, None)


def test_a_base_that_cannot_be_written_leaves_everything_as_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, writer = moved(store, 11)
    epochs(writer, 12, 15)

    class Full:
        def folded(self, before: Any, ranges: Sequence[Any]) -> Any:
            raise OSError(28, "no space")

    with pytest.raises(StoreFull):
        move_base(claim, writer, {"orders": Full()}, 15)
    assert read_lineage(store.disk).history.base.epoch == 8
    assert [place.epoch for place in writer.places] == [12]
    assert move_base(claim, writer, SOURCES, 15) is not None


class Damaged(Counted):
    """A source that cannot use the summary it made before."""

    def folded(self, before: Any, ranges: Sequence[Any]) -> Any:
        if before is not None:
            raise DamagedSummary("orders", "its file", "it is missing")
        return super().folded(before, ranges)


def test_a_summary_that_cannot_be_used_is_made_anew_from_everything(store: Store) -> None:
    claim, writer = moved(store, 11)
    epochs(writer, 12, 15)
    made = move_base(claim, writer, {"orders": Damaged()}, 15)
    assert made is not None
    assert made.sources == {"orders": {"files": 12, "last": "12.json"}}


def test_no_summary_is_made_of_what_is_left_of_a_lineage(store: Store) -> None:
    claim, writer = moved(store, 11)
    epochs(writer, 12, 15)
    raw = bytearray(store.disk.read(lineage_log(1)))
    raw[len(raw) // 4] ^= 1
    LocalDisk(store.root).replace(lineage_log(1), bytes(raw), flushed=True)
    with pytest.raises(DamagedLineage, match=r"lineage/1.log.*fsck .* --repair"):
        move_base(claim, writer, {"orders": Damaged()}, 15)
    with pytest.raises(DamagedLineage, match="does not follow"):
        read_whole(store.disk)


def test_a_record_that_does_not_fit_is_refused_before_it_is_written(store: Store) -> None:
    _, writer = moved(store, 11)
    with pytest.raises(DamagedLineage, match="epoch 13 is computed"):
        writer.append(computed(13))
    writer.append(cut(12))
    writer.append(Dropped(12))
    found = read_lineage(store.disk)
    assert (found.broken, found.torn, found.history.failing) == (None, None, True)


def test_a_stretch_between_two_places_spans_logs(store: Store) -> None:
    _, first = started(store)
    epochs(first, 1, 5)
    _, second = started(store)
    epochs(first, 6, 9)  # counts for nobody
    epochs(second, 6, 7)
    claim, third = started(store)
    epochs(third, 8, 14)
    made = move_base(claim, third, SOURCES, 14)
    assert made is not None
    four, eight, twelve = (mark.place for mark in made.marks)
    assert [done.epoch for done in read_stretch(store.disk, four, eight).computed] == [5, 6, 7, 8]
    assert [done.epoch for done in read_stretch(store.disk, None, four).computed] == [1, 2, 3, 4]
    assert [done.epoch for done in read_stretch(store.disk, eight, twelve).computed] == [9, 10, 11, 12]
    LocalDisk(store.root).remove(lineage_log(2))
    with pytest.raises(DamagedLineage, match=r"lineage/2.log .*fsck .*--repair"):
        read_stretch(store.disk, four, eight)


def test_marks_are_thinned_and_the_last_is_kept(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(bases, "MARKS", 3)
    claim, writer = started(store)
    for last in range(4, 25, 4):
        epochs(writer, last - 3, last)
        move_base(claim, writer, SOURCES, last)
    base = read_lineage(store.disk).history.base
    assert base.epoch == 20
    assert [mark.place.epoch for mark in base.marks] == [8, 16, 20]


def test_clocks_never_go_back_and_reach_behind_the_base(store: Store) -> None:
    claim, writer = started(store)
    for epoch in range(1, 8):
        writer.append(cut(epoch))
        writer.append(computed(epoch, clock={3: 500.0}.get(epoch)))
    move_base(claim, writer, SOURCES, 7)
    history = read_lineage(store.disk).history
    assert history.clocks() == [(0.0, 0), (500.0, 4), (500.0, 5), (500.0, 6), (500.0, 7)]
    assert [history.clock_of(epoch) for epoch in (3, 4, 5, 7, 8)] == [None, 500.0, 105.0, 107.0, None]


def test_a_writer_that_was_told_nothing_has_no_places(store: Store) -> None:
    started(store)
    writer = LineageWriter(LocalDisk(store.root), 9)
    writer.began(Began(9, 0, 0, "id"))
    epochs(writer, 1, 9)
    assert (writer.places, writer.frontier) == ([], 0)


def test_a_base_comes_back_as_it_was(store: Store) -> None:
    moved(store, 11)
    base = replace(read_lineage(store.disk).history.base, unfolded={"gone": [[1, 2]]})
    assert Base.decode(base.encode()) == base
    assert Lineage().history.base == Base()
