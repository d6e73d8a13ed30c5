"""What the loop knows of durability, which follows behind it: how far it is safe, and what that allows.

Two things follow from the safe frontier. Sources are told that they may forget the input of safe epochs. And where the
user has set a limit to what may be unsafe, the loop takes no new input while it is beyond it: input waits, and nothing
is lost. Otherwise nothing in an epoch depends on storage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from slipstream.durability.frontiers import Watching, safe_epoch
from slipstream.durability.lineage import JSON, Cut
from slipstream.settings import Durability, Exposure


class Forgetful(Protocol):
    """What this needs of a source."""

    @property
    def forgets_each(self) -> bool: ...
    def forget(self, upto: JSON) -> None: ...


class Behind:
    """Follows the safe frontier, in the loop's thread."""

    def __init__(
        self, durability: Durability, watching: Watching, inputs: Mapping[str, Forgetful], past: Iterable[Cut]
    ) -> None:
        self._durability, self._watching, self._inputs = durability, watching, inputs
        self._unsafe: deque[tuple[int, float, Mapping[str, JSON]]] = deque(
            (cut.epoch, cut.clock, cut.ranges) for cut in past
        )

    @property
    def safe(self) -> int:
        durable = [each.durable for each in self._watching.now().replicas.values()]
        return safe_epoch(durable, self._durability.safe_on)

    def computed(self, cut: Cut, ended: float) -> None:
        """An epoch was computed: let sources forget what is safe by now."""
        if not self._durability.replicas:
            return
        self._unsafe.append((cut.epoch, ended, cut.ranges))
        self._forget(self.safe)

    def exposure(self, now: float) -> Exposure:
        """How much is not safe yet."""
        safe = self.safe
        oldest = next((clock for epoch, clock, _ in self._unsafe if epoch > safe), None)
        behind = sorted(each.behind for each in self._watching.now().replicas.values())
        size = behind[self._durability.safe_on - 1] if 1 <= self._durability.safe_on <= len(behind) else 0
        return Exposure(0.0 if oldest is None else max(0.0, now - oldest), 0 if oldest is None else size)

    def hold(self, now: Callable[[], float], wait: Callable[[], bool]) -> bool:
        """Whether input has to wait; `wait` passes some time and says whether to give up."""
        limit = self._durability.max_unsafe
        if limit == Exposure():
            return False
        held = False
        while not self.exposure(now()).within(limit):
            held = True
            if wait():
                break
        return held

    def _forget(self, safe: int) -> None:
        """Tell each source, range by range if it has to hear of every one, else only of the last."""
        safe_ranges: dict[str, list[JSON]] = {}
        while self._unsafe and self._unsafe[0][0] <= safe:
            for name, taken in self._unsafe.popleft()[2].items():
                safe_ranges.setdefault(name, []).append(taken)
        for name, ranges in safe_ranges.items():
            source = self._inputs.get(name)
            if source is not None:
                for taken in ranges if source.forgets_each else ranges[-1:]:
                    source.forget(taken)
