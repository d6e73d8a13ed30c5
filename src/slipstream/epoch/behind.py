"""Input that may be forgotten: sources are told of the ranges of epochs that are safe.

Durability follows behind the loop. Once an epoch is safe on replicas its input will never be asked for again. Sources
hear of that after each epoch and, where none comes, about once a second, in the loop's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

from slipstream.store.records import JSON, Cut


class Forgetful(Protocol):
    """What this needs of a source."""

    @property
    def forgets_each(self) -> bool: ...
    def forget(self, upto: JSON) -> None: ...


class Behind:
    """Epochs whose input is still needed."""

    def __init__(self, inputs: Mapping[str, Forgetful], past: Iterable[Cut] = ()) -> None:
        """past: the cuts of epochs that were computed before."""
        self.inputs = inputs
        self._needed: deque[Cut] = deque(past)

    def computed(self, cut: Cut) -> None:
        self._needed.append(cut)

    def forget(self, safe: int) -> None:
        """Tell each source, range by range if it has to hear of every one, else only of the last."""
        ranges: dict[str, list[JSON]] = {}
        while self._needed and self._needed[0].epoch <= safe:
            for name, taken in self._needed.popleft().ranges.items():
                ranges.setdefault(name, []).append(taken)
        for name, forgotten in ranges.items():
            source = self.inputs.get(name)
            if source is not None:
                for taken in forgotten if source.forgets_each else forgotten[-1:]:
                    source.forget(taken)
