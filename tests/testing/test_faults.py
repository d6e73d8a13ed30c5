"""Every scripted fault does what its name says, through the interface that replicas use."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from slipstream.testing.faults import Faults, FaultyHandler, faulty, wrap

BODY = b"0123456789" * 100


class Storage:
    """A faulty folder with the operations of a replica."""

    def __init__(self, folder: Path, faults: Faults) -> None:
        self.folder = str(folder)
        self.handler = FaultyHandler(pafs.LocalFileSystem(), faults)
        self.files = pafs.PyFileSystem(self.handler)

    def put(self, name: str, body: bytes = BODY) -> None:
        with self.files.open_output_stream(f"{self.folder}/{name}") as stream:
            stream.write(body[:10])
            stream.write(body[10:])

    def get(self, name: str) -> bytes:
        with self.files.open_input_stream(f"{self.folder}/{name}") as stream:
            return bytes(stream.read())

    def names(self) -> set[str]:
        return {each.base_name for each in self.files.get_file_info(pafs.FileSelector(self.folder))}


@pytest.fixture
def storage(tmp_path: Path) -> Callable[..., Storage]:
    return lambda **faults: Storage(tmp_path, Faults(**faults))


def test_without_faults_it_is_the_filesystem_inside(storage: Any) -> None:
    files = storage()
    files.put("a")
    files.put("b", b"")
    assert (files.get("a"), files.get("b"), files.names()) == (BODY, b"", {"a", "b"})
    files.files.create_dir(f"{files.folder}/c")
    files.files.move(f"{files.folder}/a", f"{files.folder}/c/a")
    files.files.copy_file(f"{files.folder}/c/a", f"{files.folder}/d")
    files.files.delete_dir(f"{files.folder}/c")
    files.files.delete_file(f"{files.folder}/b")
    assert files.names() == {"d"}
    with files.files.open_input_file(f"{files.folder}/d") as random:
        assert (random.size(), random.read_at(5, 3)) == (1000, b"34567")
    kinds = [kind for kind, _ in files.handler.operations]
    assert kinds == [
        "write",
        "write",
        "read",
        "read",
        "list",
        "mkdir",
        "move",
        "copy",
        "delete",
        "delete",
        "list",
        "read",
    ]
    with pytest.raises(FileNotFoundError):
        files.get("nothing")


def test_an_operation_fails_and_does_nothing(storage: Any) -> None:
    files = storage(fail_at=(2,))
    files.put("a")
    with pytest.raises(OSError, match="scripted fault: operation 2 fails") as failed:
        files.put("b")
    assert failed.value.errno == errno.EIO
    files.put("c")
    assert files.names() == {"a", "c"}


def test_every_nth_operation_fails(storage: Any) -> None:
    files = storage(fail_every=2)
    files.put("a")
    with pytest.raises(OSError, match="operation 2 fails"):
        files.get("a")
    assert files.get("a") == BODY


def test_an_answer_that_does_not_come_leaves_the_work_done(storage: Any) -> None:
    files = storage(timeout_at=(1,))
    with pytest.raises(TimeoutError, match="no answer to operation 1"):
        files.put("a")
    assert files.get("a") == BODY


def test_the_connection_is_lost_for_a_stretch_or_for_good(storage: Any) -> None:
    files = storage(lost=(2, 3))
    files.put("a")
    for _ in range(2):
        with pytest.raises(ConnectionResetError, match="no connection"):
            files.get("a")
    assert files.get("a") == BODY
    files = storage(lost=(1,))
    for _ in range(5):
        with pytest.raises(ConnectionResetError):
            files.names()


def test_a_write_that_breaks_off_leaves_half_an_object(storage: Any) -> None:
    files = storage(torn_at=(1,))
    with pytest.raises(ConnectionResetError, match="operation 1 breaks off"):
        files.put("a")
    assert files.get("a") == BODY[:500]


def test_a_full_disk_takes_nothing_more(storage: Any) -> None:
    files = storage(full_after=1500)
    files.put("a")
    with pytest.raises(OSError, match="No space left on device") as full:
        files.put("b")
    assert full.value.errno == errno.ENOSPC
    assert files.names() == {"a"}


def test_short_reads_are_put_together_by_who_reads_to_the_end(storage: Any) -> None:
    files = storage(short=7)
    files.put("a")
    assert files.get("a") == BODY
    with files.files.open_input_stream(f"{files.folder}/a") as stream:
        assert len(stream.read(100)) == 7


def test_an_object_may_come_without_its_end(storage: Any) -> None:
    files = storage(cut_at=(2,))
    files.put("a")
    assert files.get("a") == BODY[:500]
    assert files.get("a") == BODY


def test_a_listing_may_be_stale(storage: Any) -> None:
    files = storage(stale=2)
    files.put("a")
    assert files.names() == set()
    assert files.get("a") == BODY
    assert files.names() == {"a"}


def test_a_delay_comes_before_every_operation(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("slipstream.testing.faults.time.sleep", slept.append)
    files = storage(delay=0.25)
    files.put("a")
    files.get("a")
    files.names()
    assert slept == [0.25] * 3


def test_faults_are_read_from_a_query(tmp_path: Path) -> None:
    options = {"delay": "0.2", "fail_at": "3,7", "full_after": "100", "lost": "5"}
    assert Faults.parse(options) == Faults(delay=0.2, fail_at=(3, 7), full_after=100, lost=(5,))
    local = pafs.LocalFileSystem()
    assert wrap(options, local) == faulty(local, Faults.parse(options))
    assert wrap(options, local).type_name == "py::faulty+local"
    with pytest.raises(ValueError, match="there is no fault called dealy; there are: delay, fail_at, "):
        wrap({"dealy": "1"}, local)
