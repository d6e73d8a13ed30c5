"""A Delta table as a target: all of a delivery or nothing, once, whoever else writes and whenever the engine ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

import slipstream as sl
from slipstream.core.errors import (
    BadSinkOption,
    DamagedStamp,
    KeyNotUnique,
    MissingLibrary,
    SinkStopped,
    TargetAhead,
    TargetColumns,
    TargetFenced,
    TargetNotOurs,
)
from slipstream.sinks import Append, Delivery, Mode, Replace, Stamp, Target, Upsert
from slipstream.sinks.delta import DeltaSink

APP = "5f0c6d1e8a7b4c3d9e2f1a0b5c6d7e8f"
KEYED = pa.schema([("k", pa.int64()), ("v", pa.string())])
LOG = KEYED.append(pa.field("_epoch", pa.int64())).append(pa.field("_diff", pa.int64()))
Work = Append | Replace | Upsert | None


def stamp(epoch: int, incarnation: int = 1, sink: str = "orders") -> Stamp:
    return Stamp(
        APP,
        sink,
        epoch,
        incarnation,
        f"{epoch:016x}",
        form="mode='upsert'",
        lineage=({"epoch": epoch, "cut": "é\0"},),
    )


def made(path: Path, mode: Mode = "replace", key: str | tuple[str, ...] = "k") -> DeltaSink:
    return sl.to_delta(path / "table", mode=mode, key=key if mode == "upsert" else None)


def rows(values: Mapping[int, str | None]) -> pa.Table:
    return pa.table([list(values), list(values.values())], schema=KEYED)


def whole(values: Mapping[int, str | None]) -> Replace:
    return Replace(lambda: iter([rows(values)]), beside=False)


def by_key(
    inserted: Mapping[int, str | None] | None = None,
    updated: Mapping[int, str | None] | None = None,
    deleted: tuple[int, ...] = (),
) -> Upsert:
    keys = pa.table([list(deleted)], schema=pa.schema([KEYED.field("k")]))
    return Upsert(rows(inserted or {}), rows(updated or {}), keys)


def log(*updates: tuple[int, str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(LOG.names, each, strict=True)) for each in updates], LOG)


def appended(*updates: tuple[int, str, int, int]) -> Append:
    return Append(lambda: iter([log(*updates)]))


def delivered(
    target: Target, before: Stamp | None, after: Stamp, work: Work, schema: pa.Schema = KEYED
) -> None:
    target.deliver(Delivery(before, after, schema, work))
    assert target.stamp() == after


def contents(path: Path) -> list[tuple[Any, ...]]:
    """All rows, in order."""
    found = DeltaTable(path / "table").to_pyarrow_table().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def there(path: Path) -> dict[int, str | None]:
    """The rows of a table that has a row for each key."""
    found = contents(path)
    assert len({key for key, *_ in found}) == len(found)
    return {key: value for key, value, *_ in found}


def version(path: Path) -> int:
    return DeltaTable(path / "table").version()


def files(path: Path) -> int:
    return len(DeltaTable(path / "table").file_uris())


# Modes


def test_a_log_of_changes_begins_with_all_rows_and_goes_on_with_updates(tmp_path: Path) -> None:
    target = made(tmp_path, "changes").opened("orders")
    assert target.stamp() is None
    first = Replace(lambda: iter([log((1, "a", 1, 1)), log((2, "b", 1, 2))]), beside=True)
    delivered(target, None, stamp(1), first, LOG)
    delivered(target, stamp(1), stamp(3), appended((1, "a", 2, -1), (3, "c", 3, 1)), LOG)
    assert contents(tmp_path) == [(1, "a", 1, 1), (1, "a", 2, -1), (2, "b", 1, 2), (3, "c", 3, 1)]


def test_a_log_may_begin_after_an_epoch(tmp_path: Path) -> None:
    target = made(tmp_path, "changes").opened("orders")
    delivered(target, None, stamp(7), None, LOG)
    assert contents(tmp_path) == []
    delivered(target, stamp(7), stamp(8), appended((1, "a", 8, 1)), LOG)
    assert contents(tmp_path) == [(1, "a", 8, 1)]


def test_by_key_rows_come_change_and_go_in_one_commit(tmp_path: Path) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a", 2: "b", 3: None, 4: "d"}))
    was = version(tmp_path)
    delivered(target, stamp(1), stamp(2), by_key({5: "e"}, {2: None, 3: "c"}, (1, 4)))
    assert there(tmp_path) == {2: None, 3: "c", 5: "e"}
    assert version(tmp_path) == was + 1


def test_a_row_that_became_another_and_is_not_there_comes(tmp_path: Path) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    delivered(target, stamp(1), stamp(2), by_key(updated={2: "b"}))
    assert there(tmp_path) == {1: "a", 2: "b"}


def test_new_keys_alone_are_not_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a", 9: "z"}))
    monkeypatch.delattr(DeltaTable, "merge")
    delivered(target, stamp(1), stamp(2), by_key({5: "e"}))
    assert there(tmp_path) == {1: "a", 5: "e", 9: "z"}


def test_a_view_without_rows_replaces_those_that_are_there(tmp_path: Path) -> None:
    target = made(tmp_path).opened("orders")
    delivered(target, None, stamp(1), Replace(lambda: iter([]), beside=False))
    assert contents(tmp_path) == []
    delivered(target, stamp(1), stamp(2), whole({1: "a"}))
    delivered(target, stamp(2), stamp(3), Replace(lambda: iter([]), beside=False))
    assert contents(tmp_path) == []


@pytest.mark.parametrize("mode", ["changes", "upsert", "replace"])
def test_epochs_that_bring_nothing_are_stamped_and_make_no_files(tmp_path: Path, mode: Mode) -> None:
    target = made(tmp_path, mode).opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    was = files(tmp_path)
    delivered(target, stamp(1), stamp(2), None)
    delivered(target, stamp(2), stamp(2, incarnation=2), None)
    assert (there(tmp_path), files(tmp_path)) == ({1: "a"}, was)


def test_a_merge_that_finds_nothing_to_do_is_stamped(tmp_path: Path) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    delivered(target, stamp(1), stamp(2), by_key(deleted=(7,)))
    assert there(tmp_path) == {1: "a"}


def test_columns_of_any_name_are_merged(tmp_path: Path) -> None:
    names = ["Order", "_op", 'say"so"', "it's.é", "select"]
    schema = pa.schema([(name, pa.int64()) for name in names])

    def table(*values: tuple[int, ...]) -> pa.Table:
        return pa.table([list(each) for each in zip(*values, strict=True)] or [[]] * 5, schema=schema)

    sink = sl.to_delta(tmp_path / "table", mode="upsert", key=["Order", 'say"so"', "it's.é", "select"])
    target = sink.opened("orders")
    first = Replace(lambda: iter([table((1, 0, 1, 1, 1), (2, 0, 2, 2, 2))]), beside=False)
    delivered(target, None, stamp(1), first, schema)
    gone = table((1, 0, 1, 1, 1)).select(list(sink.key))
    work = Upsert(table((3, 0, 3, 3, 3)), table((2, 9, 2, 2, 2)), gone)
    delivered(target, stamp(1), stamp(2), work, schema)
    assert contents(tmp_path) == [(2, 9, 2, 2, 2), (3, 0, 3, 3, 3)]


# Random histories


@pytest.mark.parametrize("seed", range(6))
def test_a_random_history_by_key_leaves_what_the_model_has(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sink = sl.to_delta(tmp_path / "table", mode="upsert", key="k")
    schema = pa.schema([("v", pa.int64()), ("k", pa.string())])
    long = [f"{'key' * 30}{number:02}" for number in range(30)]  # longer than statistics are

    def table(values: Mapping[str, int | None]) -> pa.Table:
        return pa.table([list(values.values()), list(values)], schema=schema)

    def value() -> int | None:
        return chance.choice([None, chance.randrange(100)])

    model: dict[str, int | None] = {key: value() for key in chance.sample(long, 10)}
    target, before = sink.opened("orders"), stamp(1)
    initial = table(model)
    delivered(target, None, before, Replace(lambda: iter([initial]), beside=False), schema)
    for epoch in range(2, 14):
        came = {key: value() for key in chance.sample(sorted(set(long) - set(model)), chance.randrange(3))}
        touched = chance.sample(sorted(model), chance.randrange(min(6, len(model) + 1)))
        changed = {key: value() for key in touched[::2]}
        gone = touched[1::2]
        keys = pa.table([gone], schema=pa.schema([schema.field("k")]))
        work = Upsert(table(came), table(changed), keys)
        if chance.random() < 0.2:
            DeltaTable(tmp_path / "table").optimize.compact()
        if chance.random() < 0.3:
            target = sink.opened("orders")
        delivered(target, before, stamp(epoch), work, schema)
        before = stamp(epoch)
        model = {key: value for key, value in {**model, **came, **changed}.items() if key not in gone}
        assert contents(tmp_path) == sorted(((v, k) for k, v in model.items()), key=repr)


@pytest.mark.parametrize("seed", range(4))
def test_a_random_log_has_each_update_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sink, model = made(tmp_path, "changes"), [(0, "a", 1, 1)]
    target, before = sink.opened("orders"), stamp(1)
    delivered(target, None, before, Replace(lambda: iter([log((0, "a", 1, 1))]), beside=True), LOG)
    for epoch in range(2, 14):
        updates = [(chance.randrange(9), "b", epoch, 1) for _ in range(chance.randrange(1, 4))]
        if chance.random() < 0.3:
            with pytest.raises(Breakdown):
                target.deliver(Delivery(before, stamp(epoch), LOG, broken(log(*updates))))
            target = sink.opened("orders")
            assert target.stamp() == before
        delivered(target, before, stamp(epoch), appended(*updates), LOG)
        before = stamp(epoch)
        model += updates
        assert contents(tmp_path) == sorted(model, key=repr)


# What fails on the way


class Breakdown(Exception):
    """Reading a view's rows fails."""


