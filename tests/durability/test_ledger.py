"""The engine's ledger on a real store: what is written down, what is refused, what is safe."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from slipstream.core.errors import StoreFull, StoreReadOnly, StoreVanished, Superseded
from slipstream.core.settings import Durability, Exposure
from slipstream.durability.board import Progress, Replication, Word
from slipstream.durability.ledger import StoreLedger, Upkeep
from slipstream.epoch import Ledger
from slipstream.store.disk import LocalDisk, unchecked
from slipstream.store.history import History, history_of
from slipstream.store.layers import LocalLayers, combined
from slipstream.store.layout import lineage_log
from slipstream.store.lineage import Lineage, read_lineage
from slipstream.store.records import Computed, Cut, Dropped, Record
from slipstream.store.store import Claim, Identity, Store, claim_store
from slipstream.testing.copies import records_of
from slipstream.trace import LayerName, Span, TraceWriter, layer_digest, shard_span

TRACE = "traces/v/1-view"
SHARDS = tuple(shard_span(i, 2) for i in range(2))
ROWS = pa.table({name: np.array([1 << 40], dtype=np.int64) for name in ("h", "r", "diff")})


class Agent:
    """The agent's end, as far as a ledger sees it."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.looks = 0
        self.closed = False

    def tell(self, word: Word) -> None:
        self.words.append(word)

    def look(self) -> None:
        self.looks += 1

    def close(self) -> None:
        self.closed = True


class Watching:
    """What the agent says, given by the test."""

    def __init__(self) -> None:
        self.said = Replication()
        self.failure: Exception | None = None

    def now(self) -> Replication:
        if self.failure is not None:
            raise self.failure
        return self.said

    def say(self, incarnation: int, **replicas: Progress) -> None:
        self.said = Replication(replicas=replicas, incarnation=incarnation)


class Disk(LocalDisk):
    """A disk that fails when a test says so: before it has done what was asked, or after."""

    failure: Exception | None = None
    after_all = False

    def append(self, name: str, body: bytes) -> None:
        if self.failure is None or self.after_all:
            super().append(name, body)
        if self.failure is not None:
            raise self.failure

    def replace(
        self, name: str, body: bytes, *, flushed: bool, check: Callable[[], None] = unchecked
    ) -> None:
        if self.failure is not None:
            raise self.failure
        super().replace(name, body, flushed=flushed, check=check)


class Kept:
    """A ledger in a store of its own, and all that belongs to it."""

    def __init__(self, root: Path, durability: Durability | None = None, past: History | None = None) -> None:
        self.disk = Disk(root)
        self.store = Store(self.disk, LocalLayers(root))
        self.claim: Claim = claim_store(self.store, "app")
        lineage = self.claim.begin(Identity("app", "id"), Lineage(), 0, 0)
        self.claim.fence(0, [TRACE])
        self.agent, self.watching, self.healed = Agent(), Watching(), 0
        self.ledger = StoreLedger(
            claim=self.claim,
            lineage=lineage,
            past=past or History(),
            durability=durability or Durability(("a",)),
            agent=self.agent,
            watching=self.watching,
            traces={TRACE: (SHARDS,)},
            upkeep=Upkeep((TRACE,), lambda epoch, clock: epoch - 1),
            sources={},
            heal=self.heal,
        )

    def heal(self) -> tuple[str, ...]:
        self.healed += 1
        return ("layer",)

    def records(self) -> list[Record]:
        return records_of(self.disk)[1:]

    def take_over(self) -> Claim:
        successor = claim_store(Store.at(self.store.root), "app", takeover=True)
        successor.begin(Identity("app", "id"), read_lineage(self.disk), 0, 0)
        return successor


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def keep(durability: Durability | None = None, past: History | None = None) -> Kept:
        made.append(Kept(tmp_path / "store", durability, past))
        return made[-1]

    yield keep
    for each in made:
        each.claim.release()


@pytest.fixture
def kept(keep: Callable[..., Kept]) -> Kept:
    return keep()


def cut(epoch: int) -> Cut:
    return Cut(epoch, float(epoch), {"t": [epoch]})


def computed(epoch: int, safe: int = 0) -> Computed:
    return Computed(epoch, float(epoch), 0.1, 10, safe=safe, kept=epoch - 1)


def write(root: Path, epoch: int, span: Span, incarnation: int = 1, trace: str = TRACE) -> str:
    """Write a layer; its digest."""
    rows = ROWS.slice(0, 0 if span == SHARDS[0] else 1)
    TraceWriter(root / trace, incarnation).write(epoch, span, rows)
    return layer_digest(root / trace, LayerName(incarnation, epoch, epoch, span.start, span.stop))


def test_it_is_what_the_loop_wants(kept: Kept) -> None:
    ledger: Ledger = kept.ledger
    ledger.check_ours()
    ledger.look()
    ledger.close()
    assert (kept.agent.looks, kept.agent.closed) == (1, True)


