"""A restored store whose large layers are still on the replica: who needs one brings it, the agent brings the rest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from slipstream.core.errors import (
    BadReplica,
    BadTraceName,
    DamagedLayer,
    DamagedObject,
    LayerAway,
    Superseded,
)
from slipstream.durability import families, inbox
from slipstream.durability.agent import Agent
from slipstream.durability.board import Board, read_replication
from slipstream.durability.checksum import sums_line
from slipstream.durability.fsck import check_store
from slipstream.durability.homecoming import Homecoming, all_home, listed_away
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.pack import encode_schema
from slipstream.durability.replica import Replica
from slipstream.durability.start import recover_into
from slipstream.durability.work import LocalWork
from slipstream.store import chain, documents
from slipstream.store.disk import LocalDisk
from slipstream.store.layout import AWAY, claim_of, sums_log
from slipstream.store.store import Store
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, eventually, expected
from slipstream.trace import LayerName, bring, is_away, leave_note, list_layers

EPOCHS = 6


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A replica of a store that is gone."""
    replica = f"file://{tmp_path}/replica"
    engine = Pretend.start(tmp_path / "lost", replica)
    agent = engine.agent(replica)
    agent.hear(engine.run(EPOCHS))
    agent.follow()
    engine.close()
    shutil.rmtree(tmp_path / "lost")
    manifest = newest_manifest(Replica(replica))
    assert manifest is not None
    assert manifest.epoch == EPOCHS
    return replica


@pytest.fixture
def engine(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretend]:
    """An engine on a store restored from it, in which no layer that has rows is at home."""
    monkeypatch.setattr(families, "LARGE", 1)
    monkeypatch.setattr(inbox, "_PAUSES", ())
    running = Pretend.start(tmp_path / "store", url)
    yield running
    running.close()


NOTED: dict[str, Any] = {
    "url": "file:///x",
    "layer": LayerName(1, 1, 1, 0, 1 << 31).filename,
    "object": "",
    "size": 0,
    "first": 0,
    "groups": 0,
    "rows": 0,
    "schema": encode_schema(pa.schema([("h", pa.int64())])),
}
"""A place in a note, as it should be."""


def homecoming(store: Store) -> Homecoming:
    incarnation = store.last_incarnation()
    return Homecoming(store, incarnation, board=Board(store, incarnation, ()), work=LocalWork(store))


def notes(root: Path) -> list[Path]:
    layers = [root / trace / name.filename for trace in (BAG, KEYED) for name in list_layers(root / trace)]
    return [path for path in layers if is_away(path)]


def test_what_is_read_is_brought_and_nothing_else(engine: Pretend) -> None:
    root = engine.root
    epoch, away = listed_away(engine.store)
    assert (epoch, len(away)) == (EPOCHS, len(notes(root)))
    before = notes(root)
    assert contents(root, BAG, EPOCHS) == expected(BAG, EPOCHS)
    brought = set(before) - set(notes(root))
    assert brought
    assert {str(path.parent.relative_to(root)) for path in brought} == {BAG}
    assert contents(root, KEYED, EPOCHS) == expected(KEYED, EPOCHS)


def test_the_agent_brings_everything_and_then_merges(engine: Pretend, url: str) -> None:
    root = engine.root
    agent = Agent(engine.charge(url))
    assert eventually(lambda: all_home(engine.store.disk))
    assert not notes(root)
    agent.tell(engine.run(10))
    assert eventually(lambda: len(list_layers(root / KEYED)) < 2 * (EPOCHS + 10))
    agent.close()
    engine.close()
    for trace in (BAG, KEYED):
        assert contents(root, trace, EPOCHS + 10) == expected(trace, EPOCHS + 10)
    assert check_store(root).sound
    assert read_replication(engine.store.disk).damage is None


