"""What the agent's parts post: seen at once, written when it can be, and never taken back where it was promised."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import StoreFull
from slipstream.durability.board import Board, Progress, Replication, Word, read_replication
from slipstream.durability.frontiers import Watching, frontiers
from slipstream.store.disk import Disk, LocalDisk
from slipstream.store.history import history_of
from slipstream.store.layout import PROGRESS, copy_of
from slipstream.store.records import Computed, Cut
from slipstream.store.store import Store, claim_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    claim = claim_store(Store.at(tmp_path), "app")
    yield claim.store
    claim.release()


def durable(board: Board, url: str, epoch: int) -> None:
    board.post(url, lambda known: replace(known, durable=epoch))


def test_what_is_posted_is_in_the_store(store: Store) -> None:
    board = Board(store, 1, ("a", "b"), safe_on=2, clock=ManualClock(7.0))
    durable(board, "a", 5)
    durable(board, "b", 3)
    board.persisted(6)
    board.trouble("upkeep", "no room")
    board.damaged(("traces/v/1-view/x",))
    said = read_replication(store.disk)
    assert {url: each.durable for url, each in said.replicas.items()} == {"a": 5, "b": 3}
    assert (said.persisted, said.safe, said.incarnation) == (6, 3, 1)
    assert (said.errors["upkeep"].time, said.errors["upkeep"].error) == (7.0, "no room")
    assert said.damage == "damaged layers, of which no replica has a copy: traces/v/1-view/x"
    assert Watching(store.disk).now() == said


@pytest.mark.parametrize("damage", [b"", bytes(50), b"{}", b'{"digest": "x", "body": {"persisted": 9}}'])
def test_a_damaged_document_says_nothing_and_is_written_again(store: Store, damage: bytes) -> None:
    board = Board(store, 1, ("a",))
    durable(board, "a", 5)
    watching = Watching(store.disk)
    known = watching.now()
    (store.root / PROGRESS).write_bytes(damage)
    assert read_replication(store.disk) == known, "its copy says what was promised"
    (store.root / copy_of(PROGRESS)).write_bytes(damage)
    assert read_replication(store.disk) == Replication()
    assert watching.now() == known, "who has read it before keeps what it knew"
    durable(board, "a", 6)
    assert read_replication(store.disk).replicas["a"].durable == 6


def test_what_was_promised_survives_whatever_was_not_flushed(store: Store) -> None:
    """Posts that promise nothing new are not flushed: a power cut may leave zeros of them."""
    board = Board(store, 1, ("a",))
    durable(board, "a", 5)
    board.persisted(7)
    board.trouble("upkeep", "no room")
    (store.root / PROGRESS).write_bytes(bytes(99))
    said = read_replication(store.disk)
    assert (said.persisted, said.safe, said.errors) == (7, 5, {})


def test_safe_is_not_taken_back_where_a_replica_loses_something(store: Store) -> None:
    board = Board(store, 1, ("a",))
    durable(board, "a", 5)
    durable(board, "a", 0)
    said = read_replication(store.disk)
    assert (said.safe, said.replicas["a"].durable) == (5, 0)
    again = Board(store, 1, ("a",))
    assert again.safe == 5
    past = history_of(
        record
        for epoch in range(1, 7)
        for record in (Cut(epoch, 0.0, {}), Computed(epoch=epoch, clock=0.0, seconds=0.1, rows=1))
    )
    shown = frontiers(said, past, 0, 1.0)
    assert (shown.safe, shown.durable["a"].durable) == (5, 0)


def test_an_incarnation_that_went_back_does_not_believe_what_was_said_past_its_beginning(
    store: Store,
) -> None:
    board = Board(store, 1, ("a",))
    durable(board, "a", 9)
    board.persisted(9)
    assert Board(store, 1, ("a",)).progress("a").durable == 9, "an agent that is started again does"
    second = Board(store, 2, ("a",), after=4)
    assert (second.safe, second.progress("a").durable) == (4, 4)
    second.persisted(5)
    assert read_replication(store.disk).persisted == 5


def test_progress_that_cannot_be_written_holds_up_nobody_and_is_written_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(store, 1, ("a",))
    with monkeypatch.context() as full:

        def fails(*_: object, **__: object) -> None:
            raise StoreFull("store")

        full.setattr(LocalDisk, "replace", fails)
        durable(board, "a", 5)
        assert board.progress("a").durable == 5
    assert read_replication(store.disk).replicas == {}
    board.settle()
    assert read_replication(store.disk).replicas["a"].durable == 5


def test_the_last_that_is_posted_is_what_is_written_in_the_end(store: Store) -> None:
    """Threads post while another is in the middle of writing."""
    board = Board(store, 1, tuple("abcd"))

    def posts(url: str) -> None:
        for epoch in range(1, 51):
            durable(board, url, epoch)

    threads = [threading.Thread(target=posts, args=(url,)) for url in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = read_replication(store.disk)
    assert {url: each.durable for url, each in said.replicas.items()} == dict.fromkeys("abcd", 50)


def test_what_is_posted_while_another_part_looks_at_what_stands_is_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One part writes, a second reads what is written, and meanwhile a third posts: all that is forced to happen."""
    clock = ManualClock()
    board = Board(store, 1, ("a",), clock=clock)
    write, read = Board._write, read_replication

    def written_meanwhile(own: Board, said: Replication) -> str | None:
        monkeypatch.undo()
        monkeypatch.setattr("slipstream.durability.board.read_replication", posted_meanwhile)
        clock.advance(3600)
        own.settle()
        return write(own, said)

    def posted_meanwhile(disk: Disk) -> Replication:
        monkeypatch.undo()
        durable(board, "a", 7)
        return read(disk)

    durable(board, "a", 3)
    monkeypatch.setattr(Board, "_write", written_meanwhile)
    durable(board, "a", 5)
    assert read_replication(store.disk).replicas["a"].durable == 7


def test_nothing_is_merged_across_where_a_follower_stands_or_is_about_to(store: Store) -> None:
    board = Board(store, 1, ("a", "b"))
    assert board.barriers() == {0}
    board.tell(Word(7, 0, ()))
    told = board.aim("a", 3)
    assert told is not None
    assert told.word.computed == 7
    assert board.barriers() == {0, 3, 7}
    board.tell(Word(9, 0, ()))
    assert board.barriers() == {0, 3, 7}
    board.aim("b", 9)
    assert board.barriers() == {0, 3, 7, 9}, "0 is what is on the disk itself"
    board.persisted(5)
    assert board.barriers() == {3, 5, 7, 9}


def test_news_wakes_whoever_waits(store: Store) -> None:
    board = Board(store, 1, ())
    wake = board.waker()
    board.hear(Word(1, 0, ()))
    assert wake.is_set()
    wake.clear()
    board.tell(Word(1, 0, ()))
    assert wake.is_set()


def test_a_part_that_works_again_says_since_when(store: Store) -> None:
    clock = ManualClock(1.0)
    board = Board(store, 1, (), clock=clock)
    board.works("sums")
    board.trouble("sums", "no room")
    clock.advance(4.0)
    board.works("sums")
    clock.advance(4.0)
    board.works("sums")
    assert read_replication(store.disk).errors["sums"].over == 5.0


def test_progress_of_a_replica_that_is_new_is_none(store: Store) -> None:
    assert Board(store, 1, ("a",)).progress("a") == Progress()
