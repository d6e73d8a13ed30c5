"""The agent: its parts taken by hand, and as a real process that merges, may be killed, and ends with its engine."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import ReplicaTrouble, SlipstreamError, StoreFull, Superseded
from slipstream.core.settings import Exposure
from slipstream.durability.agent import Agent, rest_within
from slipstream.durability.agent.parts import CRASHED, Ends, Turn
from slipstream.durability.agent.process import Charge
from slipstream.durability.agent.sums import SHARE, must_rest
from slipstream.durability.board import Board, Word, read_replication
from slipstream.store.disk import LocalDisk
from slipstream.store.events import log_events, read_events, stop_logging
from slipstream.store.layout import sums_log
from slipstream.store.store import Identity, Store, claim_store, write_identity
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, eventually, expected
from slipstream.trace import validate


@pytest.fixture
def pretend(tmp_path: Path) -> Iterator[Pretend]:
    engine = Pretend.on(tmp_path / "store")
    yield engine
    engine.close()


def layers_in(store: Store, trace: str) -> int:
    return len(store.valid_layers(trace))


def test_layers_are_merged_and_a_killed_agent_is_started_again(pretend: Pretend) -> None:
    agent = Agent(pretend.charge())
    try:
        agent.tell(pretend.run(20))
        assert eventually(lambda: layers_in(pretend.store, KEYED) < 10), "history is not kept"
        killed = agent.pid
        os.kill(killed, signal.SIGKILL)
        agent.tell(pretend.run(20))

        def merged() -> bool:
            agent.look()
            return layers_in(pretend.store, KEYED) < 16

        assert eventually(merged)
        assert agent.pid != killed
    finally:
        agent.close()
    assert contents(pretend.root, KEYED, 40) == expected(KEYED, 40)
    validate(pretend.root / KEYED, 40)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this system weighs no sessions")
def test_an_agent_and_its_session_step_aside_for_the_engine(pretend: Pretend) -> None:
    agent = Agent(pretend.charge())
    try:
        weighed = Path(f"/proc/{agent.pid}/autogroup")
        assert eventually(lambda: weighed.read_text().split()[-1] == "10"), weighed.read_text()
        assert os.getpriority(os.PRIO_PROCESS, agent.pid) == 10
    finally:
        agent.close()


def test_history_that_is_wanted_is_kept(pretend: Pretend) -> None:
    agent = pretend.agent()
    pretend.keep_from = 5
    agent.all(pretend.run(70))
    names = pretend.store.valid_layers(BAG)
    assert any(name.hi > name.lo for name in names)
    for epoch in range(5, 71):
        assert contents(pretend.root, BAG, epoch) == expected(BAG, epoch)


def test_without_replicas_what_is_computed_is_persisted_all_the_same(pretend: Pretend) -> None:
    agent = pretend.agent()
    agent.all(pretend.run(3))
    assert read_replication(pretend.store.disk).persisted == 3


def test_an_agent_whose_sums_cannot_be_written_for_a_while_shows_it_and_goes_on_by_itself(
    pretend: Pretend, tmp_path: Path
) -> None:
    """A folder stands in the place of a log: whatever the cause of a failed write, durability comes back."""
    url = f"file://{tmp_path}/replica"
    log = pretend.root / sums_log(pretend.claim.incarnation)
    log.mkdir()
    agent = Agent(pretend.charge(url))
    try:
        agent.tell(pretend.run(3))

        def shown() -> bool:
            agent.look()
            return "sums" in read_replication(pretend.store.disk).errors

        assert eventually(shown)
        said = read_replication(pretend.store.disk)
        assert said.errors["sums"].error.startswith("IsADirectoryError")
        assert (said.persisted, said.errors["sums"].over) == (0, None)
        log.rmdir()

        def caught_up() -> bool:
            agent.look()
            now = read_replication(pretend.store.disk)
            return now.persisted == 3 and now.replicas[url].durable == 3

        assert eventually(caught_up)
        assert read_replication(pretend.store.disk).errors["sums"].over is not None
    finally:
        agent.close()
    crashes = [each for each in read_events(pretend.store.disk, "agent") if "crashed" in each["event"]]
    assert crashes
    assert "IsADirectoryError" in crashes[0]["traceback"]
    assert (crashes[0]["part"], crashes[0]["incarnation"]) == ("sums", 1)


class Scripted:
    """A part that does what it is told."""

    name = "part"

    def __init__(self, *does: float | BaseException) -> None:
        self._does = list(does)

    def step(self) -> float:
        does = self._does.pop(0)
        if isinstance(does, BaseException):
            raise does
        return does


def turn_of(pretend: Pretend, *does: float | BaseException) -> tuple[Turn, Board]:
    board = Board(pretend.store, pretend.claim.incarnation, (), clock=ManualClock(5.0))
    return Turn(Scripted(*does), board, pretend.store, pretend.claim.incarnation), board


def test_an_agent_whose_store_was_made_anew_under_its_number_ends_and_writes_nothing(
    pretend: Pretend,
) -> None:
    """Incarnations of a new store begin with 1 again: what tells it from the old one is its identity."""
    known = pretend.store.identity()
    assert known is not None
    mine = replace(pretend.store, owner=known.id)
    board = Board(mine, pretend.claim.incarnation, (), clock=ManualClock(5.0))
    turn = Turn(Scripted(1.0, 1.0), board, mine, pretend.claim.incarnation)
    assert turn.take() == 1.0
    write_identity(LocalDisk(pretend.store.root), Identity(known.app, "another"))
    board.persisted(99)
    with pytest.raises(Ends):
        turn.take()
    assert read_replication(pretend.store.disk).persisted == 0


@pytest.mark.parametrize("error", [StoreFull("store"), ReplicaTrouble("url", "writing x", "timeout")])
def test_what_is_known_by_name_is_posted_and_tried_again_after_pauses_that_grow(
    pretend: Pretend, error: SlipstreamError
) -> None:
    turn, board = turn_of(pretend, *[error] * 12, 7.0, error)
    waits = [turn.take() for _ in range(12)]
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-1] == 30.0
    posted = read_replication(pretend.store.disk).errors["part"]
    assert (posted.time, posted.error) == (5.0, f"{type(error).__name__}: {error}")
    assert turn.take() == 7.0
    assert turn.take() == 0.1, "the pauses begin anew"
    board.works("part")
    assert read_replication(pretend.store.disk).errors["part"].over == 5.0


@pytest.mark.parametrize("error", [ValueError("a mistake"), OSError(errno.EISDIR, "a folder"), MemoryError()])
def test_what_nobody_expects_ends_the_process_with_its_traceback_in_the_events(
    pretend: Pretend, error: Exception
) -> None:
    turn, _ = turn_of(pretend, error)
    handler = log_events(pretend.claim.owned, "agent", 1)
    try:
        with pytest.raises(Ends) as ends:
            turn.take()
    finally:
        stop_logging(handler, "agent")
    assert ends.value.code == CRASHED
    assert type(error).__name__ in read_replication(pretend.store.disk).errors["part"].error
    event = read_events(pretend.store.disk, "agent")[-1]
    assert (event["part"], event["level"]) == ("part", "error")
    assert "in step" in event["traceback"]


def test_a_part_of_an_agent_that_was_succeeded_does_nothing_more(pretend: Pretend) -> None:
    turn, board = turn_of(pretend, 1.0)
    board.persisted(1)
    claim_store(pretend.store, "pretend", takeover=True).release()
    with pytest.raises(Ends) as ends:
        turn.take()
    assert ends.value.code == 0
    board.persisted(9)
    assert read_replication(pretend.store.disk).persisted == 1, "what the successor says is not overwritten"


class Fake:
    """A process that a test kills."""

    started: list[Fake]

    def __init__(self, room: int = 1 << 20) -> None:
        self.ended: int | None = None
        self.taken = b""
        self.room = room
        self.pid = 1

    def code(self) -> int | None:
        return self.ended

    def write(self, data: bytes) -> int:
        if self.ended is not None:
            raise BrokenPipeError
        if self.room == 0:
            raise BlockingIOError
        taken = data[: self.room]
        self.room -= len(taken)
        self.taken += taken
        return len(taken)

    def end(self) -> None:
        self.ended = 0


def test_an_agent_that_ends_is_started_again_after_pauses_that_grow_and_told_the_last_word() -> None:
    clock, started = ManualClock(), list[Fake]()

    def start() -> Fake:
        started.append(Fake())
        return started[-1]

    agent = Agent(Charge("/store"), clock, start)
    agent.tell(Word(1, 0, ()))
    for pause in (0.5, 1.0, 2.0):
        count = len(started)
        started[-1].ended = CRASHED
        agent.look()
        clock.advance(pause - 0.1)
        agent.look()
        assert len(started) == count, "not yet"
        clock.advance(0.2)
        agent.look()
        assert len(started) == count + 1
        assert started[-1].taken.endswith(b'{"computed": 1, "keep_from": 0, "histories": []}\n')
    clock.advance(61.0)
    started[-1].ended = CRASHED
    agent.look()
    clock.advance(0.5)
    agent.look()
    assert started[-1].ended is None, "one that ran for long is started again soon"


def test_an_agent_that_does_not_read_holds_up_nobody() -> None:
    fake = Fake(room=30)
    agent = Agent(Charge("/store"), ManualClock(), lambda: fake)
    for epoch in range(1, 1000):
        agent.tell(Word(epoch, 0, ()))
    assert len(fake.taken) == 30
    fake.room = 1 << 20
    agent.tell(Word(1000, 0, ()))
    lines = fake.taken.decode().splitlines()
    assert Charge.decode(lines[0]).root == "/store"
    assert lines[1:] == ['{"computed": 1000, "keep_from": 0, "histories": []}']


@pytest.mark.parametrize(
    ("limit", "rest"),
    [
        (Exposure(), 10.0),
        (Exposure(seconds=2.0), 0.5),
        (Exposure(seconds=3600), 10.0),
        (Exposure(bytes=1), 1.0),
    ],
)
def test_an_agent_rests_no_longer_than_what_may_be_unsafe_allows(limit: Exposure, rest: float) -> None:
    assert rest_within(limit) == rest


@pytest.mark.parametrize(
    ("rested", "used", "limit", "rests"),
    [
        (1.0, SHARE * 0.9, 10.0, False),
        (1.0, SHARE * 1.1, 10.0, True),
        (10.0, 9.0, 10.0, False),
        (0.0, 0.0, 10.0, False),
        (9.9, 9.0, 10.0, True),
    ],
)
def test_an_agent_takes_its_share_of_a_core(rested: float, used: float, limit: float, rests: bool) -> None:
    assert must_rest(rested, used, limit) is rests


def test_words_wait_while_the_agent_rests_and_lineage_does_not(pretend: Pretend, tmp_path: Path) -> None:
    """The processor time of this process stands for what the agent used."""
    url = f"file://{tmp_path}/replica"
    clock = ManualClock()
    agent = pretend.agent(url, clock=clock)
    sums = agent.parts["sums"]
    sums._cpu = lambda: 100.0  # type: ignore[attr-defined]
    agent.board.hear(pretend.run(1))
    assert sums.step() == 0.02
    agent.lineage()
    assert list((tmp_path / "replica" / "lineage").iterdir()), "lineage goes ahead"
    assert agent.board.told is None
    clock.advance(10.0)
    sums.step()
    assert agent.board.told is not None


def test_an_agent_whose_engine_was_succeeded_merges_nothing(pretend: Pretend) -> None:
    agent = pretend.agent()
    agent.hear(pretend.run(20))
    claim_store(pretend.store, "pretend", takeover=True).release()
    with pytest.raises(Superseded):
        agent.upkeep()
    assert layers_in(pretend.store, KEYED) == 40
