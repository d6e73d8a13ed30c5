"""Objects on their way to a replica: named, packed, checksummed, uploaded."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence

from slipstream.core.crashing import crash_point, crash_points
from slipstream.durability.joining import Held
from slipstream.durability.manifest import Kept, Stored, segment_name
from slipstream.durability.work import Body, LayerWork
from slipstream.trace import LayerName

crash_points(
    replica__before_upload="an object is about to be uploaded",
    replica__after_upload="an object was uploaded, and nothing refers to it yet",
)


class Outbox:
    """Uploads objects of one incarnation. Every name is new."""

    def __init__(self, replica: Held, incarnation: int) -> None:
        self._replica, self._incarnation = replica, incarnation

    def text(self, folder: str, suffix: str, body: bytes) -> Stored:
        """Upload these bytes."""
        return self._bytes(f"{folder}/{self._incarnation:06d}-{_token()}.{suffix}", body)

    def lineage(self, log: int, start: int, body: bytes) -> Stored:
        """Upload a stretch of a lineage log."""
        return self._bytes(segment_name(log, start, start + len(body), _token()), body)

    def layers(
        self, work: LayerWork, layers: Sequence[tuple[str, LayerName]]
    ) -> tuple[list[Stored], dict[str, tuple[Kept, ...]]]:
        """Upload layers, one object for each schema; the objects, and where each trace's layers are in them."""
        objects: list[Stored] = []
        kept: dict[str, tuple[Kept, ...]] = {}
        if not layers:
            return objects, kept
        lo, hi = min(name.lo for _, name in layers), max(name.hi for _, name in layers)
        stem = f"data/{self._incarnation:06d}-{lo:010d}-{hi:010d}-{_token()}"
        for packed in work.pack(layers, lambda number: f"{stem}-{number}.parquet"):
            if packed.stored is not None:
                self._upload(packed.stored.name, packed.body)
                objects.append(packed.stored)
            for trace, each in packed.kept.items():
                kept[trace] = (*kept.get(trace, ()), *each)
        return objects, kept

    def _bytes(self, name: str, body: bytes) -> Stored:
        self._upload(name, body)
        return Stored(name, len(body), hashlib.sha256(body).hexdigest())

    def _upload(self, name: str, body: Body) -> None:
        crash_point("replica.before_upload")
        self._replica.put(name, body)
        crash_point("replica.after_upload")


def _token() -> str:
    return uuid.uuid4().hex[:12]
