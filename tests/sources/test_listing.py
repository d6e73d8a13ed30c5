"""Which files are new, complete, and in what order. No Spark here."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from slipstream.core.clock import ManualClock
from slipstream.sources import listing
from slipstream.sources.listing import Listing
from slipstream.sources.taken import Seen, Taken


class Changed(Exception):
    pass


def make(folder: Path, clock: ManualClock, pattern: str = "*") -> Listing:
    return Listing(folder, pattern, 1.0, clock, lambda was, now: Changed(was.name))


def names(looked: Listing) -> list[str]:
    looked.look()
    return [file.name for file in looked.ready()]


def in_place(path: Path, text: str) -> float:
    path.write_text(text)
    return path.stat().st_mtime


def renamed(path: Path, text: str, second: float = 1_700_000_000) -> None:
    outside = path.parent.parent / f"{path.name}.outside"
    outside.write_text(text)
    os.utime(outside, (second, second))
    outside.rename(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def test_a_renamed_file_is_ready_at_once(folder: Path) -> None:
    renamed(folder / "a", "1")
    assert names(make(folder, ManualClock(0))) == ["a"]


def test_a_file_written_in_place_waits_until_it_settles(folder: Path) -> None:
    written = in_place(folder / "a", "1")
    clock = ManualClock(written)
    looked = make(folder, clock)
    assert names(looked) == []
    assert looked.size() == 1, "it counts as backlog all the same"
    clock.advance(0.5)
    assert names(looked) == []
    clock.advance(0.6)
    assert names(looked) == ["a"]


def test_where_the_order_counts_no_file_overtakes_one_that_is_still_being_written(folder: Path) -> None:
    written = in_place(folder / "b", "1")
    renamed(folder / "a", "1", second=int(written) - 5)
    time.sleep(0.05)  # file systems keep times in coarse steps
    renamed(folder / "c", "1", second=written + 0.01)
    (folder / "empty").touch()
    clock = ManualClock(written)
    ordered = Listing(folder, "*", 1.0, clock, lambda was, now: Changed(was.name), in_order=True)
    assert names(ordered) == ["a"]
    assert names(make(folder, clock)) == ["a", "c"], "where it does not count, nobody waits"
    clock.advance(1.1)
    assert names(ordered) == ["a", "b", "c"]


def test_a_file_that_grew_since_the_last_look_waits_on(folder: Path) -> None:
    written = in_place(folder / "a", "1")
    clock = ManualClock(written + 2)
    looked = make(folder, clock)
    assert names(looked) == [], "seen for the first time"
    in_place(folder / "a", "12")
    assert names(looked) == []
    assert names(looked) == ["a"]


def test_what_is_there_and_not_finished_is_settling(folder: Path) -> None:
    written = in_place(folder / "a", "1")
    (folder / "empty").touch()
    (folder / "hidden.tmp").write_text("1")
    clock = ManualClock(written)
    looked = make(folder, clock)
    assert names(looked) == []
    assert looked.settling() == {"a"}
    clock.advance(1.1)
    looked.look()
    assert looked.settling() == {"a"}, "it can be taken, and was not"
    looked.consume(list(looked.ready()))
    assert looked.settling() == set()


def test_an_old_file_is_ready_at_the_first_look(folder: Path) -> None:
    written = in_place(folder / "a", "1")
    assert names(make(folder, ManualClock(written + 3600))) == ["a"]


def test_an_empty_file_is_never_ready(folder: Path) -> None:
    renamed(folder / "a", "")
    assert names(make(folder, ManualClock(time.time() + 3600))) == []


def test_hidden_and_unfinished_names_and_folders_are_left_alone(folder: Path) -> None:
    for name in (".a", "_b", "c.tmp", "d.crc", "e.inprogress", "f~", "g.json", "h.txt"):
        renamed(folder / name, "1")
    (folder / "sub.json").mkdir()
    assert names(make(folder, ManualClock(), "*.json")) == ["g.json"]


def test_order_is_by_time_then_name(folder: Path) -> None:
    renamed(folder / "b", "1", 1_700_000_001)
    renamed(folder / "c", "1", 1_700_000_000)
    renamed(folder / "a", "1", 1_700_000_001)
    assert names(make(folder, ManualClock())) == ["c", "a", "b"]


def test_a_folder_may_appear_later(tmp_path: Path) -> None:
    looked = make(tmp_path / "later", ManualClock())
    assert names(looked) == []
    (tmp_path / "later").mkdir()
    renamed(tmp_path / "later" / "a", "1")
    assert names(looked) == ["a"]


def test_what_was_consumed_is_not_offered_again(folder: Path) -> None:
    renamed(folder / "a", "1")
    looked = make(folder, ManualClock())
    looked.look()
    looked.consume(list(looked.ready()))
    renamed(folder / "b", "1")
    assert names(looked) == ["b"]
    assert looked.size() == 1


def test_a_consumed_file_may_be_removed(folder: Path) -> None:
    renamed(folder / "a", "1")
    looked = make(folder, ManualClock())
    looked.look()
    looked.consume(list(looked.ready()))
    (folder / "a").unlink()
    assert names(looked) == []


def test_a_consumed_file_that_is_replaced_is_noticed(folder: Path) -> None:
    renamed(folder / "a", "1")
    looked = make(folder, ManualClock())
    looked.look()
    looked.consume(list(looked.ready()))
    renamed(folder / "a", "22")
    with pytest.raises(Changed, match="a"):
        looked.look()


def test_a_consumed_file_that_is_written_to_is_noticed(folder: Path) -> None:
    renamed(folder / "a", "1")
    looked = make(folder, ManualClock())
    looked.look()
    looked.consume(list(looked.ready()))
    in_place(folder / "a", "22")
    with pytest.raises(Changed, match="a"):
        looked.look()


def test_the_audit_comes_round_to_every_consumed_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "AUDIT", 2)
    for name in "abcde":
        renamed(folder / name, "1")
    looked = make(folder, ManualClock())
    looked.look()
    looked.consume(list(looked.ready()))
    looked.look()
    in_place(folder / "b", "22")
    looked.look()
    looked.look()
    with pytest.raises(Changed, match="b"):
        looked.look()


def test_a_ready_file_that_changes_before_it_is_taken_waits_again(folder: Path) -> None:
    renamed(folder / "a", "1")
    looked = make(folder, ManualClock())
    looked.look()
    in_place(folder / "a", "22")
    assert [file.name for file in looked.ready()] == []
    assert names(looked) == []


def test_a_quiet_folder_is_not_scanned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed(folder / "a", "1")
    long_ago = time.time() - 100
    os.utime(folder, (long_ago, long_ago))
    looked = make(folder, ManualClock())
    scans: list[Path] = []
    real = os.scandir

    def counted(path: Path) -> Any:
        scans.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", counted)
    assert names(looked) == ["a"]
    assert names(looked) == ["a"]
    assert len(scans) == 1
    renamed(folder / "b", "1")
    assert names(looked) == ["a", "b"]


def test_a_folder_that_changed_just_now_is_scanned_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed(folder / "a", "1")
    looked = make(folder, ManualClock())
    looked.look()
    stamp = folder.stat()
    renamed(folder / "b", "1")
    os.utime(folder, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert names(looked) == ["a", "b"], "both changes fell into one step of the file system's clock"


def test_a_restart_verifies_every_consumed_file_once(folder: Path) -> None:
    renamed(folder / "a", "1")
    looked = make(folder, ManualClock())
    looked.consume([Seen("a", 99, 0)])
    with pytest.raises(Changed, match="a"):
        looked.look()


def long_ago(folder: Path, *names: str) -> Taken:
    """Files of the folder that were taken long ago."""
    home = folder.parent / "store"
    home.mkdir(exist_ok=True)
    details = {name: (folder / name).stat() for name in names}
    return Taken("s", home).with_more(
        [Seen(name, each.st_size, each.st_mtime_ns) for name, each in details.items()]
    )


def test_what_was_taken_long_ago_is_not_offered_again(folder: Path) -> None:
    for name in "abc":
        renamed(folder / name, "1")
    looked = make(folder, ManualClock())
    looked.settle(long_ago(folder, "a", "c"))
    assert names(looked) == ["b"]
    assert looked.size() == 1
    renamed(folder / "d", "1")
    assert names(looked) == ["b", "d"]


def test_a_restart_verifies_what_was_taken_long_ago(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "AUDIT", 0)
    renamed(folder / "a", "1")
    looked = make(folder, ManualClock())
    looked.settle(long_ago(folder, "a"))
    renamed(folder / "a", "22")
    with pytest.raises(Changed, match="a"):
        looked.look()


def test_the_audit_covers_what_was_taken_long_ago(folder: Path) -> None:
    renamed(folder / "a", "1")
    looked = make(folder, ManualClock())
    looked.settle(long_ago(folder, "a"))
    looked.look()
    in_place(folder / "a", "22")
    with pytest.raises(Changed, match="a"):
        looked.look()


def test_what_left_the_folder_long_ago_is_not_in_memory_and_is_known_when_it_comes_back(folder: Path) -> None:
    renamed(folder / "a", "1")
    renamed(folder / "b", "1")
    looked = make(folder, ManualClock())
    looked.look()
    taken = list(looked.ready())
    looked.consume(taken)
    looked.settle(long_ago(folder, "a", "b"), taken)
    (folder / "a").unlink()
    looked.look()
    assert set(looked._consumed) == {"b"}
    renamed(folder / "a", "1")
    assert names(looked) == []
    assert set(looked._consumed) == {"a", "b"}
