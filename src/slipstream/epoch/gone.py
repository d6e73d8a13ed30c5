"""Input that is gone before its epoch was computed; pure.

An epoch that was cut and not computed is computed as it was cut, so it needs the input that its cut names. Where some
of that is gone (somebody deleted a file too early, or the store lost what it kept), nobody can compute that epoch any
more, and every later one waits for it. The user may let the input go (`slipstream run --accept-loss`): then the epoch
is cut again, of what is left of its ranges, and that is recorded in the place of the cut before. The lineage never
names input that was not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from slipstream.store.records import Cut

_FEW = 10


class Recorded(Protocol):
    """What a source can say of a range that it once gave."""

    def left(self, range: Any) -> tuple[Any | None, tuple[str, ...]]:  # noqa: A002
        """What is left of a range, None for nothing, and the names of what is gone."""


@dataclass(frozen=True)
class Shortened:
    """Cuts without what is gone, and what that is, by source."""

    cuts: tuple[Cut, ...]
    gone: Mapping[str, tuple[str, ...]]

    @property
    def epochs(self) -> str:
        numbers = [cut.epoch for cut in self.cuts]
        return f"epoch {numbers[0]}" if len(numbers) == 1 else f"epochs {', '.join(map(str, numbers))}"

    @property
    def told(self) -> str:
        """What is gone, for people: the first few of each source."""
        return "; ".join(f"source '{name}': {_few(each)}" for name, each in sorted(self.gone.items()))


def shortened(pending: Sequence[Cut], sources: Mapping[str, Recorded]) -> Shortened | None:
    """What becomes of cuts whose input is gone in part; None where all of it is there."""
    cuts: list[Cut] = []
    gone: dict[str, tuple[str, ...]] = {}
    for cut in pending:
        ranges: dict[str, Any] = {}
        for name, taken in cut.ranges.items():
            left, lost = sources[name].left(taken) if name in sources else (taken, ())
            if left is not None:
                ranges[name] = left
            if lost:
                gone[name] = (*gone.get(name, ()), *lost)
        if ranges != cut.ranges:
            cuts.append(replace(cut, ranges=ranges))
    return Shortened(tuple(cuts), gone) if cuts else None


def _few(names: Sequence[str]) -> str:
    text = ", ".join(names[:_FEW])
    return text if len(names) <= _FEW else f"{text} and {len(names) - _FEW} more"
