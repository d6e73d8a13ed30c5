"""Folders: whole deliveries or nothing, whoever dies, and whoever else delivers."""

from __future__ import annotations

import csv
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipstream.core.errors import BadSinkOption, DamagedStamp, TargetColumns, TargetFenced, TargetNotOurs
from slipstream.sinks import Delivery, to_folder
from slipstream.sinks.base import Replace
from slipstream.sinks.folder import FolderSink, FolderTarget
from slipstream.testing.targets import LOG, SCHEMA, Row, append, only_stamped, replace, stamped


def opened(path: Path, mode: str = "changes", format: str = "parquet") -> FolderTarget:  # noqa: A002
    return to_folder(path, format, mode).opened("sink")  # type: ignore[arg-type]


def rows_of(path: Path) -> Counter[Row]:
    """What anybody sees who reads the folder."""
    found: Counter[Row] = Counter()
    for each in sorted(path.glob("*.parquet")):
        if each.name[0] not in "._":
            columns = pq.read_table(each).columns
            found.update(zip(*(column.to_pylist() for column in columns), strict=True))
    return found


def logged(upto: int) -> Counter[Row]:
    return Counter((n, str(n), n, 1) for n in range(1, upto + 1))


def deliver(target: FolderTarget, epoch: int, incarnation: int = 1) -> None:
    """Epoch n brings the row (n, n)."""
    before, after = target.stamp(), stamped(epoch, incarnation)
    if before is None:
        target.deliver(replace(None, after, [(n, str(n), n, 1) for n in range(1, epoch + 1)], LOG))
    else:
        rows = [(n, str(n), n, 1) for n in range(before.epoch + 1, epoch + 1)]
        target.deliver(append(before, after, rows))


def test_a_log_grows_by_a_file_a_delivery(tmp_path: Path) -> None:
    target = opened(tmp_path / "out")
    for epoch in (2, 3, 7):
        deliver(target, epoch)
        assert rows_of(tmp_path / "out") == logged(epoch)
    assert opened(tmp_path / "out").stamp() == stamped(7)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 3


def test_what_is_replaced_is_one_file(tmp_path: Path) -> None:
    target = opened(tmp_path / "out", "replace")
    target.deliver(replace(None, stamped(1), [(1, "a")]))
    target.deliver(replace(stamped(1), stamped(2), [(1, "b"), (2, "c")]))
    assert rows_of(tmp_path / "out") == Counter([(1, "b"), (2, "c")])
    assert [each.name for each in (tmp_path / "out").glob("*.*")] == ["rows.parquet"]


def test_a_stamp_alone_may_be_delivered(tmp_path: Path) -> None:
    target = opened(tmp_path / "out")
    deliver(target, 2)
    target.deliver(only_stamped(stamped(2), stamped(5), LOG))
    assert (target.stamp(), rows_of(tmp_path / "out")) == (stamped(5), logged(2))


def test_a_reset_leaves_nothing_of_what_was(tmp_path: Path) -> None:
    target = opened(tmp_path / "out")
    for epoch in (2, 3):
        deliver(target, epoch)
    target.deliver(replace(stamped(3), stamped(3, 2), [(9, "x", 3, 1)], LOG))
    assert rows_of(tmp_path / "out") == Counter([(9, "x", 3, 1)])


def test_two_at_once_and_one_of_them_gets_it(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "out"), opened(tmp_path / "out")
    deliver(one, 1)
    mine, theirs = append(stamped(1), stamped(2), [(2, "2", 2, 1)]), None

    def meanwhile() -> Iterator[pa.Table]:
        deliver(other, 2, 2)
        yield pa.table({name: [1] for name in LOG.names}).cast(LOG)

    theirs = Delivery(stamped(1), stamped(2), LOG, Replace(meanwhile, True))
    with pytest.raises(TargetFenced):
        one.deliver(theirs)
    assert (rows_of(tmp_path / "out"), one.stamp()) == (logged(2), stamped(2, 2))
    with pytest.raises(TargetFenced, match="epoch 2 by incarnation 2"):
        one.deliver(mine)


def test_one_that_slept_through_many_deliveries_does_no_harm(tmp_path: Path) -> None:
    sleeper, other = opened(tmp_path / "out"), opened(tmp_path / "out")
    deliver(sleeper, 1)

    def meanwhile() -> Iterator[pa.Table]:
        for epoch in range(2, 9):
            deliver(other, epoch, 2)
        yield pa.table({name: [1] for name in LOG.names}).cast(LOG)

    with pytest.raises(TargetFenced, match="long ago"):
        sleeper.deliver(Delivery(stamped(1), stamped(2), LOG, Replace(meanwhile, True)))
    assert (rows_of(tmp_path / "out"), other.stamp()) == (logged(8), stamped(8, 2))


@pytest.mark.parametrize("mode", ["changes", "replace"])
def test_whoever_dies_at_any_step_leaves_all_or_nothing(tmp_path: Path, mode: str) -> None:
    """A child of this process dies at its n-th step; then somebody else goes on."""
    seen = set()
    for step in range(1, 200):
        out = tmp_path / f"{mode}-{step}"
        target = opened(out, mode)
        for epoch in (1, 2):
            _play(target, mode, epoch)
        if not _died(out, mode, step):
            break
        again = opened(out, mode)
        stamp = again.stamp()
        assert stamp in (stamped(2), stamped(3))
        seen.add(stamp.epoch)
        assert rows_of(out) == _expected(mode, stamp.epoch)
        if stamp.epoch == 2:
            _play(again, mode, 3)
        _play(again, mode, 4)
        assert rows_of(out) == _expected(mode, 4)
        assert not list((out / "_slipstream").glob("*.parquet"))
    assert seen == {2, 3}
    assert step > 8


