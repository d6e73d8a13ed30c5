"""Deliveries into a table: each mode, histories compared with a model, and whatever may break in between."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
import pytest

import slipstream as sl
from slipstream.core.errors import (
    DamagedStamp,
    KeyNotUnique,
    SinkStopped,
    TargetBusy,
    TargetFenced,
    TargetNotOurs,
    TargetRefuses,
)
from slipstream.sinks.base import Append, Delivery, Mode, Replace, Stamp, Target, Upsert
from slipstream.sinks.postgres import connecting
from slipstream.testing.postgres import Server

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("score", pa.float64())])
LOG = SCHEMA.append(pa.field("_epoch", pa.int64())).append(pa.field("_diff", pa.int64()))
MODES: tuple[Mode, ...] = ("changes", "upsert", "replace")
WORDS = ("", "plain", 'q"uo"te', "back\\slash", "\\.", "new\nline\r\n", "tab\t,;", "ünï 🐦ode", "NULL", "\\N")

Row = tuple[Any, ...]


def stamp(epoch: int, incarnation: int = 1, lineage: tuple[dict[str, Any], ...] = ()) -> Stamp:
    return Stamp("app", "sink", epoch, incarnation, f"cut {epoch}", lineage=lineage)


def opened(dsn: str, mode: Mode = "changes", table: str = "t") -> Target:
    return sl.to_postgres(dsn, table, mode, key="id" if mode == "upsert" else None).opened("sink")


def rows(dsn: str, query: LiteralString = "SELECT * FROM t") -> list[Row]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()


def run(dsn: str, *queries: LiteralString) -> None:
    with psycopg.connect(dsn) as connection:
        for query in queries:
            connection.execute(query)


def table(found: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    names = schema.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in found], schema)


def replaced(found: list[Row], mode: Mode = "replace") -> Replace:
    schema = LOG if mode == "changes" else SCHEMA
    return Replace(lambda: iter([table(found, schema)]), mode == "changes")


@dataclass
class History:
    """A view that changes at random, as deliveries, and what the table is to hold after each."""

    mode: Mode
    seed: int
    now: dict[int, Row] = field(default_factory=dict)
    log: list[Row] = field(default_factory=list)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.mode} {self.seed}")

    def held(self) -> Counter[Row]:
        return Counter(self.log if self.mode == "changes" else self.now.values())

    def deliveries(self, number: int) -> Iterator[Delivery]:
        """Each as it is after the one before."""
        for _ in range(number):
            before = stamp(self.epoch) if self.epoch else None
            self.epoch += 1
            yield Delivery(before, stamp(self.epoch), LOG if self.mode == "changes" else SCHEMA, self.work())

    def work(self) -> Append | Replace | Upsert | None:
        if self.epoch > 1 and self.random.random() < 0.1:
            return None
        whole = self.epoch == 1 or self.random.random() < 0.1
        came, became, went = self.moved()
        diffs = [*((row, 1) for row in (*came, *became.values())), *((row, -1) for row in (*became, *went))]
        if whole and self.mode == "changes":
            self.log = [(*row, self.epoch, 1) for row in self.now.values()]
        elif self.mode == "changes":
            more = [(*row, self.epoch, diff) for row, diff in diffs]
            self.log += more
            half = len(more) // 2
            return Append(lambda: iter([table(more[:half], LOG), table(more[half:], LOG)]))
        if whole or self.mode == "replace":
            found = self.log if self.mode == "changes" else list(self.now.values())
            return replaced(list(found), self.mode)
        return Upsert(table(came), table(list(became.values())), table(went).select(["id"]))

    def moved(self) -> tuple[list[Row], dict[Row, Row], list[Row]]:
        """Rows that came, that became others, and that went; they have done so."""
        ids = self.random.sample(range(60), 20)
        came = [self.row(each) for each in ids if each not in self.now]
        there = [each for each in ids if each in self.now]
        half = len(there) // 2
        became = {self.now[each]: self.row(each) for each in there[:half]}
        went = [self.now[each] for each in there[half:]]
        for row in went:
            del self.now[row[0]]
        self.now.update({row[0]: row for row in (*came, *became.values())})
        return came, became, went

    def row(self, number: int) -> Row:
        word = self.random.choice([None, *WORDS])
        return number, word, self.random.choice([None, -0.5, self.random.random()])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", MODES)
def test_after_each_delivery_the_table_is_what_a_model_is(dsn: str, mode: Mode, seed: int) -> None:
    history = History(mode, seed)
    target = opened(dsn, mode)
    assert target.stamp() is None
    for delivery in history.deliveries(12):
        if history.random.random() < 0.2:
            target.close()
            target = opened(dsn, mode)
        target.deliver(delivery)
        assert Counter(rows(dsn)) == history.held()
        assert target.stamp() == delivery.after
    target.close()


def test_the_stamp_alone_moves_and_makes_the_table(dsn: str) -> None:
    with closing(opened(dsn)) as target:
        target.deliver(Delivery(None, stamp(7), LOG))
        assert target.stamp() == stamp(7)
        assert rows(dsn) == []
        lineage = ({"epoch": 8, "input": [1, 2], "text": "\0'"},)
        target.deliver(Delivery(stamp(7), stamp(8, 2, lineage), LOG))
        assert target.stamp() == stamp(8, 2, lineage)


def test_a_stamp_is_the_same_that_was_written_in_other_clothes(dsn: str) -> None:
    """What was delivered comes back as `before`: with tuples where JSON has lists."""
    with closing(opened(dsn)) as target:
        after = stamp(1, 1, ({"input": (1, 2)},))
        target.deliver(Delivery(None, after, LOG))
        target.deliver(Delivery(after, stamp(2), LOG))
        assert target.stamp() == stamp(2)


def test_tables_of_one_schema_have_stamps_of_their_own(dsn: str) -> None:
    with closing(opened(dsn, table="a")) as one, closing(opened(dsn, table="b")) as other:
        one.deliver(Delivery(None, stamp(1), LOG))
        assert other.stamp() is None
        other.deliver(Delivery(None, stamp(5), LOG))
        assert one.stamp() == stamp(1)


# Keys


def test_a_row_whose_key_is_there_is_refused_and_nothing_is_done(dsn: str) -> None:
    first = [(1, "one", 1.0), (2, "two", 2.0)]
    with closing(opened(dsn, "upsert")) as target:
        target.deliver(Delivery(None, stamp(1), SCHEMA, replaced(first)))
        work = Upsert(
            table([(3, "", 0.0), (2, "again", 0.0)]), table([(1, "x", 0.0)]), table([]).select(["id"])
        )
        with pytest.raises(KeyNotUnique) as error:
            target.deliver(Delivery(stamp(1), stamp(2), SCHEMA, work))
        assert str(error.value) == (
            "Sink 'sink': its view has several rows with the key 2, and the target keeps one for each. Name columns "
            "in key= that tell its rows apart, or use mode='changes' or 'replace'."
        )
        assert sorted(rows(dsn)) == first
        assert target.stamp() == stamp(1)


def test_two_rows_of_one_key_in_a_whole_view_are_refused(dsn: str) -> None:
    with closing(opened(dsn, "upsert")) as target, pytest.raises(KeyNotUnique, match="the key 2,"):
        target.deliver(Delivery(None, stamp(1), SCHEMA, replaced([(2, "", 0.0), (2, "", 0.0)])))


def test_a_value_that_another_unique_index_has_is_no_matter_of_the_key(dsn: str) -> None:
    with closing(opened(dsn, "upsert")) as target:
        target.deliver(Delivery(None, stamp(1), SCHEMA, replaced([(1, "a", 0.0)])))
        run(dsn, "CREATE UNIQUE INDEX words ON t (word)")
        work = Upsert(table([(2, "a", 0.0)]), table([]), table([]).select(["id"]))
        with pytest.raises(TargetRefuses, match='unique constraint "words"'):
            target.deliver(Delivery(stamp(1), stamp(2), SCHEMA, work))


def test_a_unique_value_wanders_from_a_row_that_goes(dsn: str) -> None:
    with closing(opened(dsn, "upsert")) as target:
        target.deliver(Delivery(None, stamp(1), SCHEMA, replaced([(1, "a", 0.0), (2, "b", 0.0)])))
        run(dsn, "CREATE UNIQUE INDEX ON t (word)")
        work = Upsert(table([(3, "b", 0.0)]), table([(2, "a", 0.0)]), table([(1, "", 0.0)]).select(["id"]))
        target.deliver(Delivery(stamp(1), stamp(2), SCHEMA, work))
        assert sorted(rows(dsn)) == [(2, "a", 0.0), (3, "b", 0.0)]


def test_a_key_of_several_columns_and_nothing_else(dsn: str) -> None:
    schema = pa.schema([("b", pa.string()), ("a", pa.int32())])
    found = pa.Table.from_pylist([{"b": "x", "a": 1}, {"b": "x", "a": 2}, {"b": "y", "a": 1}], schema)
    with closing(sl.to_postgres(dsn, "t", "upsert", key=["a", "b"]).opened("sink")) as target:
        target.deliver(Delivery(None, stamp(1), schema, Replace(lambda: iter([found]), False)))
        gone = found.slice(1, 1).select(["a", "b"])
        come = pa.Table.from_pylist([{"b": "z", "a": 1}], schema)
        target.deliver(Delivery(stamp(1), stamp(2), schema, Upsert(come, found.slice(0, 1), gone)))
        assert sorted(rows(dsn)) == [("x", 1), ("y", 1), ("z", 1)]


def test_a_row_that_somebody_deleted_is_there_again_once_it_becomes_another(dsn: str) -> None:
    with closing(opened(dsn, "upsert")) as target:
        target.deliver(Delivery(None, stamp(1), SCHEMA, replaced([(1, "a", 0.0), (2, "b", 0.0)])))
        run(dsn, "DELETE FROM t WHERE id = 1")
        work = Upsert(table([]), table([(1, "c", 0.0), (2, "d", 0.0)]), table([]).select(["id"]))
        target.deliver(Delivery(stamp(1), stamp(2), SCHEMA, work))
        assert sorted(rows(dsn)) == [(1, "c", 0.0), (2, "d", 0.0)]


# Others


def test_who_was_succeeded_is_fenced(dsn: str) -> None:
    with closing(opened(dsn)) as old, closing(opened(dsn)) as new:
        old.deliver(Delivery(None, stamp(1), LOG, replaced([(1, "a", 0.0, 1, 1)], "changes")))
        new.deliver(Delivery(stamp(1), stamp(1, 2), LOG))
        more = Append(lambda: iter([table([(2, "b", 0.0, 2, 1)], LOG)]))
        with pytest.raises(TargetFenced) as error:
            old.deliver(Delivery(stamp(1), stamp(2), LOG, more))
        assert "table t of database postgres on /tmp/pg" in str(error.value)
        assert "(epoch 1 by incarnation 2)" in str(error.value)
        assert len(rows(dsn)) == 1
        assert new.stamp() == stamp(1, 2)


def test_who_expects_nothing_is_fenced_where_there_is_something(dsn: str) -> None:
    with closing(opened(dsn)) as target:
        target.deliver(Delivery(None, stamp(1), LOG))
        with pytest.raises(TargetFenced):
            target.deliver(Delivery(None, stamp(2), LOG))


@pytest.mark.parametrize("first", [True, False])
def test_of_two_at_once_one_is_fenced(dsn: str, first: bool) -> None:
    before = None
    with closing(opened(dsn)) as one, closing(opened(dsn)) as other:
        if not first:
            one.deliver(Delivery(None, stamp(1), LOG))
            before = stamp(1)
        half_way, go_on = threading.Event(), threading.Event()

        def slowly() -> Iterator[pa.Table]:
            yield table([(1, "a", 0.0, 2, 1)], LOG)
            half_way.set()
            assert go_on.wait(30)
            yield table([(2, "a", 0.0, 2, 1)], LOG)

        with in_background(lambda: one.deliver(Delivery(before, stamp(2), LOG, Append(slowly)))):
            assert half_way.wait(30)
            at_once = Append(lambda: iter([table([(3, "b", 0.0, 2, 1)], LOG)]))
            failed: list[Exception] = []

            def deliver() -> None:
                try:
                    other.deliver(Delivery(before, stamp(2, 2), LOG, at_once))
                except TargetFenced as error:
                    failed.append(error)

            with in_background(deliver):
                await_waiting(dsn)
                go_on.set()
        assert failed
        assert sorted(row[0] for row in rows(dsn)) == [1, 2]
        assert other.stamp() == stamp(2)


def test_who_asks_for_the_stamp_waits_for_what_is_on_its_way(dsn: str) -> None:
    with closing(opened(dsn)) as one, closing(opened(dsn)) as other:
        one.deliver(Delivery(None, stamp(1), LOG))
        answers: list[Stamp | None] = []

        def slowly() -> Iterator[pa.Table]:
            asker.start()
            await_waiting(dsn)
            assert answers == []
            yield table([(2, "a", 0.0, 2, 1)], LOG)

        asker = threading.Thread(target=lambda: answers.append(other.stamp()))
        one.deliver(Delivery(stamp(1), stamp(2), LOG, Append(slowly)))
        asker.join(30)
        assert answers == [stamp(2)]


def test_who_holds_the_table_for_long_is_named(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(dsn)) as one, closing(opened(dsn)) as other:
        one.deliver(Delivery(None, stamp(1), LOG))
        monkeypatch.setattr(connecting, "LOCK_WITHIN", 0.1)

        def slowly() -> Iterator[pa.Table]:
            with pytest.raises(TargetBusy) as error:
                other.stamp()
            pids.append(str(error.value))
            yield table([(2, "a", 0.0, 2, 1)], LOG)

        pids: list[str] = []
        one.deliver(Delivery(stamp(1), stamp(2), LOG, Append(slowly)))
        assert "is held by process " in pids[0]
        assert "(slipstream sink sink); this is tried again" in pids[0]
        assert "SELECT pg_terminate_backend(" in pids[0]
        assert not isinstance(TargetBusy("", "", "", ""), SinkStopped)


def test_sinks_that_make_the_table_of_stamps_at_once_do_not_hinder_each_other(dsn: str) -> None:
    with psycopg.connect(dsn) as quicker, closing(opened(dsn)) as target:
        quicker.execute("CREATE TABLE slipstream_sinks (target text PRIMARY KEY, stamp text NOT NULL)")
        with in_background(lambda: target.deliver(Delivery(None, stamp(1), LOG))):
            await_waiting(dsn)
            quicker.commit()
        assert target.stamp() == stamp(1)


def test_many_sinks_begin_in_one_schema_at_once(dsn: str) -> None:
    barrier = threading.Barrier(6)

    def begin(name: str) -> None:
        with closing(opened(dsn, table=name)) as target:
            barrier.wait(30)
            target.deliver(Delivery(None, stamp(1), LOG))

    with ExitStack() as stack:
        for name in "abcdef":
            stack.enter_context(in_background(partial(begin, name)))
    assert len(rows(dsn, "SELECT * FROM slipstream_sinks")) == 6


def test_readers_wait_for_nothing_while_all_is_replaced(dsn: str) -> None:
    wide = SCHEMA.append(pa.field("more", pa.int32()))
    with closing(opened(dsn, "replace")) as target:
        target.deliver(Delivery(None, stamp(1), SCHEMA, replaced([(1, "old", 0.0)])))
        seen: list[list[Row]] = []

        def slowly() -> Iterator[pa.Table]:
            yield table([(1, "new", 0.0, 5)], wide)
            seen.append(rows(f"{dsn[:-1]} -c statement_timeout=3s'"))

        target.deliver(Delivery(stamp(1), stamp(2), wide, Replace(slowly, False)))
        assert seen == [[(1, "old", 0.0, None)]]
        assert rows(dsn) == [(1, "new", 0.0, 5)]


# What breaks


@contextmanager
def in_background(function: Callable[[], object]) -> Iterator[None]:
    """Something is done beside this, and is done in the end."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            function()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(30)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def await_waiting(dsn: str) -> None:
    """Until somebody waits for a lock of somebody else's."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if rows(dsn, "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            return
        time.sleep(0.01)
    raise AssertionError("nobody waits")


def in_child(function: Callable[[], object]) -> int:
    """Do something in a process of its own; how that ended."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            function()
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def second(mode: Mode, between: Callable[[], object] = lambda: None) -> tuple[Delivery, list[Row]]:
    """A delivery onto rows 1 to 3, something that happens half-way, and what is there then."""
    log = [(4, "come", 0.0, 2, 1), (1, "a", 0.0, 2, -1)]
    match mode:
        case "changes":
            tables = [table(log[:1], LOG), table(log[1:], LOG)]
            return Delivery(stamp(1), stamp(2), LOG, Append(lambda: with_between(tables, between))), [
                *START[mode],
                *log,
            ]
        case "replace":
            tables = [table([(4, "come", 0.0)] * 1000), table([(2, "b", 0.0)])]
            after = [(4, "come", 0.0)] * 1000 + [(2, "b", 0.0)]
            return Delivery(
                stamp(1), stamp(2), SCHEMA, Replace(lambda: with_between(tables, between), False)
            ), after
        case "upsert":
            work = Upsert(
                table([(4, "come", 0.0)]), table([(2, "x", 0.0)]), table([(1, "", 0.0)]).select(["id"])
            )
            return Delivery(stamp(1), stamp(2), SCHEMA, work), [
                (2, "x", 0.0),
                (3, "c", 0.0),
                (4, "come", 0.0),
            ]


