"""The loop on a real store, with a job that is a few lines: no Spark, no agent, and a clock that stands still."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import slipstream
from slipstream.core.clock import ManualClock
from slipstream.core.errors import (
    CannotHeal,
    DamagedLayer,
    EpochFailed,
    StoreFull,
    StoreTrouble,
    StoreVanished,
    Superseded,
)
from slipstream.core.settings import Durability, Exposure
from slipstream.durability.board import Progress, Replication, Word
from slipstream.durability.ledger import StoreLedger, Upkeep
from slipstream.epoch import Budget, EpochReport, Given, Loop, Options, Policy, Result, Watermarks
from slipstream.epoch.job import JobTroubled
from slipstream.store.disk import LocalDisk, unchecked
from slipstream.store.history import History
from slipstream.store.layers import LocalLayers, combined
from slipstream.store.lineage import read_lineage
from slipstream.store.records import Began, Computed, Cut, Dropped, Record
from slipstream.store.store import Claim, Identity, Store, claim_store
from slipstream.testing.copies import records_of
from slipstream.trace import LayerName, Span, TraceWriter

TRACE = "traces/v/1-view"
APP = Identity("app", "id")
ROWS = pa.table({name: np.array([1 << 40], dtype=np.int64) for name in ("h", "r", "diff")})


class Clock(ManualClock):
    """A clock that a loop which waits for ever does not wait by."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        assert self.monotonic() < 3600, "it has waited for an hour"
        return super().wait(event, seconds)


@dataclass(frozen=True)
class Slice:
    range: Any
    amount: int = 1


class Source:
    """Hands out what it is given, one thing an epoch, all of it without a budget."""

    def __init__(self, *things: Any, forgets_each: bool = False) -> None:
        self.things, self.forgets_each = list(things), forgets_each
        self.forgotten: list[Any] = []
        self.failures: list[Exception] = []
        self.unfinished: list[Any] = []

    def cut(self, budget: int | None) -> Slice | None:
        if self.failures:
            raise self.failures.pop(0)
        taken = self.things[:1] if budget is not None else list(self.things)
        del self.things[: len(taken)]
        return Slice(taken) if taken else None

    def settling(self) -> frozenset[str]:
        """What is unfinished. One of it is finished by the next look."""
        there = frozenset(self.unfinished)
        self.things += self.unfinished[:1]
        del self.unfinished[:1]
        return there

    def forget(self, upto: Any) -> None:
        self.forgotten.append(upto)


class Job:
    """Writes one layer an epoch. `before` is called with the epoch first, and may fail."""

    def __init__(self, root: Path, incarnation: int) -> None:
        self.root, self.incarnation = root, incarnation
        self.ran: list[Given] = []
        self.learnt: list[int] = []
        self.before: Callable[[int], None] = lambda epoch: None

    def run(self, given: Given) -> Result:
        self.ran.append(given)
        self.before(given.cut.epoch)
        write(self.root, given.cut.epoch, self.incarnation)
        return Result(rows=1, steps={"run": 0.0})

    def explained(self, given: Given, error: Exception) -> Exception:
        write(self.root, given.cut.epoch, self.incarnation)
        return EpochFailed(given.cut.epoch, given.cut.epoch - 1, {"v": str(error)})

    def cancel(self) -> None: ...

    def learn(self, cut: Cut, rows: int) -> None:
        self.learnt.append(cut.epoch)

    def measured(self) -> dict[str, dict[str, int]]:
        return {}

    @property
    def epochs(self) -> list[int]:
        return [given.cut.epoch for given in self.ran]


class Agent:
    def __init__(self) -> None:
        self.words: list[Word] = []

    def tell(self, word: Word) -> None:
        self.words.append(word)

    def look(self) -> None:
        return

    def close(self) -> None:
        return


@dataclass
class Watching:
    said: Replication = field(default_factory=Replication)

    def now(self) -> Replication:
        return self.said


