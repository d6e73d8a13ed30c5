"""fsck and recover: what is wrong is found, named and healed; as functions, and as commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.durability.agent import Agent, tend
from slipstream.durability.board import Board, read_replication
from slipstream.durability.checksum import read_sums
from slipstream.durability.fsck import Finding, check_replica, check_store
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.persist import Persister
from slipstream.durability.replica import Replica
from slipstream.durability.restore import recover_into
from slipstream.errors import NotAReplica, OtherApp, StoreNotEmpty
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, eventually, expected
from slipstream.trace import list_layers


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and its replica, both of six epochs."""
    folder = tmp_path_factory.mktemp("replicated")
    engine = Pretend.on(folder / "store")
    agent = Agent(engine.charge(f"file://{folder}/replica"))
    word = engine.run(6)
    try:
        agent.tell(word)
        assert eventually(lambda: read_replication(engine.root).persisted == 6)
        assert eventually(lambda: [p.durable for p in read_replication(engine.root).replicas.values()] == [6])
    finally:
        agent.close()
        engine.close()
    Persister(engine.root, Board(engine.root, engine.claim.incarnation, ())).step(
        word
    )  # what was merged last
    return folder


@pytest.fixture
def folder(replicated: Path, tmp_path: Path) -> Path:
    shutil.copytree(replicated, tmp_path / "copy")
    return tmp_path / "copy"


def flip(path: Path) -> None:
    """One bit, in the middle of the file."""
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


def a_layer(folder: Path, trace: str) -> Path:
    return folder / "store" / trace / list_layers(folder / "store" / trace)[0].filename


def test_a_sound_store_and_a_sound_replica(folder: Path) -> None:
    seen = check_store(folder / "store")
    assert (seen.sound, seen.epoch, seen.recoverable) == (True, 6, 6)
    assert sorted(read_sums(folder / "store")) == [1, 2, 3, 4, 5, 6]
    seen = check_replica(f"file://{folder}/replica")
    assert (seen.sound, seen.epoch, seen.recoverable) == (True, 6, 6)


@pytest.mark.parametrize("trace", [BAG, KEYED])
def test_a_flipped_bit_is_found_and_healed_from_a_replica(folder: Path, trace: str) -> None:
    broken = a_layer(folder, trace)
    flip(broken)
    name = f"{trace}/{broken.name}"
    wrong = Finding(name, "its checksum is not the one that was noted when it was written")
    assert wrong in check_store(folder / "store").findings
    seen = check_store(folder / "store", [f"file://{folder}/gone", f"file://{folder}/replica"])
    assert seen.sound, seen.findings
    assert seen.healed
    for epoch in range(1, 7):
        assert contents(folder / "store", BAG, epoch) == expected(BAG, epoch)
    assert contents(folder / "store", KEYED, 6) == expected(KEYED, 6)


def test_an_agent_does_not_merge_a_damaged_layer_but_heals_it(folder: Path) -> None:
    root = folder / "store"
    engine = Pretend.on(root)
    word = engine.run(3)
    engine.close()
    broken = a_layer(folder, KEYED)
    flip(broken)
    (said,) = tend(root, word, replicas=[f"file://{folder}/replica"])
    assert said == (
        f"The layer {KEYED}/{broken.name} is damaged: its checksum is not the one that was noted. It was replaced from "
        "a replica."
    )
    assert tend(root, word, replicas=[f"file://{folder}/replica"]) == []
    for trace in (BAG, KEYED):
        assert contents(root, trace, 9) == expected(trace, 9)


def test_a_missing_layer_is_a_gap(folder: Path) -> None:
    shutil.rmtree(folder / "store" / KEYED)
    seen = check_store(folder / "store")
    assert seen.recoverable == 0
    (gap,) = seen.findings
    assert gap.what == f"The trace in '{KEYED}' has no layer for epochs 1 to 6 in the places 0 to 2147483648"


def test_rows_that_do_not_add_up_are_found_by_the_epoch_checksum(folder: Path) -> None:
    """Layers that are sound in themselves."""
    sums = folder / "store" / "sums.jsonl"
    lines = [json.loads(line) for line in sums.read_text().splitlines()]
    lines[2]["sums"][BAG] = f"{int(lines[2]['sums'][BAG], 16) ^ 1:x}"
    sums.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert check_store(folder / "store").findings == (
        Finding(BAG, "its rows do not add up to the epoch checksums"),
    )


def test_a_damaged_object_of_a_replica_is_named(folder: Path) -> None:
    manifest = newest_manifest(Replica(f"file://{folder}/replica"))
    assert manifest is not None
    broken = folder / "replica" / next(name for name in manifest.objects if name.startswith("data"))
    flip(broken)
    seen = check_replica(f"file://{folder}/replica")
    assert seen.findings == (Finding(f"data/{broken.name}", "its contents are not those that were written"),)
    with pytest.raises(NotAReplica, match="it has no commit"):
        check_replica(f"file://{folder}/nothing")


def test_recovering_into_a_new_folder(folder: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    recover_into(folder / "store", f"file://{folder}/replica", new)
    assert check_store(new).sound
    again = Pretend.on(new)
    assert (again.epoch, again.claim.incarnation) == (6, 2)
    again.run()
    again.close()
    assert contents(new, BAG, 7) == expected(BAG, 7)
    with pytest.raises(StoreNotEmpty, match="recovered into a new folder"):
        recover_into(folder / "store", f"file://{folder}/replica", new)
    (folder / "store" / "format.json").write_text('{"format": 1, "app": "other"}')
    with pytest.raises(OtherApp, match="belongs to the app 'pretend', not to 'other'"):
        recover_into(folder / "store", f"file://{folder}/replica", tmp_path / "third")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slipstream.cli", *arguments], capture_output=True, text=True, timeout=300
    )


def test_the_commands(folder: Path, tmp_path: Path) -> None:
    store, replica, new = str(folder / "store"), f"file://{folder}/replica", str(tmp_path / "new")
    done = command("recover", store, "--from", replica, "--to", new, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epoch"] == 6
    done = command("fsck", new)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(": sound\n")
    flip(a_layer(folder, BAG))
    done = command("fsck", store, "--json")
    assert done.returncode == 2
    assert not json.loads(done.stdout)["sound"]
    done = command("fsck", store, "--heal-from", replica)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("healed: ")
    assert command("fsck", replica, "--json").returncode == 0
