"""The newest epoch that readers see: whatever happens to the lineage, never an older one, and never a false alarm."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import LostLineage, SlipstreamError
from slipstream.durability.board import PLACES, Replication
from slipstream.durability.evidence import Restoring
from slipstream.durability.newest import find_newest, lost, newest_epoch
from slipstream.durability.survey import write_restoring
from slipstream.durability.timetravel import resolve_epoch
from slipstream.observe import read_frontiers, read_status, read_view
from slipstream.store.disk import LocalDisk
from slipstream.store.layout import lineage_log
from slipstream.store.lineage import LogEnd, log_end
from slipstream.store.store import Store, claim_store
from slipstream.testing.damage import copied, unflushed
from slipstream.testing.pretend import BAG, KEYED, KEYS, Pretend
from slipstream.trace import Fence, LayerName

ENDS = (4, 9, 13)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three incarnations and 13 epochs, of which the agent has seen all."""
    folder = tmp_path_factory.mktemp("newest")
    for last in ENDS:
        engine = Pretend.start(folder / "store")
        agent = engine.agent(clock=ManualClock())
        while engine.epoch < last:
            agent.hear(engine.run(1))
            agent.persist()
            if engine.epoch % 3 == 0:
                agent.upkeep()
        engine.close()
    return folder / "store"


@pytest.fixture
def store(intact: Path, tmp_path: Path) -> Store:
    shutil.copytree(intact, tmp_path / "store")
    return Store.existing(tmp_path / "store")


def harms(path: Path) -> Iterator[tuple[str, bytes | None]]:
    """Everything that may become of a log: what is in its place, None for nothing."""
    raw = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(raw) if byte == ord("\n")]
    yield "gone", None
    yield "empty", b""
    yield "zeros", bytes(len(raw))
    for end in [0, *ends[:-1]]:
        yield f"cut at {end}", raw[:end]
        yield f"cut inside at {end}", raw[: end + 30]
        yield f"zeros from {end}", raw[:end] + bytes(len(raw) - end)
        yield f"garbage from {end}", raw[:end] + b"\xff" * (len(raw) - end)
    for other in sorted(path.parent.glob("*.log")):
        if other != path:
            yield f"{other.name} in its place", other.read_bytes()


def put(path: Path, body: bytes | None) -> None:
    path.unlink()
    if body is not None:
        path.write_bytes(body)


READS: dict[str, Callable[[Store], int]] = {
    "now": lambda store: newest_epoch(store),
    "one trace": lambda store: resolve_epoch(store, None, [KEYED]),
    "a time": lambda store: resolve_epoch(store, "2026-01-01T00:00:00+00:00"),
    "a view": lambda store: read_view(store.root, "events").num_rows // KEYS,
    "frontiers": lambda store: read_frontiers(store.root).computed,
}


@pytest.mark.parametrize("log", [1, 2, 3])
@pytest.mark.parametrize("read", READS)
def test_whatever_becomes_of_a_log_no_older_epoch_is_the_present(
    intact: Path, tmp_path: Path, log: int, read: str
) -> None:
    wrong = []
    for what, body in harms(intact / lineage_log(log)):
        copied(intact, tmp_path / "store")
        put(tmp_path / "store" / lineage_log(log), body)
        try:
            epoch = READS[read](Store.existing(tmp_path / "store"))
        except SlipstreamError:
            continue
        if epoch != ENDS[-1]:
            wrong.append(f"{lineage_log(log)} {what}: epoch {epoch}")
    assert wrong == []


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_log_under_the_name_of_a_later_incarnation_is_no_present(store: Store, number: int) -> None:
    """A copy with a higher number: all that an older log tells would count, and no witness against it."""
    shutil.copy(store.root / lineage_log(number), store.root / lineage_log(91))
    with pytest.raises(LostLineage):
        newest_epoch(store)
    with pytest.raises(LostLineage):
        read_view(store.root, "events")


def test_without_an_agent_only_a_crash_before_publishing_looks_the_same(intact: Path, tmp_path: Path) -> None:
    """What the agent has told is gone too: the layers are all that is left to say so."""
    shown = {}
    for what, body in harms(intact / lineage_log(3)):
        copied(intact, tmp_path / "store")
        put(tmp_path / "store" / lineage_log(3), body)
        for place in PLACES:
            (tmp_path / "store" / place).unlink()
        found = find_newest(Store.existing(tmp_path / "store"))
        if found.lost is None and found.epoch != ENDS[-1]:
            shown[what] = found.epoch
    raw = (intact / lineage_log(3)).read_bytes()
    last = raw.rindex(b"\n", 0, -1) + 1
    assert shown == {f"cut at {last}": ENDS[-1] - 1}


def test_what_is_left_can_be_read_by_number(store: Store) -> None:
    LocalDisk(store.root).remove(lineage_log(3))
    assert resolve_epoch(store, 9) == 9
    with pytest.raises(LostLineage, match=r"past epoch 9, .*lineage/3.log is missing.*fsck .* --repair"):
        resolve_epoch(store, None)
    with pytest.raises(LostLineage):
        resolve_epoch(store, 10)


def test_the_status_tells_of_it_and_does_not_die(store: Store) -> None:
    assert read_status(store.root).problem is None
    LocalDisk(store.root).remove(lineage_log(3))
    seen = read_status(store.root)
    assert seen.epoch == 9
    assert seen.problem is not None
    assert "lineage/3.log is missing" in seen.problem


