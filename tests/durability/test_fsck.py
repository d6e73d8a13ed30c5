"""fsck: every damage is found and named, and what can be mended is; as functions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import NotAReplica, NotAStore, ReplicaTrouble, StoreInUse, WouldLose
from slipstream.durability.board import PLACES, Replication, read_replication
from slipstream.durability.checksum import sums_line
from slipstream.durability.fsck import Checked, Finding, check_replica, check_store
from slipstream.durability.inbox import look, manifests
from slipstream.durability.repair import repair
from slipstream.durability.replica import Replica
from slipstream.durability.suspects import read_suspects
from slipstream.store import chain, layout
from slipstream.store.records import Computed, Cut
from slipstream.store.store import Store, claim_body
from slipstream.testing.damage import Intact, copied, damage, judge, unflushed
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected
from slipstream.trace import list_layers

EPOCHS = 8


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of two incarnations and its replica, both of eight epochs."""
    folder = tmp_path_factory.mktemp("made")
    url = f"file://{folder}/replica"
    for upto in (5, EPOCHS):
        engine = Pretend.start(folder / "store", url)
        clock = ManualClock()
        agent = engine.agent(url, clock=clock)
        agent.all(engine.run(upto - engine.epoch))
        clock.advance(2)
        agent.lineage()
        engine.close()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def flip(path: Path) -> None:
    """One bit, in the middle of the file."""
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


def found(checked: Checked) -> dict[str, str]:
    return {each.where: each.what for each in checked.findings}


def test_a_sound_store_and_a_sound_replica(folder: Path) -> None:
    seen = check_store(folder / "store")
    assert (seen.findings, seen.epoch, seen.recoverable) == ((), EPOCHS, EPOCHS)
    assert "what sources keep (sources/)" in seen.unchecked
    seen = check_replica(f"file://{folder}/replica")
    assert (seen.findings, seen.epoch, seen.recoverable) == ((), EPOCHS, EPOCHS)
    assert seen.objects


@pytest.mark.parametrize("trace", [BAG, KEYED])
def test_f4_a_flipped_bit_in_rows_is_found_and_repaired(folder: Path, trace: str) -> None:
    store = folder / "store"
    name = list_layers(store / trace)[0].filename
    flip(store / trace / name)
    assert f"{trace}/{name}" in found(check_store(store))
    done = repair(store, [f"file://{folder}/gone", f"file://{folder}/replica"])
    assert done.left.sound, done.left.findings
    assert any("fetched from" in each or "dropped" in each for each in done.did)
    for epoch in range(1, EPOCHS + 1):
        assert contents(store, BAG, epoch) == expected(BAG, epoch)
    assert contents(store, KEYED, EPOCHS) == expected(KEYED, EPOCHS)


@pytest.mark.parametrize(
    "name", ["catalog.json", "copies/format.json", "lineage/2.log", "sums/1.log", "progress.json"]
)
def test_a_folder_in_the_place_of_a_file_is_no_raw_error(folder: Path, name: str) -> None:
    path = folder / "store" / name
    path.unlink()
    path.mkdir()
    assert check_store(folder / "store").findings
    Pretend.start(folder / "store", f"file://{folder}/replica").close()
    assert contents(folder / "store", BAG, EPOCHS) == expected(BAG, EPOCHS)


def test_a_folder_in_the_place_of_the_lock_is_found_and_repaired(folder: Path) -> None:
    (folder / "store" / "lock").unlink()
    (folder / "store" / "lock").mkdir()
    assert found(check_store(folder / "store")) == {"lock": "it is a folder: nobody can hold it"}
    done = repair(folder / "store", ())
    assert (done.left.findings, done.refused) == ((), None)
    assert "lock was put back" in done.did


def test_f2_a_hole_in_the_lineage_is_found_and_repaired(folder: Path) -> None:
    log = folder / "store" / layout.lineage_log(1)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:4] + lines[5:]))
    seen = check_store(folder / "store")
    assert "a line does not follow from the one before it" in found(seen)[layout.lineage_log(1)]
    assert repair(folder / "store", []).refused is not None
    done = repair(folder / "store", [f"file://{folder}/replica"])
    assert done.left.sound
    assert "lineage of incarnation 1 was fetched from replicas" in done.did


