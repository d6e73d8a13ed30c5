"""Bringing home what a recovery left on a replica: a part of the agent, behind the computation.

Such a store has a document `away.json` that lists its notes (`trace.away`): {"epoch": 7, "layers": ["TRACE/LAYER"]}.
As long as it is there, some layers may be elsewhere: their traces are not merged, and nothing is deleted on a
replica, for a note may still point to it. When the last one is home, what is there is compared with the epoch
checksums, and the document goes. A document that cannot be read stands for every note that there is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from slipstream.core.errors import ChecksumMismatch, SlipstreamError, Superseded
from slipstream.durability.board import Board
from slipstream.durability.checksum import mismatches, read_totals
from slipstream.durability.work import LayerWork
from slipstream.store import documents
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.events import fields
from slipstream.store.layout import AWAY
from slipstream.store.store import Store
from slipstream.trace import LayerName, bring, checked_trace

_PARALLEL = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_DONE = 3600.0
_LOG = logging.getLogger("slipstream.agent")


class Homecoming:
    """Brings everything, once; a replica that cannot be read is asked again after a pause that grows."""

    name = "homecoming"

    def __init__(self, store: Store, incarnation: int, *, board: Board, work: LayerWork) -> None:
        self._store, self._incarnation, self._board, self._work = store, incarnation, board, work
        self._pause = _FIRST_PAUSE

    def step(self) -> float:
        if all_home(self._store.disk):
            return _DONE
        try:
            wrong = self._bring()
        except Superseded:
            raise
        except (OSError, SlipstreamError) as error:  # a replica may be back later
            self._board.trouble(self.name, str(error))
            pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
            return pause
        if wrong is None:
            self._board.works(self.name)
        else:
            self._board.trouble(self.name, wrong)
        return _DONE

    def _bring(self) -> str | None:
        """Bring everything, and check it; what is wrong with it, if anything is."""
        store = self._store
        epoch, layers = listed_away(store)
        with ThreadPoolExecutor(_PARALLEL) as pool:
            list(pool.map(self._brought, layers))
        for trace in sorted({trace for trace, _ in layers}):
            store.disk.flush_folder(trace)
        traces = {trace for trace, _ in layers}
        restored = {key: trace for key, trace in store.catalog().summed().items() if trace in traces}
        totals = read_totals(store.disk)[0].get(epoch, {})
        wrong = mismatches(totals, restored, epoch, self._work.state_sum)
        store.owned_by(self._incarnation).remove(AWAY)
        _LOG.info("all layers are home", extra=fields(part=self.name, layers=len(layers)))
        return str(ChecksumMismatch(str(store.root), epoch, wrong)) if wrong else None

    def _brought(self, layer: tuple[str, LayerName]) -> None:
        trace, name = layer
        with suppress(FileNotFoundError):  # it was merged on, or forgotten
            bring(self._store.root / trace / name.filename)
            self._store.disk.flush(f"{trace}/{name.filename}")


def list_away(disk: WritableDisk, epoch: int, layers: Sequence[tuple[str, LayerName]]) -> None:
    """Say which layers of a store are elsewhere, as it was restored as of an epoch."""
    names = [f"{trace}/{name.filename}" for trace, name in layers]
    disk.replace(AWAY, documents.encode({"epoch": epoch, "layers": names}, AWAY), flushed=True)


def all_home(disk: Disk) -> bool:
    """Whether no layer is elsewhere."""
    return not disk.exists(AWAY)


def listed_away(store: Store) -> tuple[int, list[tuple[str, LayerName]]]:
    """The epoch as of which a store was restored, and the layers that may be elsewhere."""
    try:
        said = documents.decode(store.disk.read(AWAY), AWAY)
    except FileNotFoundError:
        return 0, []
    match said:
        case {"epoch": int(epoch), "layers": [*names]} if all(isinstance(name, str) for name in names):
            parted = [name.rpartition("/") for name in names]
            layers = [(trace, LayerName.parse(filename)) for trace, _, filename in parted]
            return epoch, [(checked_trace(trace), name) for trace, name in layers if name is not None]
    return 0, [(trace, name) for trace in store.traces() for name in store.valid_layers(trace)]
