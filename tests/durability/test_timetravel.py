"""`as_of`: an epoch, a time or now. What a time means where clocks were set, and that not all is read to find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.core.errors import DamagedLineage, HistoryBegins, UnknownEpoch
from slipstream.durability.timetravel import check_there, epoch_at, resolve_epoch
from slipstream.store import base as bases
from slipstream.store import history as histories
from slipstream.store.base import move_base
from slipstream.store.catalog import Catalog
from slipstream.store.disk import LocalDisk
from slipstream.store.history import Base
from slipstream.store.layout import lineage_log
from slipstream.store.lineage import read_lineage
from slipstream.store.records import Computed, Cut
from slipstream.store.store import Identity, Store, claim_store
from slipstream.testing.pretend import BAG, Pretend
from slipstream.trace import list_layers

Run = Callable[[str, Sequence[float]], Store]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A store whose epochs were computed at some times, with a base that is close behind; a restart every 7 epochs."""
    monkeypatch.setattr(histories, "EVERY", 4)
    monkeypatch.setattr(bases, "BEHIND", 1)
    claims = []

    def ran(name: str, clocks: Sequence[float], first: int = 1) -> Store:
        store = Store.at(tmp_path / name)
        for at in range(0, len(clocks), 7):
            claims.append(claim := claim_store(store, "shop", takeover=True))
            known = read_lineage(store.disk)
            frontier = known.history.frontier
            writer = claim.begin(Identity("shop", "id"), known, frontier, frontier)
            for epoch, clock in enumerate(clocks[at : at + 7], start=frontier + 1):
                writer.append(Cut(epoch, clock, {}))
                writer.append(Computed(epoch, clock, 0.1, 1))
                move_base(claim, writer, {}, epoch)
        return store

    yield ran
    for claim in claims:
        claim.release()


def meant(clocks: Sequence[float], time: float) -> int | None:
    """The definition, word for word; None where nothing had been computed."""
    fine = [e for e in range(1, len(clocks) + 1) if all(clock <= time for clock in clocks[:e])]
    return max(fine, default=None)


def found(store: Store, time: float) -> int | None:
    try:
        return epoch_at(store.disk, time)
    except UnknownEpoch:
        return None


def test_as_of_is_an_epoch_a_time_or_now(run: Run) -> None:
    store = run("s", [101.0, 102.0])
    assert resolve_epoch(store, None) == 2
    assert resolve_epoch(store, "1") == 1
    assert resolve_epoch(store, datetime.fromtimestamp(101.9, UTC)) == 1
    assert resolve_epoch(store, "1970-01-01T00:01:43+00:00") == 2
    with pytest.raises(UnknownEpoch, match="computed up to epoch 2"):
        resolve_epoch(store, 3)
    for neither in ("yesterday", 1.5, True, date(2026, 11, 18)):
        with pytest.raises(UnknownEpoch, match="neither an epoch nor a time"):
            resolve_epoch(store, neither)  # type: ignore[arg-type]
    with pytest.raises(UnknownEpoch, match="the first epoch was computed at"):
        resolve_epoch(store, datetime.fromtimestamp(1, UTC))


def test_nothing_was_computed_yet(tmp_path: Path) -> None:
    with pytest.raises(UnknownEpoch, match="nothing has been computed yet"):
        epoch_at(Store.at(tmp_path).disk, 5.0)


def test_a_time_behind_the_base_is_found(run: Run) -> None:
    store = run("s", [100.0 + e for e in range(1, 31)])
    assert read_lineage(store.disk).history.base.epoch == 28
    assert [found(store, 100.5 + e) for e in range(31)] == [None, *range(1, 31)]
    with pytest.raises(UnknownEpoch, match="the first epoch was computed at"):
        epoch_at(store.disk, 100.0)


def test_a_clock_that_was_set_back_changes_nothing_that_was_said(run: Run) -> None:
    before = [1000.0, 2000.0, 3000.0]
    after = [*before, 1500.0, 2400.0, 2600.0, 2900.0, 3100.0, 3200.0]
    assert found(run("before", before), 2500.0) == found(run("after", after), 2500.0) == 2
    store = run("again", after)
    assert [found(store, time) for time in (999, 1000, 1600, 2999, 3000, 3100, 9999)] == [
        None,
        1,
        1,
        2,
        7,
        8,
        9,
    ]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 40).map(float), min_size=1, max_size=30), st.integers(0, 41))
