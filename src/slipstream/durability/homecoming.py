"""Bringing home what a restore left on a replica: the agent does it, behind the computation.

A restored store has a file `away.json` that lists its notes (`trace.away`): {"epoch": 7, "layers": ["TRACE/LAYER"]}. As
long as it is there, some layers may be elsewhere: their traces are not merged, and nothing is deleted on a replica, for
a note may still point to it. When the last one is home, what is there is compared with the epoch checksums, and
the file goes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from slipstream.durability.board import Board
from slipstream.durability.checksum import mismatches, read_sums
from slipstream.durability.identity import summed
from slipstream.errors import ChecksumMismatch, SlipstreamError
from slipstream.trace import bring

FILE = "away.json"
_PARALLEL = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Homecoming(threading.Thread):
    """Ends when everything is home."""

    def __init__(self, root: Path, board: Board) -> None:
        super().__init__(name="homecoming", daemon=True)
        self._root, self._board = root, board

    def run(self) -> None:
        pause = _FIRST_PAUSE
        while not all_home(self._root):
            try:
                self._board.damage(self.step())
            except (OSError, SlipstreamError) as error:  # a replica may be back later
                self._board.damage(str(error))
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def step(self) -> str | None:
        """Bring everything, and check it; what is wrong with it, if anything is."""
        root = self._root
        epoch, layers = _listed(root)
        with ThreadPoolExecutor(_PARALLEL) as pool:
            list(pool.map(_brought, [root / layer for layer in layers]))
        catalog = json.loads((root / "catalog.json").read_text())
        traces = _traces(layers)
        restored = {key: trace for key, trace in summed(catalog).items() if trace in traces}
        wrong = mismatches(root, read_sums(root), epoch, restored)
        (root / FILE).unlink()
        return str(ChecksumMismatch(str(root), epoch, wrong)) if wrong else None


def list_away(root: Path, epoch: int, layers: Sequence[str]) -> None:
    """Say which layers of a store are elsewhere, as it was restored as of an epoch."""
    if layers:
        (root / FILE).write_text(json.dumps({"epoch": epoch, "layers": layers}))
    else:
        (root / FILE).unlink(missing_ok=True)


def all_home(root: Path) -> bool:
    """Whether no layer is elsewhere."""
    return not (root / FILE).exists()


def away_in(root: Path) -> set[str]:
    """The traces of which some layers may be elsewhere."""
    return _traces(_listed(root)[1])


def _traces(layers: Sequence[str]) -> set[str]:
    return {layer.rpartition("/")[0] for layer in layers}


def _listed(root: Path) -> tuple[int, list[str]]:
    try:
        said = json.loads((root / FILE).read_text())
    except FileNotFoundError:
        return 0, []
    return said["epoch"], said["layers"]


def _brought(path: Path) -> None:
    with suppress(FileNotFoundError):  # it was merged on, or forgotten
        bring(path)
