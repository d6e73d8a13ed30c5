"""The layers of a store as durability sees them: names, digests, and whether a file is what it says.

What is in a layer is the business of `trace`; what a store needs to know of one is here, behind a protocol, so that
recovery and upkeep can be tried on layers that are a few bytes of a model (`testing.simulation`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import xxhash

from slipstream.store.disk import WritableDisk
from slipstream.store.layout import TRACES
from slipstream.trace import Fence, LayerName, check_layer, layer_digest, list_all
from slipstream.trace.naming import by_order


class LayerFiles(Protocol):
    """See the module's docstring. A trace is `traces/VIEW/TRACE`."""

    def traces(self) -> list[str]: ...
    def listed(self, trace: str) -> tuple[list[LayerName], list[Fence]]: ...
    def problem(self, trace: str, name: LayerName, *, deep: bool) -> str | None: ...
    def digest(self, trace: str, name: LayerName) -> str: ...
    def size(self, trace: str, name: LayerName) -> int: ...


class LocalLayers:
    """Layers as files of a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def traces(self) -> list[str]:
        """Every trace that has a folder, known to the catalog or not."""
        folders = (self._root / TRACES).glob("*/*")
        return sorted(str(folder.relative_to(self._root)) for folder in folders if folder.is_dir())

    def listed(self, trace: str) -> tuple[list[LayerName], list[Fence]]:
        """All layers of a trace, be they valid or not, and its fences."""
        return list_all(self._root / trace)

    def problem(self, trace: str, name: LayerName, *, deep: bool) -> str | None:
        """What is wrong with a layer's file, if anything is; with every byte of it, if `deep`."""
        return check_layer(self._root / trace, name, deep=deep)

    def digest(self, trace: str, name: LayerName) -> str:
        return layer_digest(self._root / trace, name)

    def size(self, trace: str, name: LayerName) -> int:
        return (self._root / trace / name.filename).stat().st_size


def valid(names: Iterable[LayerName], fences: Iterable[Fence]) -> list[LayerName]:
    """The layers that no fence bars."""
    barriers = list(fences)
    return sorted((name for name in names if not any(fence.bars(name) for fence in barriers)), key=by_order)


def combined(digests: Iterable[str]) -> str:
    """One digest for the layers that an epoch made in one trace, in whatever order they are given."""
    return xxhash.xxh3_64_hexdigest("".join(sorted(digests)).encode())


def remove_layer(disk: WritableDisk, trace: str, name: LayerName) -> None:
    disk.remove(f"{trace}/{name.filename}")
