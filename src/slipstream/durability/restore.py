"""Carrying out a recovery: look at the store and the replicas, decide (`recovery`), and do it.

A restore replaces what is in the store step by step. It first leaves a note, `restoring`, and takes it away last: a
restore that was cut short is done again from the beginning, because with the note there a store counts as gone.
Layers that are there already, whole, are not fetched again.

An app that starts does not wait for large layers: they are left on the replica, with a note in their place, and are
brought when somebody needs them, or by the agent (`homecoming`). `slipstream recover` brings everything.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.crashing import crash_point, crash_points
from slipstream.durability.board import read_replication
from slipstream.durability.checksum import FILE as SUMS
from slipstream.durability.checksum import mismatches, parse_sums
from slipstream.durability.homecoming import list_away
from slipstream.durability.identity import summed, traces_of
from slipstream.durability.inbox import fetch_layers, fetch_lineage, fetch_object, leave, newest_manifest
from slipstream.durability.lineage import computed_frontier
from slipstream.durability.manifest import ClaimName, CommitName, Kept, Manifest
from slipstream.durability.persist import FILE as CHECKSUMS
from slipstream.durability.persist import forget, read_checksums
from slipstream.durability.recovery import (
    Fetch,
    GoOn,
    Instruction,
    Local,
    Refuse,
    Remote,
    Restore,
    decide,
    fill,
    gaps_of,
)
from slipstream.durability.replica import Replica, shown
from slipstream.durability.store import FORMAT, Store
from slipstream.errors import (
    CannotRecover,
    ChecksumMismatch,
    NotAReplica,
    OtherApp,
    SlipstreamError,
    StoreNotEmpty,
)
from slipstream.trace import LayerName, list_all, list_layers

NOTE = "restoring"
LARGE = 4 << 20
"""Bytes of a layer from which on it is left on the replica at first."""

crash_points(
    restore__begun="a restore has left its note, and changed nothing else",
    restore__fetched="the layers are there, and the lineage is not",
    restore__before_done="everything is restored, and the note is still there",
)


@dataclass(frozen=True)
class Recovered:
    """What a recovery did. anew: input is cut anew from `epoch` on."""

    epoch: int
    anew: bool
    said: str | None = None


def recover(root: Path, app: str, urls: Sequence[str], safe_on: int) -> Recovered:
    """Bring a store into a state that an app can go on from, or raise. The store is the caller's alone."""
    local = survey(root)
    if _plainly_whole(root, local):
        return Recovered(local.frontier, anew=False)
    replicas = [_look(url) for url in urls]
    instruction = decide(local, [remote for remote, _, _ in replicas], safe_on)
    found = {remote.url: (replica, manifest) for remote, replica, manifest in replicas}
    return carry_out(root, app, local, instruction, found)


def survey(root: Path) -> Local:
    """What is left of a store, by names and sizes alone."""
    remains = any((root / "traces").glob("*/*/*.arrow")) or computed_frontier(root) > 0
    whole = all((root / name).exists() for name in ("format.json", "catalog.json"))
    if not whole or not any((root / "lineage").glob("*.jsonl")) or (root / NOTE).exists():
        return Local(usable=False, remains=remains)
    traces = traces_of(json.loads((root / "catalog.json").read_text()))
    known = read_checksums(root)
    layers: dict[str, list[LayerName]] = {}
    damaged: dict[str, list[LayerName]] = {}
    for trace in traces:
        for name in list_layers(root / trace):
            size = (root / trace / name.filename).stat().st_size
            sound = size > 0 and known.get((trace, name.filename), (size, ""))[0] == size
            (layers if sound else damaged).setdefault(trace, []).append(name)
    return Local(True, remains, computed_frontier(root), tuple(traces), layers, damaged)