def broken(*tables: pa.Table) -> Append:
    def read() -> Iterator[pa.Table]:
        yield from tables
        raise Breakdown("a layer is gone")

    return Append(read)


@pytest.mark.parametrize("kind", [Append, Replace])
def test_rows_that_cannot_be_read_leave_the_table_as_it_was_and_tell_why(tmp_path: Path, kind: Any) -> None:
    target = made(tmp_path, "changes").opened("orders")
    read = broken(*[log((1, "a", 1, 1))] * 50).tables
    work = Append(read) if kind is Append else Replace(read, beside=True)
    with pytest.raises(Breakdown, match="a layer is gone"):
        target.deliver(Delivery(None, stamp(1), LOG, work))
    assert target.stamp() is None
    delivered(target, None, stamp(1), None, LOG)
    with pytest.raises(Breakdown, match="a layer is gone"):
        target.deliver(Delivery(stamp(1), stamp(2), LOG, work))
    assert (target.stamp(), contents(tmp_path)) == (stamp(1), [])


def test_a_write_that_fails_before_all_rows_are_read_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object, data: pa.RecordBatchReader, **__: object) -> None:
        data.read_next_batch()
        del data
        raise OSError("no space left")

    target = made(tmp_path).opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    monkeypatch.setattr(deltalake, "write_deltalake", full)
    many = Replace(lambda: iter([rows({1: "a"})] * 9), beside=False)
    with pytest.raises(OSError, match="no space left"):
        target.deliver(Delivery(stamp(1), stamp(2), KEYED, many))


