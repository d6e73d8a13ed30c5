"""Targets that cannot keep a stamp: the store keeps it for them, once a delivery is done.

So what a target has may be one delivery more than the stamp says: at least once.
"""

from __future__ import annotations

from slipstream.core.errors import DamagedStamp
from slipstream.sinks import Delivery, Sink, Stamp, Target
from slipstream.store import documents
from slipstream.store.layout import SINK_NOTES, sink_note
from slipstream.store.store import Claim


class Noted:
    """A target, and its stamp in the store."""

    def __init__(self, target: Target, claim: Claim, name: str) -> None:
        self._target, self._claim, self._name = target, claim, sink_note(name)

    def stamp(self) -> Stamp | None:
        try:
            said = documents.decode(self._claim.store.disk.read(self._name), self._name)
        except FileNotFoundError:
            return None
        where = f"'{self._name}' of the store '{self._claim.store.root}'"
        if isinstance(said, str) or not isinstance(said.get("stamp"), str):
            raise DamagedStamp(where)
        return Stamp.decode(said["stamp"], where)

    def deliver(self, delivery: Delivery) -> None:
        self._target.deliver(delivery)
        disk = self._claim.owned
        disk.make_folder(SINK_NOTES)
        body = {"stamp": delivery.after.encode()}
        disk.replace(self._name, documents.encode(body, self._name), flushed=True)

    def close(self) -> None:
        self._target.close()


def noted(sink: Sink, claim: Claim, name: str) -> Noted:
    """A sink's target, with the stamp in the store."""
    return Noted(sink.opened(name), claim, name)