def carry_out(
    root: Path,
    app: str,
    local: Local,
    instruction: Instruction,
    found: dict[str, tuple[Replica | None, Manifest | None]],
) -> Recovered:
    """Do what was decided."""
    match instruction:
        case Fetch():
            replica, manifest = found[instruction.url]
            assert replica is not None
            assert manifest is not None
            bad = [(trace, name) for trace, names in local.damaged.items() for name in names]
            forget(root, bad)
            _remove(root, bad)
            wanted = [
                (trace, kept)
                for trace, names in instruction.layers.items()
                for kept in manifest.layers[trace]
                if kept.layer in names
            ]
            fetch_layers(replica, manifest, wanted, root, root / ".spool" / "fetch")
            count = len(wanted)
            said = f"{count} layer(s) were missing or damaged, and were fetched from {instruction.url}"
            return Recovered(local.frontier, anew=False, said=said)
        case Restore():
            replica, manifest = found[instruction.url]
            assert replica is not None
            assert manifest is not None
            if manifest.app != app:
                raise OtherApp(instruction.url, manifest.app, app)
            restore(root, replica, manifest, lazily=True)
            said = f"the store was restored from {instruction.url}, as of epoch {instruction.epoch}"
            if instruction.lost:
                said += f"; {instruction.lost} epoch(s) after it are computed again, as one"
            if not instruction.certain:
                said += "; other replicas were not heard, and may hold newer epochs that were called safe"
            return Recovered(instruction.epoch, anew=True, said=said)
        case Refuse():
            raise CannotRecover(str(root), instruction.missing, instruction.heard)
        case _:
            return Recovered(local.frontier, anew=False)


def carry_out_heal(root: Path, local: Local, urls: Sequence[str]) -> tuple[str, ...]:
    """Replace a store's missing and damaged layers from the first replica that has them; the layers fetched.

    The new layers are there before the damaged ones go, so that a reader always finds a cover.
    """
    for url in urls:
        remote, replica, manifest = _look(url)
        if replica is None or manifest is None:
            continue
        layers = fill(local, remote, gaps_of(local))
        if layers is None:
            continue
        wanted = [
            (trace, kept)
            for trace, names in layers.items()
            for kept in manifest.layers[trace]
            if kept.layer in names
        ]
        fetch_layers(replica, manifest, wanted, root, root / ".spool" / "heal")
        fetched = {(trace, kept.layer) for trace, kept in wanted}
        bad = [(trace, name) for trace, names in local.damaged.items() for name in names]
        forget(root, bad)
        _remove(root, (each for each in bad if each not in fetched))
        return tuple(f"{trace}/{layer.filename}" for trace, layer in sorted(fetched))
    return ()


def heal(root: Path, trace: str, damaged: LayerName, urls: Sequence[str]) -> bool:
    """Replace one damaged layer of a store; whether a replica could."""
    local = survey(root)
    sound = [name for name in local.layers.get(trace, ()) if name != damaged]
    known = replace(local, layers={**local.layers, trace: sound}, damaged={trace: [damaged]})
    return bool(carry_out_heal(root, known, urls))


def restore(root: Path, replica: Replica, manifest: Manifest, *, lazily: bool = False) -> None:
    """Make a store what a replica holds. Lazily: large layers are brought later."""
    for folder in ("incarnations", "lineage", "sources", "traces"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / NOTE).write_text(shown(replica.url))
    crash_point("restore.begun")
    spool = root / ".spool" / "restore"
    away = _bring_layers(root, replica, manifest, spool, LARGE if lazily else None)
    crash_point("restore.fetched")
    lines = fetch_lineage(replica, manifest, spool).splitlines(keepends=True)
    for log in (root / "lineage").glob("*.jsonl"):
        log.unlink()
    sums = [line for line in lines if line.startswith('{"epoch"')]
    (root / SUMS).write_text("".join(sums))
    log = root / "lineage" / f"{manifest.incarnation}.jsonl"
    log.write_text("".join(line for line in lines if not line.startswith('{"epoch"')))
    catalog = fetch_object(replica, manifest, manifest.catalog, spool / "catalog").read_text()
    (root / "catalog.json").write_text(catalog)
    (root / "incarnations" / str(_last_incarnation(replica, manifest))).touch()
    (root / "format.json").write_text(json.dumps({"format": FORMAT, "app": manifest.app}))
    shutil.rmtree(root / ".spool", ignore_errors=True)
    here = {key: trace for key, trace in summed(json.loads(catalog)).items() if trace not in away}
    wrong = mismatches(root, parse_sums("".join(sums)), manifest.epoch, here)
    if wrong:
        raise ChecksumMismatch(shown(replica.url), manifest.epoch, wrong)
    crash_point("restore.before_done")
    (root / NOTE).unlink()


