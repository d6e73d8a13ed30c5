"""Upkeep and persistence under what a disk can do: power cuts, damaged layers, takeovers between any two steps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import StoreFull, Superseded
from slipstream.durability.board import read_replication
from slipstream.durability.healing import AGAIN_AFTER
from slipstream.store import disk as disk_module
from slipstream.store.disk import WritableDisk
from slipstream.store.layers import remove_layer
from slipstream.store.lineage import read_lineage
from slipstream.store.store import claim_store
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected
from slipstream.trace import LayerName, list_layers


@pytest.fixture
def pretend(tmp_path: Path) -> Iterator[Pretend]:
    engine = Pretend.on(tmp_path / "store")
    yield engine
    engine.close()


class Flushes:
    """What is on the disk itself: the files whose bytes were flushed, and the names that folders had when they were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: dict[int, int] = {}
        self.names: dict[str, set[str]] = {}
        really = os.fsync

        def fsync(handle: int) -> None:
            really(handle)
            status = os.fstat(handle)
            path = Path(f"/proc/self/fd/{handle}").readlink()
            if path.is_dir():
                self.names[str(path)] = {entry.name for entry in path.iterdir()}
            else:
                self.files[status.st_ino] = status.st_size

        monkeypatch.setattr(os, "fsync", fsync)

    def cut_power(self, root: Path) -> None:
        """Leave only what is on the disk: other files are gone, and unflushed bytes are zeros."""
        for path in sorted(root.rglob("*")):
            if not path.exists():
                continue
            if path.name not in self.names.get(str(path.parent), set()):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not path.is_file():
                continue
            size = self.files.get(path.stat().st_ino, 0)
            raw = path.read_bytes()
            path.write_bytes(raw[:size] + bytes(len(raw) - size))


@pytest.mark.parametrize(("rounds", "merging"), [(1, False), (1, True), (2, True), (5, True)])
def test_a_power_cut_loses_nothing_that_was_persisted_right_after_merging_or_not(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch, rounds: int, merging: bool
) -> None:
    flushes = Flushes(monkeypatch)
    agent = pretend.agent()
    for _ in range(rounds):
        agent.hear(pretend.run(20))
        agent.persist()
        if merging:
            agent.upkeep()
    assert read_replication(pretend.store.disk).persisted == 20 * rounds
    assert (len(pretend.store.valid_layers(KEYED)) < 20) is merging
    flushes.cut_power(pretend.root)
    for trace in (BAG, KEYED):
        assert contents(pretend.root, trace, 20 * rounds) == expected(trace, 20 * rounds)
    lineage = read_lineage(pretend.store.disk)
    assert (lineage.history.frontier, lineage.torn, lineage.broken) == (20 * rounds, None, None)


