"""The ledger: all that the epoch's loop knows of durability.

It is where cuts and computed epochs are written down, and it says how much of that is safe. The loop gets one when it
is made; who keeps the store, talks to the agent and reads replicas is not its business (`durability.ledger`).

Whatever writes raises `Superseded` where the store is another's by now, and `StoreTrouble` where its disk fails. What
failed with trouble may be asked again: it is then done once, not twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from slipstream.core.errors import StoreTrouble
from slipstream.core.settings import Exposure
from slipstream.store.records import Computed, Cut


class Ledger(Protocol):
    """See the module's docstring."""

    def check_ours(self) -> None:
        """Raise `Superseded` unless this process still owns the store."""

    def cut(self, cut: Cut) -> None:
        """Record an epoch's input."""

    def layers(self, epoch: int) -> Mapping[str, str]:
        """By trace, one digest over the layers that an epoch has made."""

    def computed(self, record: Computed) -> None:
        """Record that an epoch is computed: readers see it."""

    def dropped(self, epoch: int) -> None:
        """Record that an epoch failed."""

    def discard(self, after: int) -> None:
        """Remove this incarnation's layers of later epochs."""

    def safe(self) -> int:
        """The newest epoch that is safe. It never falls."""

    def exposure(self, now: float) -> Exposure:
        """How much is not safe yet."""

    def tell(self, record: Computed) -> None:
        """Let those who follow know of a computed epoch."""

    def compact(self) -> None:
        """What is safe by now, and forgotten by its sources, need not be read again at a start. Costs nothing unless it
        is due, once in some thousand epochs.
        """

    def look(self) -> None:
        """A turn of the loop: see that whoever follows is alive. Costs next to nothing."""

    def trouble(self) -> StoreTrouble | None:
        """Write to the store, to see whether that can be done; what is wrong if not."""

    def heal(self) -> tuple[str, ...]:
        """Replace damaged layers from replicas; those that were replaced."""

    def close(self) -> None:
        """Let go of what is held open."""
