"""Replacing damaged layers of a store that is in use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.core.errors import DamagedLayer
from slipstream.durability.fsck import check_store
from slipstream.durability.restore import heal_layer, heal_store
from slipstream.durability.survey import survey
from slipstream.store.layout import SUSPECTED
from slipstream.store.store import claim_store
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected
from slipstream.trace import LayerName, list_layers

EPOCHS = 7


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/replica"


@pytest.fixture
def engine(tmp_path: Path, url: str) -> Iterator[Pretend]:
    """An engine that runs, with everything on a replica."""
    running = Pretend.start(tmp_path / "store", url)
    agent = running.agent(url)
    agent.all(running.run(EPOCHS))
    yield running
    running.close()


def rot(root: Path, trace: str, name: LayerName) -> None:
    """A bit in the rows of a layer, where only a reader finds it."""
    path = root / trace / name.filename
    body = bytearray(path.read_bytes())
    body[500] ^= 1
    path.unlink()
    path.write_bytes(body)


def largest(root: Path, trace: str) -> LayerName:
    return max(list_layers(root / trace), key=lambda name: (root / trace / name.filename).stat().st_size)


@pytest.mark.parametrize("trace", [BAG, KEYED])
def test_a_rotten_layer_is_replaced_under_the_running_incarnation(
    engine: Pretend, url: str, trace: str
) -> None:
    name = largest(engine.root, trace)
    rot(engine.root, trace, name)
    with pytest.raises(DamagedLayer):
        contents(engine.root, trace, EPOCHS)
    assert heal_layer(engine.store, engine.claim.incarnation, trace, name, [url])
    assert contents(engine.root, trace, EPOCHS) == expected(trace, EPOCHS)
    assert {each.incarnation for each in list_layers(engine.root / trace)} == {engine.claim.incarnation}


def test_f16_a_past_layer_is_healed_as_the_present_is(engine: Pretend, url: str) -> None:
    for name in list_layers(engine.root / BAG):
        rot(engine.root, BAG, name)
    healed = heal_store(engine.claim, [url])
    assert len(healed) == len(list_layers(engine.root / BAG))
    for epoch in range(1, EPOCHS + 1):
        assert contents(engine.root, BAG, epoch) == expected(BAG, epoch)
    assert heal_store(engine.claim, [url]) == ()


def test_what_the_store_has_twice_needs_no_replica(engine: Pretend) -> None:
    """A merge is there beside what it was made of."""
    flat = [name for name in list_layers(engine.root / BAG) if name.kind == "flat"]
    assert flat
    for name in flat:
        rot(engine.root, BAG, name)
        assert heal_layer(engine.store, engine.claim.incarnation, BAG, name, [])
    assert contents(engine.root, BAG, EPOCHS) == expected(BAG, EPOCHS)


def test_what_nobody_has_stays_as_it_is(engine: Pretend, url: str, tmp_path: Path) -> None:
    name = largest(engine.root, KEYED)
    rot(engine.root, KEYED, name)
    shutil.rmtree(tmp_path / "replica")
    assert not heal_layer(engine.store, engine.claim.incarnation, KEYED, name, [url])
    assert (engine.root / KEYED / name.filename).exists()


def test_what_an_engine_could_not_replace_is_read_whole_by_the_next_start(
    engine: Pretend, url: str, tmp_path: Path
) -> None:
    name = largest(engine.root, KEYED)
    rot(engine.root, KEYED, name)
    assert survey(engine.store).damaged == {}
    assert heal_store(engine.claim, []) == ()
    assert set(survey(engine.store).damaged) == {(KEYED, name)}
    (engine.root / SUSPECTED).write_bytes(b"not what was written")
    assert set(survey(engine.store).damaged) == {(KEYED, name)}
    assert SUSPECTED in [finding.where for finding in check_store(engine.root).findings]
    assert heal_store(engine.claim, [url]) == (f"{KEYED}/{name.filename}",)
    assert not (engine.root / SUSPECTED).exists()


def test_a_damaged_object_is_not_taken_for_the_layer(engine: Pretend, url: str, tmp_path: Path) -> None:
    name = largest(engine.root, KEYED)
    rot(engine.root, KEYED, name)
    shutil.copytree(tmp_path / "replica", tmp_path / "other")
    for path in (tmp_path / "replica" / "data").iterdir():
        body = bytearray(path.read_bytes())
        body[len(body) // 2] ^= 1
        path.write_bytes(body)
    assert not heal_layer(engine.store, engine.claim.incarnation, KEYED, name, [url])
    assert heal_layer(engine.store, engine.claim.incarnation, KEYED, name, [url, f"file://{tmp_path}/other"])
    assert contents(engine.root, KEYED, EPOCHS) == expected(KEYED, EPOCHS)


def test_one_that_was_succeeded_removes_nothing(engine: Pretend, url: str) -> None:
    name = largest(engine.root, KEYED)
    rot(engine.root, KEYED, name)
    successor = claim_store(engine.store, "pretend", takeover=True)
    assert not heal_layer(engine.store, engine.claim.incarnation, KEYED, name, [url])
    assert (engine.root / KEYED / name.filename).exists()
    successor.release()