class Disk(LocalDisk):
    """A disk that is full when a test says so."""

    full = False

    def append(self, name: str, body: bytes) -> None:
        self._check()
        super().append(name, body)

    def replace(
        self, name: str, body: bytes, *, flushed: bool, check: Callable[[], None] = unchecked
    ) -> None:
        self._check()
        super().replace(name, body, flushed=flushed, check=check)

    def _check(self) -> None:
        if self.full:
            raise StoreFull(str(self.root))


class Engine:
    """A loop and everything under it."""

    def __init__(self, root: Path, *, takeover: bool = False) -> None:
        self.root, self.disk = root, Disk(root)
        self.store = Store(self.disk, LocalLayers(root))
        self.claim: Claim = claim_store(self.store, "app", takeover=takeover)
        self.clock, self.job = Clock(1000.0), Job(root, self.claim.incarnation)
        self.agent, self.watching = Agent(), Watching()
        self.heals: list[tuple[str, ...]] = []
        self.beats, self.notices = [0], list[str]()

    def begin(self, inputs: Mapping[str, Source], **options: Any) -> Loop:
        """options: those of the loop; `durability`, and `back_to`, an epoch to step back to."""
        durability = options.pop("durability", Durability())
        known = read_lineage(self.disk)
        after = options.pop("back_to", known.history.frontier)
        upto = known.history.cuts[-1].epoch if known.history.cuts else 0
        writer = self.claim.begin(APP, known, after, upto)
        self.claim.fence(after, [TRACE])
        past = read_lineage(self.disk).history
        ledger = StoreLedger(
            claim=self.claim,
            lineage=writer,
            past=past,
            durability=durability,
            agent=self.agent,
            watching=self.watching,
            traces={TRACE: ((Span.whole(),),)},
            upkeep=Upkeep((TRACE,), lambda epoch, clock: 0),
            sources={},
            heal=self.heal,
        )
        budgets = {name: Budget.start("rows", 1.0) for name in inputs}
        made = Options(budgets=budgets, watermarks=Watermarks({}, {}, {}), **options)
        self.loop = Loop(self.job, inputs, ledger, past, made, self.clock)
        self.loop.turns.append(self.beat)
        self.loop.notices.append(self.notices.append)
        return self.loop

    def beat(self, epoch: int) -> None:
        self.beats.append(epoch)

    def heal(self) -> tuple[str, ...]:
        return self.heals.pop(0) if self.heals else ()

    def records(self) -> list[Record]:
        return records_of(self.disk)

    def history(self) -> History:
        return read_lineage(self.disk).history

    def layers(self) -> list[tuple[int, int]]:
        """The layers that are there: incarnation and epoch."""
        return sorted((name.incarnation, name.hi) for name in self.store.layers.listed(TRACE)[0])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def engine(**options: Any) -> Engine:
        made.append(Engine(tmp_path / "store", **options))
        return made[-1]

    yield engine
    for each in made:
        each.claim.release()


def write(root: Path, epoch: int, incarnation: int) -> None:
    TraceWriter(root / TRACE, incarnation).write(epoch, Span.whole(), ROWS)


def once(error: Exception) -> Callable[[int], None]:
    """Fails the first time."""
    left = [error]

    def fail(epoch: int) -> None:
        if left:
            raise left.pop()

    return fail


def test_to_catch_up_is_to_have_what_was_there_and_not_finished(engine: Callable[..., Engine]) -> None:
    it, source = engine(), Source()
    source.unfinished = ["a", "b"]
    loop = it.begin({"t": source})
    assert loop.run("caught_up").epochs == 2
    assert [cut.ranges for cut in it.history().cuts] == [{"t": ["a"]}, {"t": ["b"]}]


