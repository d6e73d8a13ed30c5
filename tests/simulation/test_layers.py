"""Model layers: damage is noticed as it would be in real ones, and merging, packing and sums agree with one another."""

from __future__ import annotations

import random

import pytest

from slipstream.core.errors import DamagedLayer, HistoryForgotten
from slipstream.testing.simulation.disk import Damage, SimulatedDisk
from slipstream.testing.simulation.layers import ModelLayers, ModelWork, Row, added_up
from slipstream.testing.simulation.scheduler import Scheduler
from slipstream.trace import LayerName, Merge, Pack, Span
from slipstream.trace.naming import PLACES

TRACE = "traces/view/1-state"


def name(lo: int, hi: int, kind: str = "log") -> LayerName:
    return LayerName(1, lo, hi, 0, PLACES, "log" if kind == "log" else "flat")


ROWS: dict[int, list[Row]] = {
    1: [("a=1", 1, 1), ("b=2", 1, 1)],
    2: [("a=1", 2, -1), ("a=5", 2, 1)],
    3: [("c=3", 3, 1)],
}


@pytest.fixture
def work() -> tuple[ModelWork, ModelLayers, SimulatedDisk]:
    scheduler = Scheduler(1)
    disk = SimulatedDisk(scheduler)
    disk.make_folder("")
    layers = ModelLayers(disk)
    for epoch, rows in ROWS.items():
        layers.write(TRACE, name(epoch, epoch), rows)
    return ModelWork(disk), layers, disk


def test_merged_and_packed_layers_hold_what_their_inputs_held(
    work: tuple[ModelWork, ModelLayers, SimulatedDisk],
) -> None:
    doing, layers, _ = work
    before = layers.contents(TRACE, 3)
    change = doing.change_sum(TRACE, 0, 3)
    doing.merge(TRACE, Pack((name(1, 1), name(2, 2)), name(1, 2)))
    doing.merge(TRACE, Merge((name(1, 1), name(2, 2), name(3, 3)), name(1, 3, "flat")))
    assert before == {"a=5": 1, "b=2": 1, "c=3": 1}
    assert added_up(layers.rows(TRACE, name(1, 3, "flat"))) == before
    assert len(layers.rows(TRACE, name(1, 2))) == 4
    assert change == doing.state_sum(TRACE, 3)


def test_history_that_is_collapsed_is_forgotten(work: tuple[ModelWork, ModelLayers, SimulatedDisk]) -> None:
    doing, _, disk = work
    doing.merge(TRACE, Merge((name(1, 1), name(2, 2), name(3, 3)), name(1, 3, "flat")))
    for epoch in ROWS:
        disk.remove(f"{TRACE}/{name(epoch, epoch).filename}")
    with pytest.raises(HistoryForgotten):
        doing.change_sum(TRACE, 0, 3)


def test_what_is_packed_comes_back_under_another_name(
    work: tuple[ModelWork, ModelLayers, SimulatedDisk],
) -> None:
    doing, layers, _ = work
    (packed,) = doing.pack([(TRACE, name(epoch, epoch)) for epoch in ROWS], lambda number: f"data/{number}")
    for kept in packed.kept[TRACE]:
        restored = LayerName(7, kept.layer.lo, kept.layer.hi, kept.layer.start, kept.layer.stop)
        doing.unpack(packed.body, kept, "model", TRACE, restored)
        assert layers.rows(TRACE, restored) == tuple(ROWS[kept.layer.lo])
    assert layers.contents(TRACE, 3, Span.whole()) == {"a=5": 1, "b=2": 1, "c=3": 1}


@pytest.mark.parametrize("kind", ["flip", "cut", "zero", "hole"])
def test_every_damage_is_found_by_a_deep_look_and_nobody_reads_it(kind: Damage) -> None:
    for seed in range(60):
        scheduler = Scheduler(seed)
        disk = SimulatedDisk(scheduler)
        disk.make_folder("")
        layers = ModelLayers(disk)
        layers.write(TRACE, name(1, 1), ROWS[1])
        file = f"{TRACE}/{name(1, 1).filename}"
        whole = disk.peek(file)
        disk.damage(kind, file, "", random.Random(seed))
        if disk.peek(file) == whole:
            continue
        assert layers.problem(TRACE, name(1, 1), deep=True) is not None
        with pytest.raises(DamagedLayer):
            layers.rows(TRACE, name(1, 1))


def test_another_layers_file_is_not_this_layer(work: tuple[ModelWork, ModelLayers, SimulatedDisk]) -> None:
    _, layers, disk = work
    first, second = (f"{TRACE}/{name(epoch, epoch).filename}" for epoch in (1, 2))
    disk.damage("copy", first, second, random.Random(1))
    problem = layers.problem(TRACE, name(1, 1), deep=False)
    assert problem is not None
    assert "written as the layer" in problem