def test_f15_documents_are_put_back_from_their_copies(folder: Path) -> None:
    store = folder / "store"
    (store / layout.CATALOG).write_bytes(b"")
    flip(store / layout.copy_of(layout.FORMAT))
    seen = found(check_store(store))
    assert seen[layout.CATALOG] == "it is empty"
    assert layout.copy_of(layout.FORMAT) in seen
    done = repair(store, [])
    assert done.left.sound
    assert {f"{layout.CATALOG} was put back", f"{layout.copy_of(layout.FORMAT)} was put back"} <= set(
        done.did
    )


@pytest.mark.parametrize("harm", ["deleted", "damaged"])
def test_claims_are_put_back(folder: Path, harm: str) -> None:
    claim = folder / "store" / layout.claim_of(1)
    claim.write_bytes(b"{") if harm == "damaged" else claim.unlink()
    assert layout.claim_of(1) in found(check_store(folder / "store"))
    done = repair(folder / "store", [])
    assert f"{layout.claim_of(1)} was put back" in done.did
    assert done.left.sound


def test_an_empty_claim_of_a_start_that_never_began_is_told(folder: Path) -> None:
    (folder / "store" / layout.claim_of(3)).touch()
    seen = check_store(folder / "store")
    assert seen.sound
    assert layout.claim_of(3) in {each.where for each in seen.told}
    (folder / "store" / layout.claim_of(3)).write_bytes(b"{")
    assert layout.claim_of(3) in found(check_store(folder / "store")), "one that said something is damaged"


def test_what_nobody_has_is_to_be_computed_anew(folder: Path) -> None:
    store = folder / "store"
    shutil.rmtree(store / BAG)
    seen = check_store(store)
    assert seen.recoverable == 0
    assert found(seen)[BAG].startswith(f"The trace in '{BAG}' has no layer for epochs 1 to 8")
    before = sorted(store.rglob("*"))
    done = repair(store, [])
    assert done.rebuild == ("events",)
    assert done.commands == ("slipstream run FILE.py --rebuild events",)
    assert done.refused is not None
    assert sorted(store.rglob("*")) == before


def test_what_can_be_repaired_is_beside_a_view_of_which_nobody_has_a_copy(folder: Path) -> None:
    """Of one trace nothing is left, and the replica has it no more; a layer of another is damaged, a document too."""
    store, url = folder / "store", f"file://{folder}/replica"
    manifest = next(iter(manifests(Replica(url))))
    for name in list_layers(store / BAG):
        flip(store / BAG / name.filename)
    for each in {each.object for each in manifest.layers[BAG]}:
        (folder / "replica" / each).unlink()
    flip(store / layout.copy_of(layout.FORMAT))
    damaged = list_layers(store / KEYED)[0]
    flip(store / KEYED / damaged.filename)
    bag = {path.name: path.read_bytes() for path in (store / BAG).glob("*.arrow")}
    done = repair(store, [url])
    assert (done.rebuild, done.commands) == (("events",), ("slipstream run FILE.py --rebuild events",))
    assert done.refused is not None
    assert f"{layout.copy_of(layout.FORMAT)} was put back" in done.did
    assert any("fetched from" in each for each in done.did)
    assert done.left.findings
    assert all(each.where.startswith((BAG, "start")) for each in done.left.findings)
    assert {path.name: path.read_bytes() for path in (store / BAG).glob("*.arrow")} == bag, (
        "it stays as it is"
    )
    assert contents(store, KEYED, EPOCHS) == expected(KEYED, EPOCHS)
    suspected = read_suspects(Store.at(store).disk)
    assert suspected == frozenset(f"{BAG}/{name}" for name in bag), "the next start reads them whole"
    with pytest.raises(WouldLose, match="called safe"):
        Pretend.start(store)


def test_where_no_start_is_possible_documents_and_claims_are_put_back(folder: Path) -> None:
    store = folder / "store"
    shutil.rmtree(store / BAG)
    log = store / layout.lineage_log(2)
    lines = log.read_bytes().split(b"\n")
    log.write_bytes(b"\n".join([*lines[:2], *lines[3:]]))
    (store / layout.copy_of(layout.CATALOG)).unlink()
    (store / layout.claim_of(1)).unlink()
    done = repair(store, [])
    assert done.did == (
        f"{layout.copy_of(layout.CATALOG)} was put back",
        f"{layout.claim_of(1)} was put back",
    )
    assert done.refused is not None
    assert {each.where for each in done.left.findings} & {layout.lineage_log(2), layout.LINEAGE}
    again = repair(store, [])
    assert again.did == ()


