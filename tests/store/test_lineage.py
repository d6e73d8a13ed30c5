"""Lineage over several logs: one history, whatever superseded processes wrote and whatever was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.core.errors import DamagedLineage
from slipstream.store.disk import LocalDisk
from slipstream.store.history import Base, history_of
from slipstream.store.layout import FOLDERS, lineage_log
from slipstream.store.lineage import LineageWriter, computed_frontier, read_lineage, write_base
from slipstream.store.records import Began, Computed, Cut, Dropped, Record, decode_record, encode_record
from slipstream.testing.copies import records_of


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    made = LocalDisk(tmp_path / "store")
    for folder in ("", *FOLDERS):
        made.make_folder(folder)
    return made


def cut(epoch: int) -> Cut:
    return Cut(epoch, float(epoch), {"orders": {"files": [f"{epoch}.json"]}})


def computed(epoch: int, safe: int = 0) -> Computed:
    return Computed(epoch, epoch + 0.5, 0.1, 10, layers={"traces/v/1-view": f"{epoch:016x}"}, safe=safe)


def begun(disk: LocalDisk, incarnation: int, after: int, upto: int | None = None) -> LineageWriter:
    known = read_lineage(disk)
    writer = LineageWriter(disk, incarnation)
    follows = (known.incarnation, known.digest) if known.incarnation else None
    writer.began(Began(incarnation, after, after + 1 if upto is None else upto, "id", follows))
    return writer


def epochs(writer: LineageWriter, first: int, last: int) -> None:
    for epoch in range(first, last + 1):
        writer.append(cut(epoch))
        writer.append(computed(epoch))


@pytest.mark.parametrize(
    "record",
    [
        Began(2, 6, 9, "id", (1, "ab")),
        Began(1, 0, 1, "id"),
        Began(5, 3, 3, "id", (1, "ab"), (2, 4)),
        Cut(7, 1.0, {"a": {"files": []}}, {"w": 3}),
        Computed(7, 1.0, 0.5, 3, {"a": 1}, {"v": 2}, {"w": 3}, {"traces/v/1": "ab"}, 5),
        Dropped(7),
    ],
)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_something_else_is_no_record() -> None:
    with pytest.raises(DamagedLineage, match="no record of lineage"):
        decode_record({"cut": "seven"})


def test_one_history_is_read_from_several_logs(disk: LocalDisk) -> None:
    epochs(begun(disk, 1, 0), 1, 3)
    second = begun(disk, 2, 3)
    epochs(second, 4, 5)
    second.append(cut(6))
    found = read_lineage(disk)
    assert found.history.frontier == 5
    assert [each.epoch for each in found.history.pending] == [6]
    assert (found.incarnation, found.torn, found.broken) == (2, None, None)
    assert computed_frontier(disk) == 5
    assert [record.epoch for record in records_of(disk) if isinstance(record, Computed)] == [
        1,
        2,
        3,
        4,
        5,
    ]


def test_what_a_superseded_process_appends_counts_for_nobody(disk: LocalDisk) -> None:
    first = begun(disk, 1, 0)
    epochs(first, 1, 3)
    second = begun(disk, 2, 3)
    epochs(first, 4, 9)
    epochs(second, 4, 4)
    assert read_lineage(disk).history.frontier == 4
    assert read_lineage(disk).broken is None


def test_cuts_that_are_kept_are_pending_as_they_were(disk: LocalDisk) -> None:
    epochs(begun(disk, 1, 0), 1, 5)
    begun(disk, 2, 2, upto=5)
    found = read_lineage(disk).history
    assert (found.frontier, [each.epoch for each in found.pending]) == (2, [3, 4, 5])
    begun(disk, 3, 2, upto=2)
    assert read_lineage(disk).history.pending == ()


def test_a_log_that_is_gone_is_a_hole(disk: LocalDisk) -> None:
    for incarnation, last in ((1, 2), (2, 4), (3, 6)):
        epochs(begun(disk, incarnation, last - 2), last - 1, last)
    disk.remove(lineage_log(2))
    found = read_lineage(disk)
    assert found.broken is not None
    assert "lineage/2.log" in found.broken


def test_an_empty_first_log_is_a_hole(disk: LocalDisk) -> None:
    epochs(begun(disk, 1, 0), 1, 2)
    epochs(begun(disk, 2, 2), 3, 4)
    disk.truncate(lineage_log(1), 0)
    found = read_lineage(disk)
    assert found.broken is not None
    assert found.history.frontier == 0


def test_a_torn_tail_ends_the_history_before_it(disk: LocalDisk) -> None:
    epochs(begun(disk, 1, 0), 1, 3)
    disk.truncate(lineage_log(1), disk.size(lineage_log(1)) - 5)
    found = read_lineage(disk)
    assert (found.history.frontier, found.broken) == (2, None)
    assert found.torn is not None
    assert [each.epoch for each in found.history.pending] == [3]
    assert computed_frontier(disk) == 2


def test_epochs_that_do_not_follow_each_other_are_refused() -> None:
    with pytest.raises(DamagedLineage, match="epoch 2 is computed"):
        history_of([cut(1), Computed(2, 0.0, 0.0, 0)])
    with pytest.raises(DamagedLineage, match="epoch 3 is cut"):
        history_of([cut(1), computed(1), cut(3)])


def test_a_base_saves_reading_and_changes_nothing(disk: LocalDisk) -> None:
    writer = begun(disk, 1, 0)
    epochs(writer, 1, 4)
    end, digest = writer.end
    base = Base(epoch=4, clock=4.5, log=1, end=end, digest=digest, rows=40)
    epochs(writer, 5, 6)
    write_base(disk, base)
    found = read_lineage(disk)
    assert found.history.base == base
    assert (found.history.frontier, len(found.history.computed)) == (6, 2)
    assert read_lineage(disk, whole=True).history.frontier == 6
    epochs(begun(disk, 2, 6), 7, 7)
    assert read_lineage(disk).history.base == base
    assert read_lineage(disk).history.frontier == 7


def test_a_base_that_the_chain_does_not_agree_with_is_not_believed(disk: LocalDisk) -> None:
    writer = begun(disk, 1, 0)
    epochs(writer, 1, 4)
    write_base(disk, Base(epoch=4, log=1, end=writer.end[0], digest="f" * 16))
    epochs(writer, 5, 5)
    found = read_lineage(disk)
    assert found.history.base == Base()
    assert (found.history.frontier, found.broken) == (5, None)


def test_going_back_behind_a_base_reads_everything(disk: LocalDisk) -> None:
    writer = begun(disk, 1, 0)
    epochs(writer, 1, 4)
    write_base(disk, Base(epoch=4, log=1, end=writer.end[0], digest=writer.end[1]))
    begun(disk, 2, 2)
    assert read_lineage(disk).history.frontier == 2


def test_a_log_in_the_place_of_another_is_none(disk: LocalDisk) -> None:
    epochs(begun(disk, 1, 0), 1, 3)
    epochs(begun(disk, 2, 3), 4, 5)
    disk.replace(lineage_log(2), disk.read(lineage_log(1)), flushed=True)
    found = read_lineage(disk)
    assert found.broken == f"{lineage_log(2)}: it does not begin with the record of its beginning"


def test_that_the_next_epoch_failed_before_is_known_to_a_successor(disk: LocalDisk) -> None:
    writer = begun(disk, 1, 0)
    epochs(writer, 1, 1)
    writer.append(cut(2))
    writer.append(Dropped(2))
    begun(disk, 2, 1, upto=1)
    found = read_lineage(disk).history
    assert (found.frontier, found.pending, found.failing) == (1, (), True)
