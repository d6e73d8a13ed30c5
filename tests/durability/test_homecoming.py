"""A restored store whose large layers are still on the replica: who needs one brings it, the agent brings the rest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from slipstream.durability import inbox, restore
from slipstream.durability.agent import Agent, tend
from slipstream.durability.board import Board, read_replication
from slipstream.durability.follower import Follower
from slipstream.durability.fsck import check_store
from slipstream.durability.homecoming import Homecoming, all_home, away_in
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.replica import Replica
from slipstream.errors import DamagedObject, LayerAway
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, eventually, expected
from slipstream.trace import is_away, list_layers

EPOCHS = 6


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A replica of a store that is gone."""
    pretend = Pretend.on(tmp_path / "lost")
    replica = f"file://{tmp_path}/replica"
    agent = Agent(pretend.charge(replica))
    agent.tell(pretend.run(EPOCHS))

    def there() -> bool:
        manifest = newest_manifest(Replica(replica))
        return manifest is not None and manifest.epoch == EPOCHS

    assert eventually(there)
    agent.close()
    pretend.close()
    shutil.rmtree(tmp_path / "lost")
    return replica


@pytest.fixture
def store(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store restored from it, in which no layer that has rows is at home."""
    monkeypatch.setattr(restore, "LARGE", 1)
    monkeypatch.setattr(inbox, "_PAUSES", ())
    root = tmp_path / "store"
    assert restore.recover(root, "pretend", [url], 1).epoch == EPOCHS
    return root


def notes(root: Path) -> list[Path]:
    layers = [root / trace / name.filename for trace in (BAG, KEYED) for name in list_layers(root / trace)]
    return [path for path in layers if is_away(path)]


def test_what_is_read_is_brought_and_nothing_else(store: Path) -> None:
    assert away_in(store) == {BAG, KEYED}
    assert len(notes(store)) == len(json.loads((store / "away.json").read_text())["layers"])
    before = notes(store)
    assert contents(store, BAG, EPOCHS) == expected(BAG, EPOCHS)
    brought = set(before) - set(notes(store))
    assert brought
    assert {str(path.parent.relative_to(store)) for path in brought} == {BAG}
    assert contents(store, KEYED, EPOCHS) == expected(KEYED, EPOCHS)


def test_the_agent_brings_everything_and_then_merges(store: Path, url: str) -> None:
    pretend = Pretend.on(store)
    agent = Agent(pretend.charge(url))
    assert eventually(lambda: all_home(store))
    assert not notes(store)
    agent.tell(pretend.run(10))
    assert eventually(lambda: len(list_layers(store / KEYED)) < 2 * (EPOCHS + 10))
    agent.close()
    pretend.close()
    for trace in (BAG, KEYED):
        assert contents(store, trace, EPOCHS + 10) == expected(trace, EPOCHS + 10)
    assert check_store(store).sound
    assert read_replication(store).damage is None


def test_a_trace_is_not_merged_while_layers_of_it_are_elsewhere(store: Path) -> None:
    pretend = Pretend.on(store)
    before = list_layers(store / KEYED)
    tend(store, pretend.run(20))
    assert set(before) < set(list_layers(store / KEYED))
    assert notes(store)
    Homecoming(store, Board(store, 1, ())).step()
    tend(store, pretend.run(1))
    assert not set(before) <= set(list_layers(store / KEYED))
    pretend.close()


def test_nothing_is_deleted_on_a_replica_that_a_note_may_point_to(store: Path, url: str) -> None:
    pointed = {json.loads(path.read_bytes())["object"] for path in notes(store)}
    pretend = Pretend.on(store)
    board = Board(store, pretend.claim.incarnation, (url,))
    follower = Follower(pretend.origin(), url, board)
    for _ in range(40):
        board.tell(pretend.run(1))
        follower.step()
    assert pointed <= set(Replica(url).list("data"))
    Homecoming(store, board).step()
    for _ in range(20):
        board.tell(pretend.run(1))
        follower.step()
    assert not pointed <= set(Replica(url).list("data")), "once all is home, garbage goes"
    pretend.close()


def test_a_replica_that_is_gone_is_named_and_may_come_back(store: Path, tmp_path: Path) -> None:
    (tmp_path / "replica").rename(tmp_path / "elsewhere")
    with pytest.raises(LayerAway, match=r"still on the replica 'file://.*/replica', which cannot be read"):
        contents(store, BAG, EPOCHS)
    (tmp_path / "elsewhere").rename(tmp_path / "replica")
    assert contents(store, BAG, EPOCHS) == expected(BAG, EPOCHS)


def test_an_object_that_was_cut_short_is_not_taken_for_a_layer(store: Path, tmp_path: Path) -> None:
    for file in (tmp_path / "replica" / "data").iterdir():
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DamagedObject, match="bytes and was written with"):
        contents(store, BAG, EPOCHS)
    assert notes(store)


def test_rows_that_do_not_add_up_are_told(store: Path) -> None:
    lines = (store / "sums.jsonl").read_text().splitlines()
    said = json.loads(lines[0])
    said["sums"] = {key: f"{int(total, 16) ^ 1:x}" for key, total in said["sums"].items()}
    (store / "sums.jsonl").write_text("\n".join([json.dumps(said), *lines[1:]]) + "\n")
    found = Homecoming(store, Board(store, 1, ())).step()
    assert found is not None
    assert "do not add up to the checksums" in found


def test_a_note_is_for_its_owner_alone(store: Path) -> None:
    assert {path.stat().st_mode & 0o077 for path in notes(store)} == {0}


def test_a_recovery_that_is_asked_for_brings_everything(tmp_path: Path, url: str) -> None:
    restore.recover_into(tmp_path / "lost", url, tmp_path / "new")
    assert all_home(tmp_path / "new")
    assert not notes(tmp_path / "new")
