"""Objects on their way to a replica: named, packed into a spool file, checksummed, uploaded."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from pathlib import Path

from slipstream.crashing import crash_point, crash_points
from slipstream.durability.manifest import Kept, Stored
from slipstream.durability.pack import Held, by_schema, pack
from slipstream.durability.replica import Replica

crash_points(
    replica__before_upload="an object is about to be uploaded",
    replica__after_upload="an object was uploaded, and nothing refers to it yet",
)


class Outbox:
    """Uploads objects of one incarnation. Every name is new."""

    def __init__(self, replica: Replica, incarnation: int, spool: Path) -> None:
        self._replica, self._incarnation, self._spool = replica, incarnation, spool

    def text(self, folder: str, lo: int, hi: int, suffix: str, body: bytes) -> Stored:
        """Upload these bytes."""
        name = f"{folder}/{self._stem(lo, hi)}.{suffix}"
        self._upload(name, body)
        return Stored(name, len(body), hashlib.sha256(body).hexdigest())

    def layers(
        self, layers: Sequence[Held], lo: int, hi: int
    ) -> tuple[list[Stored], dict[str, tuple[Kept, ...]]]:
        """Upload layers, one object for each schema; the objects, and where each trace's layers are in them."""
        objects: list[Stored] = []
        kept: dict[str, tuple[Kept, ...]] = {}
        self._spool.mkdir(parents=True, exist_ok=True)
        for number, group in enumerate(by_schema(layers)):
            name = f"data/{self._stem(lo, hi)}-{number}.parquet"
            file = self._spool / name.rpartition("/")[2]
            try:
                stored, placed = pack(group, name, file)
                if stored is not None:
                    self._upload(name, file)
                    objects.append(stored)
            finally:
                file.unlink(missing_ok=True)
            for trace, each in placed.items():
                kept[trace] = (*kept.get(trace, ()), *each)
        return objects, kept

    def _upload(self, name: str, body: bytes | Path) -> None:
        crash_point("replica.before_upload")
        self._replica.put(name, body)
        crash_point("replica.after_upload")

    def _stem(self, lo: int, hi: int) -> str:
        return f"{self._incarnation:06d}-{lo:010d}-{hi:010d}-{uuid.uuid4().hex[:12]}"
