"""Files come under their names whole, and what dead writers leave is cleared away, never what is in use."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from slipstream.trace.placing import clear_abandoned, placed


def temporaries(folder: Path) -> list[Path]:
    return list(folder.glob(".*.tmp"))


def test_a_file_stands_under_its_name_when_it_is_complete(tmp_path: Path) -> None:
    with placed(tmp_path / "file") as file:
        file.write(b"one")
        assert not (tmp_path / "file").exists()
    assert (tmp_path / "file").read_bytes() == b"one"
    assert temporaries(tmp_path) == []


def test_a_file_that_is_not_completed_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def break_off() -> None:
        with placed(tmp_path / "file") as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert temporaries(tmp_path) == []


def test_what_a_dead_writer_left_goes_and_what_is_written_stays(tmp_path: Path) -> None:
    left = tmp_path / ".file.0123456789abcdef.tmp"
    left.write_bytes(b"half")
    other = tmp_path / ".hidden"
    other.touch()
    with placed(tmp_path / "file") as file:
        file.write(b"whole")
        assert clear_abandoned(tmp_path, lambda: True) == 1
        assert len(temporaries(tmp_path)) == 1
    assert not left.exists()
    assert other.exists()
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_nothing_is_cleared_once_it_may_not_be(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f".file.{number}.tmp").touch()
    answers = iter([True, False, True])
    assert clear_abandoned(tmp_path, lambda: next(answers)) == 1
    assert len(temporaries(tmp_path)) == 2


def test_a_writer_that_is_overtaken_before_it_holds_its_file_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    cleared: list[int] = []

    def overtaken(handle: Any, operation: int) -> None:
        if not cleared:
            cleared.append(0)
            cleared.append(clear_abandoned(tmp_path, lambda: True))
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    with placed(tmp_path / "file") as file:
        file.write(b"all the same")
    assert cleared == [0, 1]
    assert (tmp_path / "file").read_bytes() == b"all the same"


def test_a_flushed_file_is_on_disk_before_its_name_and_then_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, os.rename

    def flushing(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").resolve()
        events.append(f"flush {'folder' if path.is_dir() else path.read_bytes().decode()}")
        fsync(handle)

    def renaming(old: str, new: Path) -> None:
        events.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "rename", renaming)
    with placed(tmp_path / "file", flushed=True) as file:
        file.write(b"bytes")
    with placed(tmp_path / "other") as file:
        file.write(b"bytes")
    assert events == ["flush bytes", "rename", "flush folder", "rename"]
