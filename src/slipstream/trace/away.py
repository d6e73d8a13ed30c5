"""Layers that are elsewhere: under a layer's name stands a note that says who brings it, and from where.

A store that is restored from a replica need not wait for all of its state. It has notes in place of large layers, and
whoever opens such a layer first has it brought: one process at a time, because the note is locked meanwhile. From
then on there is a layer like any other.

Who brings it is named as `PACKAGE.MODULE:FUNCTION`; the function is called with the layer's path and what the note
says, and puts the layer in the note's place. A note may hold a URL with a secret: only its owner may read it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

_MAGIC = b'{"away": '


def leave_note(path: Path, by: str, said: Mapping[str, Any]) -> None:
    """Let a note stand for a layer that `by` brings."""
    temporary = path.with_name(f".{path.name}.note")
    temporary.touch(0o600)
    temporary.write_text(json.dumps({"away": by, **said}))
    temporary.replace(path)


def is_away(path: Path) -> bool:
    """Whether a note stands in place of a layer."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def bring(path: Path) -> None:
    """Have a layer brought, unless somebody else was quicker."""
    with path.open("rb") as note:
        fcntl.flock(note, fcntl.LOCK_EX)
        content = note.read()
        if not content.startswith(_MAGIC) or path.stat().st_ino != os.fstat(note.fileno()).st_ino:
            return
        said = json.loads(content)
        resolve_name(said["away"])(path, said)