def test_epochs_are_cut_computed_and_published(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a", "b"), "u": Source("c")})
    reports: list[int] = []
    loop.listeners.append(lambda report: reports.append(report.epoch))
    summary = loop.run("caught_up")
    assert (summary.epochs, summary.rows, loop.frontier, reports) == (2, 2, 2, [1, 2])
    began, *records = it.records()
    assert isinstance(began, Began)
    assert [type(record) for record in records] == [Cut, Computed, Cut, Computed]
    history = it.history()
    assert [cut.ranges for cut in history.cuts] == [{"t": ["a"], "u": ["c"]}, {"t": ["b"]}]
    assert [list(done.layers) for done in history.computed] == [[TRACE], [TRACE]]
    assert [word.computed for word in it.agent.words] == [1, 2]
    assert (it.job.learnt, it.layers()) == ([1, 2], [(1, 1), (1, 2)])
    assert loop.await_epoch(2, 0, lambda: False)


def test_an_epoch_names_the_layers_that_it_made(engine: Callable[..., Engine]) -> None:
    it = engine()
    it.begin({"t": Source("a")}).run("caught_up")
    (done,) = it.history().computed
    digest = it.store.layers.digest(TRACE, LayerName(1, 1, 1, 0, 1 << 31))
    assert done.layers == {TRACE: combined([digest])}


def test_a_failed_epoch_leaves_nothing_and_is_taken_again_as_it_was(engine: Callable[..., Engine]) -> None:
    it = engine()
    source = Source("a")
    loop = it.begin({"t": source})
    it.job.before = once(RuntimeError("it overflows"))
    with pytest.raises(EpochFailed, match="it overflows"):
        loop.run("caught_up")
    assert it.layers() == []
    assert [type(record) for record in it.records()[1:]] == [Cut, Dropped]
    assert it.history().taken("t") == [], "its input is free for whoever starts next"
    source.things.append("b")
    assert loop.run("caught_up").epochs == 2
    assert [(given.cut.ranges, given.failing) for given in it.job.ran] == [
        ({"t": ["a"]}, False),
        ({"t": ["a"]}, True),
        ({"t": ["b"]}, False),
    ]


def test_an_epoch_is_computed_without_views_that_are_held(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a", "b")}, policy=Policy(may_hold=frozenset({"v"})))
    plain = Job(it.root, it.claim.incarnation)
    it.job.before = once(RuntimeError("it overflows"))

    def without(error: EpochFailed) -> str:
        assert (error.views, it.layers(), loop.frontier) == (("v",), [], 0)
        budgets = {"t": Budget.start("rows", 1.0)}
        loop.change(plain, {"t": source}, budgets, {}, begins=False, due=False)
        return "without 'v'"

    source = loop._inputs["t"]
    loop.holds = without
    assert loop.run("caught_up").epochs == 2
    assert it.notices == ["held: without 'v'"]
    assert [given.cut.ranges for given in it.job.ran] == [{"t": ["a"]}], "the job that had the view"
    ran = [(given.cut.epoch, given.cut.ranges, given.failing) for given in plain.ran]
    assert ran == [(1, {"t": ["a"]}, True), (2, {"t": ["b"]}, False)], (
        "and the one that has not, of the same cut"
    )
    assert [type(record) for record in it.records()[1:]] == [Cut, Dropped, Cut, Computed, Cut, Computed]


def test_views_that_nobody_can_take_out_of_the_plan_end_the_run(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a")}, policy=Policy(may_hold=frozenset({"v"})))
    it.job.before = once(RuntimeError("it overflows"))
    with pytest.raises(EpochFailed, match="it overflows"):
        loop.run("caught_up")


def test_pending_cuts_are_computed_again_as_they_were(engine: Callable[..., Engine]) -> None:
    first = engine()
    first.begin({"t": Source("a", "b", "c", "d")}).run("caught_up")
    first.claim.release()
    second = engine()
    loop = second.begin({"t": Source("e", "f")}, back_to=1, catch_up=True)
    assert (loop.frontier, second.layers()) == (1, [(1, 1)])
    loop.run("caught_up")
    taken = [given.cut.ranges["t"] for given in second.job.ran]
    assert taken == [["b"], ["c"], ["d"], ["e", "f"]]
    assert second.history().frontier == 5
    assert second.layers() == [(1, 1), (2, 2), (2, 3), (2, 4), (2, 5)]


def test_a_pending_cut_that_fails_is_not_dropped_if_it_was_computed_before(
    engine: Callable[..., Engine],
) -> None:
    first = engine()
    first.begin({"t": Source("a", "b", "c")}).run("caught_up")
    first.claim.release()
    second = engine()
    loop = second.begin({"t": Source()}, back_to=1, computed_before=3)
    second.job.before = lambda epoch: once(RuntimeError("no memory"))(epoch) if epoch == 3 else None
    with pytest.raises(EpochFailed, match="no memory"):
        loop.run("caught_up")
    assert [cut.ranges["t"] for cut in second.history().pending] == [["c"]]


def test_a_superseded_engine_whose_epoch_fails_removes_nothing_of_its_successor_s(
    engine: Callable[..., Engine],
) -> None:
    """It is woken with an epoch in hand, after another has gone on: the job misses layers that were merged away."""
    first = engine()
    loop = first.begin({"t": Source("a", "b", "c")})
    second: list[Engine] = []

    def taken_over(epoch: int) -> None:
        if epoch == 3:
            write(first.root, 3, 1)  # a task of the first has got through
            second.append(engine(takeover=True))
            second[0].begin({"t": Source("d", "e", "f")}).run("caught_up")
            raise JobTroubled("damage", "epoch 2 is gone")

    first.job.before = taken_over
    with pytest.raises(Superseded):
        loop.run("caught_up")
    successor = second[0]
    assert successor.history().frontier == 6
    own = [(incarnation, epoch) for incarnation, epoch in successor.layers() if incarnation == 2]
    assert own == [(2, epoch) for epoch in range(3, 7)]
    assert successor.layers()[:2] == [(1, 1), (1, 2)]
    assert successor.loop.run("caught_up").epochs == 0, "and it goes on"


def test_a_superseded_engine_does_not_publish(engine: Callable[..., Engine]) -> None:
    first = engine()
    loop = first.begin({"t": Source("a")})

    def taken_over(epoch: int) -> None:
        engine(takeover=True).begin({"t": Source("b")}).run("caught_up")

    first.job.before = taken_over
    with pytest.raises(Superseded):
        loop.run("caught_up")
    assert loop.frontier == 0
    history = first.history()
    assert [cut.ranges["t"] for cut in history.cuts] == [["a"], ["b"]]
    assert history.frontier == 2


def test_a_store_that_is_gone_for_a_while_is_waited_for(
    engine: Callable[..., Engine], tmp_path: Path
) -> None:
    it = engine()
    loop = it.begin({"t": Source("a", "b")})
    aside = tmp_path / "aside"

    def gone(epoch: int) -> None:
        if epoch == 2 and not it.notices:
            it.root.rename(aside)
            raise RuntimeError("no such file")

    def back(epoch: int) -> None:
        if aside.exists() and it.clock.monotonic() > 30:
            aside.rename(it.root)

    it.job.before = gone
    loop.turns.append(back)
    loop.run("caught_up")
    assert it.notices[0] == f"waiting: {StoreVanished(str(it.root))}"
    assert len(it.notices) == 2
    assert (it.history().frontier, it.layers()) == (2, [(1, 1), (1, 2)])
    assert it.job.epochs == [1, 2, 2]
    assert it.beats.count(1) > 30, "it shows that it lives"
    assert loop.trouble is None


def test_a_store_whose_folder_is_made_again_has_vanished_all_the_same(
    engine: Callable[..., Engine], tmp_path: Path
) -> None:
    """Somebody makes the folder, such as what mounts disks, and tasks that are under way make theirs in it."""
    it = engine()
    loop = it.begin({"t": Source("a")})
    aside = tmp_path / "aside"

    def gone(epoch: int) -> None:
        if not it.notices:
            it.root.rename(aside)
            it.root.mkdir()

    def back(epoch: int) -> None:
        if loop.trouble is not None and aside.exists():
            shutil.rmtree(it.root)
            aside.rename(it.root)

    it.job.before = gone
    loop.turns.append(back)
    loop.run("caught_up")
    assert it.notices[0] == f"waiting: {StoreVanished(str(it.root))}"
    (done,) = it.history().computed
    assert list(done.layers) == [TRACE]


def test_a_store_that_another_engine_has_made_anew_ends_the_run(
    engine: Callable[..., Engine], tmp_path: Path
) -> None:
    it = engine()
    loop = it.begin({"t": Source("a")})

    def gone(epoch: int) -> None:
        shutil.rmtree(it.root)
        raise RuntimeError("no such file")

    def restored(epoch: int) -> None:
        if loop.trouble is not None and not it.root.exists():
            engine().begin({"t": Source("a")})

    it.job.before = gone
    loop.turns.append(restored)
    with pytest.raises(Superseded):
        loop.run("caught_up")
    assert it.notices[0] == f"waiting: {StoreVanished(str(it.root))}"


@pytest.mark.parametrize("when", ["computing", "recording a cut", "publishing"])
def test_a_full_disk_is_waited_for_and_no_epoch_is_lost_or_doubled(
    engine: Callable[..., Engine], when: str
) -> None:
    it = engine()
    loop = it.begin({"t": Source("a", "b", "c")})

    def fill(epoch: int) -> None:
        if epoch == 2 and not it.notices:
            it.disk.full = True
            if when == "computing":
                raise JobTroubled("hindered", "[Errno 28] No space left on device")

    def free(epoch: int) -> None:
        if when == "recording a cut" and epoch == 1 and not it.notices:
            it.disk.full = True
        if loop.trouble is not None and it.clock.monotonic() > 60:
            it.disk.full = False

    it.job.before = fill if when != "recording a cut" else it.job.before
    loop.turns.append(free)
    loop.run("caught_up")
    assert it.notices[0] == f"waiting: {StoreFull(str(it.root))}"
    assert it.notices[1].startswith("going on: ")
    assert len(it.notices) == 2
    assert [type(record) for record in it.records()[1:]] == [Cut, Computed] * 3, "nothing is dropped"
    assert [cut.ranges["t"] for cut in it.history().cuts] == [["a"], ["b"], ["c"]]
    assert it.job.epochs == ([1, 2, 2, 3] if when == "computing" else [1, 2, 3])
    assert it.layers() == [(1, 1), (1, 2), (1, 3)]


def test_a_stop_ends_the_wait_and_the_next_run_goes_on(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a")})
    it.job.before = lambda epoch: setattr(it.disk, "full", True)
    loop.turns.append(lambda epoch: loop.stop() if it.clock.monotonic() > 10 else None)
    assert loop.run("caught_up").epochs == 0
    it.disk.full = False
    loop.turns.pop()
    loop.run("caught_up")
    assert (it.job.epochs, it.history().frontier) == ([1], 1), "what was computed is published, once"


def test_a_job_that_found_no_room_is_tried_again_although_there_is_some_now(
    engine: Callable[..., Engine],
) -> None:
    it = engine()
    loop = it.begin({"t": Source("a")})
    it.job.before = once(JobTroubled("hindered", "[Errno 28] No space left on device: '/tmp/spark'"))
    loop.run("caught_up")
    assert (it.job.epochs, it.history().frontier, it.history().dropped) == ([1, 1], 1, frozenset())
    assert "epoch 1 was hindered: [Errno 28] No space left on device" in it.notices[0]


def test_a_damaged_layer_is_healed_and_the_epoch_computed_again(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a", "b")})
    name = LayerName(1, 1, 1, 0, 1 << 31)
    damage = JobTroubled("damage", str(DamagedLayer(TRACE, name, "a part")))
    it.job.before = lambda epoch: failing(epoch) if epoch == 2 else None
    failing = once(damage)
    it.heals = [(f"{TRACE}/{name.filename}",)]
    loop.run("caught_up")
    assert (it.job.epochs, it.history().frontier) == ([1, 2, 2], 2)
    assert it.notices[0].startswith(f"healed: The layer {TRACE}/{name.filename} is damaged: a part.")


def test_damage_that_nobody_can_heal_ends_the_run_and_keeps_the_input(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a", "b")})

    def damaged(epoch: int) -> None:
        if epoch == 2:
            raise DamagedLayer(TRACE, LayerName(1, 1, 1, 0, 1 << 31), "a part")

    it.job.before = damaged
    with pytest.raises(CannotHeal, match="1-view/000001-0000000001"):
        loop.run("caught_up")
    assert (it.job.epochs, it.layers()) == ([1, 2, 2], [(1, 1)])
    assert [cut.ranges["t"] for cut in it.history().pending] == [["b"]], "its cut is kept as it was"


def test_holding_shows_that_the_engine_lives(engine: Callable[..., Engine]) -> None:
    it = engine()
    durability = Durability(("a",), 1, Exposure(seconds=5.0))
    policy = Policy(limit=durability.max_unsafe)
    loop = it.begin({"t": Source("a", "b")}, durability=durability, policy=policy)
    steps: list[Mapping[str, float]] = []
    loop.listeners.append(lambda report: steps.append(report.steps))
    loop.listeners.append(lambda report: it.clock.advance(6))

    def replica_catches_up(epoch: int) -> None:
        if len(it.beats) > 500:
            it.watching.said = Replication(replicas={"a": Progress(1)}, incarnation=1)

    loop.turns.append(replica_catches_up)
    loop.run(2)
    assert loop.frontier == 2
    assert it.beats.count(1) > 490
    assert "held" not in steps[0]
    assert steps[1]["held"] > 9


def test_a_stop_while_holding_ends_the_run(engine: Callable[..., Engine]) -> None:
    it = engine()
    durability = Durability(("a",), 1, Exposure(seconds=5.0))
    loop = it.begin(
        {"t": Source("a", "b")}, durability=durability, policy=Policy(limit=Exposure(seconds=5.0))
    )
    loop.listeners.append(lambda report: it.clock.advance(6))
    loop.turns.append(lambda epoch: loop.stop() if len(it.beats) > 50 else None)
    assert loop.run("caught_up").epochs == 1


def test_an_interrupt_passes_through_and_the_next_run_goes_on(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a")})

    def interrupt(epoch: int) -> None:
        if len(it.job.ran) == 1:
            raise KeyboardInterrupt

    it.job.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        loop.run("caught_up")
    assert [type(record) for record in it.records()[1:]] == [Cut], "nothing is dropped"
    assert loop.run("caught_up").epochs == 1
    assert it.history().frontier == 1


def test_what_one_source_gave_is_not_lost_when_another_fails(engine: Callable[..., Engine]) -> None:
    it = engine()
    first, second = Source("a"), Source("b")
    second.failures = [RuntimeError("the listing failed")]
    loop = it.begin({"t": first, "u": second})
    with pytest.raises(RuntimeError, match="the listing failed"):
        loop.run("caught_up")
    first.things.append("c")
    loop.run("caught_up")
    assert [cut.ranges for cut in it.history().cuts] == [{"t": ["a"], "u": ["b"]}, {"t": ["c"]}]


def test_input_is_forgotten_once_it_is_safe_on_our_own_replicas(engine: Callable[..., Engine]) -> None:
    it = engine()
    source = Source("a", "b", "c", forgets_each=True)
    loop = it.begin({"t": source}, durability=Durability(("a",)), forgetting=True)
    it.watching.said = Replication(replicas={"a": Progress(2)}, incarnation=2)
    loop.run(2)
    assert source.forgotten == [], "a successor's epochs are other epochs"
    it.watching.said = replace(it.watching.said, incarnation=1)
    loop.run("caught_up")
    assert source.forgotten == [["a"], ["b"]]


def test_a_source_that_came_with_a_change_forgets_what_is_safe(engine: Callable[..., Engine]) -> None:
    it = engine()
    first, later = Source("a", forgets_each=True), Source("b", "c", forgets_each=True)
    loop = it.begin({"t": first}, durability=Durability(("a",)), forgetting=True)
    loop.run("caught_up")
    inputs = {"t": first, "u": later}
    budgets = {name: Budget.start("rows", 1.0) for name in inputs}
    loop.change(it.job, inputs, budgets, {}, begins=False, due=False)
    it.watching.said = Replication(replicas={"a": Progress(2)}, incarnation=1)
    loop.run("caught_up")
    assert (first.forgotten, later.forgotten) == ([["a"]], [["b"]])


def test_input_that_becomes_safe_while_there_is_none_is_forgotten_too(engine: Callable[..., Engine]) -> None:
    it = engine()
    source = Source("a", "b", forgets_each=True)
    loop = it.begin({"t": source}, durability=Durability(("a",)), forgetting=True)
    loop.run("caught_up")
    assert source.forgotten == []
    it.watching.said = Replication(replicas={"a": Progress(2)}, incarnation=1)
    began = it.clock.monotonic()

    def stopped(epoch: int) -> None:
        if source.forgotten or it.clock.monotonic() > began + 60:
            loop.stop()

    loop.turns.append(stopped)
    loop.run(None)
    assert source.forgotten == [["a"], ["b"]]
    assert it.clock.monotonic() < began + 5


def test_a_listener_that_fails_ends_the_run_and_the_epoch_stays(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a")})

    def fail(report: EpochReport) -> None:
        raise RuntimeError("nobody listens")

    loop.listeners.append(fail)
    with pytest.raises(RuntimeError, match="nobody listens"):
        loop.run("caught_up")
    assert (loop.frontier, it.layers()) == (1, [(1, 1)])


def test_a_stop_lets_the_epoch_in_hand_finish(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a", "b")})
    it.job.before = lambda epoch: loop.stop()
    assert loop.run(None).epochs == 1


def test_a_job_that_fails_with_trouble_of_the_store_is_run_again(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a")})
    it.job.before = once(StoreTrouble("the disk hiccups"))
    loop.run("caught_up")
    assert (it.job.epochs, it.notices[0]) == ([1, 1], "waiting: the disk hiccups")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal: a process in the background is born deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_at(line: int, run: Callable[[], object]) -> bool:
    """Call a function, and press Ctrl-C before the given line of the loop; whether it came to that many."""
    left = line
    loop = str(Path(slipstream.__file__).parent / "epoch")

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if event == "line" and frame.f_code.co_filename.startswith(loop):
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return left <= 0


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_at_any_line_of_a_run_loses_nothing(tmp_path: Path) -> None:
    line, interrupted = 0, True
    while interrupted:
        line += 1
        it = Engine(tmp_path / str(line))
        loop = it.begin({"t": Source("a", "b")})
        interrupted = interrupted_at(line, lambda loop=loop: loop.run("caught_up"))  # type: ignore[misc]
        loop.run("caught_up")
        history = it.history()
        assert [cut.ranges for cut in history.cuts] == [{"t": ["a"]}, {"t": ["b"]}], f"at line {line}"
        assert history.frontier == loop.frontier == 2
        assert [word.computed for word in it.agent.words] == [1, 2], "the agent heard of both"
        it.claim.release()
    assert line > 100


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_is_not_kept_waiting(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a")})
    reached = []

    def hang(report: EpochReport) -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append("after the first")
        signal.raise_signal(signal.SIGINT)
        reached.append("after the second")

    loop.listeners.append(hang)
    with pytest.raises(KeyboardInterrupt):
        loop.run("caught_up")
    assert reached == ["after the first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "as it was before"


def test_a_loop_in_another_thread_leaves_signals_alone(engine: Callable[..., Engine]) -> None:
    it = engine()
    loop = it.begin({"t": Source("a")})
    handlers = []
    loop.listeners.append(lambda report: handlers.append(signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(target=lambda: loop.run("caught_up"))
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