def test_a_power_cut_before_anything_is_persisted_loses_it(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same disk, to see that it does lose what was not flushed."""
    flushes = Flushes(monkeypatch)
    pretend.run(3)
    flushes.cut_power(pretend.root)
    assert read_lineage(pretend.store.disk).history.frontier == 0


def test_what_stands_in_for_a_removed_layer_is_flushed_whoever_made_it(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merged layer that a killed agent left, unflushed, beside its inputs: they go only once it is flushed."""
    first = pretend.agent()
    first.hear(pretend.run(20))
    first.persist()
    with monkeypatch.context() as dying:
        dying.setattr("slipstream.durability.agent.upkeep.remove_layer", lambda *_: None)
        first.upkeep()
    flushes = Flushes(monkeypatch)
    folder = pretend.root / KEYED
    for path in folder.iterdir():
        name = LayerName.parse(path.name)
        if name is not None and name.single:
            flushes.files[path.stat().st_ino] = path.stat().st_size
    flushes.names[str(folder)] = {path.name for path in folder.iterdir()}
    again = pretend.agent()
    assert first.board.told is not None
    again.board.tell(first.board.told.word)
    again.upkeep()
    assert len(pretend.store.valid_layers(KEYED)) < 10
    flushes.cut_power(folder)
    assert contents(pretend.root, KEYED, 20) == expected(KEYED, 20)


@pytest.mark.parametrize("damage", ["zeros", "cut", "flipped", "empty"])
@pytest.mark.parametrize("healed", [True, False])
def test_a_damaged_layer_stops_nobody_and_is_healed_if_somebody_has_it(
    pretend: Pretend, damage: str, healed: bool
) -> None:
    clock = ManualClock()
    originals: dict[tuple[str, LayerName], bytes] = {}
    asked: list[tuple[str, LayerName]] = []

    def heal(trace: str, name: LayerName) -> bool:
        asked.append((trace, name))
        if healed:
            (pretend.root / trace / name.filename).write_bytes(originals[trace, name])
        return healed

    agent = pretend.agent(clock=clock, heal=heal)
    word = pretend.run(20)
    name = pretend.store.valid_layers(BAG)[3]
    path = pretend.root / BAG / name.filename
    raw = originals[BAG, name] = path.read_bytes()
    path.write_bytes(
        {
            "zeros": bytes(len(raw)),
            "cut": raw[: len(raw) // 2],
            "flipped": raw[:300] + bytes([raw[300] ^ 1]) + raw[301:],
            "empty": b"",
        }[damage]
    )
    agent.all(word)
    assert len(pretend.store.valid_layers(KEYED)) < 10, "the other trace was looked after"
    said = read_replication(pretend.store.disk)
    assert said.persisted == 20
    assert asked[0] == (BAG, name)
    if healed:
        assert said.damaged == ()
        assert contents(pretend.root, BAG, 20) == expected(BAG, 20)
        return
    assert said.damaged == (f"{BAG}/{name.filename}",)
    assert said.damage is not None
    assert any("No replica has a copy" in each.error for each in said.errors.values())
    assert len(pretend.store.valid_layers(BAG)) == 40, "nothing of its trace was touched"
    count = len(asked)
    agent.upkeep()
    assert len(asked) == count, "nobody is asked all the time"
    clock.advance(AGAIN_AFTER)
    agent.upkeep()
    assert len(asked) == count + 1
    path.write_bytes(raw)
    clock.advance(AGAIN_AFTER)
    agent.upkeep()
    assert read_replication(pretend.store.disk).damaged == (), "somebody put it back"
    assert contents(pretend.root, BAG, 20) == expected(BAG, 20)


def test_an_agent_that_is_succeeded_between_two_removals_removes_nothing_more(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = pretend.agent()
    agent.hear(pretend.run(20))
    removed: list[str] = []

    def remove(disk: WritableDisk, trace: str, name: LayerName) -> None:
        remove_layer(disk, trace, name)
        removed.append(f"{trace}/{name.filename}")
        claim_store(pretend.store, "pretend", takeover=True).release()

    monkeypatch.setattr("slipstream.durability.agent.upkeep.remove_layer", remove)
    with pytest.raises(Superseded):
        agent.upkeep()
    assert len(removed) == 1


def test_a_round_that_merges_clears_what_dead_writers_left(pretend: Pretend) -> None:
    agent = pretend.agent()
    pretend.run(1)
    left = pretend.root / BAG / f".{list_layers(pretend.root / BAG)[0].filename}.0f.tmp"
    left.touch()
    agent.hear(pretend.run(1))
    agent.upkeep()
    assert left.exists(), "nothing was merged"
    agent.hear(pretend.run(18))
    agent.upkeep()
    assert not left.exists()


def test_a_merged_layer_is_on_disk_with_its_name_before_what_it_replaces_goes(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = pretend.agent()
    agent.hear(pretend.run(20))
    before = set(list_layers(pretend.root / KEYED))
    flushes = Flushes(monkeypatch)
    gone: list[LayerName] = []

    def remove(disk: WritableDisk, trace: str, name: LayerName) -> None:
        there = set(list_layers(pretend.root / trace)) - before if trace == KEYED else set()
        for made in there:
            path = pretend.root / trace / made.filename
            assert flushes.files.get(path.stat().st_ino) == path.stat().st_size
            assert made.filename in flushes.names[str(path.parent)]
        gone.append(name)
        remove_layer(disk, trace, name)

    monkeypatch.setattr("slipstream.durability.agent.upkeep.remove_layer", remove)
    agent.upkeep()
    assert before <= set(gone)


def test_a_full_disk_is_trouble_and_over_once_there_is_room(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = pretend.agent()
    agent.hear(pretend.run(3))

    def full(*_: object) -> None:
        raise StoreFull("store")

    with monkeypatch.context() as patched:
        patched.setattr(disk_module.LocalDisk, "flush", full)
        with pytest.raises(StoreFull):
            agent.persist()
    assert read_replication(pretend.store.disk).persisted == 0
    agent.persist()
    assert read_replication(pretend.store.disk).persisted == 3


def test_merging_past_what_is_persisted_does_not_take_away_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged layers reach past the persisted epoch; so must the lineage, before the layers that they replace go."""
    flushes = Flushes(monkeypatch)
    pretend = Pretend.start(tmp_path / "store")
    agent = pretend.agent()
    agent.hear(pretend.run(20))
    agent.persist()
    agent.hear(pretend.run(5))
    agent.upkeep()
    pretend.close()
    flushes.cut_power(pretend.root)
    again = Pretend.start(pretend.root)
    assert again.epoch == 25
    for trace in (BAG, KEYED):
        assert contents(pretend.root, trace, 25) == expected(trace, 25)
    again.close()


def test_a_power_cut_after_a_restart_does_not_break_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new log names a line of the old one, so that line is on disk before the name is."""
    flushes = Flushes(monkeypatch)
    pretend = Pretend.start(tmp_path / "store")
    agent = pretend.agent()
    agent.hear(pretend.run(10))
    agent.persist()
    pretend.run(2)
    pretend.close()
    Pretend.start(pretend.root).close()
    flushes.cut_power(pretend.root)
    again = Pretend.start(pretend.root)
    assert (again.epoch, again.pending) == (10, 12)
    again.close()
