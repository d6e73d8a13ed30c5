"""Random damages and power cuts of real stores, judged by what a start makes of them.

Two stores, made without Spark: one with a replica, one that never had any. Three incarnations each, merges and history,
and the last epochs not yet on disk nor on the replica.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slipstream.clock import ManualClock
from slipstream.testing import damage
from slipstream.testing.damage import Case, Intact, Table, judge, torture
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
def alone(tmp_path_factory: pytest.TempPathFactory) -> Intact:
    folder = tmp_path_factory.mktemp("alone")
    made(folder)
    return Intact.of(folder / "store", None, folder / "intact")


def check(table: Table, most_refused: float) -> None:
    assert table.bad() == [], f"\n{table}\n" + "\n".join(f"{each.case}: {each.said}" for each in table.bad())
    assert table.count("refused") <= most_refused * len(table.judged), str(table)


def test_random_damages_to_a_store_and_its_replica(replicated: Intact, tmp_path: Path) -> None:
    check(torture(replicated, 700, 0, 1, tmp_path / "case"), 0.15)


def test_random_damages_to_a_store_without_a_replica(alone: Intact, tmp_path: Path) -> None:
    check(torture(alone, 300, 0, 1, tmp_path / "case"), 0.3)


def test_power_cuts_with_and_without_a_replica(replicated: Intact, alone: Intact, tmp_path: Path) -> None:
    check(torture(replicated, 0, 300, 1, tmp_path / "case"), 0.12)
    check(torture(alone, 0, 200, 1, tmp_path / "case"), 0.12)


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