def test_a_panic_of_the_library_is_an_error_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):  # as PyO3 has it
        pass

    def panicking(*_: object, **__: object) -> None:
        raise PanicException("index out of bounds")

    target = made(tmp_path).opened("orders")
    monkeypatch.setattr(deltalake, "write_deltalake", panicking)
    with pytest.raises(RuntimeError, match="deltalake failed: index out of bounds"):
        target.deliver(Delivery(None, stamp(1), KEYED, whole({1: "a"})))
    monkeypatch.setattr(deltalake, "DeltaTable", panicking)
    with pytest.raises(RuntimeError, match="deltalake failed: index out of bounds"):
        target.stamp()


class Once:
    """Does something before (or after) the next writing of a table, as another engine would meanwhile."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None
        for place, name in (
            (deltalake, "write_deltalake"),
            (DeltaTable, "merge"),
        ):
            patch.setattr(place, name, self._wrapped(getattr(place, name)))

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*given: Any, **named: Any) -> Any:
            now, self.before = self.before, lambda: None
            then, self.after = self.after, lambda: None
            now()
            result = real(*given, **named)
            then()
            return result

        return wrapper


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> Once:
    return Once(monkeypatch)


WORKS: Mapping[str, Work] = {
    "append": Append(lambda: iter([rows({10: "mine"})])),
    "replace": whole({10: "mine"}),
    "insert": by_key({10: "mine"}),
    "merge": by_key({10: "mine"}, {1: "changed"}),
    "delete": by_key(deleted=(1,)),
    "nothing": by_key(deleted=(77,)),
    "stamp": None,
}


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("theirs", ["append", "replace", "stamp"])
def test_of_two_that_write_at_once_one_is_fenced(tmp_path: Path, once: Once, work: str, theirs: str) -> None:
    sink = made(tmp_path, "upsert")
    one, other = sink.opened("orders"), sink.opened("orders")
    delivered(one, None, stamp(1), whole({1: "a"}))
    after = stamp(2, incarnation=2)
    what: Work = Append(lambda: iter([rows({20: "theirs"})])) if theirs == "append" else None
    what = whole({20: "theirs"}) if theirs == "replace" else what
    once.before = lambda: delivered(other, stamp(1), after, what)
    with pytest.raises(TargetFenced, match=r"another engine .*\(epoch 2 by incarnation 2\)"):
        one.deliver(Delivery(stamp(1), stamp(2), KEYED, WORKS[work]))
    assert one.stamp() == after
    expected = {"append": {1: "a", 20: "theirs"}, "replace": {20: "theirs"}, "stamp": {1: "a"}}
    assert there(tmp_path) == expected[theirs]


@pytest.mark.parametrize("first", ["nobody's", "made by somebody"])
@pytest.mark.parametrize("work", ["replace", "stamp"])
def test_of_two_that_begin_at_once_one_is_fenced(tmp_path: Path, once: Once, first: str, work: str) -> None:
    sink = made(tmp_path)
    if first == "made by somebody":
        DeltaTable.create(str(tmp_path / "table"), deltalake.Schema.from_arrow(KEYED))
    one, other = sink.opened("orders"), sink.opened("invoices")
    once.before = lambda: delivered(other, None, stamp(1, sink="invoices"), whole({2: "b"}))
    with pytest.raises(TargetFenced):
        one.deliver(Delivery(None, stamp(1), KEYED, WORKS[work]))
    assert (one.stamp(), there(tmp_path)) == (stamp(1, sink="invoices"), {2: "b"})


@pytest.mark.parametrize("work", ["replace", "stamp"])
def test_rows_that_somebody_adds_before_a_sink_begins_are_not_taken_for_its(
    tmp_path: Path, once: Once, work: str
) -> None:
    DeltaTable.create(str(tmp_path / "table"), deltalake.Schema.from_arrow(KEYED))
    target = made(tmp_path).opened("orders")
    once.before = lambda: write_deltalake(tmp_path / "table", rows({1: "theirs"}), mode="append")
    with pytest.raises(CommitFailedError):
        target.deliver(Delivery(None, stamp(1), KEYED, WORKS[work]))
    with pytest.raises(TargetNotOurs):
        target.deliver(Delivery(None, stamp(1), KEYED, WORKS[work]))
    assert there(tmp_path) == {1: "theirs"}


def test_two_that_append_at_once_after_somebody_tidied_up_are_told_apart(tmp_path: Path, once: Once) -> None:
    sink = made(tmp_path, "changes")
    one, other = sink.opened("orders"), sink.opened("orders")
    delivered(one, None, stamp(1), None, LOG)
    delivered(one, stamp(1), stamp(2), appended((1, "a", 2, 1)), LOG)
    delivered(one, stamp(2), stamp(3), appended((2, "b", 3, 1)), LOG)

    def meanwhile() -> None:
        delivered(other, stamp(3), stamp(4, incarnation=2), appended((3, "c", 4, 1)), LOG)
        DeltaTable(tmp_path / "table").optimize.compact()

    once.before = meanwhile
    with pytest.raises(TargetFenced):
        one.deliver(Delivery(stamp(3), stamp(4), LOG, appended((3, "c", 4, 1))))
    assert len(contents(tmp_path)) == 3


@pytest.mark.parametrize("work", WORKS)
def test_somebody_who_tidies_up_meanwhile_stops_nothing(tmp_path: Path, once: Once, work: str) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    delivered(target, stamp(1), stamp(2), by_key({2: "b"}))
    assert files(tmp_path) == 2
    once.before = lambda: DeltaTable(tmp_path / "table").optimize.compact()
    delivery = Delivery(stamp(2), stamp(3), KEYED, WORKS[work])
    adds = work in ("append", "stamp", "nothing")
    if adds:
        target.deliver(delivery)
    else:
        with pytest.raises(CommitFailedError):
            target.deliver(delivery)
        assert (target.stamp(), there(tmp_path)) == (stamp(2), {1: "a", 2: "b"})
        target.deliver(delivery)
    was = {1: "a", 2: "b"}
    expected = {
        "append": {**was, 10: "mine"},
        "replace": {10: "mine"},
        "insert": {**was, 10: "mine"},
        "merge": {1: "changed", 2: "b", 10: "mine"},
        "delete": {2: "b"},
        "nothing": was,
        "stamp": was,
    }
    assert (target.stamp(), there(tmp_path)) == (stamp(3), expected[work])


@pytest.mark.parametrize("work", ["insert", "merge"])
def test_a_row_that_somebody_adds_meanwhile_is_not_overlooked(tmp_path: Path, once: Once, work: str) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    once.before = lambda: write_deltalake(tmp_path / "table", rows({10: "another's"}), mode="append")
    delivery = Delivery(stamp(1), stamp(2), KEYED, WORKS[work])
    with pytest.raises(CommitFailedError):
        target.deliver(delivery)
    with pytest.raises(KeyNotUnique):
        target.deliver(delivery)


@pytest.mark.parametrize("work", ["replace", "insert", "merge", "delete"])
def test_what_looks_at_the_table_is_the_next_commit_after_it(tmp_path: Path, once: Once, work: str) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    once.before = lambda: write_deltalake(tmp_path / "table", rows({77: "far away"}), mode="append")
    with pytest.raises(CommitFailedError):
        target.deliver(Delivery(stamp(1), stamp(2), KEYED, WORKS[work]))
    assert (target.stamp(), there(tmp_path)) == (stamp(1), {1: "a", 77: "far away"})


def test_an_answer_that_is_lost_is_no_reason_to_stop(tmp_path: Path, once: Once) -> None:
    target = made(tmp_path, "changes").opened("orders")
    delivered(target, None, stamp(1), None, LOG)

    def lost() -> None:
        raise OSError("connection reset")

    once.after = lost
    with pytest.raises(OSError, match="connection reset"):
        target.deliver(Delivery(stamp(1), stamp(2), LOG, appended((1, "a", 2, 1))))
    assert target.stamp() == stamp(2)
    with pytest.raises(TargetFenced):
        target.deliver(Delivery(stamp(1), stamp(2), LOG, appended((1, "a", 2, 1))))
    assert contents(tmp_path) == [(1, "a", 2, 1)]


def test_one_that_was_succeeded_is_fenced(tmp_path: Path) -> None:
    sink = made(tmp_path, "changes")
    zombie, later = sink.opened("orders"), sink.opened("orders")
    delivered(zombie, None, stamp(1), None, LOG)
    delivered(later, stamp(1), stamp(1, incarnation=2), None, LOG)
    with pytest.raises(TargetFenced, match="epoch 1 by incarnation 2"):
        zombie.deliver(Delivery(stamp(1), stamp(2), LOG, appended((1, "a", 2, 1))))
    assert contents(tmp_path) == []


def test_a_table_that_is_gone_is_not_gone_on_with(tmp_path: Path) -> None:
    target = made(tmp_path).opened("orders")
    with pytest.raises(TargetFenced, match="its stamp is gone"):
        target.deliver(Delivery(stamp(1), stamp(2), KEYED, whole({1: "a"})))
    assert target.stamp() is None


# The end of a process

CHILD = """
import os, signal, sys
from pathlib import Path
import deltalake, pyarrow as pa
sys.path.insert(0, sys.argv[1])
import test_delta as t

