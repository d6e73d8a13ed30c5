"""A store's folder on a disk of this machine."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.errors import (
    SlipstreamError,
    StoreFull,
    StoreInUse,
    StoreIsAFile,
    StoreLinkedAway,
    StoreVanished,
)
from slipstream.store.disk import Disk, LocalDisk, WritableDisk
from slipstream.testing.damage import unflushed
from slipstream.testing.simulation.disk import SimulatedDisk
from slipstream.testing.simulation.scheduler import Scheduler


@pytest.fixture(params=["local", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """One on which there is nothing yet."""
    return LocalDisk(tmp_path / "deep" / "store") if request.param == "local" else SimulatedDisk(Scheduler(1))


def test_a_folder_is_made_with_those_above_it_once(disk: Disk) -> None:
    for folder in ("", "", "traces/totals/1-state", "traces/totals/1-state", "traces/totals/2-view"):
        disk.make_folder(folder)
    assert disk.list("traces/totals") == ["1-state", "2-view"]


def test_a_folder_of_a_store_that_is_gone_is_not_made(disk: Disk) -> None:
    with pytest.raises(StoreVanished):
        disk.make_folder("traces/totals/1-state")
    with pytest.raises(StoreVanished):
        disk.flush_folder("")


def test_a_file_in_the_place_of_a_folder_is_moved_aside(disk: Disk) -> None:
    disk.make_folder("")
    disk.create("traces", b"no folder")
    assert disk.list("traces") == []
    with pytest.raises(FileNotFoundError):
        disk.read("traces/totals")
    disk.make_folder("traces/totals")
    assert disk.list("traces") == ["totals"]


@pytest.mark.parametrize("takeover", [False, True])
def test_a_folder_in_the_place_of_a_lock_is_nobodys(tmp_path: Path, takeover: bool) -> None:
    disk = LocalDisk(tmp_path)
    disk.make_folder("lock")
    disk.create("lock/within", b"")
    assert not disk.is_locked("lock")
    held = disk.lock("lock", "somebody", takeover=takeover)
    assert (disk.is_locked("lock"), held.taken_over) == (True, False)
    with pytest.raises(StoreInUse, match="somebody"):
        disk.lock("lock", "another")
    held.release()


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is flushed to disk from now on, by name."""
    names: list[str] = []
    monkeypatch.setattr(
        "os.fsync", lambda handle: names.append(Path(f"/proc/self/fd/{handle}").readlink().name)
    )
    return names


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc, to know what a handle is of")
def test_what_is_flushed_when(tmp_path: Path, flushed: list[str]) -> None:
    disk = LocalDisk(tmp_path / "store")
    disk.make_folder("")
    assert flushed == [tmp_path.name], "the store's own name is in the folder above it"
    disk.make_folder("folder")
    flushed.clear()
    disk.create("folder/claim", b"mine")
    assert flushed == ["claim", "folder"]
    flushed.clear()
    disk.replace("folder/claim", b"yours", flushed=True)
    assert [flushed[0].startswith(".claim."), *flushed[1:]] == [True, "folder"], "before it has its name"
    flushed.clear()
    disk.replace("folder/claim", b"theirs", flushed=False)
    disk.append("folder/claim", b"!")
    assert flushed == []
    disk.flush("folder/claim")
    disk.flush_folder("folder")
    assert flushed == ["claim", "folder"]


def test_a_store_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(StoreIsAFile, match="is a file, and a store is a folder"):
        LocalDisk(tmp_path / "store").make_folder("")


def test_a_store_behind_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("away")
    with pytest.raises(StoreLinkedAway, match="is a link to 'away', which is not there"):
        LocalDisk(tmp_path / "link").make_folder("")


def test_a_file_that_could_not_be_written_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LocalDisk(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreFull):
        disk.create("claim", b"mine")
    assert not disk.exists("claim")


NAMES = st.sampled_from(["a", "b", "folder", "folder/a", "folder/inner", "folder/inner/c", "a/below"])
CALLS = st.one_of(
    st.tuples(st.just("read"), NAMES, st.integers(0, 4), st.none() | st.integers(0, 3)),
    st.tuples(st.sampled_from(["size", "exists", "list", "remove", "make_folder", "flush_folder"]), NAMES),
    st.tuples(st.sampled_from(["create", "append"]), NAMES, st.binary(max_size=4)),
    st.tuples(st.just("replace"), NAMES, st.binary(max_size=4), st.booleans()),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 3)),
    st.tuples(st.just("list"), st.just("")),
)


def done(disk: WritableDisk, call: tuple[Any, ...]) -> Any:
    """What a call gives, or the kind of its error; what was moved aside is not looked at."""
    name, *given = call
    try:
        if name == "replace":
            *given, flushed = given
            return disk.replace(*given, flushed=flushed)
        result = getattr(disk, name)(*given)
    except (OSError, SlipstreamError) as error:
        return type(error)
    if name == "size" and done(disk, ("read", *given)) is IsADirectoryError:
        return "whatever a folder has"
    return [each for each in result if not each.startswith(".")] if isinstance(result, list) else result


@given(st.lists(CALLS, max_size=30))
@settings(max_examples=400)
def test_a_simulated_disk_does_what_a_real_one_does(calls: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder, unflushed():
        real: WritableDisk = LocalDisk(folder)
        simulated: WritableDisk = SimulatedDisk(Scheduler(1))
        simulated.make_folder("")
        for call in calls:
            assert done(simulated, call) == done(real, call), call