def test_no_more_history_is_let_go_while_somebody_reads_it_beside_the_epochs(kept: Kept) -> None:
    epochs = count(1)

    def computed_next() -> int:
        epoch = next(epochs)
        kept.ledger.cut(cut(epoch))
        kept.ledger.computed(computed(epoch))
        record = kept.records()[-1]
        assert isinstance(record, Computed)
        assert record.kept == kept.ledger.kept, "as it is recorded"
        return record.kept

    assert [computed_next() for _ in range(3)] == [0, 1, 2]
    with kept.ledger.keeping():
        with kept.ledger.keeping():
            assert computed_next() == 2
        assert computed_next() == 2
    assert computed_next() == 5


def test_what_the_loop_does_is_in_the_lineage(kept: Kept) -> None:
    kept.ledger.cut(cut(1))
    kept.ledger.dropped(1)
    kept.ledger.cut(cut(1))
    kept.ledger.computed(computed(1))
    assert kept.records() == [cut(1), Dropped(1), cut(1), computed(1)]
    kept.ledger.tell(computed(1))
    assert kept.agent.words == [Word(1, 0, (TRACE,))]


def test_the_agent_is_told_to_let_history_go_only_once_that_is_recorded(keep: Callable[..., Kept]) -> None:
    """Less history is wanted than before: at the start nobody has recorded that yet."""
    past = history_of(each for e in (1, 2, 3) for each in (cut(e), replace(computed(e), kept=0)))
    kept = keep(past=past)
    assert kept.agent.words == [Word(3, 0, (TRACE,))]
    silent = history_of(each for e in (1, 2, 3) for each in (cut(e), replace(computed(e), kept=None)))
    assert silent.kept == 3, "a record that says nothing lets everything before it go"


def test_an_epoch_that_is_recorded_twice_is_there_once(kept: Kept) -> None:
    kept.ledger.cut(cut(1))
    kept.ledger.computed(computed(1))
    kept.ledger.computed(computed(1))
    assert kept.records() == [cut(1), computed(1)]


@pytest.mark.parametrize("after_all", [False, True])
def test_what_could_not_be_appended_is_there_once_when_it_is_given_again(kept: Kept, after_all: bool) -> None:
    """Also where the line was written although the append failed."""
    kept.ledger.cut(cut(1))
    kept.disk.failure, kept.disk.after_all = StoreFull("store"), after_all
    with pytest.raises(StoreFull):
        kept.ledger.computed(computed(1))
    kept.disk.failure = None
    kept.ledger.computed(computed(1))
    kept.ledger.cut(cut(2))
    assert kept.records() == [cut(1), computed(1), cut(2)]
    assert read_lineage(kept.disk).torn is None


def test_half_a_line_that_a_failed_append_left_is_cut_off(kept: Kept) -> None:
    kept.disk.failure = StoreFull("store")
    with pytest.raises(StoreFull):
        kept.ledger.cut(cut(1))
    kept.disk.failure = None
    kept.disk.append(lineage_log(1), b"0123")
    kept.ledger.cut(cut(1))
    assert kept.records() == [cut(1)]
    assert read_lineage(kept.disk).torn is None


def test_the_layers_of_an_epoch_are_named_by_their_digests(kept: Kept) -> None:
    digests = [write(kept.store.root, 1, span) for span in SHARDS]
    assert kept.ledger.layers(1) == {TRACE: combined(digests)}


def test_layers_elsewhere_than_expected_are_found_and_others_are_not_taken_for_them(kept: Kept) -> None:
    digest = write(kept.store.root, 2, Span.whole())
    for span in SHARDS:
        write(kept.store.root, 3, span)  # of another epoch
        write(kept.store.root, 2, span, incarnation=7)  # of another incarnation
    assert kept.ledger.layers(2) == {TRACE: combined([digest])}


def test_a_trace_to_which_an_epoch_wrote_nothing_is_not_named(kept: Kept) -> None:
    assert kept.ledger.layers(1) == {}


def test_layers_of_a_store_that_is_gone_are_trouble_and_not_an_epoch_without_layers(kept: Kept) -> None:
    shutil.rmtree(kept.store.root)
    with pytest.raises(StoreVanished):
        kept.ledger.layers(1)
    (kept.store.root / TRACE).mkdir(parents=True)  # as a worker makes it that knows nothing
    with pytest.raises(StoreVanished):
        kept.ledger.layers(1)


def test_whoever_was_superseded_writes_removes_and_heals_nothing(kept: Kept) -> None:
    write(kept.store.root, 1, SHARDS[1])
    successor = kept.take_over()
    write(kept.store.root, 1, SHARDS[1], incarnation=2)
    before = sorted(path for path in kept.store.root.rglob("*"))
    log = kept.disk.read(lineage_log(1))
    for act in (
        kept.ledger.check_ours,
        lambda: kept.ledger.cut(cut(1)),
        lambda: kept.ledger.computed(computed(1)),
        lambda: kept.ledger.dropped(1),
        lambda: kept.ledger.discard(0),
        kept.ledger.heal,
    ):
        with pytest.raises(Superseded):
            act()
    assert sorted(path for path in kept.store.root.rglob("*")) == before
    assert (kept.disk.read(lineage_log(1)), kept.healed) == (log, 0)
    successor.release()