def test_a_repair_never_steps_back(tmp_path: Path) -> None:
    engine = Pretend.start(tmp_path / "store")
    engine.run(3)
    engine.close()
    for name in list_layers(engine.root / KEYED):
        if name.hi == 3:
            (engine.root / KEYED / name.filename).unlink()
    done = repair(engine.root, [])
    assert done.refused == "a start would step back to epoch 2"
    assert done.rebuild == ("totals",)


def test_a_repair_leaves_a_store_alone_that_is_in_use(folder: Path) -> None:
    engine = Pretend.start(folder / "store")
    flip(folder / "store" / layout.copy_of(layout.FORMAT))
    with pytest.raises(StoreInUse):
        repair(folder / "store", [])
    engine.close()


def test_rows_that_do_not_add_up_are_found_by_the_epoch_checksum(folder: Path) -> None:
    """Layers that are sound in themselves."""
    _, line = sums_line(chain.START, EPOCHS, {BAG: 7})
    (folder / "store" / layout.sums_log(2)).write_bytes(line)
    assert Finding(BAG, f"its rows as of epoch {EPOCHS} do not add up to the epoch checksums") in (
        check_store(folder / "store").findings
    )


def test_what_is_only_worth_knowing_is_told(folder: Path) -> None:
    store = folder / "store"
    (store / "stray.txt").write_text("hello")
    log = store / layout.lineage_log(2)
    log.write_bytes(log.read_bytes() + b"half a li")
    seen = check_store(store)
    assert seen.sound
    told = {each.where: each.what for each in seen.told}
    assert told["stray.txt"] == "it is nobody's"
    assert told[layout.lineage_log(2)].startswith("the last line is cut short")
    assert str(store) not in told
    (store / layout.FORMAT).chmod(0o644)
    told = {each.where: each.what for each in check_store(store).told}
    assert told[str(store)] == "it may be read by others than its owner"


TORN = {
    "cut": b'0123456789abcdef {"comp',
    "zeros": bytes(300),
    "a line of zeros": bytes(300) + b"\n",
    "a page of zeros and a line": bytes(300) + b"\n" + chain.encode(chain.START, {"a": 1})[1],
}


@pytest.mark.parametrize("tail", TORN)
def test_what_a_power_cut_left_past_the_line_that_a_later_log_follows_is_only_told(
    folder: Path, tail: str
) -> None:
    """Of a store that started since, caught up and was closed."""
    store = folder / "store"
    torn = (layout.lineage_log(2), layout.sums_log(2))
    for name in torn:
        with (store / name).open("ab") as file:
            file.write(TORN[tail])
    engine = Pretend.start(store)
    engine.agent().all(engine.run(2))
    engine.close()
    seen = check_store(store)
    assert (seen.findings, seen.epoch, seen.recoverable) == ((), EPOCHS + 2, EPOCHS + 2)
    told = {each.where: each.what for each in seen.told}
    assert all(told[name].endswith("a crash left it, and it counts for nobody") for name in torn)
    assert repair(store, []).did == ()
    assert contents(store, BAG, EPOCHS + 2) == expected(BAG, EPOCHS + 2)


def test_lines_with_a_hole_that_nobody_follows_are_only_told(folder: Path) -> None:
    """The pages of a tail that was not flushed are on disk or not, each by itself."""
    store, log = folder / "store", folder / "store" / layout.lineage_log(2)
    digest = log.read_bytes().splitlines()[-1][:16].decode()
    lines = []
    for number in range(4):
        digest, line = chain.encode(digest, {"cut": EPOCHS + 1 + number, "clock": 0.0, "ranges": {}})
        lines.append(line)
    log.write_bytes(log.read_bytes() + bytes(len(lines[0])) + b"".join(lines[1:]))
    Pretend.start(store).close()
    seen = check_store(store)
    assert seen.findings == ()
    assert layout.lineage_log(2) in {each.where for each in seen.told}


def test_a_start_that_was_cut_short_before_its_first_line_is_only_told(folder: Path) -> None:
    store = folder / "store"
    (store / layout.lineage_log(3)).touch()
    (store / layout.claim_of(3)).write_bytes(claim_body("pretend"))
    Pretend.start(store).close()
    seen = check_store(store)
    assert (seen.findings, Store.at(store).last_incarnation()) == ((), 4)
    assert layout.lineage_log(3) in {each.where for each in seen.told}


