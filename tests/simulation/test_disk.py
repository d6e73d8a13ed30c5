"""The simulated disk: what was flushed survives a power cut, and whatever a real disk may do with the rest happens."""

from __future__ import annotations

import random

import pytest

from slipstream.core.errors import StoreFull, StoreInUse, StoreReadOnly, StoreVanished
from slipstream.testing.simulation.disk import SimulatedDisk
from slipstream.testing.simulation.scheduler import Scheduler


@pytest.fixture
def disk() -> SimulatedDisk:
    made = SimulatedDisk(Scheduler(1))
    for folder in ("", "folder"):
        made.make_folder(folder)
    made.flush_folder("")
    return made


def images(disk: SimulatedDisk, name: str) -> set[bytes | None]:
    """What a file may be after a power cut."""
    found = set()
    for seed in range(300):
        after = disk.copy_unflushed()
        after.power_cut(random.Random(seed))
        found.add(after.peek(name))
    return found


def test_what_was_flushed_with_its_folder_survives(disk: SimulatedDisk) -> None:
    assert disk.create("folder/a", b"made")
    assert not disk.create("folder/a", b"again")
    disk.replace("folder/b", b"replaced", flushed=True)
    assert images(disk, "folder/a") == {b"made"}
    assert images(disk, "folder/b") == {b"replaced"}


def test_an_unflushed_file_may_be_missing_empty_torn_or_zeros(disk: SimulatedDisk) -> None:
    disk.replace("folder/a", b"12345678", flushed=False)
    found = images(disk, "folder/a")
    assert {None, b"", b"1234", bytes(8), b"12345678", b"1234\0\0\0\0"} <= found


def test_a_flushed_file_without_its_folder_may_be_missing_and_is_never_torn(disk: SimulatedDisk) -> None:
    disk.replace("folder/a", b"12345678", flushed=False)
    disk.flush("folder/a")
    assert images(disk, "folder/a") == {None, b"12345678"}


def test_the_flushed_part_of_a_log_survives(disk: SimulatedDisk) -> None:
    disk.create("folder/log", b"first\n")
    disk.append("folder/log", b"second\n")
    disk.flush("folder/log")
    disk.append("folder/log", b"third\n")
    found = images(disk, "folder/log")
    assert all(each is not None and each.startswith(b"first\nsecond\n") for each in found)
    assert {b"first\nsecond\n", b"first\nsecond\nthird\n", b"first\nsecond\n" + bytes(6)} <= found


def test_a_removed_file_may_be_back(disk: SimulatedDisk) -> None:
    disk.create("folder/a", b"made")
    disk.remove("folder/a")
    assert disk.peek("folder/a") is None
    assert images(disk, "folder/a") == {None, b"made"}


def test_a_replaced_file_is_the_old_one_or_the_new_one(disk: SimulatedDisk) -> None:
    disk.replace("folder/a", b"old", flushed=True)
    disk.replace("folder/a", b"new", flushed=False)
    disk.flush("folder/a")
    assert images(disk, "folder/a") == {b"old", b"new"}


def test_a_folder_whose_name_was_not_flushed_may_be_gone(disk: SimulatedDisk) -> None:
    disk.make_folder("other")
    disk.create("other/a", b"made")
    assert images(disk, "other/a") == {None, b"made"}
    disk.flush_folder("")
    assert images(disk, "other/a") == {b"made"}


def test_a_full_disk_takes_nothing_and_leaves_what_was_there(disk: SimulatedDisk) -> None:
    disk.create("folder/log", b"first\n")
    disk.full = True
    with pytest.raises(StoreFull):
        disk.append("folder/log", b"second\n")
    with pytest.raises(StoreFull):
        disk.replace("folder/log", b"", flushed=True)
    assert disk.peek("folder/log") == b"first\n"
    assert disk.files() == ("folder/log",)


def test_a_disk_that_is_read_only_or_gone_says_so(disk: SimulatedDisk) -> None:
    disk.read_only = True
    with pytest.raises(StoreReadOnly):
        disk.create("folder/a", b"")
    disk.wipe()
    with pytest.raises(StoreVanished):
        disk.read("folder/a")
    with pytest.raises(StoreVanished):
        disk.list("folder")


def test_a_lock_falls_with_its_process_and_can_be_taken_over() -> None:
    scheduler = Scheduler(1)
    disk = SimulatedDisk(scheduler)
    disk.make_folder("")
    seen: list[object] = []

    def holder() -> None:
        lock = disk.lock("lock", "holder")
        scheduler.point(10.0)
        seen.append(lock.taken_over)
        scheduler.point(1000.0)

    process = scheduler.start("holder", holder)
    scheduler.run(lambda: False, 1.0)
    assert disk.is_locked("lock")
    with pytest.raises(StoreInUse):
        disk.lock("lock", "other")
    taken = disk.lock("lock", "other", takeover=True)
    scheduler.run(lambda: False, 20.0)
    assert seen == [True]
    assert not taken.taken_over
    taken.release()
    assert not disk.is_locked("lock")
    scheduler.kill(process)


def test_damage_is_on_the_disk_itself(disk: SimulatedDisk) -> None:
    disk.create("folder/a", b"12345678")
    disk.create("folder/b", b"other")
    disk.damage("flip", "folder/a", "", random.Random(1))
    assert images(disk, "folder/a") == {disk.peek("folder/a")}
    assert disk.peek("folder/a") != b"12345678"
    disk.damage("swap", "folder/a", "folder/b", random.Random(1))
    assert disk.peek("folder/a") == b"other"
    disk.damage("delete", "folder/a", "", random.Random(1))
    assert images(disk, "folder/a") == {None}