def test_discarding_removes_what_this_incarnation_wrote_after_an_epoch(kept: Kept) -> None:
    for epoch in (1, 2, 3):
        write(kept.store.root, epoch, SHARDS[1])
    write(kept.store.root, 3, SHARDS[1], incarnation=7)
    kept.ledger.discard(1)
    left = kept.store.layers.listed(TRACE)[0]
    assert sorted((name.incarnation, name.hi) for name in left) == [(1, 1), (7, 3)]


def test_healing_is_whoever_heals(kept: Kept) -> None:
    assert (kept.ledger.heal(), kept.healed) == (("layer",), 1)


def test_a_probe_leaves_nothing_behind(kept: Kept) -> None:
    before = sorted(path.name for path in kept.store.root.iterdir())
    assert kept.ledger.trouble() is None
    assert sorted(path.name for path in kept.store.root.iterdir()) == before


@pytest.mark.parametrize("trouble", [StoreFull("store"), StoreReadOnly("store")])
def test_a_probe_says_what_is_wrong_with_the_disk(kept: Kept, trouble: StoreFull) -> None:
    kept.disk.failure = trouble
    assert kept.ledger.trouble() is trouble


@pytest.mark.parametrize("made_again", [False, True])
def test_a_store_that_is_gone_has_vanished_and_was_not_taken_over(kept: Kept, made_again: bool) -> None:
    """Also if its folder is there again and empty, as where a disk is not mounted."""
    shutil.rmtree(kept.store.root)
    if made_again:
        kept.store.root.mkdir()
    for act in (kept.ledger.check_ours, lambda: kept.ledger.computed(computed(1))):
        with pytest.raises(StoreVanished):
            act()
    assert isinstance(kept.ledger.trouble(), StoreVanished)


def test_a_store_that_another_engine_has_made_anew_is_another_s(kept: Kept) -> None:
    shutil.rmtree(kept.store.root)
    successor = claim_store(Store.at(kept.store.root), "app")
    with pytest.raises(Superseded):
        kept.ledger.check_ours()
    successor.release()


@pytest.mark.parametrize(
    ("said_by", "safe"),
    [(1, 9), (0, 4), (2, 3)],
    ids=["our agent", "one before us, up to where we went on", "a successor's, whose epochs are not ours"],
)
def test_what_is_safe_is_what_is_said_of_our_epochs(
    keep: Callable[..., Kept], said_by: int, safe: int
) -> None:
    cuts, done = tuple(map(cut, range(1, 5))), tuple(computed(epoch, safe=3) for epoch in range(1, 5))
    kept = keep(past=History(cuts=cuts, computed=done))
    kept.watching.say(said_by, a=Progress(9))
    assert kept.ledger.safe() == safe


def test_what_is_safe_never_falls(kept: Kept) -> None:
    kept.watching.say(1, a=Progress(9))
    assert kept.ledger.safe() == 9
    kept.watching.say(1, a=Progress(2))
    assert kept.ledger.safe() == 9
    kept.watching.failure = StoreVanished("store")
    assert kept.ledger.safe() == 9


def test_exposure_is_the_age_of_the_oldest_epoch_that_is_not_safe_and_its_bytes(
    keep: Callable[..., Kept],
) -> None:
    kept = keep(Durability(("a", "b"), 2, Exposure.parse("10s")))
    assert kept.ledger.exposure(50.0) == Exposure(0.0, 0)
    for epoch in (1, 2):
        kept.ledger.cut(cut(epoch))
        kept.ledger.computed(computed(epoch))
    kept.watching.say(1, a=Progress(2), b=Progress(1, behind=5000))
    assert kept.ledger.exposure(50.0) == Exposure(48.0, 5000)
    kept.watching.say(1, a=Progress(2), b=Progress(2))
    assert kept.ledger.exposure(50.0) == Exposure(0.0, 0)


def test_past_epochs_that_are_not_safe_count(keep: Callable[..., Kept]) -> None:
    cuts, done = tuple(map(cut, range(1, 5))), tuple(computed(epoch, safe=2) for epoch in range(1, 5))
    kept = keep(past=History(cuts=cuts, computed=done))
    assert kept.ledger.exposure(50.0) == Exposure(47.0, 0)


def test_without_replicas_nothing_is_followed(keep: Callable[..., Kept]) -> None:
    kept = keep(Durability())
    kept.ledger.cut(cut(1))
    kept.ledger.computed(computed(1))
    assert kept.ledger.exposure(50.0) == Exposure(0.0, 0)
