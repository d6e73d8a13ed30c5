"""Layers that an engine found damaged and nobody could replace: a start reads them whole before it believes them.

A start does not read every byte of what was flushed to the disk. So without this an engine that stops for such a layer
would be started again, and again find it well, until somebody looks. What the agent finds goes into `progress.json`
(`healing`); an engine that stops at once cannot wait for that, and says it here.

A note that cannot be read suspects everything: then every byte is read. One that names what is gone, or well again,
costs a look. It is written anew whenever an engine has looked through its store.
"""

from __future__ import annotations

from collections.abc import Iterable

from slipstream.durability.evidence import Layer
from slipstream.store import documents
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.layout import SUSPECTED


def read_suspects(disk: Disk) -> frozenset[str] | None:
    """Layers, as TRACE/LAYER; None where that cannot be told."""
    try:
        found = documents.decode(disk.read(SUSPECTED), SUSPECTED)
    except FileNotFoundError:
        return frozenset()
    except IsADirectoryError:
        return None
    match found:
        case {"layers": list(layers)}:
            return frozenset(each for each in layers if isinstance(each, str))
    return None


def write_suspects(disk: WritableDisk, layers: Iterable[Layer]) -> None:
    """Note what is damaged now; nothing, where nothing is."""
    known = sorted(f"{trace}/{name.filename}" for trace, name in layers)
    if known:
        disk.replace(SUSPECTED, documents.encode({"layers": known}, SUSPECTED), flushed=True)
    elif disk.exists(SUSPECTED):
        disk.remove(SUSPECTED)
