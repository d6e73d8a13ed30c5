"""Watermarks from epoch to epoch.

The watermark of an epoch is the latest event time that all earlier epochs have seen, less the delay. It is fixed when
the epoch is cut and recorded with the cut, so that an epoch that is run again calls the same rows late. It never
falls, not even when the delay is made longer. Times are whole milliseconds, as in Structured Streaming.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Watermarks:
    """delays: of every watermark. reached: those of the last computed epoch. latest: the latest event times so far."""

    delays: Mapping[str, int]
    reached: Mapping[str, int]
    latest: Mapping[str, int]

    def next(self) -> dict[str, int]:
        """The watermarks of the epoch to come; one that has seen no event time yet is not there."""
        marks = {}
        for name, delay in self.delays.items():
            known = [self.reached[name]] if name in self.reached else []
            if name in self.latest:
                known.append(self.latest[name] - delay)
            if known:
                marks[name] = max(known)
        return marks

    def after(self, reached: Mapping[str, int], seen: Mapping[str, int]) -> Watermarks:
        """What is known once an epoch with these watermarks has seen these event times, in microseconds."""
        latest = dict(self.latest)
        for name, time in seen.items():
            latest[name] = max(time // 1000, latest.get(name, time // 1000))
        return replace(self, reached=reached, latest=latest)
