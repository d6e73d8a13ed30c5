"""Starting on what is left of a store: files and replicas, without Spark. Each case was a finding once."""

from __future__ import annotations

import errno
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.crashing import crash_point
from slipstream.core.errors import (
    CannotRecover,
    NotAReplica,
    OtherApp,
    OtherReplica,
    SlipstreamError,
    StoreInUse,
    StoreNotEmpty,
    WouldLose,
)
from slipstream.core.settings import Durability
from slipstream.durability.board import Replication
from slipstream.durability.inbox import look
from slipstream.durability.manifest import ClaimName, CommitName
from slipstream.durability.newest import newest_epoch
from slipstream.durability.recovery import Kind
from slipstream.durability.replica import Replica
from slipstream.durability.start import plan_start, recover_into, start
from slipstream.durability.survey import persisted_epoch
from slipstream.store import documents, layout
from slipstream.store.catalog import Catalog
from slipstream.store.disk import LocalDisk
from slipstream.store.lineage import read_lineage
from slipstream.store.store import Identity, Store, claim_store, write_identity
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected
from slipstream.trace import Fence, LayerName, list_layers

EPOCHS = 9


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of nine epochs in two incarnations, and two replicas: one of nine, one of six epochs."""
    folder = tmp_path_factory.mktemp("made")
    urls = (f"file://{folder}/one", f"file://{folder}/two")
    for upto in (6, EPOCHS):
        engine = Pretend.start(folder / "store", *urls)
        clock = ManualClock()
        agent = engine.agent(*(urls if upto == 6 else urls[:1]), clock=clock)
        while engine.epoch < upto:
            agent.hear(engine.run(1))
            agent.persist()
        clock.advance(2)
        agent.lineage()
        agent.follow()
        agent.persist()
        engine.close()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def store(folder: Path) -> Path:
    return folder / "store"


@pytest.fixture
def one(folder: Path) -> str:
    return f"file://{folder}/one"


@pytest.fixture
def two(folder: Path) -> str:
    return f"file://{folder}/two"


def flip(path: Path, at: float = 0.5) -> None:
    body = bytearray(path.read_bytes())
    body[int(len(body) * at)] ^= 1
    path.write_bytes(body)


def goes_on(
    root: Path, *urls: str, epoch: int, kind: Kind, accept_loss: bool = False, safe_on: int = 1
) -> Pretend:
    """A start goes on from an epoch, whole, and computes on from there to what it would have been."""
    engine = Pretend.start(root, *urls, accept_loss=accept_loss, safe_on=safe_on)
    assert engine.started is not None
    assert (engine.started.plan.kind, engine.epoch) == (kind, epoch)
    assert not (root / layout.RESTORING).exists()
    for trace in (BAG, KEYED):
        if epoch:
            assert contents(root, trace, epoch) == expected(trace, epoch)
    engine.run(EPOCHS + 2 - epoch)
    engine.close()
    for trace in (BAG, KEYED):
        assert contents(root, trace, EPOCHS + 2) == expected(trace, EPOCHS + 2)
    known = read_lineage(engine.store.disk, whole=True)
    assert (known.torn, known.broken) == (None, None)
    appends = [each["appends"][0] for each in known.history.consumed("t")]
    assert appends == list(range(1, EPOCHS + 3)), "all input, once"
    return engine


def refuses(root: Path, *urls: str, error: type[SlipstreamError], match: str) -> None:
    """A start refuses, and has changed nothing that counts."""
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}
    with pytest.raises(error, match=match):
        Pretend.start(root, *urls)
    for path, body in before.items():
        assert path.read_bytes() == body


def test_a_whole_store_goes_on_and_asks_nobody(store: Path) -> None:
    engine = goes_on(store, "nowhere://x", epoch=EPOCHS, kind=Kind.GO_ON)
    assert engine.started is not None
    assert engine.started.said is None
    assert engine.claim.incarnation == 3


def test_a_new_app_starts_empty_and_again(tmp_path: Path, store: Path) -> None:
    for _ in range(2):
        engine = Pretend.start(tmp_path / "new", f"file://{tmp_path}/replica")
        assert engine.epoch == 0
        engine.close()


def test_a_start_that_died_before_it_began_is_no_sign_of_life(tmp_path: Path) -> None:
    claim_store(Store.at(tmp_path / "new"), "pretend").release()
    engine = Pretend.start(tmp_path / "new")
    assert engine.claim.incarnation == 2
    engine.close()


def test_a_store_that_is_gone_is_restored_under_a_number_above_all(store: Path, one: str, two: str) -> None:
    shutil.rmtree(store)
    engine = goes_on(store, two, one, epoch=EPOCHS, kind=Kind.RESTORE)
    assert engine.claim.incarnation == 3
    brought = [name for trace in (BAG, KEYED) for name in list_layers(store / trace) if name.hi <= EPOCHS]
    assert {name.incarnation for name in brought} == {3}, "nobody who was succeeded can mean these"


def test_past_epochs_come_back_too(store: Path, one: str) -> None:
    shutil.rmtree(store)
    Pretend.start(store, one).close()
    for epoch in range(1, EPOCHS + 1):
        assert contents(store, BAG, epoch) == expected(BAG, epoch)


def test_f2_a_cut_line_that_is_gone_is_fetched_or_refused(store: Path, one: str) -> None:
    log = store / layout.lineage_log(1)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:5] + lines[6:]))
    refuses(store, error=WouldLose, match=r"lineage/1.log: lines after the first 5 are missing")
    goes_on(store, one, epoch=EPOCHS, kind=Kind.GO_ON)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("harm", ["empty", "gone", "flipped", "zeros"])
def test_f2_an_old_or_new_log_that_is_lost(store: Path, one: str, number: int, harm: str) -> None:
    log = store / layout.lineage_log(number)
    match harm:
        case "empty":
            log.write_bytes(b"")
        case "gone":
            log.unlink()
        case "flipped":
            flip(log, 0.3)
        case "zeros":
            log.write_bytes(bytes(log.stat().st_size))
    refuses(store, error=SlipstreamError, match="missing|lacks")
    goes_on(store, one, epoch=EPOCHS, kind=Kind.RESTORE if (harm, number) == ("gone", 2) else Kind.GO_ON)


def test_f3_a_damaged_newest_commit_needs_another_replica_or_consent(
    folder: Path, one: str, two: str
) -> None:
    shutil.rmtree(folder / "store")
    for commit in look(one).commits:
        if commit.name.epoch == EPOCHS:
            path = folder / "one" / commit.name.object
            flip(path, 0.2)
            flip(path, 0.8)
    with pytest.raises(WouldLose, match=r"epochs 7 to 9 were called safe.*source 't': .*'appends': \[7, 7\]"):
        Pretend.start(folder / "store", one)
    goes_on(folder / "store", one, epoch=6, kind=Kind.RESTORE, accept_loss=True)


def test_what_an_agent_said_counts_up_to_where_its_successors_began() -> None:
    said = Replication(persisted=9, incarnation=2)
    assert persisted_epoch(said, set()) == 9
    assert persisted_epoch(said, {Fence(3, 5), Fence(4, 7)}) == 5, (
        "what came after was never flushed by anybody"
    )
    assert persisted_epoch(said, {Fence(2, 5), Fence(1, 3)}) == 9
    assert persisted_epoch(None, set()) == 0


def test_a_start_goes_above_a_later_claim_on_a_replica(folder: Path, store: Path, one: str) -> None:
    """Another machine has begun and not computed: the store is whole, and older."""
    Replica(one).put(ClaimName(7, EPOCHS, "c0de").object, b"{}")
    engine = Pretend.start(store, one)
    assert engine.claim.incarnation == 8
    engine.close()


def rotten(name: str) -> type[Replica]:
    """A replica on which one object cannot be read."""

    class Rotten(Replica):
        def _path(self, asked: str) -> str:
            if asked == name:
                raise OSError(errno.EIO, "Input/output error", asked)
            return super()._path(asked)

    return Rotten


def test_an_object_that_cannot_be_read_hides_no_others(folder: Path, one: str, two: str) -> None:
    shutil.rmtree(folder / "store")
    replica = folder / "one"
    for name in [str(path.relative_to(replica)) for path in replica.rglob("*") if path.is_file()]:
        planned = plan_start(
            folder / "store", None, Durability((one, two)), clock=ManualClock(), objects=rotten(name)
        ).plan
        assert (planned.error, planned.epoch) == (None, EPOCHS), name


def test_a_layer_that_cannot_be_read_is_had_from_another_replica(folder: Path, one: str, two: str) -> None:
    shutil.rmtree(folder / "store")
    newest = sorted(path.name for path in (folder / "one" / "data").iterdir())[0]
    store = Store.at(folder / "store")
    claim = claim_store(store, "pretend")
    begun = start(
        claim, "pretend", Durability((one, two)), clock=ManualClock(), objects=rotten(f"data/{newest}")
    )
    claim.release()
    assert begun.plan.epoch == EPOCHS
    for trace in (BAG, KEYED):
        assert contents(folder / "store", trace, EPOCHS) == expected(trace, EPOCHS)


def test_f3_one_flipped_bit_of_a_commit_costs_nothing(folder: Path, one: str) -> None:
    shutil.rmtree(folder / "store")
    for path in (folder / "one" / "commits").iterdir():
        flip(path, 0.2)
    goes_on(folder / "store", one, epoch=EPOCHS, kind=Kind.RESTORE)


@pytest.mark.parametrize(
    "harm", [flip, lambda path: path.write_bytes(b""), Path.unlink], ids=["flip", "empty", "gone"]
)
def test_one_object_of_lineage_on_a_lone_replica_costs_nothing(
    folder: Path, one: str, harm: Callable[[Path], None]
) -> None:
    shutil.rmtree(folder / "store")
    objects = sorted((folder / "one" / "lineage").iterdir())
    assert len(objects) > 1
    for path in objects:
        body = path.read_bytes()
        harm(path)
        goes_on(folder / f"of {path.name}", one, epoch=EPOCHS, kind=Kind.RESTORE)
        path.write_bytes(body)


def test_f5_1_lost_lineage_without_a_replica_keeps_every_layer(store: Path) -> None:
    for log in (store / "lineage").glob("*.log"):
        log.write_bytes(b"")
    layers = sorted(store.rglob("*.arrow"))
    refuses(store, error=CannotRecover, match="the lineage of incarnation 1 is missing")
    with pytest.raises(CannotRecover):
        Pretend.start(store, accept_loss=True)
    assert sorted(store.rglob("*.arrow")) == layers


def test_f5_2_a_replica_whose_commits_are_all_damaged(folder: Path, one: str) -> None:
    shutil.rmtree(folder / "store")
    for path in (folder / "one" / "commits").iterdir():
        path.write_bytes(b"")
    with pytest.raises(CannotRecover, match="damaged commits"):
        Pretend.start(folder / "store", one)


def test_f5_3_a_claim_whose_owner_never_committed(folder: Path, one: str) -> None:
    shutil.rmtree(folder / "store")
    Replica(one).put(ClaimName(99, 3, "abc").object, b"{}")
    with pytest.raises(WouldLose, match="a later incarnation began before the commits that are there"):
        Pretend.start(folder / "store", one)
    engine = goes_on(folder / "store", one, epoch=EPOCHS, kind=Kind.RESTORE, accept_loss=True)
    assert engine.claim.incarnation == 100


def test_a_claim_that_overrules_some_commits_and_has_no_lineage_costs_nothing_without_consent(
    folder: Path, one: str
) -> None:
    """Older commits count still: going back to one of them is a step back all the same."""
    shutil.rmtree(folder / "store")
    epochs = {name.epoch for each in Replica(one).list("commits") if (name := CommitName.parse(each))}
    older = max(epochs - {max(epochs)})
    Replica(one).put(ClaimName(99, older, "abc").object, b"{}")
    with pytest.raises(WouldLose, match="a later incarnation began before the commits that are there"):
        Pretend.start(folder / "store", one)
    goes_on(folder / "store", one, epoch=EPOCHS, kind=Kind.RESTORE, accept_loss=True)


class Stop(BaseException):
    """A process that ends here."""


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have a process end at a crash point."""

    def stop(name: str) -> None:
        def reached(point: str) -> None:
            if point == name:
                raise Stop(point)

        for module in ("restore", "homecoming"):
            monkeypatch.setattr(f"slipstream.durability.{module}.crash_point", reached, raising=False)
        monkeypatch.setattr("slipstream.store.store.crash_point", reached)

    return stop


