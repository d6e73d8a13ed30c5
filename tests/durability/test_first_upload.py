"""A first upload that ends before its commit: nothing is durable yet, and no start may be refused because of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import CannotRecover, WouldLose
from slipstream.core.settings import Durability
from slipstream.durability.board import read_replication
from slipstream.durability.recovery import Kind
from slipstream.durability.replica import Replica
from slipstream.durability.start import plan_start
from slipstream.store import layout
from slipstream.store.lineage import read_lineage
from slipstream.store.store import Store
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, expected
from slipstream.trace import LayerName

EPOCHS = 3


class Severed(BaseException):
    """The process, or the machine, ends here."""


class Severing(Replica):
    """A replica to which so many objects can be sent."""

    left = 0

    def put(self, name: str, body: bytes | Path) -> None:
        if Severing.left == 0:
            raise Severed(name)
        Severing.left -= 1
        super().put(name, body)


def cut_short(folder: Path, puts: int) -> bool:
    """Compute a few epochs, and end after so many objects of the first upload; whether that was before its commit."""
    url = f"file://{folder}/replica"
    engine = Pretend.start(folder / "store", url)
    clock = ManualClock()
    Severing.left = puts
    agent = engine.agent(url, clock=clock, objects=Severing)
    word = engine.run(EPOCHS)
    clock.advance(2)
    try:
        agent.lineage()
        agent.hear(word)
        agent.follow()
    except Severed:
        pass
    finally:
        engine.close()
    return not list((folder / "replica").glob("commits/*"))


def uploads(tmp_path: Path) -> list[tuple[Path, str]]:
    """Every way in which a first upload can end before its commit: a folder with a store and a replica each."""
    found: list[tuple[Path, str]] = []
    for puts in range(100):
        folder = tmp_path / str(puts)
        if not cut_short(folder, puts):
            return found
        found.append((folder, f"file://{folder}/replica"))
    raise AssertionError("it never ends")


def lose_newest(store: Path, epoch: int) -> None:
    """What a power cut does to layers that nobody flushed."""
    for path in (store / layout.TRACES).glob("*/*/*"):
        name = LayerName.parse(path.name)
        if name is not None and name.hi >= epoch:
            path.write_bytes(b"")


def computes_on(engine: Pretend) -> None:
    """From here on all is as it would have been, and it becomes durable."""
    url = f"file://{engine.root.parent}/replica"
    agent = engine.agent(url)
    agent.all(engine.run(EPOCHS + 1 - engine.epoch))
    for trace in (BAG, KEYED):
        assert contents(engine.root, trace, EPOCHS + 1) == expected(trace, EPOCHS + 1)
    known = read_lineage(engine.store.disk, whole=True).history
    assert [each["appends"][0] for each in known.consumed("t")] == list(range(1, EPOCHS + 2))
    assert agent.board.progress(url).durable == EPOCHS + 1
    engine.close()


@pytest.mark.parametrize("lost", [EPOCHS + 1, EPOCHS, 1])
def test_a_start_goes_on_where_the_store_can(tmp_path: Path, lost: int) -> None:
    """Whole, without its newest layers, or without any: what was cut is computed again as it was."""
    for folder, url in uploads(tmp_path):
        lose_newest(folder / "store", lost)
        engine = Pretend.start(folder / "store", url)
        assert engine.started is not None
        expected_kind = Kind.GO_ON if lost > EPOCHS else Kind.STEP_BACK
        assert (engine.started.plan.kind, engine.epoch) == (expected_kind, lost - 1)
        assert engine.pending in (0, EPOCHS)
        computes_on(engine)


def test_where_the_store_is_gone_too_it_is_said_what_is_there_and_what_begins_anew(tmp_path: Path) -> None:
    kinds = set()
    for folder, url in uploads(tmp_path):
        if not any((folder / "replica").rglob("*.*")):
            continue  # nothing at all was sent: a new app
        shutil.rmtree(folder / "store")
        with pytest.raises(WouldLose) as refused:
            Pretend.start(folder / "store", url)
        sent = len(list(folder.glob("replica/data/*"))) + len(list(folder.glob("replica/catalog/*")))
        said = str(refused.value)
        assert "run FILE.py --accept-loss" in said
        if sent:
            assert "no commit, but" in said
            assert "a first upload that was cut short, if nobody deleted its commits" in said
        if list(folder.glob("replica/lineage/*")) and sent:
            assert f"all of epochs 1 to {EPOCHS} would be computed again" in said
            assert "source 't': {'appends': [1, 1]}" in said
        assert isinstance(plan_start(folder / "store", "pretend", Durability((url,))).plan.error, WouldLose)
        engine = Pretend.start(folder / "store", url, accept_loss=True)
        assert engine.started is not None
        kinds.add(engine.started.plan.kind)
        assert engine.epoch == 0
        computes_on(engine)
    assert kinds == {Kind.START_EMPTY, Kind.RESTORE}


def test_a_damaged_commit_is_no_first_upload(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/replica"
    engine = Pretend.start(tmp_path / "store", url)
    engine.agent(url).all(engine.run(EPOCHS))
    engine.close()
    shutil.rmtree(tmp_path / "store")
    for path in tmp_path.glob("replica/commits/*"):
        path.write_bytes(b"")
    for consent in (False, True):
        with pytest.raises(CannotRecover, match="damaged commits"):
            Pretend.start(tmp_path / "store", url, accept_loss=consent)


def test_a_new_store_says_that_nothing_is_safe_before_anything_is_sent(tmp_path: Path) -> None:
    cut_short(tmp_path, 0)
    said = read_replication(Store.at(tmp_path / "store").disk)
    assert (said.incarnation, said.safe, list(said.replicas.values())) == (1, 0, [])