path, point, epoch = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
real, merged = deltalake.write_deltalake, deltalake.table.TableMerger.execute

def dying(*given, **named):
    real(*given, **named)
    die()

if point == "committed":
    deltalake.write_deltalake = dying
    deltalake.table.TableMerger.execute = lambda merger: (merged(merger), die())
if point == "ready":
    deltalake.write_deltalake = die
    deltalake.table.TableMerger.execute = die

def read():
    for number in range(8):
        if point == f"row {number}":
            die()
        yield t.rows({100 + number: "new"})

mode = sys.argv[5]
work = t.by_key({100: "new"}, {1: "new"}, (2,)) if mode == "upsert" else t.Append(read)
work = t.Replace(read, beside=False) if mode == "replace" else work
target = t.made(path, mode).opened("orders")
while True:
    target.deliver(t.Delivery(target.stamp(), t.stamp(epoch), t.KEYED, work))
    if point != "any":
        break
    epoch += 1
"""


def child(path: Path, point: str, epoch: int, mode: Mode) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(path), point, str(epoch), mode]
    return subprocess.Popen(command)


@pytest.mark.parametrize("mode", ["changes", "upsert", "replace"])
def test_a_process_that_ends_anywhere_leaves_all_or_nothing(tmp_path: Path, mode: Mode) -> None:
    was: dict[int, str | None] = {1: "a", 2: "b"}
    new: dict[int, str | None] = {100 + number: "new" for number in range(8)}
    expected = {"changes": {**was, **new}, "upsert": {1: "new", 100: "new"}, "replace": new}[mode]
    points = ["ready", "committed"] if mode == "upsert" else ["row 0", "row 5", "ready", "committed"]
    for point in points:
        path = tmp_path / point
        delivered(made(path, mode).opened("orders"), None, stamp(1), whole(was))
        ended = child(path, point, 2, mode)
        assert ended.wait(60) == -signal.SIGKILL
        done = point == "committed"
        found = made(path, mode).opened("orders")
        assert found.stamp() == (stamp(2) if done else stamp(1))
        assert there(path) == (expected if done else was)
        if not done:
            again = child(path, "none", 2, mode)
            assert again.wait(60) == 0
            assert (found.stamp(), there(path)) == (stamp(2), expected)


def test_a_process_that_is_killed_at_any_time_has_written_what_its_stamp_says(tmp_path: Path) -> None:
    sink, epoch = made(tmp_path, "changes"), 1
    delivered(sink.opened("orders"), None, stamp(1), None)
    for more in (1, 4, 9):
        running = child(tmp_path, "any", epoch + 1, "changes")
        while version(tmp_path) < epoch - 1 + more:
            assert running.poll() is None
        os.kill(running.pid, signal.SIGKILL)
        running.wait(60)
        found = sink.opened("orders").stamp()
        assert found is not None
        epoch = found.epoch
        assert len(contents(tmp_path)) == (epoch - 1) * 8


# The log, tidied


def tidied(path: Path, *, rows_too: bool = True) -> None:
    """What others do to a table in the course of years, at once."""
    table = DeltaTable(path / "table")
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    if rows_too:
        table.optimize.compact()
    DeltaTable(path / "table").vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    write_deltalake(path / "table", KEYED.empty_table(), mode="append")
    DeltaTable(path / "table").create_checkpoint()
    DeltaTable(path / "table").cleanup_metadata()
    write_deltalake(path / "table", KEYED.empty_table(), mode="append")


def in_log(path: Path, epoch: int) -> bool:
    text = stamp(epoch).cut
    return any(text in each.read_text() for each in (path / "table" / "_delta_log").glob("*.json"))


def test_commits_of_others_hide_no_stamp(tmp_path: Path) -> None:
    target = made(tmp_path).opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    for _ in range(30):
        write_deltalake(tmp_path / "table", KEYED.empty_table(), mode="append")
        assert target.stamp() == stamp(1)
    DeltaTable(tmp_path / "table").create_checkpoint()
    assert target.stamp() == stamp(1)


def test_a_stamp_outlives_the_commit_it_came_with_but_for_lineage(tmp_path: Path) -> None:
    target = made(tmp_path).opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    delivered(target, stamp(1), stamp(2), whole({1: "b"}))
    tidied(tmp_path)
    assert not in_log(tmp_path, 2)
    left = Stamp(APP, "orders", 2, 1, f"{2:016x}", form="mode='upsert'")
    assert made(tmp_path).opened("orders").stamp() == left
    with pytest.raises(TargetFenced):
        target.deliver(Delivery(stamp(1), stamp(3), KEYED, whole({1: "c"})))
    delivered(target, left, stamp(3), whole({1: "c"}))
    assert there(tmp_path) == {1: "c"}


def test_who_knows_a_stamp_from_before_the_log_was_tidied_goes_on(tmp_path: Path) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    tidied(tmp_path)
    delivered(target, stamp(1), stamp(2), by_key({2: "b"}))
    assert there(tmp_path) == {1: "a", 2: "b"}


def test_a_stamp_that_is_shorter_than_the_last_is_read_as_it_is(tmp_path: Path) -> None:
    target = made(tmp_path).opened("orders")
    longer = Stamp(APP * 3, "orders", 1, 1, "0" * 16)
    shorter = Stamp("a", "é", 2, 1)
    delivered(target, None, longer, whole({1: "a"}))
    delivered(target, longer, shorter, whole({1: "b"}))
    tidied(tmp_path)
    assert target.stamp() == shorter


def test_a_stamp_that_no_sink_wrote_is_not_believed(tmp_path: Path) -> None:
    target = made(tmp_path).opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    write_deltalake(
        tmp_path / "table",
        KEYED.empty_table(),
        mode="append",
        commit_properties=deltalake.CommitProperties(custom_metadata={"slipstream": "yes"}),
    )
    with pytest.raises(DamagedStamp, match="/table says of its progress"):
        target.stamp()


def test_a_table_that_was_restored_is_written_anew_or_not_at_all(tmp_path: Path) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    delivered(target, stamp(1), stamp(2), by_key({2: "b"}))
    DeltaTable(tmp_path / "table").restore(0)
    assert target.stamp() == stamp(2)
    for work in (by_key({3: "c"}), None):
        with pytest.raises(
            TargetAhead, match=r"has epoch 2, and was restored .* app\.reset_sink\('orders'\)"
        ):
            target.deliver(Delivery(stamp(2), stamp(3), KEYED, work))
    delivered(target, stamp(2), stamp(3), whole({3: "c"}))
    delivered(target, stamp(3), stamp(4), by_key({4: "d"}))
    assert there(tmp_path) == {3: "c", 4: "d"}


# Rows


def test_a_large_snapshot_is_written_as_it_is_read(tmp_path: Path) -> None:
    pieces, most = 80, 0
    begin = pa.total_allocated_bytes()

    def read() -> Iterator[pa.Table]:
        nonlocal most
        for number in range(pieces):
            most = max(most, pa.total_allocated_bytes() - begin)
            keys = pa.array(range(number * 50_000, (number + 1) * 50_000), pa.int64())
            yield pa.table([keys, pa.repeat("0123456789", 50_000)], schema=KEYED)

    target = made(tmp_path).opened("orders")
    delivered(target, None, stamp(1), Replace(read, beside=False))
    assert DeltaTable(tmp_path / "table").count() == pieces * 50_000
    size = 50_000 * 22
    assert most < pieces * size / 2


def test_rows_of_all_types_come_back(tmp_path: Path) -> None:
    nested = pa.struct([("at", pa.timestamp("us")), ("tags", pa.list_(pa.string()))])
    moment = datetime(2024, 2, 29, 12, 30, 1, 234567)  # noqa: DTZ001
    columns: Mapping[str, tuple[pa.DataType, Any]] = {
        "k": (pa.int64(), 1),
        "flag": (pa.bool_(), True),
        "byte": (pa.int8(), -1),
        "unsigned": (pa.uint32(), 2**32 - 1),
        "huge": (pa.uint64(), 2**64 - 1),
        "real": (pa.float64(), 0.5),
        "price": (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789")),
        "raw": (pa.binary(), b"\x00\xff"),
        "fixed": (pa.binary(2), b"\x01\x02"),
        "day": (pa.date32(), date(1969, 12, 31)),
        "local": (pa.timestamp("us"), moment),
        "zoned": (pa.timestamp("us", "UTC"), moment.replace(tzinfo=UTC)),
        "berlin": (pa.timestamp("ms", "Europe/Berlin"), datetime(2024, 7, 1, tzinfo=UTC)),
        "nested": (nested, {"at": moment, "tags": ["a", None]}),
        "several": (pa.list_(nested), [{"at": moment, "tags": []}, None]),
        "table": (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)]),
        "word": (pa.dictionary(pa.int32(), pa.string()), "b"),
        "long": (pa.large_string(), "ü"),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
    full = {name: value for name, (_, value) in columns.items()}
    empty = {**dict.fromkeys(columns), "k": 2}
    sink = made(tmp_path, "upsert")
    target = sink.opened("orders")

    def table(*given: Mapping[str, Any]) -> pa.Table:
        return pa.Table.from_pylist([dict(each) for each in given], schema)

    whole_view = Replace(lambda: iter([table(full), table(empty)]), beside=False)
    delivered(target, None, stamp(1), whole_view, schema)
    no_keys = table().select(["k"])
    more = Upsert(table({**full, "k": 3}), table({**empty, "k": 1}, {**full, "k": 2}), no_keys)
    delivered(target, stamp(1), stamp(2), more, schema)
    found = {row["k"]: row for row in DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()}
    assert found == {1: {**empty, "k": 1}, 2: {**full, "k": 2}, 3: {**full, "k": 3}}


@pytest.mark.parametrize("mode", ["changes", "upsert", "replace"])
def test_columns_that_are_added_are_followed(tmp_path: Path, mode: Mode) -> None:
    target = made(tmp_path, mode).opened("orders")
    delivered(target, None, stamp(1), whole({1: "a", 2: "b"}))
    schema = pa.schema([("at", pa.timestamp("us")), *KEYED])
    moment = datetime(2024, 2, 29)  # noqa: DTZ001
    new = pa.table([[moment], [3], ["c"]], schema=schema)
    changed = pa.table([[moment], [2], ["bb"]], schema=schema)
    works: Mapping[Mode, Work] = {
        "changes": Append(lambda: iter([new])),
        "upsert": Upsert(new, changed, rows({1: ""}).select(["k"])),
        "replace": Replace(lambda: iter([new, changed]), beside=False),
    }
    delivered(target, stamp(1), stamp(2), works[mode], schema)
    found = {
        row["k"]: (row["v"], row["at"])
        for row in DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    }
    expected = {2: ("bb", moment), 3: ("c", moment)}
    assert found == ({1: ("a", None), 2: ("b", None), 3: ("c", moment)} if mode == "changes" else expected)
    delivered(target, stamp(2), stamp(3), None, schema)


def test_a_column_is_added_with_new_keys_alone(tmp_path: Path) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    schema = KEYED.append(pa.field("n", pa.int32()))
    new = pa.table([[2], ["b"], [7]], schema=schema)
    none = rows({}).select(["k"])
    delivered(target, stamp(1), stamp(2), Upsert(new, schema.empty_table(), none), schema)
    assert contents(tmp_path) == [(1, "a", None), (2, "b", 7)]


def test_a_view_that_is_written_anew_may_have_any_columns(tmp_path: Path) -> None:
    target = made(tmp_path).opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    schema = pa.schema([("v", pa.int64()), ("w", pa.binary())])
    table = pa.table([[5], [b"x"]], schema=schema)
    delivered(target, stamp(1), stamp(2), Replace(lambda: iter([table]), beside=False), schema)
    assert contents(tmp_path) == [(5, b"x")]


# Keys that are there already


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1, 2, 3]),
        (pa.int64(), [*range(50)]),
        (pa.string(), ["it's", "ü", ""]),
        (pa.string(), ["x" * 100 + "a", "x" * 100 + "b", "x" * 100 + "c"]),
        (pa.string(), [f"{'x' * 100}'{each:03}" for each in range(50)]),
        (pa.date32(), [date(1960, 1, 1), date(2024, 2, 29), date(2024, 3, 1)]),
        (pa.timestamp("us"), [datetime(2024, 1, 1, 0, 0, 0, each) for each in range(3)]),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, 0, 0, 0, each, UTC) for each in range(50)]),
        (pa.decimal128(10, 2), [Decimal(each) / 4 for each in range(50)]),
        (pa.timestamp("us", "UTC"), [datetime(1960, 1, 1, 0, 0, 0, each, UTC) for each in range(3)]),
        (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("12345678.91")]),
        (pa.binary(), [b"\x00", b"\xff", b""]),
        (pa.bool_(), [True, False]),
        (pa.float64(), [0.5, 1e300, -1.0]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "c"]),
    ],
)
def test_a_key_that_came_and_is_there_stops_the_sink(
    tmp_path: Path, kind: pa.DataType, values: list[Any]
) -> None:
    schema = pa.schema([("k", kind)])

    def table(given: list[Any]) -> pa.Table:
        return pa.table([pa.array(given, kind)], schema=schema)

    target = made(tmp_path, "upsert").opened("orders")
    first, fresh, none = values[0], values[1:], table([])
    delivered(target, None, stamp(1), Replace(lambda: iter([table([first])]), beside=False), schema)
    was = version(tmp_path)
    for updated in (none, table([first])):
        with pytest.raises(KeyNotUnique, match=r"its view has several rows with the key .* mode='changes'"):
            target.deliver(
                Delivery(stamp(1), stamp(2), schema, Upsert(table([*fresh, first]), updated, none))
            )
    assert (target.stamp(), version(tmp_path)) == (stamp(1), was)
    delivered(target, stamp(1), stamp(2), Upsert(table(fresh), none, none), schema)
    assert len(contents(tmp_path)) == len(values)


def test_a_key_of_several_columns_is_there_if_all_are(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    target = made(tmp_path, "upsert", ("a", "b")).opened("orders")

    def table(*given: tuple[int, str, int]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip("abv", each, strict=True)) for each in given], schema)

    none = table()
    first = Replace(lambda: iter([table((1, "x", 0), (2, "y", 0))]), beside=False)
    delivered(target, None, stamp(1), first, schema)
    delivered(target, stamp(1), stamp(2), Upsert(table((1, "y", 0)), none, none.select(["a", "b"])), schema)
    again = Upsert(table((5, "x", 0), (1, "y", 0)), none, none.select(["a", "b"]))
    with pytest.raises(KeyNotUnique, match="the key 1, 'y'"):
        target.deliver(Delivery(stamp(2), stamp(3), schema, again))
    gone = table((1, "x", 0)).select(["a", "b"])
    delivered(target, stamp(2), stamp(3), Upsert(none, table((1, "y", 9)), gone), schema)
    assert contents(tmp_path) == [(1, "y", 9), (2, "y", 0)]


def test_of_a_large_table_only_files_that_may_have_the_keys_are_read(tmp_path: Path) -> None:
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a", 2: "b"}))
    delivered(target, stamp(1), stamp(2), by_key({1000: "y", 1001: "z"}))
    low = next(uri for uri in DeltaTable(tmp_path / "table").file_uris() if "a" in there_in(uri))
    Path(low.removeprefix("file://")).unlink()
    delivered(target, stamp(2), stamp(3), by_key({500: "m"}))
    delivered(target, stamp(3), stamp(4), by_key({501: "m"}, {1000: "Y"}, (1001,)))


def there_in(uri: str) -> list[str]:
    import pyarrow.parquet as pq

    return [
        str(value) for value in pq.ParquetFile(uri.removeprefix("file://")).read().column("v").to_pylist()
    ]


# Refusals


def test_rows_that_no_sink_wrote_are_not_mixed_with_a_views(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", rows({1: "theirs"}))
    target = made(tmp_path).opened("orders")
    with pytest.raises(
        TargetNotOurs, match=r"Sink 'orders': .*/table is there already, and has rows that no"
    ):
        target.stamp()
    with pytest.raises(TargetNotOurs):
        target.deliver(Delivery(None, stamp(1), KEYED, whole({2: "b"})))
    assert there(tmp_path) == {1: "theirs"}


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("work", ["replace", "stamp"])
def test_an_empty_table_that_somebody_made_is_used(tmp_path: Path, emptied: bool, work: str) -> None:
    columns = pa.schema(reversed(list(KEYED)))
    DeltaTable.create(str(tmp_path / "table"), deltalake.Schema.from_arrow(columns))
    if emptied:
        write_deltalake(tmp_path / "table", rows({1: "x"}).select(["v", "k"]), mode="append")
        DeltaTable(tmp_path / "table").delete()
    target = made(tmp_path).opened("orders")
    assert target.stamp() is None
    delivered(target, None, stamp(1), WORKS[work])
    assert contents(tmp_path) == ([("mine", 10)] if work == "replace" else [])


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([("k", pa.int64())], "and has no column 'v'"),
        ([*KEYED, ("w", pa.int64())], "and has other columns: the view has no column 'w'"),
        ([("k", pa.int32()), ("v", pa.string())], "column 'k' is int32 there and int64 in the view"),
        ([("k", pa.int64()), ("V", pa.string())], "column 'v' is 'V' there"),
    ],
)
@pytest.mark.parametrize("work", ["replace", "stamp"])
def test_an_empty_table_of_other_columns_is_refused(
    tmp_path: Path, columns: Any, why: str, work: str
) -> None:
    DeltaTable.create(str(tmp_path / "table"), deltalake.Schema.from_arrow(pa.schema(columns)))
    target = made(tmp_path).opened("orders")
    assert target.stamp() is None
    with pytest.raises(TargetNotOurs, match=why):
        target.deliver(Delivery(None, stamp(1), KEYED, WORKS[work]))
    assert target.stamp() is None


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([("k", pa.int64())], "the view has no column 'v', so .*/table cannot take the view's rows"),
        ([("k", pa.int64()), ("v", pa.int64())], "column 'v' is string there and int64 in the view"),
        ([*KEYED, ("K", pa.int64())], "columns 'k' and 'K' are told apart by case"),
        ([*KEYED, ("count(1)", pa.int64())], r"column 'count\(1\)' has a name .* give it another with AS"),
        (
            [*KEYED, ("t", pa.duration("us"))],
            r"column 't' is duration\[us\], a type that Delta tables do not",
        ),
    ],
)
def test_columns_that_a_table_cannot_have_are_refused(tmp_path: Path, columns: Any, why: str) -> None:
    target = made(tmp_path, "changes").opened("orders")
    delivered(target, None, stamp(1), whole({1: "a"}))
    schema = pa.schema(columns)
    with pytest.raises(TargetColumns, match=why):
        target.deliver(Delivery(stamp(1), stamp(2), schema, Append(lambda: iter([schema.empty_table()]))))
    assert target.stamp() == stamp(1)


def test_a_key_that_tables_are_not_merged_by_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.list_(pa.int64()))])
    table = pa.table([[[1]]], schema=schema)
    target = made(tmp_path, "upsert").opened("orders")
    delivered(target, None, stamp(1), Replace(lambda: iter([table]), beside=False), schema)
    none = schema.empty_table()
    with pytest.raises(TargetColumns, match="key column 'k' is list<element: int64>, by which Delta tables"):
        target.deliver(Delivery(stamp(1), stamp(2), schema, Upsert(none, table, none)))


def test_bad_options_are_refused() -> None:
    with pytest.raises(BadSinkOption, match="name a folder, or a URL like"):
        sl.to_delta("")
    with pytest.raises(BadSinkOption, match="two engines could commit at once"):
        sl.to_delta("s3://b/t", storage_options={"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    with pytest.raises(BadSinkOption, match="name the columns"):
        sl.to_delta("t", mode="upsert")
    assert sl.to_delta("t", mode="upsert", key=["a", "b"]).key == ("a", "b")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("/data/table", "/data/table"),
        ("s3://bucket/a/table", "s3://bucket/a/table"),
        ("https://user:secret@host/table", "https://host/table"),
        ("abfss://box@account.dfs.core.windows.net/t", "abfss://box@account.dfs.core.windows.net/t"),
        ("az://box/t?sig=secret#secret", "az://box/t"),
    ],
)
def test_a_target_is_shown_without_secrets(uri: str, shown: str) -> None:
    sink = sl.to_delta(uri, storage_options={"AWS_SECRET_ACCESS_KEY": "secret"})
    assert sink.shown == shown
    assert "SECRET_ACCESS" not in repr(sink)


def test_without_the_library_the_sink_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['deltalake'] = None\n"
        "import slipstream as sl, slipstream.sinks\n"
        "try: sl.to_delta('t')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith(MissingLibrary.__name__)
    assert "pip install 'slipstream[delta]'" in said


def test_stopping_errors_are_told_from_those_that_are_tried_again() -> None:
    assert not issubclass(CommitFailedError, SinkStopped)