@pytest.fixture
def killed_at(
    folder: Path, one: str, stop_at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """A recovery to a new folder that died at a point; the folder."""

    def killed(point: str) -> Path:
        stop_at(point)
        with pytest.raises(Stop):
            recover_into(folder / "store", [one], folder / "new")
        monkeypatch.undo()
        return folder / "new"

    return killed


def test_a_recovery_killed_before_its_claim_may_be_begun_again(
    folder: Path, one: str, killed_at: Callable[[str], Path]
) -> None:
    new = killed_at("store.before_claim")
    (new / "traces" / "mine.txt").touch()
    with pytest.raises(StoreNotEmpty):
        recover_into(folder / "store", [one], new)
    (new / "traces" / "mine.txt").unlink()
    assert recover_into(folder / "store", [one], new).plan.epoch == EPOCHS


def test_f5_4_a_recovery_killed_early_is_not_started_empty(
    folder: Path, one: str, killed_at: Callable[[str], Path]
) -> None:
    new = killed_at("restore.begun")
    with pytest.raises(CannotRecover, match=r"a recovery was begun and not finished \(from file://.*/one\)"):
        Pretend.start(new)
    assert recover_into(folder / "store", [one], new).plan.epoch == EPOCHS, "it may be begun again"
    goes_on(new, epoch=EPOCHS, kind=Kind.GO_ON)


@pytest.mark.parametrize(
    "point",
    ["restore.begun", "restore.fetched", "restore.before_done", "store.before_begin", "store.after_begin"],
)
@pytest.mark.parametrize("lost", ["", "traces", "lineage"])
def test_a_recovery_may_end_anywhere_and_is_done_again(
    store: Path,
    one: str,
    point: str,
    lost: str,
    stop_at: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.rmtree(store / lost if lost else store)
    stop_at(point)
    for _ in range(2):
        try:
            Pretend.start(store, one).close()
        except Stop:
            continue
    monkeypatch.undo()
    engine = Pretend.start(store, one)
    assert engine.epoch == EPOCHS
    engine.close()
    for epoch in range(1, EPOCHS + 1):
        assert contents(store, BAG, epoch) == expected(BAG, epoch)
    assert contents(store, KEYED, EPOCHS) == expected(KEYED, EPOCHS)
    assert crash_point is not None


def test_a_recovery_goes_on_from_what_it_has(
    store: Path, one: str, stop_at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(store)
    stop_at("restore.fetched")
    with pytest.raises(Stop):
        Pretend.start(store, one)
    monkeypatch.undo()
    engine = Pretend.start(store, one)
    assert engine.started is not None
    assert engine.started.plan.fetch == ()
    engine.close()


def test_f6_epochs_whose_layers_never_arrived_are_computed_from_the_same_cuts(store: Path, two: str) -> None:
    """The second replica has the layers of six epochs, and the lineage of the first incarnation alone."""
    engine = Pretend.start(store, two)
    agent = engine.agent(two, clock=ManualClock())
    agent.lineage()
    engine.close()
    shutil.rmtree(store)
    restored = goes_on(store, two, epoch=6, kind=Kind.RESTORE, safe_on=1)
    assert restored.started is not None
    assert restored.started.plan.upto == EPOCHS
    assert "epochs 7 to 9 are computed again, from the same input" in (restored.started.said or "")


def test_f10_zero_filled_and_half_written_layers_are_found_at_a_start(store: Path, one: str) -> None:
    names = sorted(store.rglob("*.arrow"))
    names[0].write_bytes(bytes(names[0].stat().st_size))
    names[1].write_bytes(names[1].read_bytes()[:-300])
    goes_on(store, one, epoch=EPOCHS, kind=Kind.FETCH)


def last_layers(root: Path, trace: str, epoch: int) -> list[Path]:
    return [root / trace / name.filename for name in list_layers(root / trace) if name.hi == epoch]


@pytest.mark.parametrize("harm", ["zeros", "half", "hole", "gone"])
def test_f10_what_a_power_cut_left_of_the_last_epoch_is_computed_again(tmp_path: Path, harm: str) -> None:
    """No replica: the epoch before is whole, and the input is there."""
    engine = Pretend.start(tmp_path / "store")
    agent = engine.agent()
    agent.all(engine.run(5))
    engine.run(EPOCHS - 5)
    engine.close()
    for path in last_layers(engine.root, KEYED, EPOCHS):
        body = bytearray(path.read_bytes())
        match harm:
            case "zeros":
                path.write_bytes(bytes(len(body)))
            case "half":
                path.write_bytes(body[: len(body) // 2])
            case "hole":
                body[400:656] = bytes(256)
                path.write_bytes(body)
            case "gone":
                path.unlink()
    restarted = goes_on(engine.root, epoch=EPOCHS - 1, kind=Kind.STEP_BACK)
    assert restarted.started is not None
    assert restarted.started.plan.upto == EPOCHS


@pytest.mark.parametrize("told", [True, False])
def test_f11_a_layer_of_the_right_size_and_wrong_bytes_is_not_kept_by_a_restore(
    store: Path, one: str, told: bool
) -> None:
    """Whether it was said to be on disk or not."""
    for log in (store / "lineage").glob("*.log"):
        log.unlink()
    for path in last_layers(store, BAG, EPOCHS):
        flip(path)
    if not told:
        (store / layout.PROGRESS).unlink()
        (store / layout.copy_of(layout.PROGRESS)).unlink()
    # Where it was said to be on disk it is found late, when the lineage is there again.
    goes_on(store, one, epoch=EPOCHS, kind=Kind.FETCH if told else Kind.RESTORE)


def test_f11_rows_that_do_not_add_up_to_a_commits_checksums_are_refused(
    folder: Path, one: str, two: str
) -> None:
    """Objects that are each what was written, and a commit that says otherwise of their sum."""
    shutil.rmtree(folder / "store")
    commit = look(one).commits[0]
    assert commit.manifest is not None
    path = folder / "one" / commit.manifest.sums
    said = documents.decode(path.read_bytes())
    assert isinstance(said, dict)
    said["totals"] = {key: f"{int(total, 16) ^ 1:x}" for key, total in said["totals"].items()}
    path.write_bytes(documents.encode(said))
    rewrite(folder / "one", commit.name, commit.manifest.sums, path.read_bytes())
    with pytest.raises(WouldLose, match="damaged commits"):
        Pretend.start(folder / "store", one)
    goes_on(folder / "store", one, two, epoch=6, kind=Kind.STEP_BACK, accept_loss=True)


def rewrite(replica: Path, name: CommitName, changed: str, body: bytes) -> None:
    """Have a commit say of an object what it is now."""
    import hashlib

    for path in (replica / "commits").iterdir():
        raw = path.read_bytes().split(b"\n")[0]
        said = json.loads(raw)
        for each in said["objects"]:
            if each[0] == changed:
                each[1:] = [len(body), hashlib.sha256(body).hexdigest()]
        raw = json.dumps(said, separators=(",", ":")).encode()
        known = CommitName.parse(f"commits/{path.name}")
        assert known is not None
        path.unlink()
        crc = zlib.crc32(raw)
        other = CommitName(known.epoch, known.incarnation, known.sequence, crc)
        (replica / other.object).write_bytes(raw + b"\n" + raw + b"\n")


def test_f12_objects_that_are_damaged_in_one_replica_come_from_another(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(folder / "store")
    shutil.copytree(folder / "one", folder / "three")
    for path in (folder / "one" / "data").iterdir():
        flip(path)
    urls = (f"file://{folder}/one", f"file://{folder}/three")
    goes_on(folder / "store", *urls, epoch=EPOCHS, kind=Kind.RESTORE)


def test_the_best_copy_is_put_together_object_by_object(folder: Path) -> None:
    """Each replica has lost the half that the other has."""
    shutil.rmtree(folder / "store")
    shutil.copytree(folder / "one", folder / "three")
    urls = (f"file://{folder}/one", f"file://{folder}/three")
    manifest = look(urls[0]).commits[0].manifest
    assert manifest is not None
    data = sorted({kept.object for layers in manifest.layers.values() for kept in layers if kept.object})
    for i, name in enumerate(data):
        flip(folder / ("one" if i % 2 else "three") / name)
    goes_on(folder / "store", *urls, epoch=EPOCHS, kind=Kind.RESTORE)
    for epoch in range(1, EPOCHS + 1):
        assert contents(folder / "store", BAG, epoch) == expected(BAG, epoch)


@pytest.mark.parametrize("harm", ["deleted", "a file", "unreachable"])
def test_f13_losing_the_replica_that_was_ahead_is_told(folder: Path, two: str, harm: str) -> None:
    shutil.rmtree(folder / "store")
    shutil.rmtree(folder / "one")
    ahead = f"file://{folder}/one"
    if harm == "a file":
        (folder / "one").write_text("not a folder")
    if harm == "unreachable":
        ahead = f"faulty+file://{folder}/one?lost=1"
    with pytest.raises(
        WouldLose, match=r"newer epochs may have been called safe, on what cannot be read or is empty"
    ):
        Pretend.start(folder / "store", ahead, two)
    goes_on(folder / "store", two, epoch=6, kind=Kind.RESTORE)


def test_f14_a_commit_that_names_a_path_outside_writes_nothing_there(folder: Path, one: str) -> None:
    shutil.rmtree(folder / "store")
    for path in (folder / "one" / "commits").iterdir():
        raw = path.read_bytes().split(b"\n")[0].replace(b"traces/events/1-view", b"traces/../victim-xx")
        known = CommitName.parse(f"commits/{path.name}")
        assert known is not None
        path.unlink()
        name = CommitName(known.epoch, known.incarnation, known.sequence, zlib.crc32(raw))
        (folder / "one" / name.object).write_bytes(raw + b"\n" + raw + b"\n")
    with pytest.raises(CannotRecover, match="damaged commits"):
        Pretend.start(folder / "store", one)
    assert not list(folder.rglob("victim*"))


@pytest.mark.parametrize("name", [layout.FORMAT, layout.CATALOG])
@pytest.mark.parametrize("harm", ["empty", "zeros", "torn", "another's"])
def test_f15_a_damaged_document_is_read_from_its_copy(store: Path, name: str, harm: str) -> None:
    body = (store / name).read_bytes()
    other = layout.CATALOG if name == layout.FORMAT else layout.FORMAT
    harmed = {
        "empty": b"",
        "zeros": bytes(len(body)),
        "torn": body[:40],
        "another's": (store / other).read_bytes(),
    }
    (store / name).write_bytes(harmed[harm])
    goes_on(store, epoch=EPOCHS, kind=Kind.GO_ON)
    assert documents.document_problems(Store.at(store).disk, name) == []


def test_f15_an_identity_that_is_damaged_twice_is_told_by_the_lineage(store: Path) -> None:
    known = Store.at(store).identity()
    for name in (layout.FORMAT, layout.copy_of(layout.FORMAT)):
        (store / name).write_bytes(b"")
    goes_on(store, epoch=EPOCHS, kind=Kind.GO_ON)
    assert Store.at(store).identity() == known


def test_f15_a_catalog_that_is_damaged_twice_comes_from_a_replica(store: Path, one: str) -> None:
    for name in (layout.CATALOG, layout.copy_of(layout.CATALOG)):
        (store / name).write_bytes(b"")
    refuses(store, error=CannotRecover, match=r"catalog.json: it is empty.*no catalog can be read anywhere")
    goes_on(store, one, epoch=EPOCHS, kind=Kind.RESTORE)


def test_f15_zeros_in_the_middle_of_lineage_are_no_raw_error(store: Path, one: str) -> None:
    log = store / layout.lineage_log(1)
    body = bytearray(log.read_bytes())
    body[300:600] = bytes(300)
    log.write_bytes(body)
    refuses(store, error=WouldLose, match=r"lineage/1.log")
    goes_on(store, one, epoch=EPOCHS, kind=Kind.GO_ON)


def test_f16_a_missing_past_layer_is_noticed_and_fetched(store: Path, one: str) -> None:
    (lost, *_) = [name for name in list_layers(store / BAG) if name.hi == 4]
    (store / BAG / lost.filename).unlink()
    goes_on(store, one, epoch=EPOCHS, kind=Kind.FETCH)
    for epoch in range(1, EPOCHS + 1):
        assert contents(store, BAG, epoch) == expected(BAG, epoch)


def test_f16_lost_traces_come_back_with_their_history(store: Path, one: str) -> None:
    shutil.rmtree(store / "traces")
    goes_on(store, one, epoch=EPOCHS, kind=Kind.FETCH)
    for epoch in range(1, EPOCHS + 1):
        assert contents(store, BAG, epoch) == expected(BAG, epoch)


def test_a_deleted_claim_is_not_claimed_again(store: Path) -> None:
    shutil.rmtree(store / layout.INCARNATIONS)
    engine = goes_on(store, epoch=EPOCHS, kind=Kind.GO_ON)
    assert engine.claim.incarnation == 3


def test_a_fence_that_is_gone_is_put_up_again(store: Path, one: str) -> None:
    for fence in store.rglob("*.fence"):
        fence.unlink()
    (store / layout.CATALOG).unlink()
    goes_on(store, one, epoch=EPOCHS, kind=Kind.GO_ON)
    assert (store / BAG / "000002-0000000006.fence").exists()


def test_a_layer_that_is_whole_and_not_what_its_epoch_made_is_replaced(store: Path, one: str) -> None:
    """A rename that a power cut took back: an earlier attempt of the epoch stands under the name."""
    engine = Pretend.start(store, one)
    engine.cut(EPOCHS + 1)
    engine.write(EPOCHS + 1)
    before = {path: path.read_bytes() for path in last_layers(store, BAG, EPOCHS + 1)}
    engine.window = 2  # the epoch is computed from other input
    layers = engine.write(EPOCHS + 1)
    from slipstream.store.records import Computed

    engine.lineage.append(Computed(epoch=EPOCHS + 1, clock=1.0, seconds=0.1, rows=1, layers=layers))
    engine.close()
    for path, body in before.items():
        assert path.read_bytes() != body
        path.write_bytes(body)
    again = Pretend.start(store, one)
    assert again.epoch == EPOCHS
    assert again.pending == EPOCHS + 1
    again.close()


def test_another_apps_store_and_replica_are_refused(store: Path, one: str, tmp_path: Path) -> None:
    with pytest.raises(OtherApp):
        claim_store(Store.at(store), "till")
    write_identity(LocalDisk(store), Identity("pretend", "another"))
    shutil.rmtree(store / "lineage")
    with pytest.raises(
        OtherReplica, match=r"'pretend' \([0-9a-f]+\), and this is the app 'pretend' \(another\)"
    ):
        Pretend.start(store, one)


def test_a_store_in_use_is_not_touched(store: Path) -> None:
    engine = Pretend.start(store)
    with pytest.raises(StoreInUse):
        Pretend.start(store)
    engine.close()


def test_the_lock_is_free_again_after_a_refusal(store: Path) -> None:
    shutil.rmtree(store / "lineage")
    for _ in range(2):
        with pytest.raises(CannotRecover):
            Pretend.start(store)


def test_recovering_into_a_new_folder(folder: Path, one: str, two: str) -> None:
    done = recover_into(folder / "store", [two, one], folder / "new")
    assert done.plan.epoch == EPOCHS
    with pytest.raises(StoreNotEmpty, match="recovered into a new folder"):
        recover_into(folder / "store", [one], folder / "new")
    with pytest.raises(StoreNotEmpty):
        recover_into(folder / "store", [one], folder)
    with pytest.raises(NotAReplica):
        recover_into(folder / "store", [f"file://{folder}/nothing"], folder / "other")
    write_identity(LocalDisk(folder / "store"), Identity("pretend", "another"))
    with pytest.raises(OtherReplica):
        recover_into(folder / "store", [one], folder / "other")
    goes_on(folder / "new", epoch=EPOCHS, kind=Kind.GO_ON)


def test_a_plan_changes_nothing_and_takes_no_lock(store: Path, one: str, tmp_path: Path) -> None:
    engine = Pretend.start(store)
    found = plan_start(store, None, Durability())
    assert (found.plan.kind, found.plan.epoch, found.estimate.seconds) == (Kind.GO_ON, EPOCHS, 0.0)
    engine.close()
    shutil.rmtree(store / KEYED)
    before = sorted(store.rglob("*"))
    found = plan_start(store, None, Durability((one,)))
    assert (found.plan.kind, found.plan.epoch) == (Kind.FETCH, EPOCHS)
    assert found.estimate.bytes > 0
    refused = plan_start(store, None, Durability())
    assert isinstance(refused.plan.error, WouldLose)
    accepted = plan_start(store, None, Durability(), accept_loss=True)
    assert (accepted.plan.kind, accepted.plan.again) == (Kind.STEP_BACK, EPOCHS)
    assert accepted.estimate.seconds == pytest.approx(0.1 * EPOCHS)
    assert sorted(store.rglob("*")) == before
    gone = plan_start(tmp_path / "gone", "pretend", Durability((one,)))
    assert (gone.plan.kind, gone.plan.epoch) == (Kind.RESTORE, EPOCHS)
    assert not (tmp_path / "gone").exists()


def test_a_view_that_is_to_be_computed_anew_may_lack_its_layers(store: Path) -> None:
    shutil.rmtree(store / BAG)
    assert isinstance(plan_start(store, None, Durability()).plan.error, WouldLose)
    assert plan_start(store, None, Durability(), rebuild=["events"]).plan.kind is Kind.GO_ON
    shutil.rmtree(store / KEYED)
    assert plan_start(store, None, Durability(), rebuild=["events"]).plan.error is not None
    assert plan_start(store, None, Durability(), rebuild=["events", "totals"]).plan.kind is Kind.GO_ON


def test_large_layers_are_left_on_the_replica(store: Path, one: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.durability.families.LARGE", 1)
    shutil.rmtree(store)
    Pretend.start(store, one).close()
    assert (store / layout.AWAY).exists()
    goes_on(store, one, epoch=EPOCHS, kind=Kind.GO_ON)


def test_what_is_told_is_said_to_the_user(store: Path, one: str) -> None:
    for path in last_layers(store, KEYED, EPOCHS):
        path.unlink()
    engine = Pretend.start(store, one)
    assert engine.started is not None
    assert engine.started.said == f"2 layer(s) were missing or damaged, and were fetched from {one}"
    assert engine.started.plan.judged == (
        "the store: epoch 9, 34 sound layers",
        f"{one} holds epoch 9",
    )
    engine.close()


def test_a_catalog_of_a_later_incarnation_wins(store: Path, one: str) -> None:
    """Another machine has gone on from the replica; this store lags."""
    other = store.parent / "other"
    engine = Pretend.start(other, one)
    agent = engine.agent(one, clock=ManualClock())
    catalog = engine.store.catalog()
    engine.claim.write_catalog(Catalog({**catalog.sources, "more": catalog.sources["t"]}, catalog.views))
    agent.all(engine.run(1))
    agent.follow()
    engine.close()
    (store / layout.PROGRESS).write_bytes(b"")
    (store / layout.FORMAT).unlink()
    restored = Pretend.start(store, one)
    assert restored.epoch == EPOCHS + 1
    assert restored.started is not None
    assert restored.started.plan.catalog is not None
    assert "more" in restored.started.plan.catalog.sources
    restored.close()


def test_layer_names_are_those_of_layers() -> None:
    assert LayerName.parse("../../x") is None


def test_an_old_copy_of_a_store_gives_way_to_its_replica(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/replica"
    for upto in (4, 8):
        engine = Pretend.start(tmp_path / "store", url)
        clock = ManualClock()
        agent = engine.agent(url, clock=clock)
        agent.hear(engine.run(upto - engine.epoch))
        clock.advance(2)
        agent.lineage()
        agent.follow()
        agent.persist()
        engine.close()
        if upto == 4:
            shutil.copytree(tmp_path / "store", tmp_path / "backup")
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "backup").rename(tmp_path / "store")
    assert plan_start(tmp_path / "store", None, Durability((url,))).plan.epoch == 8
    engine = Pretend.start(tmp_path / "store", url)
    assert engine.epoch == 8
    assert contents(engine.root, BAG, 8) == expected(BAG, 8)
    engine.close()


@pytest.mark.parametrize("left", ["incarnations", "events"])
def test_what_a_store_that_had_begun_leaves_behind_rules_out_an_empty_start(store: Path, left: str) -> None:
    (store / "events").mkdir(exist_ok=True)
    (store / "events" / "engine.log").write_text("{}\n")
    (store / "sources" / "t").mkdir(parents=True)
    for path in store.iterdir():
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for consent in (False, True):
        with pytest.raises(CannotRecover, match="no lineage can be read anywhere"):
            Pretend.start(store, accept_loss=consent)


@pytest.mark.parametrize("point", ["store.before_claim", "store.after_claim", "store.before_begin"])
def test_first_starts_that_were_cut_short_before_they_began_leave_no_sign_of_life(
    tmp_path: Path, stop_at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    for _ in range(3):
        with monkeypatch.context():
            stop_at(point)
            with pytest.raises(Stop):
                Pretend.start(tmp_path / "store")
        monkeypatch.undo()
    engine = Pretend.start(tmp_path / "store")
    assert engine.started is not None
    assert engine.started.plan.kind is Kind.START_EMPTY
    engine.close()


@pytest.mark.parametrize(("body", "lived"), [(b"", False), (b'{"app": "pretend"}', False), (bytes(9), True)])
def test_a_claim_that_cannot_be_read_may_be_of_a_store_that_had_begun(
    tmp_path: Path, body: bytes, lived: bool
) -> None:
    (tmp_path / "store" / "incarnations").mkdir(parents=True)
    (tmp_path / "store" / "incarnations" / "1").write_bytes(body)
    if lived:
        with pytest.raises(CannotRecover):
            Pretend.start(tmp_path / "store")
    else:
        Pretend.start(tmp_path / "store").close()


@pytest.mark.parametrize("left", ["owner", "damaged owner", "claim", "owner and claim"])
def test_a_replica_that_a_lost_store_never_sent_anything_needs_consent(
    tmp_path: Path, one: str, left: str
) -> None:
    url = f"file://{tmp_path}/bare"
    replica, identity = Replica(url), Identity.new("pretend")
    if "owner" in left:
        raw = documents.encode(dict(vars(identity)))
        replica.put("owner.json", bytes(len(raw)) if "damaged" in left else raw)
    if "claim" in left:
        replica.put(ClaimName(4, 0, "abc").object, json.dumps(vars(identity)).encode())
    with pytest.raises(WouldLose, match=r"(?s)a store that is gone.*--accept-loss"):
        Pretend.start(tmp_path / "store", url)
    engine = Pretend.start(tmp_path / "store", url, accept_loss=True)
    assert engine.started is not None
    assert (engine.started.plan.kind, engine.started.plan.epoch) == (Kind.START_EMPTY, 0)
    assert engine.claim.incarnation > (4 if "claim" in left else 0)
    agent = engine.agent(url)
    agent.hear(engine.run(1))
    agent.follow()
    engine.close()
    shutil.rmtree(tmp_path / "store")
    goes_on(tmp_path / "store", url, epoch=1, kind=Kind.RESTORE)


def test_a_claim_from_a_later_epoch_on_a_replica_rules_out_an_empty_start(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bare"
    Replica(url).put(ClaimName(4, 7, "abc").object, json.dumps(vars(Identity.new("pretend"))).encode())
    for consent in (False, True):
        with pytest.raises(CannotRecover):
            Pretend.start(tmp_path / "store", url, accept_loss=consent)


def test_what_an_agent_said_of_another_history_is_forgotten_by_a_restore(folder: Path, one: str) -> None:
    for path in (folder / "store").iterdir():
        if path.name != layout.PROGRESS:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    ghost = Replication(persisted=99, incarnation=99)
    (folder / "store" / layout.PROGRESS).write_bytes(documents.encode(ghost.encode()))
    engine = Pretend.start(folder / "store", one)
    assert newest_epoch(engine.store) == engine.epoch == EPOCHS
    engine.close()
