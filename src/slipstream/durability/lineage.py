"""Lineage: what an epoch was made of, in the order in which it happened.

A log of JSON lines, one file an incarnation, appended and never changed:

{"began": 2, "after": 6}                                         this log's incarnation goes on from epoch 6
{"cut": 7, "clock": 1700000000.0, "ranges": {"orders": ...}}     epoch 7 takes these ranges of input, and calls late
                                                                 what is behind its "watermarks", if it has any
{"computed": 7, "clock": ..., "seconds": ..., "rows": ...}       its layers are all there: readers may see it;
                                                                 "latest": the latest event times so far
{"dropped": 7}                                                   it failed; unless it is cut again, its input is free

Whatever an earlier incarnation says of epochs after the one at which it was succeeded does not count: it did not
know. Only an epoch that was cut next and not computed is taken over, unless the successor had to go back ("anew"):
then everything after its beginning is cut anew.

Together with the plan, the ranges determine an epoch to the bit, so an epoch that was cut and not computed
when the process ended is run again from its record. Nothing here is flushed to disk: that is not on the
epoch's path. A torn last line is an append that the process did not live to finish: it is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from slipstream.errors import UnknownEpoch

JSON = Any
_TAIL = 1 << 16


@dataclass(frozen=True)
class Cut:
    """An epoch's input: a range for each source that has something new; its watermarks, in milliseconds."""

    epoch: int
    clock: float
    ranges: dict[str, JSON]
    watermarks: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Computed:
    """An epoch that readers may see. late: rows, by view. latest: event times so far, by watermark, milliseconds."""

    epoch: int
    clock: float
    seconds: float
    rows: int
    rejected: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """All that the logs of a store say."""

    cuts: tuple[Cut, ...]
    computed: tuple[Computed, ...]
    dropped: frozenset[int] = frozenset()
    """Epochs that failed at least once."""

    @property
    def failing(self) -> bool:
        """Whether the next epoch to be computed has failed before."""
        return self.frontier + 1 in self.dropped

    @property
    def frontier(self) -> int:
        return self.computed[-1].epoch if self.computed else 0

    @property
    def pending(self) -> Cut | None:
        """The epoch that was cut and never computed."""
        return self.cuts[-1] if self.cuts and self.cuts[-1].epoch > self.frontier else None

    @property
    def watermarks(self) -> dict[str, int]:
        """The watermarks of the last computed epoch."""
        frontier = self.frontier
        return next((cut.watermarks for cut in reversed(self.cuts) if cut.epoch == frontier), {})

    @property
    def latest(self) -> dict[str, int]:
        """The latest event times that computed epochs have seen."""
        return self.computed[-1].latest if self.computed else {}

    def consumed(self, source: str) -> list[JSON]:
        """The ranges of a source that computed epochs took, oldest first."""
        frontier = self.frontier
        return [cut.ranges[source] for cut in self.cuts if cut.epoch <= frontier and source in cut.ranges]

    def taken(self, source: str) -> list[JSON]:
        """The ranges of a source that are not to be cut again: those of computed epochs and of the pending one."""
        return [cut.ranges[source] for cut in self.cuts if source in cut.ranges]

    def at(self, clock: float) -> int:
        """The last epoch computed at or before a point in time."""
        before = [each.epoch for each in self.computed if each.clock <= clock]
        if not before:
            first = self.computed[0].clock if self.computed else None
            raise UnknownEpoch.before_first(clock, first)
        return before[-1]