def _play(target: FolderTarget, mode: str, epoch: int) -> None:
    if mode == "changes":
        deliver(target, epoch)
    else:
        target.deliver(replace(target.stamp(), stamped(epoch), [(n, str(epoch)) for n in range(epoch)]))


def _expected(mode: str, epoch: int) -> Counter[Row]:
    return logged(epoch) if mode == "changes" else Counter((n, str(epoch)) for n in range(epoch))


def _died(out: Path, mode: str, step: int) -> bool:
    """Deliver epoch 3 in a child that dies before its n-th call that changes something; whether it came to that."""
    child = os.fork()
    if child == 0:
        left = [step]

        def dying(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*given: Any, **named: Any) -> Any:
                left[0] -= 1
                if not left[0]:
                    os._exit(9)
                return call(*given, **named)

            return called

        for name in ("link", "fsync"):
            setattr(os, name, dying(getattr(os, name)))
        for name in ("unlink", "rename", "mkdir", "open"):
            setattr(Path, name, dying(getattr(Path, name)))
        try:
            _play(opened(out, mode), mode, 3)
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def test_rows_that_cannot_be_read_leave_nothing(tmp_path: Path) -> None:
    target = opened(tmp_path / "out")
    deliver(target, 1)

    def fails() -> Iterator[pa.Table]:
        yield pa.table({name: [1] for name in LOG.names}).cast(LOG)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        target.deliver(Delivery(stamped(1), stamped(2), LOG, Replace(fails, True)))
    assert (target.stamp(), rows_of(tmp_path / "out")) == (stamped(1), logged(1))


def test_text_formats_hold_the_rows(tmp_path: Path) -> None:
    rows = [(1, 'a "b", c\nd', 1, 1), (2, None, 1, 1), (3, "", 1, -1), (4, "ü", 1, 1)]
    opened(tmp_path / "j", format="json").deliver(replace(None, stamped(1), rows, LOG))
    lines = next((tmp_path / "j").glob("*.json")).read_text().splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == rows
    opened(tmp_path / "c", format="csv").deliver(replace(None, stamped(1), rows, LOG))
    with next((tmp_path / "c").glob("*.csv")).open(newline="") as file:
        read = list(csv.reader(file))
    assert read[0] == LOG.names
    assert [each[1] for each in read[1:]] == ['a "b", c\nd', "", "", "ü"]


def test_a_log_whose_columns_become_others_is_refused(tmp_path: Path) -> None:
    target = opened(tmp_path / "out")
    deliver(target, 1)
    wider = LOG.insert(2, pa.field("w", pa.int64()))
    with pytest.raises(TargetColumns, match="w: int64"):
        target.deliver(append(stamped(1), stamped(2), [(1, "a", 5, 2, 1)], wider))


def test_a_folder_with_files_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_text("precious")
    with pytest.raises(TargetNotOurs, match=r"mine.parquet"):
        opened(tmp_path).stamp()
    with pytest.raises(TargetNotOurs):
        opened(tmp_path).deliver(replace(None, stamped(1), [], SCHEMA))
    assert (tmp_path / "mine.parquet").read_text() == "precious"
    with pytest.raises(TargetNotOurs, match="no folder"):
        opened(tmp_path / "mine.parquet").stamp()


@pytest.mark.parametrize(
    "raw", [b"", b"\0" * 40, b"{}", b'{"stamp": "{}", "moved": null, "alone": true, "columns": []}']
)
def test_a_damaged_manifest_is_told(tmp_path: Path, raw: bytes) -> None:
    target = opened(tmp_path / "out")
    deliver(target, 1)
    next((tmp_path / "out" / "_slipstream").glob("*.json")).write_bytes(raw)
    with pytest.raises(DamagedStamp):
        target.stamp()


def test_a_manifest_names_no_file_outside(tmp_path: Path) -> None:
    target = opened(tmp_path / "out")
    deliver(target, 1)
    manifest = next((tmp_path / "out" / "_slipstream").glob("*.json"))
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**said, "moved": ["x", "../../y"]}))
    with pytest.raises(DamagedStamp):
        target.stamp()


def replace_key(path: str) -> None:
    FolderSink(mode="upsert", key=("k",), path=Path(path))


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadSinkOption, match="to_delta"):
        replace_key("out")
    with pytest.raises(BadSinkOption, match="'parquet', 'json', 'csv'"):
        to_folder("out", "xml")  # type: ignore[arg-type]
    with pytest.raises(BadSinkOption, match="no local folder"):
        to_folder("s3://bucket/out")


def test_random_deliveries_of_two_engines(tmp_path: Path) -> None:
    for seed in range(10):
        choose, out = random.Random(seed), tmp_path / str(seed)
        engines = [opened(out), opened(out)]
        epoch = 0
        for _ in range(30):
            epoch += choose.randint(0, 2)
            if epoch:
                deliver(choose.choice(engines), epoch, 1)
                assert rows_of(out) == logged(epoch)