def test_a_trace_is_not_merged_while_layers_of_it_are_elsewhere(engine: Pretend) -> None:
    root = engine.root
    before = list_layers(root / KEYED)
    agent = engine.agent()
    agent.all(engine.run(20))
    assert set(before) <= set(list_layers(root / KEYED))
    homecoming(engine.store).step()
    assert not notes(root)
    agent.all(engine.run(1))
    assert not set(before) <= set(list_layers(root / KEYED))


def test_nothing_is_deleted_on_a_replica_that_a_note_may_point_to(engine: Pretend, url: str) -> None:
    said = [json.loads(path.read_bytes()) for path in notes(engine.root)]
    pointed = {each["object"] for note in said for layers in note["places"] for each in layers}
    agent = engine.agent(url)
    for _ in range(20):
        agent.hear(engine.run(1))
        agent.follow()
    assert pointed <= set(Replica(url).list("data"))
    homecoming(engine.store).step()
    for _ in range(20):
        agent.hear(engine.run(1))
        agent.follow()
    assert not pointed <= set(Replica(url).list("data")), "once all is home, garbage goes"


def test_a_replica_that_is_gone_is_named_and_may_come_back(engine: Pretend, tmp_path: Path) -> None:
    root = engine.root
    (tmp_path / "replica").rename(tmp_path / "elsewhere")
    with pytest.raises(LayerAway, match=r"still on the replica 'file://.*/replica', which cannot be read"):
        contents(root, BAG, EPOCHS)
    part = homecoming(engine.store)
    assert [part.step(), part.step(), part.step()] == [1.0, 2.0, 4.0]
    assert "still on the replica" in read_replication(engine.store.disk).errors["homecoming"].error
    (tmp_path / "elsewhere").rename(tmp_path / "replica")
    part.step()
    assert all_home(engine.store.disk)
    assert contents(root, BAG, EPOCHS) == expected(BAG, EPOCHS)
    assert read_replication(engine.store.disk).errors["homecoming"].over is not None


@pytest.mark.parametrize("harm", ["gone", "cut", "flipped"])
@pytest.mark.parametrize("harmed", ["one", "two"])
def test_another_replica_that_is_whole_does_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harmed: str, harm: str
) -> None:
    """Also where it has merged its layers otherwise."""
    monkeypatch.setattr(families, "LARGE", 1)
    monkeypatch.setattr(inbox, "_PAUSES", ())
    urls = [f"file://{tmp_path}/{name}" for name in ("one", "two")]
    lost = Pretend.start(tmp_path / "lost", *urls)
    one, two = (lost.agent(url) for url in urls)
    for _ in range(12):
        one.hear(word := lost.run(1))
        one.follow()
    two.hear(word)
    two.follow()
    lost.close()
    shutil.rmtree(tmp_path / "lost")
    manifests = [newest_manifest(Replica(url)) for url in urls]
    layers = [set(each.names(KEYED)) for each in manifests if each is not None]
    assert layers[0] != layers[1]
    engine = Pretend.start(tmp_path / "store", *urls)
    assert notes(engine.root)
    for file in (tmp_path / harmed / "data").iterdir():
        body = file.read_bytes()
        file.write_bytes(body[:-100] if harm == "cut" else body[:-20] + b"\xff" + body[-19:])
    if harm == "gone":
        shutil.rmtree(tmp_path / harmed)
    assert contents(engine.root, BAG, 12) == expected(BAG, 12)
    homecoming(engine.store).step()
    assert all_home(engine.store.disk)
    assert not notes(engine.root)
    for trace in (BAG, KEYED):
        assert contents(engine.root, trace, 12) == expected(trace, 12)
    for epoch in range(1, 13):
        assert contents(engine.root, BAG, epoch) == expected(BAG, epoch)
    engine.close()


@pytest.mark.parametrize("harm", ["cut", "flipped"])
def test_an_object_that_is_damaged_is_not_taken_for_a_layer(
    engine: Pretend, tmp_path: Path, harm: str
) -> None:
    for file in (tmp_path / "replica" / "data").iterdir():
        body = file.read_bytes()
        file.write_bytes(body[:-100] if harm == "cut" else body[:-20] + b"\xff" + body[-19:])
    with pytest.raises((DamagedObject, LayerAway)):
        contents(engine.root, BAG, EPOCHS)
    assert notes(engine.root)


