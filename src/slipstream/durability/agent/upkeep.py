"""The part that merges layers and removes those that nobody needs any more.

What to do is decided by `trace.plan_upkeep`, from names and sizes; here it is carried out, trace by trace, in an order
that no crash, power cut or takeover can harm:

1. Make what is merged, each flushed with its folder.
2. Decide again, with that in place, what is superfluous; where nothing was merged, that is known already.
3. Flush whatever stands in for it and was not flushed yet; and the lineage, because what stands in may reach past what
   is persisted: without lineage that reaches as far, it counts for nobody.
4. Remove it, one by one. Right before each the store is asked whether it is still this incarnation's.

A trace with a damaged layer is left alone until the layer is replaced (`healing`). One of which some layers are still
on a replica is left alone until they are home.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.errors import DamagedLayer
from slipstream.durability.board import Board, Progress, Told, Word
from slipstream.durability.healing import AGAIN_AFTER, Healing
from slipstream.durability.work import LayerWork
from slipstream.store.layers import remove_layer
from slipstream.store.layout import AWAY, lineage_log
from slipstream.store.store import Store
from slipstream.trace import LayerName, Remove, plan_upkeep
from slipstream.trace.merge import substitutes

crash_points(
    upkeep__before_merge="layers are due to be merged or packed, and nothing is done",
    upkeep__after_merge="a merged layer is there beside those that it replaces",
    upkeep__before_remove="a layer is due to be removed and is still there; what stands in for it is on disk",
    upkeep__after_remove="a layer is removed, and others like it are not yet",
)

_PAUSE = 0.2  # seconds between two rounds, so that short epochs share one
_IDLE = 1.0


class Upkeep:
    """See the module's docstring."""

    name = "upkeep"

    def __init__(
        self,
        store: Store,
        incarnation: int,
        urls: Sequence[str],
        *,
        board: Board,
        work: LayerWork,
        healing: Healing,
    ) -> None:
        self._store, self._incarnation, self._urls = store, incarnation, urls
        self._owned = store.owned_by(incarnation)
        self._board, self._work, self._healing = board, work, healing
        self._done: Told | None = None
        self._flushed: set[tuple[str, LayerName]] = set()

    def step(self) -> float:
        told = self._board.told
        if told is None or (told == self._done and not self._healing.waiting):
            return _IDLE
        self._owned.check()
        tended = [self._tend(trace, told.word) for trace in self._store.traces()]
        quiet = all(tended)
        self._healing.look_again()
        for url, size in zip(self._urls, self._behind(), strict=True):
            self._board.post(url, partial(_lacking, size))
        self._work.release()
        if quiet:
            self._done = told
        if not self._healing.waiting:
            self._board.works(self.name)
            return _PAUSE
        return AGAIN_AFTER if quiet else _PAUSE

    def _tend(self, trace: str, word: Word) -> bool:
        """Look after one trace; whether that is done, and no layer vanished meanwhile."""
        try:
            if not self._any_away(trace):
                self.tend(trace, word, self._board.barriers())
        except DamagedLayer as damage:
            return not self._healing.found(self.name, damage)
        except FileNotFoundError:
            return False
        return True

    def tend(self, trace: str, word: Word, barriers: Iterable[int]) -> None:
        """Merge what is due in a trace, and remove what that made superfluous."""
        keep_from = word.keep_from if trace in word.histories else None
        made = False
        stats = self._work.stats(trace)
        plan = plan_upkeep(stats, word.computed, keep_from, barriers)
        for step in plan:
            if not isinstance(step, Remove):
                crash_point("upkeep.before_merge")
                self._owned.check()
                self._work.merge(trace, step)
                self._flushed.add((trace, step.output))
                made = True
                crash_point("upkeep.after_merge")
        if made:
            stats = self._work.stats(trace)
            plan = plan_upkeep(stats, word.computed, keep_from, barriers)
        doomed = [step.name for step in plan if isinstance(step, Remove)]
        self._flush(trace, substitutes([stat.name for stat in stats], doomed))
        if doomed:
            self._store.disk.flush(lineage_log(self._incarnation))
        for name in doomed:
            crash_point("upkeep.before_remove")
            remove_layer(self._owned, trace, name)
            self._flushed.discard((trace, name))
            crash_point("upkeep.after_remove")
        if made:
            self._work.tidy(trace, self._ours)

    def _flush(self, trace: str, names: Iterable[LayerName]) -> None:
        waiting = [name for name in names if (trace, name) not in self._flushed]
        for name in waiting:
            self._store.disk.flush(f"{trace}/{name.filename}")
        if waiting:
            self._store.disk.flush_folder(trace)
            self._flushed.update((trace, name) for name in waiting)

    def _any_away(self, trace: str) -> bool:
        if not self._store.disk.exists(AWAY):
            return False
        return any(self._work.is_away(trace, name) for name in self._store.valid_layers(trace))

    def _behind(self) -> list[int]:
        """For each replica, the bytes of the layers that it lacks."""
        sizes: list[tuple[int, int]] = []
        durable = [self._board.progress(url).durable for url in self._urls]
        for trace in self._store.traces() if durable else ():
            for name in self._store.valid_layers(trace):
                if name.hi > min(durable):
                    try:
                        sizes.append((name.hi, self._store.layers.size(trace, name)))
                    except FileNotFoundError:
                        continue
        return [sum(size for hi, size in sizes if hi > epoch) for epoch in durable]

    def _ours(self) -> bool:
        return not self._store.superseded(self._incarnation)


def _lacking(size: int, known: Progress) -> Progress:
    return replace(known, behind=size)