WHOLE: list[Row] = [(1, "a", 0.0), (2, "b", 0.0), (3, "c", 0.0)]
START: dict[Mode, list[Row]] = {
    "changes": [(*row, 1, 1) for row in WHOLE],
    "replace": WHOLE,
    "upsert": WHOLE,
}


def with_between(tables: list[pa.Table], between: Callable[[], object]) -> Iterator[pa.Table]:
    yield tables[0]
    between()
    yield from tables[1:]


def begun(dsn: str, mode: Mode) -> None:
    with closing(opened(dsn, mode)) as target:
        schema = LOG if mode == "changes" else SCHEMA
        target.deliver(Delivery(None, stamp(1), schema, replaced(START[mode], mode)))


def settled(dsn: str, mode: Mode, *, done: bool) -> None:
    """The table has all of the second delivery or nothing of it, as its stamp says; done again, it has it once."""
    delivery, after = second(mode)
    with closing(opened(dsn, mode)) as target:
        assert target.stamp() == (stamp(2) if done else stamp(1))
        assert sorted(rows(dsn)) == sorted(after if done else START[mode])
        if done:
            with pytest.raises(TargetFenced):
                target.deliver(delivery)
        else:
            target.deliver(delivery)
        assert target.stamp() == stamp(2)
        assert sorted(rows(dsn)) == sorted(after)


