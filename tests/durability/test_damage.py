"""Random damages and power cuts of real stores, judged by what a start makes of them.

Two stores, made without Spark: one with a replica, one that never had any. Three incarnations each, merges and history,
and the last epochs not yet on disk nor on the replica.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slipstream.core.clock import ManualClock
from slipstream.testing import damage
from slipstream.testing.damage import TWO, Case, Intact, Table, each_object, judge, torture, unflushed
from slipstream.testing.pretend import KEYED, Pretend
from slipstream.trace import list_layers

ENDS = (8, 15, 22)
UNFLUSHED = 3


def made(folder: Path, *urls: str) -> Path:
    """A store of 22 epochs, of which the agent has seen all but the last three."""
    for last in ENDS:
        engine = Pretend.start(folder / "store", *urls)
        clock = ManualClock()
        agent = engine.agent(*urls, clock=clock)
        while engine.epoch < last:
            word = engine.run(1)
            if engine.epoch > ENDS[-1] - UNFLUSHED:
                continue
            agent.hear(word)
            clock.advance(2)
            agent.lineage()
            agent.persist()
            if engine.epoch % 3 == 0:
                agent.upkeep()
                agent.follow()
        engine.close()
    return folder


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Intact:
    folder = tmp_path_factory.mktemp("replicated")
    made(folder, f"file://{folder}/replica")
    return Intact.of(folder / "store", folder / "replica", folder / "intact")


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Intact:
    """A store with two replicas that are as far as each other, and not merged alike."""
    folder = tmp_path_factory.mktemp("twice")
    urls = (f"file://{folder}/replica", f"file://{folder}/second")
    for _ in range(2):
        engine = Pretend.start(folder / "store", *urls)
        for each in ((urls[0],), urls):
            clock = ManualClock()
            agent = engine.agent(*each, clock=clock)
            for _ in range(3):
                engine.keep_from = max(0, engine.epoch - 8)
                agent.all(engine.run(1))
            clock.advance(2)
            agent.lineage()
        engine.close()
    return Intact.of(folder / "store", folder / "replica", folder / "intact", folder / "second")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Intact:
    folder = tmp_path_factory.mktemp("alone")
    made(folder)
    return Intact.of(folder / "store", None, folder / "intact")


def check(table: Table, most_refused: float) -> None:
    assert table.bad() == [], f"\n{table}\n" + "\n".join(f"{each.case}: {each.said}" for each in table.bad())
    assert table.count("refused") <= most_refused * len(table.judged), str(table)


@pytest.mark.slow
def test_random_damages_to_a_store_and_its_replica(replicated: Intact, tmp_path: Path) -> None:
    check(torture(replicated, 700, 0, 1, tmp_path / "case"), 0.15)


@pytest.mark.slow
def test_random_damages_to_a_store_without_a_replica(alone: Intact, tmp_path: Path) -> None:
    check(torture(alone, 300, 0, 1, tmp_path / "case"), 0.3)


@pytest.mark.slow
def test_power_cuts_with_and_without_a_replica(replicated: Intact, alone: Intact, tmp_path: Path) -> None:
    check(torture(replicated, 0, 300, 1, tmp_path / "case"), 0.0)
    check(torture(alone, 0, 200, 1, tmp_path / "case"), 0.0)


def test_each_object_of_a_replica_with_the_store_gone(twice: Intact, tmp_path: Path) -> None:
    """One replica gives a right restore, or a clear refusal; two always give a right restore, with all of the past."""
    table = Table()
    with unflushed():
        for case, harm in each_object(twice, 1):
            table.add(judge(twice, case, harm, tmp_path / "case"))
    check(table, 0.3)
    refused = {each.case.target.split("/")[1] for each in table.judged if each.verdict == "refused"}
    assert refused <= {"data", "lineage", "commits"}, str(table)
    unlike = [each for each in table.judged if each.case.place == TWO and each.verdict != "right"]
    assert unlike == [], "\n".join(f"{each.case}: {each.verdict}: {each.said}" for each in unlike)
    silent = [
        each for each in table.judged if each.verdict == "past lost" and "the history of" not in each.said
    ]
    assert silent == []
    kinds = {each.case.target.split("/")[1] for each in table.judged}
    assert kinds == {"catalog", "commits", "data", "incarnations", "lineage", "owner.json", "sums"}


def test_every_kind_of_harm_is_drawn_and_copies_get_names_that_nothing_has(replicated: Intact) -> None:
    drawn = [damage.damage(replicated, seed)[0] for seed in range(600)]
    assert {case.operation for case in drawn} == set(damage._HARMS)
    anew = [case.target.split(" <- ") for case in drawn if "anew" in case.operation]
    for name, source in anew:
        assert not (replicated.folder / name).exists()
        assert (replicated.folder / source).exists()
    made = {Path(name).parent.name for name, _ in anew}
    assert {"lineage", "incarnations", "sums", "commits", "data"} <= made
    assert any(Path(case.target).name == "lock" for case in drawn)


def test_no_harm_is_right(replicated: Intact, alone: Intact, tmp_path: Path) -> None:
    for intact in (replicated, alone):
        case = Case("store, replica whole", "nothing", "", 0)
        assert judge(intact, case, lambda copy: None, tmp_path / "case").verdict == "right"


def test_the_judge_tells_another_answer(alone: Intact, tmp_path: Path) -> None:
    """Layers of other rows, whole and under the right names, and a record that names nothing."""
    other = tmp_path / "other"
    engine = Pretend.start(other / "store")
    engine.run(1)
    engine.close()
    intact = Intact.of(other / "store", None, tmp_path / "intact")
    wrong = Intact(
        folder=intact.folder,
        app=intact.app,
        epoch=intact.epoch,
        persisted=0,
        safe=0,
        sums={key: total ^ 1 for key, total in intact.sums.items()},
        cuts=intact.cuts,
    )
    case = Case("store, no replica", "nothing", "", 0)
    assert judge(wrong, case, lambda copy: None, tmp_path / "case").verdict == "WRONG"
    taken = Intact(
        folder=intact.folder,
        app=intact.app,
        epoch=intact.epoch,
        persisted=0,
        safe=0,
        sums=intact.sums,
        cuts={1: {"t": {"appends": [7, 7]}}},
    )
    assert judge(taken, case, lambda copy: None, tmp_path / "case").verdict == "WRONG"
    assert alone.epoch == ENDS[-1]


def test_the_judge_tells_an_empty_start_and_a_raw_error(
    alone: Intact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("store, no replica", "gone", "", 0)
    gone = judge(alone, case, lambda copy: shutil.rmtree(copy / "store"), tmp_path / "case")
    assert gone.verdict == "empty"

    def fail(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(damage, "start", fail)
    assert judge(alone, case, lambda copy: None, tmp_path / "case").verdict == "raw"


def test_the_command_prints_the_table(
    alone: Intact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(alone.folder / "store", tmp_path / "store")
    assert damage.main([str(tmp_path / "store"), "--count", "4", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].startswith("| where | cases | right |")
    assert "| all | 6 |" in printed
    assert list_layers(tmp_path / "store" / KEYED)
