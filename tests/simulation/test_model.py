"""The model app: its incremental job gives what its input adds up to, however it is cut."""

from __future__ import annotations

import random

import pytest

from slipstream.core.errors import FileMissing
from slipstream.testing.simulation.disk import SimulatedDisk
from slipstream.testing.simulation.layers import ModelLayers
from slipstream.testing.simulation.model import SHOWN, STATE, Input, InputFile, compute, expected
from slipstream.testing.simulation.plan import draw
from slipstream.testing.simulation.scheduler import Scheduler


@pytest.mark.parametrize("seed", range(20))
def test_the_views_hold_what_the_cuts_add_up_to(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(Scheduler(seed))
    disk.make_folder("")
    layers, files = ModelLayers(disk), Input()
    waiting = [arrival.file for arrival in draw(seed).arrivals]
    for file in waiting:
        files.arrive(file)
    cuts = []
    while waiting:
        count = chance.randrange(1, 4)
        taken, waiting = waiting[:count], waiting[count:]
        ranges = {
            source: [file.name for file in taken if file.source == source]
            for source in ("orders", "customers")
        }
        cuts.append(ranges)
        compute(layers, files, ranges, len(cuts), 1, shards=chance.choice((1, 2)))
        wanted = expected(files.all, cuts)
        for traces in (SHOWN, STATE):
            assert {view: layers.contents(trace, len(cuts)) for view, trace in traces.items()} == wanted


def test_how_keyed_input_is_cut_makes_a_difference() -> None:
    files = {
        "early": InputFile("customers", "early", 1, (("a", 1),)),
        "late": InputFile("customers", "late", 2, (("a", 2),)),
    }
    together = expected(files, [{"customers": ["late", "early"]}])
    apart = expected(files, [{"customers": ["late"]}, {"customers": ["early"]}])
    assert (together["latest"], apart["latest"]) == ({"a=2": 1}, {"a=1": 1})


def test_input_that_is_gone_is_an_error() -> None:
    files = Input()
    files.arrive(InputFile("orders", "one", 1, ()))
    del files.present["one"]
    with pytest.raises(FileMissing):
        files.read(["one"])