def test_a_start_settles_it(store: Store) -> None:
    LocalDisk(store.root).truncate(lineage_log(3), store.disk.size(lineage_log(3)) - 5)
    for place in PLACES:  # before the agent has told of the epoch
        LocalDisk(store.root).remove(place)
    with pytest.raises(LostLineage):
        newest_epoch(store)
    engine = Pretend.start(store.root)
    assert newest_epoch(store) == engine.epoch
    engine.close()


def test_an_engine_at_every_step_of_an_epoch_is_no_alarm(store: Store) -> None:
    engine = Pretend.start(store.root)
    for epoch in range(engine.epoch + 1, engine.epoch + 4):
        assert newest_epoch(store) == epoch - 1
        engine.cut(epoch)
        assert newest_epoch(store) == epoch - 1
        engine.write(epoch)
        assert newest_epoch(store) == epoch - 1
        engine.pending = epoch
        engine.run(1)
    engine.close()
    assert newest_epoch(store) == engine.epoch


def test_epochs_that_are_computed_again_from_their_cuts_are_no_alarm(store: Store) -> None:
    """A start that stepped back: several cuts are on record, and no new line comes before their layers."""
    engine = Pretend.start(store.root)
    engine.run(3)
    engine.close()
    for path in (store.root / KEYED).glob("*-000000001[56]-*.arrow"):
        path.unlink()
    engine = Pretend.start(store.root)
    assert (engine.epoch, engine.pending) == (14, 16)
    for epoch in (15, 16):
        engine.write(epoch)
        assert newest_epoch(store) == epoch - 1
        engine.run(1)
    assert newest_epoch(store) == 16
    engine.close()


def test_a_process_that_was_succeeded_and_goes_on_is_no_alarm(store: Store) -> None:
    first = Pretend.start(store.root)
    first.run(1)
    second = claim_store(store, "pretend", takeover=True)
    assert newest_epoch(store) == 14
    first.cut(15)
    first.write(15)
    started = Pretend(second)
    first.write(16)
    assert newest_epoch(store) == 14
    started.run(1)
    first.write(17)
    assert newest_epoch(store) == 15
    first.close()
    started.close()


def test_a_start_that_was_cut_short_is_no_alarm(store: Store) -> None:
    claim = claim_store(store, "pretend")
    assert newest_epoch(store) == 13
    store.disk.create(lineage_log(claim.incarnation), b"")
    assert newest_epoch(store) == 13
    claim.release()
    assert newest_epoch(store) == 13


def test_layers_that_a_recovery_brings_are_no_alarm_while_it_is_under_way(store: Store) -> None:
    claim = claim_store(store, "pretend")
    write_restoring(claim.owned, Restoring(claim.incarnation, 3, "", "from a replica"))
    name = LayerName(claim.incarnation, 14, 20, 0, 1 << 31, "flat")
    (store.root / BAG / name.filename).touch()
    assert newest_epoch(store) == 13
    claim.release()
    with pytest.raises(LostLineage, match="ends before epoch 20"):
        newest_epoch(store)


def test_readers_beside_a_running_engine_are_never_alarmed(store: Store) -> None:
    """Epochs, merges and starts go on while others read without a pause."""
    engine = Pretend.start(store.root)
    done, seen, errors = threading.Event(), [0], []

    def read() -> None:
        last = 0
        while not done.is_set():
            try:
                epoch = newest_epoch(store)
                assert epoch >= last
                last = epoch
                seen[0] += 1
            except Exception as error:
                errors.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for each in readers:
        each.start()
    with unflushed():
        for _ in range(6):
            agent = engine.agent(clock=ManualClock())
            for _ in range(5):
                agent.hear(engine.run(1))
                agent.persist()
                agent.upkeep()
            engine.close()
            engine = Pretend.start(store.root)
    done.set()
    for each in readers:
        each.join()
    engine.close()
    assert errors == []
    assert seen[0] > 100


END = LogEnd(log=3, frontier=13)


@pytest.mark.parametrize(
    ("end", "said", "layers", "fences", "text"),
    [
        (END, Replication(), [], [Fence(4, 13)], "lineage/4.log is missing"),
        (END, Replication(), [LayerName(3, 14, 14, 0, 8)], [], "ends before epoch 14"),
        (END, Replication(), [LayerName(2, 14, 14, 0, 8)], [], None),
        (LogEnd(3, 13, in_hand=True), Replication(), [LayerName(3, 14, 14, 0, 8)], [], None),
        (LogEnd(3, 13, in_hand=True), Replication(), [LayerName(3, 14, 15, 0, 8)], [], "before epoch 15"),
        (END, Replication(persisted=14, incarnation=3), [], [], "the agent has told"),
        (END, Replication(safe=14, incarnation=3), [], [], "ends before epoch 14, and the agent has told"),
        (END, Replication(persisted=14, incarnation=2), [], [], None),
        (END, Replication(persisted=1, incarnation=4), [], [], "lineage/4.log is missing"),
        (LogEnd(3, 13, torn=True), Replication(), [], [], "no line of it"),
        (END, Replication(13, incarnation=3, safe=13), [LayerName(3, 10, 13, 0, 8)], [Fence(3, 9)], None),
    ],
)
def test_what_a_witness_proves(
    end: LogEnd, said: Replication, layers: list[LayerName], fences: list[Fence], text: str | None
) -> None:
    found = lost(end, said, [("traces/v/t", layers, fences)])
    assert found is None if text is None else (found is not None and text in found)


def test_the_end_of_a_log_is_found_however_long_its_last_lines_are(store: Store) -> None:
    assert log_end(store.disk) == LogEnd(3, 13)
    engine = Pretend.start(store.root)
    assert log_end(store.disk) == LogEnd(4, 13, in_hand=True)
    engine.close()
