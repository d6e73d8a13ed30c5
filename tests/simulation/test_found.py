"""What the simulation found, each as a short test of its own."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import OtherReplica, ReplicaTrouble, StoreVanished
from slipstream.durability.ahead import Shipping
from slipstream.durability.board import Board, read_replication
from slipstream.durability.joining import UNKNOWN, Origin, check_owner, held, join, read_owner
from slipstream.store.documents import read_document, write_document
from slipstream.store.lineage import LineageWriter, read_lineage
from slipstream.store.records import Began, Computed, Cut
from slipstream.store.store import Claim, Identity, Store, await_claim, claim_number, claim_store
from slipstream.testing.simulation.disk import SimulatedDisk
from slipstream.testing.simulation.layers import ModelLayers
from slipstream.testing.simulation.objects import Bucket, SimulatedObjects
from slipstream.testing.simulation.scheduler import Scheduler

IDENTITY = Identity("shop", "id")


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Scheduler(1))


@pytest.fixture
def store(disk: SimulatedDisk) -> Store:
    return Store(disk, ModelLayers(disk))


def claimed(store: Store) -> Claim:
    return claim_store(store, "shop", takeover=True)


@pytest.mark.parametrize("alone", [False, True])
def test_a_standby_makes_a_store_that_is_gone_anew_only_if_there_is_no_engine(
    disk: SimulatedDisk, store: Store, alone: bool
) -> None:
    engine = claimed(store)
    engine.write_identity(IDENTITY)
    attempts = 0

    def waiting() -> bool:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            disk.wipe()
            engine.release()
        return attempts < 5

    claim = await_claim(store, "shop", waiting, ManualClock(), lambda: alone)
    assert (claim is not None, attempts, disk.gone) == ((True, 2, False) if alone else (False, 5, True))


def test_the_line_that_a_beginning_follows_survives_a_power_cut(disk: SimulatedDisk, store: Store) -> None:
    first = claimed(store).begin(IDENTITY, read_lineage(disk), 0, 0)
    for record in (Cut(1, 0.0, {}), Computed(1, 0.0, 0.0, 0)):
        first.append(record)
    claimed(store).begin(IDENTITY, read_lineage(disk), 1, 1)
    for seed in range(50):
        after = disk.copy_unflushed()
        after.power_cut(random.Random(seed))
        found = read_lineage(after)
        assert (found.broken, found.history.frontier) == (None, 1)


def test_a_claim_survives_a_power_cut_with_its_folder(disk: SimulatedDisk, store: Store) -> None:
    claimed(store)
    for seed in range(50):
        after = disk.copy_unflushed()
        after.power_cut(random.Random(seed))
        assert Store(after, ModelLayers(after)).last_incarnation() == 1


def test_a_log_counts_as_a_claim_where_the_claim_is_lost(disk: SimulatedDisk, store: Store) -> None:
    claim = claimed(store)
    LineageWriter(disk, claim.incarnation).began(Began(claim.incarnation, 0, 0, "id"))
    disk.lose_folder("incarnations")
    assert claimed(store).incarnation == claim.incarnation + 1


def test_a_store_that_vanishes_while_it_is_claimed_says_so(disk: SimulatedDisk, store: Store) -> None:
    claimed(store)
    disk.lose_folder("incarnations")
    with pytest.raises(StoreVanished):
        claim_number(store, "shop", 1)


def test_a_document_is_written_where_the_folder_of_copies_is_lost(disk: SimulatedDisk, store: Store) -> None:
    claimed(store)
    disk.lose_folder("copies")
    write_document(disk, "format.json", {"version": 1})
    assert read_document(disk, "format.json") == {"version": 1}
    assert disk.peek("copies/format.json") == disk.peek("format.json")


def test_what_a_predecessor_wrote_last_does_not_stay(disk: SimulatedDisk, store: Store) -> None:
    claimed(store)
    clock = ManualClock()
    old = Board(store, 1, ("a",), clock=clock)
    old.persisted(3)
    stale = disk.read("progress.json")
    claimed(store)
    new = Board(store, 2, ("a",), after=3, clock=clock)
    new.post("a", lambda known: replace(known, durable=3))
    disk.replace("progress.json", stale, flushed=False)  # it was on its way when the store was taken over
    new.settle()
    clock.advance(60.0)
    new.settle()
    said = read_replication(disk)
    assert (said.incarnation, said.replicas["a"].durable) == (2, 3)


def test_a_replica_that_is_emptied_while_something_is_sent_stays_its_app_s(store: Store) -> None:
    bucket = Bucket("simulated://replica/shop")
    objects = SimulatedObjects(Scheduler(1), bucket)
    origin = Origin(store=store, identity=IDENTITY, incarnation=1, after=0, token="aa")
    join(objects, origin)
    held(objects, origin)
    bucket.objects.clear()
    with pytest.raises(ReplicaTrouble, match="claimed again"):
        held(objects, origin)
    objects.put("data/000001-late.parquet", b"")
    assert read_owner(objects) == UNKNOWN
    with pytest.raises(OtherReplica):
        check_owner(objects, replace(origin, joined=set()))
    check_owner(objects, origin)
    assert read_owner(objects) == IDENTITY


def test_lineage_that_cannot_be_read_is_not_taken_for_sent(disk: SimulatedDisk, store: Store) -> None:
    claim = claimed(store)
    log = claim.begin(IDENTITY, read_lineage(disk), 0, 0)
    objects = SimulatedObjects(Scheduler(1), Bucket("simulated://replica/shop"))
    origin = Origin(store=store, identity=IDENTITY, incarnation=claim.incarnation, after=0, token="aa")
    join(objects, origin)
    shipping = Shipping(origin, objects, {})
    for epoch in (1, 2, 3):
        log.append(Cut(epoch, 0.0, {}))
        if epoch == 2:
            disk.damage("zero", "lineage/1.log", "", random.Random(1))
        log.append(Computed(epoch, 0.0, 0.0, 0))
        shipping.send()
        assert shipping.computed == 1, "what follows the damage is not known to be there"