def test_rows_that_do_not_add_up_are_told(engine: Pretend) -> None:
    _, line = sums_line(chain.START, EPOCHS, {BAG: 7})
    LocalDisk(engine.store.root).replace(sums_log(engine.claim.incarnation), line, flushed=True)
    homecoming(engine.store).step()
    trouble = read_replication(engine.store.disk).errors["homecoming"]
    assert "do not add up to the checksums" in trouble.error
    assert trouble.over is None


def test_a_list_that_is_damaged_stands_for_every_note(engine: Pretend) -> None:
    LocalDisk(engine.store.root).replace(AWAY, b"", flushed=True)
    homecoming(engine.store).step()
    assert not notes(engine.root)
    assert all_home(engine.store.disk)


def test_a_note_is_for_its_owner_alone(engine: Pretend) -> None:
    assert {path.stat().st_mode & 0o077 for path in notes(engine.root)} == {0}


def test_a_recovery_that_is_asked_for_brings_everything(tmp_path: Path, url: str) -> None:
    recover_into(tmp_path / "lost", [url], tmp_path / "new")
    assert all_home(Store.at(tmp_path / "new").disk)
    assert not notes(tmp_path / "new")


@pytest.mark.parametrize(
    "said",
    [
        {"places": 5},
        {},
        {"places": [[{"url": "file:///x"}]]},
        {"places": [[5]]},
        {"places": [[{**NOTED, "layer": "none"}]]},
        {"places": [[{**NOTED, "schema": "zz"}]]},
        {"places": [[{**NOTED, "size": "7"}]]},
    ],
)
def test_a_note_that_makes_no_sense_is_a_damaged_layer(tmp_path: Path, said: dict[str, Any]) -> None:
    path = tmp_path / "traces" / "v" / "1-view" / NOTED["layer"]
    path.parent.mkdir(parents=True)
    leave_note(path, "replica", said)
    with pytest.raises(DamagedLayer, match="a note stands in its place, and makes no sense"):
        bring(path)


def test_what_a_store_names_is_never_imported(tmp_path: Path) -> None:
    """A note names where a layer can be had. That is an address, not code."""
    path = tmp_path / "traces" / "v" / "1-view" / NOTED["layer"]
    path.parent.mkdir(parents=True)
    url = "slipstream.testing.faults:wrap+file:///x"
    leave_note(path, "replica", {"places": [[{**NOTED, "url": url, "object": "data/x"}]]})
    with pytest.raises(BadReplica, match=r"there is no filesystem wrapper .slipstream"):
        bring(path)


@pytest.mark.parametrize(
    "said", [{}, {"epoch": 1}, {"epoch": 1, "layers": [5]}, {"epoch": "1", "layers": []}]
)
def test_a_list_of_layers_elsewhere_that_makes_no_sense_stands_for_all(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    engine = Pretend.on(tmp_path / "store")
    engine.run(2)
    LocalDisk(engine.store.root).replace(AWAY, documents.encode(said, AWAY), flushed=False)
    assert listed_away(engine.store)[1]
    layer = engine.store.valid_layers(BAG)[0]
    outside = {"epoch": 1, "layers": [f"../../elsewhere/{layer.filename}"]}
    LocalDisk(engine.store.root).replace(AWAY, documents.encode(outside, AWAY), flushed=False)
    with pytest.raises(BadTraceName):
        listed_away(engine.store)
    engine.close()


def test_an_agent_that_was_succeeded_leaves_the_list_to_its_successor(engine: Pretend) -> None:
    coming = homecoming(engine.store)
    assert engine.store.disk.create(claim_of(engine.store.last_incarnation() + 1), b"")
    with pytest.raises(Superseded):
        coming.step()
    assert not all_home(engine.store.disk)
