"""How far sinks are, as the engine noted it last: for people. What counts is what each target says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.store import documents
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.layout import SINKS
from slipstream.store.shapes import checked


@dataclass(frozen=True)
class SinkStatus:
    """One sink. epoch: what its target has, None while that is not known. error: what went wrong last, if that is not
    over. stopped: whether it is not tried again by itself. delivered_at: seconds since 1970, 0 for not yet.
    """

    view: str
    kind: str
    target: str
    mode: str
    when: str
    exactly_once: bool
    epoch: int | None
    error: str | None
    stopped: bool
    failures: int
    delivered_at: float


def write_sinks(disk: WritableDisk, status: Mapping[str, SinkStatus]) -> None:
    body = {"sinks": {name: vars(each) for name, each in status.items()}}
    disk.replace(SINKS, documents.encode(body), flushed=False)


def read_sinks(disk: Disk) -> dict[str, SinkStatus]:
    """What the engine noted; nothing where it noted none, or where that cannot be read."""
    try:
        found = documents.decode(disk.read(SINKS))
        if isinstance(found, str):
            return {}
        return {name: checked(SinkStatus(**each)) for name, each in found["sinks"].items()}
    except (FileNotFoundError, IsADirectoryError, KeyError, TypeError, AttributeError, ValueError):
        return {}