@pytest.mark.parametrize("harm", ["cut", "flipped"])
def test_a_log_that_lacks_the_line_that_a_later_one_follows_is_found(folder: Path, harm: str) -> None:
    log = folder / "store" / layout.lineage_log(1)
    raw = log.read_bytes()
    log.write_bytes(raw[:-5] if harm == "cut" else raw[:-30] + bytes([raw[-30] ^ 1]) + raw[-29:])
    seen = check_store(folder / "store")
    assert layout.lineage_log(1) in found(seen)
    done = repair(folder / "store", [])
    assert done.refused is not None
    assert repair(folder / "store", [f"file://{folder}/replica"]).left.sound


def test_a_torn_log_of_checksums_is_found_until_its_incarnation_is_over(folder: Path) -> None:
    log = folder / "store" / layout.sums_log(2)
    log.write_bytes(log.read_bytes() + b"half a li")
    assert found(check_store(folder / "store")) == {
        layout.sums_log(2): f"the last line is cut short, at byte {log.stat().st_size - 9}"
    }
    done = repair(folder / "store", [])
    assert done.left.sound
    assert f"{layout.sums_log(2)}: the end that a crash left counts no more" in done.did


def read_of_a_table(engine: Pretend, epoch: int, *bodies: bytes) -> list[str]:
    """An epoch that reads a table; the parts."""
    folder = engine.root / layout.SOURCES / "rates"
    folder.mkdir(parents=True, exist_ok=True)
    parts = [f"{epoch:09d}-1-{xxh3_64_hexdigest(body)}.arrow" for body in bodies]
    for name, body in zip(parts, bodies, strict=True):
        (folder / name).write_bytes(body)
    taken = {"read": epoch, "at": 0.0, "rows": 1, "parts": parts, "contents": parts, "schema": {}}
    engine.lineage.append(Cut(epoch, float(epoch), {"rates": taken, "t": {"appends": [epoch, epoch]}}))
    layers = engine.write(epoch)
    engine.lineage.append(Computed(epoch, float(epoch), 0.1, 1, layers=layers, kept=0))
    engine.epoch = epoch
    return parts


@pytest.mark.parametrize(
    ("harm", "problem"), [("flipped", "is damaged"), ("cut", "is damaged"), ("gone", "is gone")]
)
def test_a_part_that_was_read_of_a_table_is_found_damaged(folder: Path, harm: str, problem: str) -> None:
    engine = Pretend.start(folder / "store")
    first = read_of_a_table(engine, EPOCHS + 1, b"some rows", b"others")
    read_of_a_table(engine, EPOCHS + 2, b"later rows")
    engine.close()
    store = folder / "store"
    assert check_store(store).findings == ()
    path = store / layout.SOURCES / "rates" / first[1]
    if harm == "flipped":
        flip(path)
    elif harm == "cut":
        path.write_bytes(b"")
    else:
        path.unlink()
    where = f"{layout.SOURCES}/rates/{first[1]}"
    assert found(check_store(store)) == {
        where: f"it {problem}, and was read of the table 'rates': the next read of that needs it, and so does a view "
        "that is added"
    }
    done = repair(store, [f"file://{folder}/replica"])
    assert done.refused is not None
    assert where in done.refused
    shutil.rmtree(store / layout.SOURCES / "rates")
    seen = check_store(store)
    assert seen.findings == ()
    assert "what was read of the table 'rates': nothing of it is in this store" in seen.unchecked


@pytest.mark.parametrize("name", PLACES)
def test_what_the_agent_said_last_is_put_back_from_its_copy(folder: Path, name: str) -> None:
    path = folder / "store" / name
    path.write_bytes(bytes(path.stat().st_size))
    known = read_replication(Store.at(folder / "store").disk)
    done = repair(folder / "store", [])
    assert (done.left.findings, done.did) == ((), (f"{name} was put back",))
    assert read_replication(Store.at(folder / "store").disk) == known != Replication()


def test_incarnations_that_computed_nothing_have_equal_logs_of_checksums(folder: Path) -> None:
    for _ in range(2):
        engine = Pretend.start(folder / "store")
        engine.agent().hear(engine.run(0))
        engine.close()
    logs = [(folder / "store" / layout.sums_log(number)).read_bytes() for number in (3, 4)]
    assert logs[0] == logs[1]
    assert check_store(folder / "store").findings == ()


def test_a_log_of_checksums_in_the_place_of_anothers_is_found(folder: Path) -> None:
    first, second = (folder / "store" / layout.sums_log(number) for number in (1, 2))
    first.write_bytes(second.read_bytes())
    assert found(check_store(folder / "store")) == {layout.sums_log(2): "it is that of incarnation 1"}


