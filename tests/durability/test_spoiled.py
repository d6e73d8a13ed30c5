"""A replica of which a start found that it does not hold what it promised: nothing is durable there until what is
damaged was sent again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.durability.board import Board, Progress, Replication, decode_replication, read_replication
from slipstream.durability.fsck import check_replica
from slipstream.durability.recovery import Kind
from slipstream.observe import read_frontiers
from slipstream.store import documents, layout
from slipstream.store.disk import LocalDisk
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected
from slipstream.trace import LayerName

EPOCHS = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of six epochs, and two replicas that hold all of them."""
    folder = tmp_path_factory.mktemp("made")
    urls = (f"file://{folder}/one", f"file://{folder}/two")
    engine = Pretend.start(folder / "store", *urls, safe_on=2)
    clock = ManualClock()
    agent = engine.agent(*urls, clock=clock)
    for _ in range(EPOCHS // 2):
        agent.hear(engine.run(2))
        clock.advance(2)
        agent.lineage()
        agent.follow()
        agent.persist()
    engine.close()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it, whose store says so: what it says of replicas goes by their URLs."""
    shutil.copytree(made, tmp_path / "copy")
    disk = LocalDisk(tmp_path / "copy" / "store")
    said = read_replication(disk).encode()
    said["replicas"] = {
        url.replace(str(made), str(tmp_path / "copy")): each for url, each in said["replicas"].items()
    }
    disk.replace(layout.PROGRESS, documents.encode(said), flushed=False)
    return tmp_path / "copy"


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


def flip_data(replica: Path) -> None:
    for path in replica.glob("data/*"):
        flip(path)


def flip_lineage(replica: Path) -> None:
    for path in replica.glob("lineage/*"):
        flip(path)


def flip_newest_commit(replica: Path) -> None:
    """Both copies of its body."""
    path = max(replica.glob("commits/*"))
    path.write_bytes(path.read_bytes().replace(b'"epoch"', b'"epocH"'))


def lose_layers(store: Path) -> None:
    for path in (store / layout.TRACES).glob("*/*/*"):
        if LayerName.parse(path.name) is not None:
            path.write_bytes(b"")


@pytest.mark.parametrize("harm", [flip_data, flip_lineage, flip_newest_commit])
@pytest.mark.parametrize("lose", [shutil.rmtree, lose_layers])
def test_a_replica_that_was_passed_over_is_not_durable_until_all_was_sent_again(
    folder: Path, harm: Callable[[Path], None], lose: Callable[[Path], None]
) -> None:
    one, two = f"file://{folder}/one", f"file://{folder}/two"
    harm(folder / "one")
    lose(folder / "store")
    engine = Pretend.start(folder / "store", one, two, safe_on=2)
    assert engine.epoch == EPOCHS
    said = read_replication(engine.store.disk).replicas
    assert said[one].durable == 0
    assert said[one].spoiled
    assert read_frontiers(engine.root).durable[one].durable == 0
    agent = engine.agent(one, two)
    assert agent.board.progress(one).durable == 0
    agent.all(engine.run(1))
    assert agent.board.progress(one).durable == EPOCHS + 1
    engine.close()
    known = {"commits", *said[one].spoiled}  # of earlier commits, until they are deleted
    assert [each for each in check_replica(one).findings if each.where not in known] == []
    shutil.rmtree(folder / "store")
    shutil.rmtree(folder / "two")
    again = Pretend.start(folder / "store", one)
    assert again.epoch == EPOCHS + 1
    for trace in (BAG, KEYED):
        assert contents(again.root, trace, EPOCHS + 1) == expected(trace, EPOCHS + 1)
    again.close()


def test_what_was_found_is_known_to_the_next_start(folder: Path) -> None:
    """The engine dies before its agent has done anything; the next one has a store that is whole and asks nobody."""
    one, two = f"file://{folder}/one", f"file://{folder}/two"
    flip_data(folder / "one")
    lose_layers(folder / "store")
    Pretend.start(folder / "store", one, two).close()
    engine = Pretend.start(folder / "store", one, two)
    assert engine.started is not None
    assert engine.started.plan.kind is Kind.GO_ON
    assert engine.agent(one, two).board.progress(one).durable == 0
    engine.close()


def test_nothing_is_called_safe_on_behalf_of_a_spoiled_replica(folder: Path) -> None:
    """Two replicas make an epoch safe: one is harmed, and the other alone does not."""
    one, two = f"file://{folder}/one", f"file://{folder}/two"
    flip_data(folder / "one")
    shutil.rmtree(folder / "store")
    engine = Pretend.start(folder / "store", one, two, safe_on=2)
    engine.run(1)
    board = Board(engine.store, engine.claim.incarnation, (one, two), 2, after=engine.after)
    for url, safe in ((two, 0), (one, EPOCHS + 1)):
        board.post(url, lambda known: replace(known, durable=EPOCHS + 1))
        assert (board.safe, read_frontiers(engine.root).safe) == (safe, safe)
    engine.close()


def test_a_follower_that_meets_a_damaged_object_sends_it_again(folder: Path) -> None:
    """Found when layers are merged on the replica, long after the start."""
    one = f"file://{folder}/one"
    engine = Pretend.start(folder / "store", one)
    agent = engine.agent(one)
    agent.all(engine.run(1))
    flip_data(folder / "one")
    for _ in range(20):
        agent.all(engine.run(1))
    assert agent.board.progress(one).durable == engine.epoch
    engine.close()
    shutil.rmtree(folder / "store")
    again = Pretend.start(folder / "store", one)
    assert contents(again.root, BAG, again.epoch) == expected(BAG, engine.epoch)
    again.close()


def test_spoiled_objects_are_forgotten_once_they_are_deleted(folder: Path) -> None:
    one, two = f"file://{folder}/one", f"file://{folder}/two"
    flip_data(folder / "one")
    lose_layers(folder / "store")
    engine = Pretend.start(folder / "store", one, two)
    spoiled = read_replication(engine.store.disk).replicas[one].spoiled
    agent = engine.agent(one, two)
    for _ in range(30):
        agent.all(engine.run(1))
    assert not any((folder / "one" / name).exists() for name in spoiled)
    assert agent.board.progress(one).spoiled == ()
    engine.close()


def test_progress_of_an_earlier_version_is_read() -> None:
    body = {**Replication().encode(), "replicas": {"file:///one": {"durable": 3}}}
    said = decode_replication(documents.encode(body))
    assert said is not None
    assert said.replicas["file:///one"] == Progress(durable=3)
