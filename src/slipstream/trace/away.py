"""Layers that are elsewhere: under a layer's name stands a note that says of which kind it is, and where from.

A store that is restored from a replica need not wait for all of its state. It has notes in place of large layers, and
whoever opens such a layer first has it brought: one process at a time, because the note is locked meanwhile. From
then on there is a layer like any other.

A note is data: JSON with its kind ("away"), the trace and the layer that it stands for, whatever its kind needs, and a
checksum of all that. A note that is damaged, or stands in another layer's place, or is of an unknown kind, is a damaged
layer. It may hold a URL with a secret: only its owner may read it.

Who brings a kind of layer is code, never in the file: a function that is registered for the kind, called with the
layer's path and what the note says, puts the layer in the note's place. `HOMES` names the module that registers it, for
processes that have not imported it, such as a Spark worker.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_hexdigest

from slipstream.core.errors import DamagedLayer
from slipstream.trace.naming import damaged, trace_of
from slipstream.trace.placing import placed

Bringer = Callable[[Path, dict[str, Any]], None]

HOMES = {"replica": "slipstream.durability.inbox"}
"""The module that registers the bringer of each kind."""

BRINGERS: dict[str, Bringer] = {}

_MAGIC = b'{"away": '


def register_bringer(kind: str, bringer: Bringer) -> None:
    """Say who brings layers of a kind."""
    BRINGERS[kind] = bringer


def leave_note(path: Path, kind: str, said: Mapping[str, Any]) -> None:
    """Let a note stand for a layer of a kind."""
    note = {"away": kind, "trace": trace_of(path.parent), "layer": path.name, **said}
    with placed(path, mode=0o600) as file:
        file.write(json.dumps({**note, "checksum": _checksum(note)}).encode())


def is_away(path: Path) -> bool:
    """Whether a note stands in place of a layer. What cannot be read is none; FileNotFoundError if there is nothing."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        raise
    except OSError:
        return False


def problem_of_note(path: Path) -> str | None:
    """What is wrong with a note, or None."""
    try:
        _read(path, path.read_bytes())
    except DamagedLayer as damage:
        return damage.problem
    return None


def bring(path: Path) -> None:
    """Have a layer brought, unless somebody else was quicker."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = file.read()
        if not content.startswith(_MAGIC) or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
            return
        note = _read(path, content)
        _bringer(path, note["away"])(path, note)


def _bringer(path: Path, kind: str) -> Bringer:
    if kind not in BRINGERS and kind in HOMES:
        import_module(HOMES[kind])
    return BRINGERS[kind]


def _read(path: Path, content: bytes) -> dict[str, Any]:
    """What a note says, if it is whole, stands where it was left, and is of a known kind."""
    try:
        note: dict[str, Any] = json.loads(content)
        checksum = note.pop("checksum") if isinstance(note["away"], str) else None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        checksum = None
    if checksum is None or checksum != _checksum(note):
        raise damaged(path, "a note stands in its place, and the note is damaged")
    if (note.get("trace"), note.get("layer")) != (trace_of(path.parent), path.name):
        told = f"{note.get('trace')}/{note.get('layer')}"
        raise damaged(path, f"a note stands in its place that was left for {told}")
    if note["away"] not in HOMES.keys() | BRINGERS.keys():
        raise damaged(path, f"a note says that it is away, of the kind '{note['away']}', which is unknown")
    return note


def _checksum(note: Mapping[str, Any]) -> str:
    return xxh3_64_hexdigest(json.dumps(note, sort_keys=True).encode())
