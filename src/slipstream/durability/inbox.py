"""Reading a replica: its newest commit, and layers out of its objects.

Everything that arrives is compared with the size and checksum that the commit has for it. A commit that cannot be read
whole is passed over in favour of the one before it. An object that vanished after its commit was read was garbage by
then: a newer commit is there, and the reader starts again from that.

A large layer may be left where it is, with a note in its place (`leave`). Whoever needs it reads its row groups alone
(`bring_home`), page by page with their checksums.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from slipstream.durability.manifest import Kept, Manifest, valid_commits
from slipstream.durability.pack import decode_schema, unpack
from slipstream.durability.replica import Replica, shown
from slipstream.errors import DamagedObject, LayerAway
from slipstream.trace import LayerName, leave_note

_PARALLEL = 8
_PAUSES = (0.2, 1.0, 3.0)  # seconds between attempts to bring a layer


def manifests(replica: Replica) -> Iterable[Manifest]:
    """What the replica's valid commits say, newest first; damaged ones are left out."""
    for name in valid_commits(replica.list("commits"), replica.list("incarnations")):
        try:
            yield Manifest.decode(name, replica.get(name.object), shown(replica.url))
        except (DamagedObject, FileNotFoundError):
            continue


def newest_manifest(replica: Replica) -> Manifest | None:
    """What the replica holds; None for nothing."""
    return next(iter(manifests(replica)), None)


def fetch_object(replica: Replica, manifest: Manifest, name: str, to: Path) -> Path:
    """Copy an object to a local file, and check it."""
    expected = manifest.objects[name]
    try:
        arrived = replica.fetch(name, to)
    except FileNotFoundError:
        raise DamagedObject(shown(replica.url), name, "it is missing") from None
    size = to.stat().st_size
    if size != expected.size:
        raise DamagedObject(
            shown(replica.url), name, f"it has {size} bytes and was written with {expected.size}"
        )
    if arrived != expected.sha256:
        raise DamagedObject(shown(replica.url), name, "its contents are not those that were written")
    return to


def fetch_layers(
    replica: Replica, manifest: Manifest, wanted: Iterable[tuple[str, Kept]], root: Path, spool: Path
) -> int:
    """Bring layers of some traces under `root`, several objects at a time; the bytes that they take there."""
    spool.mkdir(parents=True, exist_ok=True)
    by_object: dict[str, list[tuple[str, Kept]]] = {}
    for trace, kept in wanted:
        by_object.setdefault(kept.object, []).append((trace, kept))

    def bring(name: str) -> int:
        file = None
        if name:
            file = fetch_object(replica, manifest, name, spool / f"{os.getpid()}-{name.rpartition('/')[2]}")
        try:
            return sum(
                unpack(file, kept, decode_schema(manifest.schemas[trace]), root / trace)
                for trace, kept in by_object[name]
            )
        finally:
            if file is not None:
                file.unlink(missing_ok=True)

    with ThreadPoolExecutor(_PARALLEL) as pool:
        return sum(pool.map(bring, by_object))


def leave(replica: Replica, manifest: Manifest, trace: str, kept: Kept, root: Path) -> None:
    """Leave a layer on the replica, and a note of it under `root`."""
    (root / trace).mkdir(parents=True, exist_ok=True)
    said = {
        "url": replica.url,
        "object": kept.object,
        "size": manifest.objects[kept.object].size,
        "first": kept.first,
        "groups": kept.groups,
        "rows": kept.rows,
        "schema": manifest.schemas[trace],
    }
    leave_note(root / trace / kept.layer.filename, f"{__name__}:{bring_home.__name__}", said)


def bring_home(path: Path, said: dict[str, Any]) -> None:
    """Put the layer that a note tells of in its place. Storage that fails is tried again a few times."""
    name = LayerName.parse(path.name)
    assert name is not None
    kept = Kept(name, said["rows"], 0, said["object"], said["first"], said["groups"])
    for pause in (*_PAUSES, None):
        try:
            with Replica(said["url"]).open(kept.object) as source:
                if source.size() != said["size"]:
                    size = f"it has {source.size()} bytes and was written with {said['size']}"
                    raise DamagedObject(shown(said["url"]), kept.object, size)
                unpack(source, kept, decode_schema(said["schema"]), path.parent)
            return
        except OSError as error:
            if pause is None:
                raise LayerAway(path.name, shown(said["url"]), f"{type(error).__name__}: {error}") from error
            time.sleep(pause)


def fetch_lineage(replica: Replica, manifest: Manifest, spool: Path) -> str:
    """The lines of lineage that the replica holds, oldest first."""
    spool.mkdir(parents=True, exist_ok=True)
    texts = []
    for segment in manifest.lineage:
        file = fetch_object(replica, manifest, segment.object, spool / f"{os.getpid()}-lineage")
        texts.append(file.read_text())
        file.unlink()
    return "".join(texts)
