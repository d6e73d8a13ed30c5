"""Upkeep decided on names alone, played over thousands of epochs."""

from __future__ import annotations

import random
from math import log

import pytest

from slipstream.trace import LayerName, LayerStat, Merge, Remove, Span, cover, plan_upkeep, shard_span, tile

WHOLE = Span.whole()


class Store:
    """A trace without files: names and made-up sizes."""

    def __init__(self) -> None:
        self.sizes: dict[LayerName, int] = {}

    def add(self, epoch: int, shards: int, size: int) -> None:
        for shard in range(shards):
            span = shard_span(shard, shards)
            self.sizes[LayerName(1, epoch, epoch, span.start, span.stop)] = size

    def tidy(self, computed: int, keep_from: int | None) -> int:
        """Carry the plan out and return the bytes written."""
        written = 0
        stats = [LayerStat(name, size, size) for name, size in self.sizes.items()]
        for step in plan_upkeep(stats, computed, keep_from):
            if isinstance(step, Remove):
                del self.sizes[step.name]
                continue
            kind = "flat" if isinstance(step, Merge) else "log"
            assert step.output.kind == kind
            assert step.output not in self.sizes
            tile(step.inputs, step.output.lo, step.output.hi, step.output.span, whole=isinstance(step, Merge))
            widths = (name.span.overlap(step.output.span) for name in step.inputs)
            share = [
                self.sizes[name] * overlap.width // name.span.width
                for name, overlap in zip(step.inputs, widths, strict=True)
                if overlap
            ]
            self.sizes[step.output] = sum(share)
            written += sum(share)
        return written


def test_state_without_history_stays_a_logarithmic_number_of_layers_and_writes() -> None:
    store, epochs, size = Store(), 1200, 100_000
    written = 0
    for epoch in range(1, epochs + 1):
        store.add(epoch, 1, size)
        written += store.tidy(epoch, None)
        assert len(cover(store.sizes, epoch, WHOLE)) <= 4 * (log(epochs, 4) + 1)
        assert len(store.sizes) <= 8 * (log(epochs, 4) + 1)
    assert written <= epochs * size * (log(epochs, 4) + 2)


@pytest.mark.parametrize("seed", range(3))
def test_every_epoch_kept_can_be_read_through_changes_of_shards(seed: int) -> None:
    chance = random.Random(seed)
    store, shards, keep_from = Store(), 2, 0
    for epoch in range(1, 180):
        if chance.random() < 0.05:
            shards = chance.randint(1, 5)
        store.add(epoch, shards, chance.choice([1, 1000, 100_000, 3_000_000]))
        keep_from = max(keep_from, epoch - 40)
        if chance.random() < 0.6:
            store.tidy(epoch, keep_from)
        for t in (keep_from, chance.randint(keep_from, epoch), epoch):
            cover(store.sizes, t, WHOLE)
            tile(store.sizes, t + 1, epoch, WHOLE, whole=False)


def test_long_history_is_packed_into_few_files() -> None:
    store, epochs = Store(), 1500
    for epoch in range(1, epochs + 1):
        store.add(epoch, 1, 10)
        store.tidy(epoch, 0)
    assert len(store.sizes) < 64 + epochs // 64 + 20
    assert len(tile(store.sizes, 1, epochs, WHOLE, whole=False)) < 64 + epochs // 64


def test_a_big_layer_is_not_rewritten_for_a_few_small_ones() -> None:
    stats = [LayerStat(LayerName(1, 1, 10, 0, WHOLE.stop, "flat"), 1, 10**9)]
    stats += [LayerStat(LayerName(1, e, e, 0, WHOLE.stop), 1, 1000) for e in (11, 12, 13, 14)]
    plan = plan_upkeep(stats, 14, None)
    assert [step.output for step in plan if isinstance(step, Merge)] == [
        LayerName(1, 11, 14, 0, WHOLE.stop, "flat")
    ]


def test_what_reaches_past_the_computed_epoch_is_left_alone() -> None:
    store = Store()
    for epoch in range(1, 9):
        store.add(epoch, 1, 10)
    store.tidy(4, None)
    store.tidy(4, None)
    assert sorted(store.sizes) == [
        LayerName(1, 1, 4, 0, WHOLE.stop, "flat"),
        *(LayerName(1, e, e, 0, WHOLE.stop) for e in (5, 6, 7, 8)),
    ]


def test_a_span_with_a_gap_is_left_alone() -> None:
    store = Store()
    for epoch in (1, 2, 3, 4, 6, 7):
        store.add(epoch, 1, 10)
    before = dict(store.sizes)
    store.tidy(7, None)
    assert store.sizes == before


def test_no_layers_need_no_upkeep() -> None:
    assert plan_upkeep([], 5, None) == []


def test_a_trace_whose_history_begins_late_is_merged_and_packed_all_the_same() -> None:
    """A view that was computed anew at epoch 100, of which all history is to be kept."""
    store = Store()
    store.sizes[LayerName(1, 1, 100, 0, WHOLE.stop, "flat")] = 10
    for epoch in range(101, 400):
        store.add(epoch, 1, 10)
        store.tidy(epoch, 0)
        assert len(cover(store.sizes, epoch, WHOLE)) <= 4 * (log(epoch, 4) + 1)
    for epoch in range(100, 400):
        assert cover(store.sizes, epoch, WHOLE)
    assert tile(store.sizes, 101, 399, WHOLE, whole=False)


def test_what_is_left_of_history_before_a_hole_stays_and_the_rest_is_looked_after() -> None:
    store = Store()
    for epoch in range(1, 21):
        store.add(epoch, 1, 10)
        store.tidy(epoch, 0)
    lost = LayerName(1, 10, 10, 0, WHOLE.stop)
    size = store.sizes.pop(lost)
    for epoch in range(21, 200):
        store.add(epoch, 1, 10)
        store.tidy(epoch, 3)
    assert len(cover(store.sizes, 199, WHOLE)) <= 4 * (log(199, 4) + 1)
    for epoch in (3, 9, 199):
        assert cover(store.sizes, epoch, WHOLE)
    store.sizes[lost] = size
    assert tile(store.sizes, 4, 199, WHOLE, whole=False), "what comes back fits in"
    for epoch in range(3, 200):
        assert cover(store.sizes, epoch, WHOLE)