def recover_into(lost: Path, url: str, to: Path) -> Manifest:
    """Rebuild a store in a new folder from what a replica holds."""
    replica = Replica(url)
    manifest = newest_manifest(replica)
    if manifest is None:
        raise NotAReplica(shown(url))
    if (lost / "format.json").exists() and (known := Store.existing(lost).name) != manifest.app:
        raise OtherApp(shown(url), manifest.app, known)
    if to.exists() and any(to.iterdir()):
        raise StoreNotEmpty(str(to))
    restore(to.absolute(), replica, manifest)
    return manifest


def _bring_layers(
    root: Path, replica: Replica, manifest: Manifest, spool: Path, large: int | None
) -> set[str]:
    """Have every layer there, or a note of one that is large; the traces that have such notes."""
    known = read_checksums(root)
    (root / CHECKSUMS).unlink(missing_ok=True)
    missing: list[tuple[str, Kept]] = []
    for trace, layers in manifest.layers.items():
        wanted = {kept.layer for kept in layers}
        here, fences = list_all(root / trace)
        _remove(root, ((trace, name) for name in here if name not in wanted))
        for fence in fences:
            (root / trace / fence.filename).unlink()
        for kept in layers:
            path = root / trace / kept.layer.filename
            noted = known.get((trace, kept.layer.filename))
            if not (path.exists() and noted is not None and path.stat().st_size == noted[0]):
                missing.append((trace, kept))

    def may_wait(kept: Kept) -> bool:
        return large is not None and bool(kept.object) and kept.bytes >= large

    late = [(trace, kept) for trace, kept in missing if may_wait(kept)]
    for trace, kept in late:
        leave(replica, manifest, trace, kept, root)
    list_away(root, manifest.epoch, [f"{trace}/{kept.layer.filename}" for trace, kept in late])
    fetch_layers(
        replica, manifest, ((trace, kept) for trace, kept in missing if not may_wait(kept)), root, spool
    )
    return {trace for trace, _ in late}


def _remove(root: Path, layers: Iterable[tuple[str, LayerName]]) -> None:
    for trace, name in layers:
        (root / trace / name.filename).unlink(missing_ok=True)


def _plainly_whole(root: Path, local: Local) -> bool:
    """Whether a store can go on without asking anybody: no replica was ever said to be ahead of it."""
    known = max((each.durable for each in read_replication(root).replicas.values()), default=0)
    return local.usable and local.frontier > 0 and local.frontier >= known and decide(local, (), 0) == GoOn()


def _look(url: str) -> tuple[Remote, Replica | None, Manifest | None]:
    try:
        replica = Replica(url)
        manifest = newest_manifest(replica)
    except SlipstreamError:
        raise
    except Exception as error:  # storage fails in many ways, and each means that it was not heard
        return Remote(shown(url), error=f"{type(error).__name__}: {error}"), None, None
    if manifest is None:
        return Remote(shown(url)), replica, None
    names = {trace: manifest.names(trace) for trace in manifest.layers}
    return Remote(shown(url), manifest.epoch, names), replica, manifest


def _last_incarnation(replica: Replica, manifest: Manifest) -> int:
    claims = [ClaimName.parse(name) for name in replica.list("incarnations")]
    commits = [CommitName.parse(name) for name in replica.list("commits")]
    numbers = [each.incarnation for each in (*claims, *commits) if each is not None]
    return max([manifest.incarnation, *numbers])
