"""What the kernel says was moved in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.sources.listing import Listing
from slipstream.sources.watch import Watch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def test_a_name_that_is_renamed_into_the_folder_arrives_once(folder: Path) -> None:
    watch = Watch(folder)
    (folder / ".a").write_text("1")
    assert watch.arrived() == set(), "written in place is not moved"
    (folder / ".a").rename(folder / "a")
    assert watch.arrived() == {"a"}
    assert watch.arrived() == set()
    watch.close()
    assert watch.arrived() == set()


def test_a_folder_that_cannot_be_watched_tells_nothing(folder: Path) -> None:
    assert Watch(folder / "absent").arrived() == set()


def test_a_file_renamed_in_the_same_tick_as_its_last_write_is_ready_at_once(folder: Path) -> None:
    looked = Listing(folder, "*", 60.0, ManualClock(0), lambda was, now: ValueError(was.name))
    looked.look()
    for attempt in range(200):  # until the two times of one file are equal, as they mostly are
        temporary, name = folder / ".t", f"f{attempt}"
        temporary.write_text("1")
        temporary.rename(folder / name)
        details = (folder / name).stat()
        if details.st_ctime_ns == details.st_mtime_ns:
            break
    else:
        pytest.skip("this file system keeps times too fine for the case to arise")
    looked.look()
    assert name in [file.name for file in looked.ready()]
    looked.close()