class LineageWriter:
    """Appends to the log of one incarnation."""

    def __init__(self, root: Path, incarnation: int) -> None:
        log = root / "lineage" / f"{incarnation}.jsonl"
        self._file: IO[str] = log.open("a", buffering=1)

    def began(self, incarnation: int, after: int, *, anew: bool) -> None:
        self._append({"began": incarnation, "after": after, **({"anew": True} if anew else {})})

    def cut(self, cut: Cut) -> None:
        line: dict[str, JSON] = {"cut": cut.epoch, "clock": cut.clock, "ranges": cut.ranges}
        if cut.watermarks:
            line["watermarks"] = cut.watermarks
        self._append(line)

    def computed(self, done: Computed) -> None:
        line: dict[str, JSON] = {
            "computed": done.epoch,
            "clock": done.clock,
            "seconds": done.seconds,
            "rows": done.rows,
        }
        for name, said in (("rejected", done.rejected), ("late", done.late), ("latest", done.latest)):
            if said:
                line[name] = said
        self._append(line)

    def dropped(self, epoch: int) -> None:
        self._append({"dropped": epoch})

    def close(self) -> None:
        self._file.close()

    def _append(self, line: dict[str, JSON]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


def read_history(root: Path) -> History:
    """What the logs of all incarnations say, one after another."""
    return history_of(_lines(root))


def history_of(lines: Iterable[dict[str, JSON]]) -> History:
    """What lines of logs say, those of a later incarnation after those of an earlier one."""
    cuts: dict[int, Cut] = {}
    computed: dict[int, Computed] = {}
    dropped: set[int] = set()
    for line in lines:
        if "began" in line:
            after, taken_over = line["after"], 0 if line.get("anew") else 1
            cuts = {epoch: cut for epoch, cut in cuts.items() if epoch <= after + taken_over}
            computed = {epoch: done for epoch, done in computed.items() if epoch <= after}
            dropped = {epoch for epoch in dropped if epoch <= after + taken_over}
        elif "cut" in line:
            marks = line.get("watermarks", {})
            cuts[line["cut"]] = Cut(line["cut"], line["clock"], line["ranges"], marks)
        elif "computed" in line:
            epoch = line["computed"]
            counts = (line.get(name, {}) for name in ("rejected", "late", "latest"))
            computed[epoch] = Computed(epoch, line["clock"], line["seconds"], line["rows"], *counts)
        elif "dropped" in line:
            cuts.pop(line["dropped"], None)
            dropped.add(line["dropped"])
    return History(
        tuple(cuts[epoch] for epoch in sorted(cuts)),
        tuple(computed[epoch] for epoch in sorted(computed)),
        frozenset(dropped),
    )


def computed_frontier(root: Path) -> int:
    """How far the store is computed: the end of the newest log, or where that began."""
    for path in reversed(_logs(root)):
        with path.open("rb") as log:
            size = log.seek(0, 2)
            reach = _TAIL
            while True:
                log.seek(max(0, size - reach))
                lines = log.read().split(b"\n")[0 if reach >= size else 1 : -1]
                found = [json.loads(line) for line in lines if line.startswith((b'{"computed"', b'{"began"'))]
                if found:
                    return int(found[-1].get("computed", found[-1].get("after")))
                if reach >= size:
                    break
                reach *= 4
    return 0


class LineageTail:
    """Reads on from where it stopped: the lines of some epochs, as they are in the logs up to one incarnation's.

    Lines are handed out once. What is before the first epoch asked for is passed over; what an incarnation says after
    it was succeeded is handed out too, and `history_of` ignores it as it does in the logs, because `began` comes later.
    """

    def __init__(self, root: Path, incarnation: int) -> None:
        self._root, self._incarnation = root, incarnation
        self._log, self._offset = 0, 0

    def read(self, since: int, until: int) -> list[str]:
        """The lines of epochs after `since`, up to the one that says `until` is computed."""
        taken: list[str] = []
        for path in _logs(self._root):
            number = int(path.stem)
            if number < self._log or number > self._incarnation:
                continue
            if number > self._log:
                self._log, self._offset = number, 0
            with path.open("rb") as log:
                log.seek(self._offset)
                for raw in log:
                    if not raw.endswith(b"\n"):
                        break
                    self._offset += len(raw)
                    text = raw.decode()
                    line = json.loads(text)
                    if line["after"] >= since if "began" in line else _epoch_of(line) > since:
                        taken.append(text)
                    if number == self._incarnation and line.get("computed") == until:
                        return taken
        return taken


def _epoch_of(line: dict[str, JSON]) -> int:
    return int(next(line[key] for key in ("cut", "computed", "dropped") if key in line))


def _logs(root: Path) -> list[Path]:
    return sorted((root / "lineage").glob("*.jsonl"), key=lambda path: int(path.stem))


def _lines(root: Path) -> Iterator[dict[str, JSON]]:
    for path in _logs(root):
        with path.open() as log:
            for line in log:
                if line.endswith("\n"):
                    yield json.loads(line)
