"""Looking through a store or a replica: is everything there, is it what was written, and what can be recovered?

A store: every layer's file against the checksum that was noted for it and against the rules of a trace, a cover of the
newest epoch for every trace, and the rows of every view against the epoch checksums. A replica: every object of the
newest commit against its size and checksum, and then the store that it would give, restored into a temporary folder,
in the same way. Nothing is changed, except that with `heal` a store's damaged layers are replaced from a replica.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.durability.checksum import mismatches, read_sums
from slipstream.durability.identity import summed
from slipstream.durability.inbox import fetch_object, manifests
from slipstream.durability.manifest import Manifest
from slipstream.durability.pack import sha256
from slipstream.durability.persist import read_checksums
from slipstream.durability.recovery import Local, gaps_of
from slipstream.durability.replica import Replica, shown
from slipstream.durability.restore import carry_out_heal, restore, survey
from slipstream.durability.store import Store
from slipstream.errors import BadLayer, DamagedObject, MissingLayer, NotAReplica, SlipstreamError
from slipstream.trace import LayerName, Span, cover, open_layer, problem_of


@dataclass(frozen=True)
class Finding:
    """Something wrong: where, and what."""

    where: str
    what: str


@dataclass(frozen=True)
class Checked:
    """What was looked at, what is wrong, and up to which epoch everything can be had from here."""

    path: str
    epoch: int
    layers: int
    objects: int
    findings: tuple[Finding, ...]
    recoverable: int
    healed: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.findings


def check_store(path: str | Path, heal_from: Sequence[str] = ()) -> Checked:
    """Look through a store, and replace damaged layers from replicas, if some are named."""
    store = Store.existing(path)
    local, findings = _examined(store.root)
    healed: tuple[str, ...] = ()
    if heal_from and gaps_of(local):
        healed = carry_out_heal(store.root, local, heal_from)
        local, findings = _examined(store.root)
    return _checked(store.root, local, findings, healed)


def check_replica(url: str) -> Checked:
    """Look through a replica."""
    replica = Replica(url)
    found = list(manifests(replica))
    if not found:
        raise NotAReplica(shown(url))
    newest = found[0]
    with tempfile.TemporaryDirectory(prefix="slipstream-fsck-") as folder:
        findings = _objects(replica, newest, Path(folder))
        count = sum(map(len, newest.layers.values()))
        if findings:
            sound = (each.epoch for each in found[1:] if not _objects(replica, each, Path(folder)))
            return Checked(
                shown(url), newest.epoch, count, len(newest.objects), tuple(findings), next(sound, 0)
            )
        root = Path(folder) / "store"
        root.mkdir()
        try:
            restore(root, replica, newest)
        except SlipstreamError as error:
            wrong = (Finding("contents", str(error)),)
            return Checked(shown(url), newest.epoch, count, len(newest.objects), wrong, 0)
        local, findings = _examined(root)
        checked = _checked(root, local, findings, ())
        return Checked(
            shown(url), newest.epoch, count, len(newest.objects), checked.findings, checked.recoverable
        )


def _examined(root: Path) -> tuple[Local, list[Finding]]:
    """What is left of a store, with every file read; and what is wrong with those that are not sound."""
    local = survey(root)
    known = read_checksums(root)
    findings = []
    layers: dict[str, list[LayerName]] = {}
    damaged = {trace: list(names) for trace, names in local.damaged.items()}
    for trace in local.traces:
        for name in local.damaged.get(trace, ()):
            findings.append(
                Finding(f"{trace}/{name.filename}", "the file has not the size that it was written with")
            )
        for name in local.layers.get(trace, ()):
            problem = _problem(root / trace, name, known.get((trace, name.filename)))
            if problem is None:
                layers.setdefault(trace, []).append(name)
            else:
                damaged.setdefault(trace, []).append(name)
                findings.append(Finding(f"{trace}/{name.filename}", problem))
    return Local(local.usable, local.remains, local.frontier, local.traces, layers, damaged), findings


def _problem(directory: Path, name: LayerName, noted: tuple[int, str] | None) -> str | None:
    if noted is not None and sha256(directory / name.filename) != noted[1]:
        return "its checksum is not the one that was noted when it was written"
    try:
        return problem_of(open_layer(directory, name))
    except (BadLayer, OSError, ValueError) as error:
        return f"it cannot be read: {error}"


def _checked(root: Path, local: Local, findings: list[Finding], healed: tuple[str, ...]) -> Checked:
    count = sum(map(len, local.layers.values()))
    if not local.usable:
        lost = Finding("lineage", "there is no lineage or no catalog: nobody can say how far the store goes")
        return Checked(str(root), 0, count, 0, (*findings, lost), 0, healed)
    whole = True
    for trace in local.traces:
        try:
            cover(local.layers.get(trace, ()), local.frontier, Span.whole(), directory=trace)
        except MissingLayer as gap:
            whole = False
            findings.append(Finding(trace, str(gap).partition(". ")[0]))
    if whole and not findings:
        traces = summed(Store(root).catalog())
        for trace in mismatches(root, read_sums(root), local.frontier, traces):
            whole = False
            findings.append(Finding(trace, "its rows do not add up to the epoch checksums"))
    return Checked(
        str(root),
        local.frontier,
        count,
        0,
        tuple(findings),
        local.frontier if whole else 0,
        healed,
    )


def _objects(replica: Replica, manifest: Manifest, folder: Path) -> list[Finding]:
    findings = []
    for name in manifest.objects:
        try:
            fetch_object(replica, manifest, name, folder / "object").unlink()
        except DamagedObject as error:
            findings.append(Finding(name, str(error).partition("damaged: ")[2].partition(". ")[0]))
    return findings