@pytest.mark.parametrize("mode", ["changes", "replace"])
def test_a_process_that_dies_among_the_rows_has_done_nothing(dsn: str, mode: Mode) -> None:
    begun(dsn, mode)
    assert in_child(lambda: opened(dsn, mode).deliver(second(mode, die)[0])) == -signal.SIGKILL
    settled(dsn, mode, done=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("done", [False, True])
def test_a_process_that_dies_at_its_commit_has_done_all_or_nothing(dsn: str, mode: Mode, done: bool) -> None:
    begun(dsn, mode)
    commit = psycopg.Connection.commit

    def last(connection: psycopg.Connection[Any]) -> None:
        if done:
            commit(connection)
        die()

    def work() -> None:
        psycopg.Connection.commit = last  # type: ignore[method-assign, assignment]
        opened(dsn, mode).deliver(second(mode)[0])

    assert in_child(work) == -signal.SIGKILL
    settled(dsn, mode, done=done)


def test_a_process_that_dies_in_the_first_delivery_has_made_no_table(dsn: str) -> None:
    def rows_then_death() -> Iterator[pa.Table]:
        yield table(WHOLE)
        die()

    first = Delivery(None, stamp(1), SCHEMA, Replace(rows_then_death, False))
    assert in_child(lambda: opened(dsn, "replace").deliver(first)) == -signal.SIGKILL
    with closing(opened(dsn, "replace")) as target:
        assert target.stamp() is None
        with pytest.raises(psycopg.errors.UndefinedTable):
            rows(dsn)
        target.deliver(Delivery(None, stamp(1), SCHEMA, replaced(WHOLE)))
    assert rows(dsn) == WHOLE


@pytest.mark.parametrize("mode", ["changes", "replace"])
def test_a_server_that_dies_among_the_rows_has_nothing(server: Server, dsn: str, mode: Mode) -> None:
    begun(dsn, mode)
    with closing(opened(dsn, mode)) as target:
        with pytest.raises(psycopg.OperationalError) as error:
            target.deliver(second(mode, server.kill)[0])
        with pytest.raises(psycopg.OperationalError):
            target.stamp()
        server.start()
        assert "hunter2" not in str(error.value)
        assert target.stamp() == stamp(1)
    settled(dsn, mode, done=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("done", [False, True])
def test_a_server_that_dies_at_the_commit_has_all_or_nothing(
    server: Server, dsn: str, mode: Mode, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(dsn, mode)
    commit = psycopg.Connection.commit

    def last(connection: psycopg.Connection[Any]) -> None:
        if done:
            commit(connection)
        server.kill()
        commit(connection)
        raise psycopg.OperationalError("the answer is lost")

    with closing(opened(dsn, mode)) as target, monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "commit", last)
        with pytest.raises(psycopg.OperationalError):
            target.deliver(second(mode)[0])
    server.start()
    settled(dsn, mode, done=done)


def test_rows_that_cannot_be_read_are_no_half_delivery(dsn: str) -> None:
    begun(dsn, "changes")

    def fail() -> None:
        raise RuntimeError("no such layer")

    with closing(opened(dsn)) as target:
        with pytest.raises(RuntimeError, match="no such layer"):
            target.deliver(second("changes", fail)[0])
        settled(dsn, "changes", done=False)


def test_after_a_session_was_ended_the_next_delivery_has_another(dsn: str) -> None:
    begun(dsn, "changes")
    with closing(opened(dsn)) as target:
        assert target.stamp() == stamp(1)
        run(
            dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'slipstream sink sink'",
        )
        with pytest.raises(psycopg.OperationalError):
            target.deliver(second("changes")[0])
        target.deliver(second("changes")[0])
    assert sorted(rows(dsn)) == sorted(second("changes")[1])


def test_where_the_table_was_dropped_there_is_no_stamp(dsn: str) -> None:
    begun(dsn, "replace")
    with closing(opened(dsn, "replace")) as target:
        run(dsn, "DROP TABLE t")
        with pytest.raises(TargetFenced, match="it is gone"):
            target.deliver(second("replace")[0])
        assert target.stamp() is None
        target.deliver(Delivery(None, stamp(3), SCHEMA, replaced(WHOLE)))
        assert target.stamp() == stamp(3)
    assert rows(dsn) == WHOLE


def test_where_the_stamp_was_taken_away_rows_are_nobodys(dsn: str) -> None:
    begun(dsn, "replace")
    with closing(opened(dsn, "replace")) as target:
        run(dsn, "DELETE FROM slipstream_sinks")
        with pytest.raises(TargetFenced, match="its stamp is gone"):
            target.deliver(second("replace")[0])
        with pytest.raises(TargetNotOurs, match="has rows that no sink wrote"):
            target.stamp()
        with pytest.raises(TargetNotOurs, match="has rows that no sink wrote"):
            target.deliver(Delivery(None, stamp(3), SCHEMA, replaced(WHOLE)))
    assert rows(dsn) == WHOLE


def test_a_stamp_that_no_sink_wrote_is_damaged(dsn: str) -> None:
    begun(dsn, "replace")
    run(dsn, "UPDATE slipstream_sinks SET stamp = '{}'")
    with closing(opened(dsn, "replace")) as target, pytest.raises(DamagedStamp, match="table t of database"):
        target.stamp()


def test_a_commit_is_on_disk_whatever_the_role_is_set_to(dsn: str) -> None:
    lax = f"{dsn[:-1]} -c synchronous_commit=off -c lock_timeout=1 -c default_transaction_isolation=serializable'"
    with closing(connecting.connect(lax, "sink")) as connection:
        connecting.begin(connection)
        for setting, value in (
            ("synchronous_commit", "on"),
            ("lock_timeout", "30s"),
            ("transaction_isolation", "read committed"),
        ):
            assert connection.execute(f"SHOW {setting}").fetchone() == (value,)
        connection.commit()
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)


def test_a_connection_notices_that_its_server_is_gone(dsn: str) -> None:
    with closing(connecting.connect(f"{dsn} keepalives_idle=7", "sink")) as connection:
        chosen = connection.info.get_parameters()
        assert (chosen["connect_timeout"], chosen["keepalives_idle"]) == ("10", "7")
        assert chosen["tcp_user_timeout"] == "60000"
