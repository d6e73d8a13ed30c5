"""Replication as the agent does it: increments, commits, upkeep, garbage; against a folder, without Spark."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import DamagedLayer, SupersededOnReplica
from slipstream.durability import follower as follower_module
from slipstream.durability.agent import Agent
from slipstream.durability.board import Progress, read_replication
from slipstream.durability.replica import Replica
from slipstream.durability.replicate import Increment, plan_increment
from slipstream.testing.copies import check_replica_holds, newest_manifest, objects_of
from slipstream.testing.pretend import KEYED, Hands, Pretend, eventually


@pytest.fixture
def pretend(tmp_path: Path) -> Iterator[Pretend]:
    engine = Pretend.on(tmp_path / "store")
    yield engine
    engine.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/replica"


def follower_of(agent: Hands, url: str) -> Any:
    return agent.parts[f"replica {url}"]


def progress_of(pretend: Pretend, url: str) -> Progress:
    return read_replication(pretend.store.disk).replicas.get(url, Progress())


def durable(pretend: Pretend, url: str) -> int:
    return progress_of(pretend, url).durable


def test_what_gathered_goes_out_together(pretend: Pretend, url: str, tmp_path: Path) -> None:
    agent = pretend.agent(url)
    agent.follow()
    agent.hear(pretend.run(1))
    agent.follow()
    agent.hear(pretend.run(9))
    agent.follow()
    manifest = check_replica_holds(url, tmp_path / "back", 1, 10)
    assert all(kept.digest for layers in manifest.layers.values() for kept in layers)
    assert (manifest.app, manifest.id) == ("pretend", pretend.identity.id)
    progress = progress_of(pretend, url)
    assert (progress.durable, progress.error) == (10, None)
    assert read_replication(pretend.store.disk).safe == 10


def test_a_folder_that_is_made_while_it_is_listed_has_nothing_yet(tmp_path: Path) -> None:
    """PyArrow, asked to allow for a folder that is not there, looks a second time before it believes it."""
    replica = Replica(f"file://{tmp_path}")
    replica._files = Mock(get_file_info=Mock(side_effect=FileNotFoundError("Cannot list directory")))
    assert replica.list("commits") == {}


@pytest.mark.parametrize("shared", [False, True])
def test_a_local_replica_is_as_private_as_its_store(tmp_path: Path, shared: bool) -> None:
    mask = os.umask(0o022)
    try:
        replica = Replica(f"file://{tmp_path}/far/replica", shared=shared)
        replica.put("data/one", b"1")
        replica.put("data/two", tmp_path / "far" / "replica" / "data" / "one")
    finally:
        os.umask(mask)
    root = tmp_path / "far" / "replica"
    found = {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert found == ({0o755, 0o644} if shared else {0o700, 0o600})
    assert (replica.get("data/one"), replica.get("data/two")) == (b"1", b"1")


def test_a_replica_that_is_behind_gets_merged_layers(pretend: Pretend, url: str, tmp_path: Path) -> None:
    agent = pretend.agent(url)
    agent.hear(pretend.run(1))
    agent.follow()
    before = set(Replica(url).list("data"))
    for _ in range(40):
        agent.hear(pretend.run(1))
        agent.upkeep()
    agent.follow()
    manifest = newest_manifest(url)
    sent = {name for name in Replica(url).list("data") if name not in before}
    layers = [kept for kept in manifest.layers[KEYED] if kept.object in sent or not kept.object]
    assert manifest.epoch == 41
    assert all(kept.layer.lo > 1 or kept.layer.hi == 41 for kept in layers)
    assert len(layers) < 20, "single layers were skipped in favour of merged ones"
    check_replica_holds(url, tmp_path / "back", 1, 41)


def test_merging_on_the_host_never_makes_a_replica_start_over(
    pretend: Pretend, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[bool] = []

    def noted(*arguments: Any) -> Increment:
        whole.append((made := plan_increment(*arguments)).whole)
        return made

    monkeypatch.setattr(follower_module, "plan_increment", noted)
    agent = pretend.agent(url)
    for _ in range(60):
        word = pretend.run(1)
        agent.hear(word)
        agent.upkeep()
        if word.computed % 7 == 0:
            agent.follow()
    assert whole == [True, True] + [False, False] * 7
    check_replica_holds(url, tmp_path / "back", 1, 56)


def test_one_who_does_not_know_the_replica_sends_all_of_what_was_merged_across_its_frontier(
    pretend: Pretend, url: str, tmp_path: Path
) -> None:
    agent = pretend.agent(url)
    agent.hear(pretend.run(3))
    agent.follow()
    alone = pretend.agent()
    alone.hear(pretend.run(5))
    alone.upkeep()
    agent.hear(pretend.run(1))
    agent.follow()
    check_replica_holds(url, tmp_path / "back", 1, 9)


def test_disk_use_stays_bounded_where_keys_are_updated_for_ever(pretend: Pretend, url: str) -> None:
    """Changes to 50 keys, epoch after epoch, 10 epochs of history: no more at the end than early on, here and there."""
    agent = pretend.agent(url)
    sizes: dict[int, tuple[int, int]] = {}
    pretend.window = 20
    for epoch in range(10, 601, 10):
        pretend.keep_from = max(0, epoch - 10)
        agent.hear(pretend.run(10))
        agent.upkeep()
        agent.follow()
        sizes[epoch] = (tree_bytes(pretend.root / "traces"), replica_bytes(url))
    for place in (0, 1):
        early, late = (
            max(each[place] for epoch, each in sizes.items() if lo < epoch <= lo + 200) for lo in (0, 400)
        )
        assert late < 1.5 * early
    assert len(Replica(url).list("lineage")) < 40, "stretches of lineage are joined"


def test_an_agent_replicates_to_several_replicas_and_a_stalled_one_holds_back_nobody(
    pretend: Pretend, tmp_path: Path
) -> None:
    fine, blocked = f"file://{tmp_path}/fine", f"file://{tmp_path}/blocked"
    (tmp_path / "blocked").write_text("a file where the folder should be")
    agent = Agent(pretend.charge(fine, blocked))
    try:
        agent.tell(pretend.run(5))
        assert eventually(lambda: durable(pretend, fine) == 5)
        assert eventually(lambda: read_replication(pretend.store.disk).persisted == 5)
        assert eventually(lambda: progress_of(pretend, blocked).error is not None)
        stuck = read_replication(pretend.store.disk)
        assert stuck.replicas[blocked].durable == 0
        assert "ReplicaTrouble" in stuck.errors[f"replica {blocked}"].error
        assert stuck.errors[f"replica {blocked}"].over is None
        (tmp_path / "blocked").unlink()
        assert eventually(lambda: durable(pretend, blocked) == 5)
        assert eventually(
            lambda: read_replication(pretend.store.disk).errors[f"replica {blocked}"].over is not None
        )
    finally:
        agent.close()
    check_replica_holds(blocked, tmp_path / "back", 1, 5)


def test_a_killed_agent_goes_on_from_its_last_commit(pretend: Pretend, url: str, tmp_path: Path) -> None:
    agent = Agent(pretend.charge(url))
    try:
        agent.tell(pretend.run(3))
        assert eventually(lambda: durable(pretend, url) == 3)
        killed = agent.pid
        os.kill(killed, signal.SIGKILL)
        agent.tell(pretend.run(3))

        def looked() -> bool:
            agent.look()
            return durable(pretend, url) == 6

        assert eventually(looked)
        assert agent.pid != killed
    finally:
        agent.close()
    check_replica_holds(url, tmp_path / "back", 1, 6)


@pytest.mark.parametrize("folder", ["data", "lineage", "sums", "catalog"])
def test_an_object_that_was_lost_is_sent_again(
    pretend: Pretend, url: str, tmp_path: Path, folder: str
) -> None:
    agent = pretend.agent(url)
    agent.hear(pretend.run(3))
    agent.follow()
    for name in Replica(url).list(folder):
        Replica(url).delete(name)
    again = pretend.agent(url)
    again.follow()
    assert durable(pretend, url) == 0, "a replica that lacks something holds nothing for certain"
    assert "are gone or damaged" in str(progress_of(pretend, url).error)
    again.hear(pretend.run(1))
    again.follow()
    check_replica_holds(url, tmp_path / "back", 1, 4)
    assert progress_of(pretend, url).error is None
    assert read_replication(pretend.store.disk).safe == 4


@pytest.mark.parametrize("lost", ["everything", "the newest commit", "an object"])
def test_an_idle_app_looks_at_its_replica_now_and_then(
    pretend: Pretend, url: str, tmp_path: Path, lost: str
) -> None:
    clock = ManualClock()
    agent = pretend.agent(url, clock=clock)
    agent.hear(pretend.run(3))
    agent.follow()
    doomed = {
        "everything": objects_of(url),
        "the newest commit": {newest_manifest(url).encode()[0]},
        "an object": {min(Replica(url).list("data"))},
    }[lost]
    for name in doomed:
        Replica(url).delete(name)
    clock.advance(29.0)
    agent.follow()
    assert not doomed & objects_of(url), "it does not look at every step"
    clock.advance(2.0)
    agent.follow()
    check_replica_holds(url, tmp_path / "back", 1, 3)
    said = read_replication(pretend.store.disk)
    told = (
        "are gone or damaged"
        if lost == "an object"
        else "was said to hold epoch 3, and its newest commit is of"
    )
    assert told in said.errors[f"replica {url}"].error
    assert said.errors[f"replica {url}"].over is not None
    assert said.replicas[url].error is None


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_damaged_newest_commit_is_said_and_made_up_for(
    pretend: Pretend, url: str, tmp_path: Path, damage: str
) -> None:
    agent = pretend.agent(url)
    agent.hear(pretend.run(1))
    agent.follow()
    agent.hear(pretend.run(1))
    agent.follow()
    newest = Path(f"{tmp_path}/replica/{newest_manifest(url).encode()[0]}")
    if damage == "gone":
        newest.unlink()
    else:
        newest.write_bytes(newest.read_bytes().replace(b'"epoch"', b'"epock"'))
    again = pretend.agent(url)
    again.follow()
    said = str(progress_of(pretend, url).error)
    if damage == "gone":
        assert said.startswith("it was said to hold epoch 2, and its newest commit is of epoch 1")
    else:
        assert "is damaged: its checksum is not the one in its name" in said
        assert said.endswith("; epoch 1 counts")
    assert durable(pretend, url) == 1
    again.hear(pretend.run(1))
    again.follow()
    check_replica_holds(url, tmp_path / "back", 1, 3)
    assert progress_of(pretend, url).error is None


def test_a_replica_all_of_whose_commits_are_damaged_is_sent_everything(
    pretend: Pretend, url: str, tmp_path: Path
) -> None:
    agent = pretend.agent(url)
    for _ in range(3):
        agent.hear(pretend.run(1))
        agent.follow()
    for commit in (tmp_path / "replica" / "commits").iterdir():
        commit.write_bytes(b"")
    again = pretend.agent(url)
    again.follow()
    assert "everything is sent again" in str(progress_of(pretend, url).error)
    again.hear(pretend.run(1))
    again.follow()
    check_replica_holds(url, tmp_path / "back", 1, 4)


def test_a_damaged_layer_is_not_uploaded(pretend: Pretend, url: str) -> None:
    agent = pretend.agent(url)
    word = pretend.run(3)
    layer = pretend.store.valid_layers(KEYED)[0]
    path = pretend.root / KEYED / layer.filename
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 3] ^= 1
    path.write_bytes(raw)
    agent.hear(word)
    with pytest.raises(DamagedLayer):
        agent.follow()
    assert Replica(url).list("commits") == {}
    said = read_replication(pretend.store.disk)
    assert said.damaged == (f"{KEYED}/{layer.filename}",)
    assert layer.filename in str(said.replicas[url].error)


def test_what_a_later_incarnation_may_need_is_not_deleted(pretend: Pretend, url: str, tmp_path: Path) -> None:
    """Another process has claimed the replica, between the listing and the first deletion."""
    agent = pretend.agent(url)
    for _ in range(4):
        agent.hear(pretend.run(1))
        agent.follow()
    follower = follower_of(agent, url)
    joined = follower._joined
    joined._until_garbage = 0
    before = objects_of(url)
    deleted: list[str] = []
    joined._objects = watched = Mock(wraps=joined._objects, url=url)

    def claimed_meanwhile(name: str) -> None:
        deleted.append(name)
        Path(f"{tmp_path}/replica/{name}").unlink()
        Replica(url).put("incarnations/000009-0000000002-ab", b"{}")

    watched.delete.side_effect = claimed_meanwhile
    with pytest.raises(SupersededOnReplica):
        joined._discard()
    assert len(deleted) == 1, "only what went before the claim"
    assert before - objects_of(url) == set(deleted)


def test_a_superseded_follower_is_ignored_and_stops(tmp_path: Path, url: str) -> None:
    """The successor has a copy of the store, on another machine; the first knows nothing of it."""
    first = Pretend.on(tmp_path / "store")
    agent = first.agent(url)
    agent.hear(first.run(3))
    agent.follow()
    shutil.copytree(tmp_path / "store", tmp_path / "new")
    second = Pretend.on(tmp_path / "new")
    its_agent = second.agent(url)
    its_agent.follow()  # claims its incarnation, with nothing to send yet
    agent.hear(first.run(4))
    with pytest.raises(SupersededOnReplica) as error:
        agent.follow()  # it finds out only after it has committed epoch 7
    assert "0000000007-000001" in str(Replica(url).list("commits"))
    assert newest_manifest(url).epoch == 3, "nobody reads it"
    assert durable(first, url) == 3, "and nobody is told that it is safe"
    its_agent.hear(second.run(1))
    its_agent.follow()
    assert (newest_manifest(url).epoch, newest_manifest(url).incarnation) == (4, 2)
    assert str(error.value) == (
        f"replica '{url}': this process is incarnation 1 and was succeeded by incarnation 2 after epoch 3. It writes "
        "nothing more there; what it wrote past that epoch is ignored. Stop it."
    )
    check_replica_holds(url, tmp_path / "back", 1, 4)
    first.close()
    second.close()


def tree_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def replica_bytes(url: str) -> int:
    return tree_bytes(Path(url.removeprefix("file://")) / "data")