def test_a_time_means_what_is_defined_and_never_changes(run: Run, clocks: list[float], time: int) -> None:
    name = f"{hash(tuple(clocks))}-{time}-{len(clocks)}"
    assert found(run(name, clocks), time) == meant(clocks, time)
    passed = [n for n in range(1, len(clocks)) if max(clocks[:n]) > time]
    assert {meant(clocks[:n], time) for n in passed} <= {meant(clocks, time)}


@pytest.fixture
def amounts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that are read of lineage, at each read."""
    found: list[int] = []
    real = LocalDisk.read

    def counted(self: LocalDisk, name: str, offset: int = 0, length: int | None = None) -> bytes:
        raw = real(self, name, offset, length)
        found.append(len(raw) if name.endswith(".log") else 0)
        return raw

    monkeypatch.setattr(LocalDisk, "read", counted)
    return found


def test_only_the_records_between_two_marks_are_read(run: Run, amounts: list[int]) -> None:
    store = run("s", [100.0 + e for e in range(1, 61)])
    whole = sum(store.disk.size(lineage_log(n)) for n in range(1, 10))
    amounts.clear()
    assert epoch_at(store.disk, 110.5) == 10
    assert sum(amounts) < whole / 2


def test_d3_what_a_start_reads_of_lineage_does_not_grow_with_age(run: Run, amounts: list[int]) -> None:
    read = []
    for name, age in (("young", 30), ("old", 90)):
        store = run(name, [100.0 + e for e in range(1, age + 1)])
        amounts.clear()
        assert read_lineage(store.disk).history.frontier == age
        read.append(sum(amounts))
    assert read[1] < 1.5 * read[0]


def test_epochs_that_were_stepped_back_over_are_not_meant(run: Run) -> None:
    store = run("s", [100.0 + e for e in range(1, 7)])
    claim = claim_store(store, "shop", takeover=True)
    assert read_lineage(store.disk).history.base.epoch == 4
    writer = claim.begin(Identity("shop", "id"), read_lineage(store.disk), 2, 2)
    writer.append(Cut(3, 200.0, {}))
    writer.append(Computed(3, 200.0, 0.1, 1))
    claim.release()
    assert [found(store, time) for time in (102.5, 103.5, 106.5, 200.0)] == [2, 2, 2, 3]


def test_damage_where_the_time_is_looked_for_is_told(run: Run) -> None:
    store = run("s", [100.0 + e for e in range(1, 31)])
    raw = bytearray(store.disk.read(lineage_log(1)))
    raw[len(raw) // 2] ^= 1
    LocalDisk(store.root).replace(lineage_log(1), bytes(raw), flushed=True)
    assert read_lineage(store.disk).history.base != Base(), "it is behind the base"
    with pytest.raises(DamagedLineage, match=r"lineage/1.log.*fsck .* --repair"):
        epoch_at(store.disk, 102.5)
    assert epoch_at(store.disk, 125.5) == 25


def test_an_epoch_before_a_view_was_computed_anew_is_told_as_such(tmp_path: Path) -> None:
    engine = Pretend.start(tmp_path / "store")
    engine.run(6)
    catalog = engine.store.catalog()
    views = {name: replace(view, since=4, rebuilt=1) for name, view in catalog.views.items()}
    engine.claim.write_catalog(Catalog(catalog.sources, views))
    for name in list_layers(tmp_path / "store" / BAG):
        if name.hi < 4:  # a rebuild has the present alone
            (tmp_path / "store" / BAG / name.filename).unlink()
    with pytest.raises(HistoryBegins) as told:
        check_there(engine.store, "events", 2, None, base=False)
    assert str(told.value) == (
        "The history of 'events' begins with epoch 4: the view was added, or computed anew, after that epoch, and "
        "epoch 2 was asked for. Ask for epoch 4 or later."
    )
    with pytest.raises(HistoryBegins):
        check_there(engine.store, "events", 6, 1, base=True)
    engine.close()
