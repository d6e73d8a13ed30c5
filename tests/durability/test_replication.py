"""Replication as the agent does it: increments, commits, upkeep, garbage; against a folder, without Spark."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from slipstream.durability import follower as follower_module
from slipstream.durability.agent import Agent, tend
from slipstream.durability.board import Board, Progress, read_replication
from slipstream.durability.follower import Follower
from slipstream.durability.inbox import fetch_layers, fetch_lineage, newest_manifest
from slipstream.durability.lineage import history_of
from slipstream.durability.manifest import Manifest
from slipstream.durability.replica import Replica
from slipstream.durability.replicate import Increment, plan_increment
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, eventually, expected


@pytest.fixture
def pretend(tmp_path: Path) -> Iterator[Pretend]:
    engine = Pretend.on(tmp_path / "store")
    yield engine
    engine.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/replica"


def followed(pretend: Pretend, url: str) -> tuple[Board, Follower]:
    """A follower whose steps the test takes itself."""
    board = Board(pretend.root, pretend.claim.incarnation, (url,))
    return board, Follower(pretend.origin(), url, board)


def durable(pretend: Pretend, url: str) -> int:
    return read_replication(pretend.root).replicas.get(url, Progress()).durable


def manifest_of(url: str) -> Manifest:
    found = newest_manifest(Replica(url))
    assert found is not None
    return found


def brought_back(url: str, to: Path) -> Manifest:
    """Everything that a replica holds, under a folder."""
    replica, manifest = Replica(url), manifest_of(url)
    wanted = [(trace, kept) for trace, layers in manifest.layers.items() for kept in layers]
    fetch_layers(replica, manifest, wanted, to, to / "spool")
    return manifest


def check(url: str, to: Path, earliest: int, epoch: int) -> None:
    """A replica holds every epoch from one to another."""
    manifest = brought_back(url, to)
    assert manifest.epoch == epoch
    for each in range(earliest, epoch + 1):
        assert contents(to, BAG, each) == expected(BAG, each)
    assert contents(to, KEYED, epoch) == expected(KEYED, epoch)
    lines = fetch_lineage(Replica(url), manifest, to / "spool").splitlines()
    history = history_of(json.loads(line) for line in lines)
    assert [each.epoch for each in history.computed] == list(range(1, epoch + 1))
    assert [cut.epoch for cut in history.cuts] == list(range(1, epoch + 1))


def test_what_gathered_goes_out_together(pretend: Pretend, url: str, tmp_path: Path) -> None:
    board, follower = followed(pretend, url)
    assert not follower.step()
    board.tell(pretend.run(1))
    assert follower.step()
    assert not follower.step()
    board.tell(pretend.run(9))
    assert follower.step()
    check(url, tmp_path / "back", 1, 10)
    progress = read_replication(pretend.root).replicas[url]
    assert (progress.durable, progress.error) == (10, None)


def test_a_folder_that_is_made_while_it_is_listed_has_nothing_yet(tmp_path: Path) -> None:
    """PyArrow, asked to allow for a folder that is not there, looks a second time before it believes it."""
    replica = Replica(f"file://{tmp_path}")
    replica._files = Mock(get_file_info=Mock(side_effect=FileNotFoundError("Cannot list directory")))
    assert replica.list("commits") == {}


def test_a_replica_that_is_behind_gets_merged_layers(pretend: Pretend, url: str, tmp_path: Path) -> None:
    board, follower = followed(pretend, url)
    board.tell(pretend.run(1))
    follower.step()
    before = set(Replica(url).list("data"))
    for _ in range(40):
        word = pretend.run(1)
        board.tell(word)
        tend(pretend.root, word, board.barriers())
    follower.step()
    manifest = manifest_of(url)
    sent = {name for name in Replica(url).list("data") if name not in before}
    layers = [kept for kept in manifest.layers[KEYED] if kept.object in sent or not kept.object]
    assert manifest.epoch == 41
    assert all(kept.layer.lo > 1 or kept.layer.hi == 41 for kept in layers)
    assert len(layers) < 20, "single layers were skipped in favour of merged ones"
    check(url, tmp_path / "back", 1, 41)


def test_merging_on_the_host_never_makes_a_replica_start_over(
    pretend: Pretend, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[bool] = []

    def noted(*arguments: Any) -> Increment:
        whole.append((made := plan_increment(*arguments)).whole)
        return made

    monkeypatch.setattr(follower_module, "plan_increment", noted)
    board, follower = followed(pretend, url)
    for _ in range(60):
        word = pretend.run(1)
        board.tell(word)
        tend(pretend.root, word, board.barriers())
        if word.computed % 7 == 0:
            follower.step()
    assert whole == [True, True] + [False, False] * 7
    check(url, tmp_path / "back", 1, 56)


def test_one_who_does_not_know_the_replica_sends_all_of_what_was_merged_across_its_frontier(
    pretend: Pretend, url: str, tmp_path: Path
) -> None:
    board, follower = followed(pretend, url)
    board.tell(pretend.run(3))
    follower.step()
    word = pretend.run(5)
    tend(pretend.root, word)
    board.tell(word)
    follower.step()
    check(url, tmp_path / "back", 1, 8)


def test_disk_use_stays_bounded_where_keys_are_updated_for_ever(pretend: Pretend, url: str) -> None:
    """Changes to 50 keys, epoch after epoch, 10 epochs of history: no more at the end than early on, here and there."""
    board, follower = followed(pretend, url)
    sizes: dict[int, tuple[int, int]] = {}
    for epoch in range(1, 2001):
        pretend.keep_from = max(0, epoch - 10)
        pretend.window = 20
        word = pretend.run(1)
        if epoch % 10 == 0:
            board.tell(word)
            tend(pretend.root, word, board.barriers())
            follower.step()
        if epoch in (200, 2000):
            sizes[epoch] = (tree_bytes(pretend.root / "traces"), replica_bytes(url))
    host, replica = (sizes[2000][i] / sizes[200][i] for i in (0, 1))
    assert host < 1.5
    assert replica < 1.5


def test_an_agent_replicates_to_several_replicas_and_a_stalled_one_holds_back_nobody(
    pretend: Pretend, tmp_path: Path
) -> None:
    fine, blocked = f"file://{tmp_path}/fine", f"file://{tmp_path}/blocked"
    (tmp_path / "blocked").write_text("a file where the folder should be")
    agent = Agent(pretend.charge(fine, blocked))
    try:
        agent.tell(pretend.run(5))
        assert eventually(lambda: durable(pretend, fine) == 5)
        assert eventually(lambda: read_replication(pretend.root).persisted == 5)
        stuck = read_replication(pretend.root).replicas[blocked]
        assert stuck.durable == 0
        assert stuck.error is not None
        (tmp_path / "blocked").unlink()
        assert eventually(lambda: durable(pretend, blocked) == 5)
    finally:
        agent.close()
    check(blocked, tmp_path / "back", 1, 5)


def test_a_killed_agent_goes_on_from_its_last_commit(pretend: Pretend, url: str, tmp_path: Path) -> None:
    agent = Agent(pretend.charge(url))
    try:
        agent.tell(pretend.run(3))
        assert eventually(lambda: durable(pretend, url) == 3)
        killed = agent.pid
        os.kill(killed, signal.SIGKILL)
        word = pretend.run(3)

        def told_again() -> bool:
            agent.tell(word)
            return agent.pid != killed

        assert eventually(told_again)
        assert eventually(lambda: durable(pretend, url) == 6)
    finally:
        agent.close()
    check(url, tmp_path / "back", 1, 6)


def test_an_object_that_was_lost_is_sent_again(pretend: Pretend, url: str, tmp_path: Path) -> None:
    board, follower = followed(pretend, url)
    board.tell(pretend.run(3))
    follower.step()
    for folder in ("data", "lineage"):
        for name in Replica(url).list(folder):
            Replica(url).delete(name)
    board, again = followed(pretend, url)
    board.tell(pretend.run(1))
    assert again.step()
    check(url, tmp_path / "back", 1, 4)


def tree_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def replica_bytes(url: str) -> int:
    return tree_bytes(Path(url.removeprefix("file://")) / "data")