def test_a_repair_names_what_it_leaves(folder: Path) -> None:
    """Checksums in the middle of a log are nowhere else, and the app starts without them."""
    log = folder / "store" / layout.sums_log(1)
    lines = log.read_bytes().splitlines(keepends=True)
    lines[0] = lines[0][:20] + bytes([lines[0][20] ^ 1]) + lines[0][21:]
    log.write_bytes(b"".join([*lines, *lines[1:]]))
    done = repair(folder / "store", [f"file://{folder}/replica"])
    left = {each.where for each in done.left.findings}
    assert layout.sums_log(1) in left
    assert done.refused is not None
    assert layout.sums_log(1) in done.refused


def test_a_layer_that_is_whole_and_not_its_epochs_is_found(folder: Path) -> None:
    """Of another store of the same app, which computed the epoch from other input."""
    engine = Pretend.start(folder / "store")
    engine.run(1)
    mine = {path: path.read_bytes() for path in engine.root.rglob("*.arrow")}
    engine.window = 1
    engine.write(EPOCHS + 1)
    changed = [path for path, body in mine.items() if path.exists() and path.read_bytes() != body]
    engine.close()
    assert changed
    seen = found(check_store(folder / "store"))
    for path in changed:
        where = str(path.relative_to(engine.root))
        assert seen[where] == "it is whole, and not what the record of its epoch names"


def test_f3_a_damaged_commit_of_a_replica_is_named(folder: Path) -> None:
    url = f"file://{folder}/replica"
    name = look(url).commits[0].name.object
    path = folder / "replica" / name
    path.write_bytes(path.read_bytes()[:100])
    assert found(check_replica(url))[name] == "it is damaged"


def test_a_commit_of_which_one_copy_is_damaged_is_told_and_still_counts(folder: Path) -> None:
    url = f"file://{folder}/replica"
    name = look(url).commits[0].name.object
    path = folder / "replica" / name
    body = bytearray(path.read_bytes())
    body[50] ^= 1
    path.write_bytes(body)
    seen = check_replica(url)
    assert seen.findings == (Finding(name, "one of its two copies is damaged"),)
    assert seen.recoverable == EPOCHS


def test_objects_of_every_kept_commit_are_looked_at(folder: Path) -> None:
    url = f"file://{folder}/replica"
    newest, *older = [commit.manifest for commit in look(url).commits]
    assert newest is not None
    only_older = {name for each in older if each is not None for name in each.objects} - set(newest.objects)
    name = next(name for name in sorted(only_older) if name.startswith("data"))
    flip(folder / "replica" / name)
    assert found(check_replica(url))[name] == "its contents are not those that were written"


def test_what_is_no_store_or_replica_is_said_to_be_none(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAReplica, match="it has no commit"):
        check_replica(f"file://{folder}/nothing")
    with pytest.raises(ReplicaTrouble):
        check_replica(f"faulty+file://{folder}/replica?lost=1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAStore):
        check_store(tmp_path / "empty")


def test_whatever_is_called_sound_a_start_makes_right(made: Path, tmp_path: Path) -> None:
    """Of random damages to a store, each is found, or does no harm."""
    intact = Intact.of(made / "store", made / "replica", tmp_path / "intact")
    sound = 0
    with unflushed():
        for seed in range(150):
            case, harm = damage(intact, seed)
            if not case.place.startswith("store"):
                continue
            copied(intact.folder, tmp_path / "case")
            harm(tmp_path / "case")
            if check_store(tmp_path / "case" / "store").sound:
                sound += 1
                verdict = judge(intact, case, harm, tmp_path / "case")
                assert verdict.verdict in ("right", "stepped back"), verdict
    assert sound < 20


def test_whatever_is_called_sound_a_replica_gives_back(made: Path, tmp_path: Path) -> None:
    intact = Intact.of(made / "store", made / "replica", tmp_path / "intact")
    with unflushed():
        for seed in range(150):
            case, harm = damage(intact, seed)
            if case.place != "replica, store gone":
                continue
            copied(intact.folder, tmp_path / "case")
            harm(tmp_path / "case")
            if check_replica(f"file://{tmp_path}/case/replica").sound:
                verdict = judge(intact, case, harm, tmp_path / "case")
                assert verdict.verdict == "right", verdict


def test_nothing_is_changed_by_looking(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    check_store(folder / "store")
    check_replica(f"file://{folder}/replica")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert Store.at(folder / "store").last_incarnation() == 2
