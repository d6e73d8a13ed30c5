"""How far back history reaches is on record: what is let go is recorded first, and what is missing is told as lost."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.core.errors import HistoryForgotten, HistoryLetGo, HistoryLost
from slipstream.core.settings import Durability
from slipstream.durability.fsck import check_replica, check_store
from slipstream.durability.inbox import newest_manifest
from slipstream.durability.repair import repair
from slipstream.durability.replica import Replica
from slipstream.durability.restore import heal_layer
from slipstream.durability.start import plan_start
from slipstream.durability.timetravel import check_there
from slipstream.store.lineage import read_lineage
from slipstream.store.store import Store
from slipstream.testing.pretend import BAG, Pretend, contents, expected
from slipstream.trace import LayerName, Span, TraceReader, list_layers, readable_from

EPOCHS = 24
KEPT = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and its replica, of which history before epoch 6 was let go."""
    folder = tmp_path_factory.mktemp("made")
    url = f"file://{folder}/replica"
    engine = Pretend.start(folder / "store", url)
    agent = engine.agent(url, clock=ManualClock())
    for _ in range(EPOCHS):
        engine.keep_from = min(KEPT, engine.epoch)
        agent.all(engine.run(1))
    agent.lineage()
    engine.close()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def oldest(store: Path) -> list[LayerName]:
    """The logs of the epoch from which on history is kept, and of nothing before."""
    return [name for name in list_layers(store / BAG) if name.is_log and name.lo == KEPT + 1]


def lose(store: Path) -> int:
    """Take the oldest layer of the history away; the epoch from which on the rest can be read."""
    assert oldest(store)
    for name in oldest(store):
        (store / BAG / name.filename).unlink()
    return readable_from(list_layers(store / BAG), EPOCHS, Span.whole())


def test_history_that_was_let_go_is_not_missed(folder: Path) -> None:
    store = Store.existing(folder / "store")
    assert read_lineage(store.disk).history.kept == KEPT
    assert readable_from(store.valid_layers(BAG), EPOCHS, Span.whole()) <= KEPT
    assert check_store(folder / "store").findings == ()
    assert check_replica(f"file://{folder}/replica").findings == ()
    kept = readable_from(store.valid_layers(BAG), EPOCHS, Span.whole())
    for as_of, since in ((2, None), (EPOCHS, 2)):
        with pytest.raises(HistoryLetGo) as told:
            check_there(store, "events", as_of, since, base=False)
    assert str(told.value) == (
        f"epoch 2 of 'events' is not kept any more: its history reaches back to epoch {kept}. Ask for epoch {kept} or "
        "later, or keep more from now on with App(..., history=...)."
    )
    with pytest.raises(HistoryForgotten):
        TraceReader(folder / "store" / BAG, EPOCHS, Span.whole()).changes(2, EPOCHS)


def test_a_lost_oldest_layer_is_found_and_brought_back(folder: Path) -> None:
    left = lose(folder / "store")
    assert left > KEPT
    told = f"the history of 'events' before epoch {left} is lost (it was kept from epoch {KEPT} on)"
    assert [(each.where, each.what) for each in check_store(folder / "store").findings] == [(BAG, told)]
    alone = plan_start(folder / "store", "pretend", Durability()).plan
    assert (alone.error, alone.epoch, alone.why) == (None, EPOCHS, (f"{told}: no copy is left",))
    done = repair(folder / "store", [f"file://{folder}/replica"])
    assert done.left.sound, done.left.findings
    for epoch in range(KEPT, EPOCHS + 1):
        assert contents(folder / "store", BAG, epoch) == expected(BAG, epoch)


def test_a_reader_of_what_is_lost_is_told_so(folder: Path) -> None:
    left = lose(folder / "store")
    store = Store.existing(folder / "store")
    for as_of, since in ((KEPT + 1, None), (EPOCHS, KEPT)):
        with pytest.raises(
            HistoryLost, match=f"'events' in the store .* before epoch {left} is lost or damaged"
        ):
            check_there(store, "events", as_of, since, base=False)
    check_there(store, "events", left, None, base=False)
    check_there(store, "events", EPOCHS, left, base=False)


def test_a_restore_that_gives_up_history_says_so(folder: Path) -> None:
    url = f"file://{folder}/replica"
    shutil.rmtree(folder / "store")
    whole = plan_start(folder / "store", "pretend", Durability((url,))).plan
    assert not any("history" in each for each in whole.why)
    doomed = {each.stored.name for each in whole.fetch if each.stored and each.kept.layer.lo == KEPT + 1}
    assert doomed
    for name in doomed:
        Replica(url).delete(name)
    assert check_replica(url).findings
    engine = Pretend.start(folder / "store", url)
    assert engine.started is not None
    assert "the history of 'events' before epoch" in (engine.started.said or "")
    assert contents(folder / "store", BAG, EPOCHS) == expected(BAG, EPOCHS)
    engine.close()


def test_healing_that_gives_up_history_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    url, store = f"file://{folder}/replica", Store.existing(folder / "store")
    manifest = newest_manifest(Replica(url))
    assert manifest is not None
    for kept in manifest.layers[BAG]:
        if kept.layer.is_log and kept.layer.lo == KEPT + 1:
            Replica(url).delete(kept.object)
    for name in oldest(folder / "store"):
        assert heal_layer(store, 9, BAG, name, [url], clock=ManualClock())
    assert {record.message for record in caplog.records} == {
        "a damaged layer of history was dropped: no replica has it"
    }
    assert contents(folder / "store", BAG, EPOCHS) == expected(BAG, EPOCHS)


def test_the_record_comes_before_what_it_lets_go_is_removed(tmp_path: Path) -> None:
    """The agent is killed before it removes: then there is more than the record says, and never less."""
    engine = Pretend.start(tmp_path / "store")
    agent = engine.agent(clock=ManualClock())
    for _ in range(EPOCHS):
        engine.keep_from = max(0, engine.epoch - 3)
        agent.hear(engine.run(1))
        if engine.epoch % 5 == 0:
            agent.upkeep()
        history = read_lineage(engine.store.disk).history
        assert readable_from(engine.store.valid_layers(BAG), engine.epoch, Span.whole()) <= history.kept
    engine.close()


def test_records_without_it_promise_nothing(tmp_path: Path) -> None:
    """A store of an earlier version of Slipstream."""
    engine = Pretend.start(tmp_path / "store")
    engine.histories = ()
    agent = engine.agent(clock=ManualClock())
    for _ in range(8):
        agent.all(engine.run(1))
    engine.close()
    assert check_store(tmp_path / "store").findings == ()


def test_the_history_of_a_view_that_was_computed_anew_begins_there(folder: Path) -> None:
    store = Store.existing(folder / "store")
    left = lose(folder / "store")
    engine = Pretend.on(folder / "store")
    catalog = store.catalog()
    events = replace(catalog.views["events"], since=left)
    engine.claim.write_catalog(replace(catalog, views={"events": events}))
    engine.close()
    assert check_store(folder / "store").findings == ()
