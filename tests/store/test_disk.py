"""A store's folder on a disk of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.errors import StoreVanished
from slipstream.store.disk import Disk, LocalDisk
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
