"""What the agent knows of damaged layers. A damaged layer stops nobody: it is reported, replaced from a replica if one
has a copy, and what does not need it goes on.

Whichever part finds one says so here. It is asked of the replicas at once, and again after a while as long as none has
it. What cannot be replaced stays in `progress.json`, by name, until somebody does (`slipstream fsck --repair`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from slipstream.core.clock import Clock
from slipstream.core.errors import DamagedLayer
from slipstream.durability.board import Board
from slipstream.store.events import fields
from slipstream.store.store import Store
from slipstream.trace import LayerName

AGAIN_AFTER = 30.0
_LOG = logging.getLogger("slipstream.agent")

Heal = Callable[[str, LayerName], bool]
"""Replaces a damaged layer of a trace; whether a replica had it."""


class Healing:
    """See the module's docstring."""

    def __init__(self, store: Store, board: Board, heal: Heal, clock: Clock) -> None:
        self._store, self._board, self._heal, self._clock = store, board, heal, clock
        self._asked: dict[tuple[str, LayerName], float] = {}

    def found(self, part: str, damage: DamagedLayer) -> bool:
        """A layer is damaged; whether it is replaced by now."""
        layer = (damage.trace, damage.layer)
        asked = self._asked.get(layer)
        if asked is not None and self._clock.monotonic() - asked < AGAIN_AFTER:
            return False
        said = fields(part=part, trace=damage.trace, layer=damage.layer.filename, cause=damage.problem)
        if asked is None:
            _LOG.error("a layer is damaged", extra=said)
        self._asked[layer] = self._clock.monotonic()
        self._post()
        if not self._heal(*layer):
            self._board.trouble(part, f"{damage} No replica has a copy of it.")
            return False
        _LOG.warning("a damaged layer was replaced from a replica", extra=said)
        self._asked.pop(layer, None)
        self._post()
        return True

    def look_again(self) -> None:
        """Forget those that are not there any more, or are whole again: somebody has put them right."""
        for layer, asked in list(self._asked.items()):
            if self._settled(*layer, asked):
                self._asked.pop(layer, None)
        self._post()

    def _settled(self, trace: str, name: LayerName, asked: float) -> bool:
        try:
            due = self._clock.monotonic() - asked >= AGAIN_AFTER
            if not due:
                return not self._store.disk.exists(f"{trace}/{name.filename}")
            return self._store.layers.problem(trace, name, deep=True) is None
        except FileNotFoundError:
            return True

    @property
    def waiting(self) -> bool:
        """Whether there is a damaged layer that no replica had when it was last asked for."""
        return bool(self._asked)

    def _post(self) -> None:
        known = list(self._asked)
        self._board.damaged(tuple(sorted(f"{trace}/{name.filename}" for trace, name in known)))
