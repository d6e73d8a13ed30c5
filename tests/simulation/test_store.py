"""The store itself on a simulated disk: claims race, logs and documents go through power cuts at every moment."""

from __future__ import annotations

import random

import pytest

from slipstream.core.errors import StoreInUse
from slipstream.store.documents import read_document, write_document
from slipstream.store.lineage import LineageWriter, read_lineage
from slipstream.store.records import Began, Computed, Cut
from slipstream.store.store import Identity, Store, claim_store
from slipstream.testing.simulation.disk import SimulatedDisk
from slipstream.testing.simulation.layers import ModelLayers
from slipstream.testing.simulation.scheduler import Process, Scheduler

IDENTITY = Identity("shop", "id")


def store_on(disk: SimulatedDisk) -> Store:
    return Store(disk, ModelLayers(disk))


@pytest.mark.parametrize("seed", range(20))
def test_of_many_starts_at_once_each_has_an_incarnation_of_its_own_and_the_last_one_owns_the_store(
    seed: int,
) -> None:
    scheduler = Scheduler(seed)
    store = store_on(SimulatedDisk(scheduler))
    owned: list[tuple[int, bool]] = []

    def start(takeover: bool) -> None:
        try:
            claim = claim_store(store, "shop", takeover=takeover)
        except StoreInUse:
            return
        scheduler.point(10.0)
        owned.append((claim.incarnation, not claim.superseded))

    for number in range(5):
        scheduler.start(f"engine {number}", lambda takeover=number > 1: start(takeover))  # type: ignore[misc]
    scheduler.run(lambda: False, 20.0)
    assert [process.error for process in scheduler.processes] == [None] * 5
    numbers = [number for number, _ in owned]
    assert len(set(numbers)) == len(numbers) >= 1
    assert [number for number, ours in owned if ours] in ([], [max(numbers)])


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_leaves_a_history_that_has_everything_that_was_flushed(seed: int) -> None:
    scheduler = Scheduler(seed)
    disk = SimulatedDisk(scheduler)
    store = store_on(disk)
    flushed, written = [0], [0]

    def engine() -> None:
        claim = claim_store(store, "shop")
        known = read_lineage(disk)
        frontier = known.history.frontier
        assert flushed[0] <= frontier <= written[0]
        flushed[0] = frontier  # what is read is on the disk: nothing was running
        log: LineageWriter = claim.begin(IDENTITY, known, frontier, frontier)
        for epoch in range(frontier + 1, frontier + 10):
            log.append(Cut(epoch, 0.0, {"orders": [f"file {epoch}"]}))
            log.append(Computed(epoch, 0.0, 0.0, 1))
            written[0] = epoch
            if scheduler.random.random() < 0.3:
                disk.flush(f"lineage/{claim.incarnation}.log")
                flushed[0] = epoch

    disk.make_folder("")
    disk.make_folder("lineage")
    disk.flush_folder("")
    for number in range(6):
        process = scheduler.start(f"engine {number}", engine)

        def kill(doomed: Process = process) -> None:
            scheduler.kill(doomed)

        scheduler.interrupt(scheduler.points + scheduler.random.randrange(80), kill)
        scheduler.run(lambda: False, scheduler.now + 60.0)
        assert process.error is None
        disk.power_cut(scheduler.random)


@pytest.mark.parametrize("seed", range(40))
def test_a_document_is_the_old_one_or_the_new_one_after_a_power_cut_at_any_moment(seed: int) -> None:
    scheduler = Scheduler(seed)
    disk = SimulatedDisk(scheduler)
    disk.make_folder("")
    disk.make_folder("copies")
    disk.flush_folder("")
    write_document(disk, "format.json", {"version": 0})

    def writer() -> None:
        write_document(disk, "format.json", {"version": 1})

    process = scheduler.start("writer", writer)
    scheduler.interrupt(scheduler.points + scheduler.random.randrange(12), lambda: scheduler.kill(process))
    scheduler.run(lambda: not process.alive, 60.0)
    disk.power_cut(random.Random(seed))
    assert read_document(disk, "format.json") in ({"version": 0}, {"version": 1})


def test_a_log_that_began_twice_is_refused() -> None:
    disk = SimulatedDisk(Scheduler(1))
    disk.make_folder("")
    disk.make_folder("lineage")
    LineageWriter(disk, 1).began(Began(1, 0, 0, "id"))
    with pytest.raises(Exception, match="there already"):
        LineageWriter(disk, 1).began(Began(1, 0, 0, "id"))
