"""Looking at what is left of a store, before anything is decided or changed.

Every layer that counts is looked at: its seal, name and size always; every byte where a power cut may have left
something else than was written (past the persisted epoch), and where damage was told of. Nothing is raised because of
damage: what is wrong is part of the answer. A store that is whole is surveyed from the base of its lineage on, so that
looking costs its state, not its age; `whole` reads all of its logs too.
"""

from __future__ import annotations

from contextlib import suppress

from slipstream.core.errors import DamagedDocument, DamagedLayer, NewerFormat, OlderFormat, SlipstreamError
from slipstream.durability.board import PLACES, Replication, decode_replication
from slipstream.durability.evidence import Layer, Local, Restoring
from slipstream.durability.losses import read_told
from slipstream.durability.splice import Chain
from slipstream.durability.suspects import read_suspects
from slipstream.store import documents, layout
from slipstream.store.catalog import Catalog, read_catalog
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.layers import valid
from slipstream.store.lineage import read_lineage
from slipstream.store.shapes import checked
from slipstream.store.store import Identity, Store
from slipstream.trace import Fence, LayerName


def survey(store: Store, *, whole: bool = False, deep: bool = False) -> Local:
    """What is left of a store. whole: with all of its logs, and the digests of its layers. deep: every byte is read."""
    disk = store.disk
    problems: list[str] = []
    identity = _identity(store, problems)
    catalog = _catalog(disk, problems)
    logs = log_numbers(disk)
    # In a store that nobody has begun, what is said of progress is of one that was here before and is gone.
    progress = read_progress(disk) if logs or identity is not None or problems or store.traces() else None
    lineage = read_lineage(disk)
    fences: set[Fence] = set()
    names: dict[str, list[LayerName]] = {}
    for trace in store.traces():
        listed, barriers = store.layers.listed(trace)
        fences |= set(barriers)
        names[trace] = valid(listed, barriers)
    persisted = persisted_epoch(progress, fences)
    suspected = set(progress.damaged) if progress is not None else set()
    suspects = read_suspects(disk)
    deep = deep or suspects is None
    suspected |= suspects or set()
    layers: dict[str, tuple[LayerName, ...]] = {}
    damaged: dict[Layer, str] = {}
    digests: dict[Layer, str] = {}
    for trace, valid_names in names.items():
        sound = []
        for name in valid_names:
            thorough = deep or name.hi > persisted or f"{trace}/{name.filename}" in suspected
            try:
                problem = store.layers.problem(trace, name, deep=thorough)
            except FileNotFoundError:  # merged, or removed, by a running agent
                continue
            if problem is not None:
                damaged[trace, name] = problem
                continue
            sound.append(name)
            if whole or (name.single and name.hi > persisted):
                with suppress(DamagedLayer, FileNotFoundError):  # a note has none
                    digests[trace, name] = store.layers.digest(trace, name)
        layers[trace] = tuple(sound)
    restoring = read_restoring(disk)
    used = (layout.PROGRESS, layout.AWAY, layout.FORMAT, layout.CATALOG)
    life = bool(
        lineage.incarnation  # logs without a line are of a first start that was cut short
        or lineage.broken
        or fences
        or any(names.values())
        or restoring
        or any(disk.list(folder) for folder in (layout.SUMS, layout.EVENTS))
        or any(disk.exists(name) or disk.exists(layout.copy_of(name)) for name in used)
        or store.had_begun()
    )
    return Local(
        root=str(store.root),
        identity=identity,
        catalog=catalog,
        chain=Chain(lineage),
        copies={number: [read_log(disk, number)] for number in logs} if whole else None,
        layers=layers,
        damaged=damaged,
        digests=digests,
        fences=frozenset(fences),
        documents=tuple(problems),
        progress=progress,
        restoring=restoring,
        told=read_told(disk) or frozenset(),
        life=life,
    )


def highest_incarnation(local: Local) -> int:
    """The highest incarnation that left a trace in a store, whether its claim is still there or not."""
    numbers = [local.chain.tip, *(fence.incarnation for fence in local.fences), *(local.copies or ())]
    numbers += [name.incarnation for names in local.layers.values() for name in names]
    numbers += [name.incarnation for _, name in local.damaged]
    return max(numbers, default=0)


def log_numbers(disk: Disk) -> list[int]:
    names = (layout.log_number(name) for name in disk.list(layout.LINEAGE))
    return sorted(number for number in names if number is not None)


def read_log(disk: Disk, number: int) -> bytes:
    """The bytes of a log; none where there is something else in its place."""
    return read_file(disk, layout.lineage_log(number)) or b""


def read_progress(disk: Disk) -> Replication | None:
    """What the agent said last: nothing if it never said anything, None if that cannot be read."""
    there = [raw for name in PLACES if (raw := read_file(disk, name)) is not None]
    if not there:
        return Replication()
    return next((found for raw in there if (found := decode_replication(raw)) is not None), None)


def read_restoring(disk: Disk) -> Restoring | None:
    """The note of a recovery that was begun; one that cannot be read stands for any."""
    raw = read_file(disk, layout.RESTORING)
    if raw is None:
        return None
    found = documents.decode(raw)
    try:
        note = Restoring(**found) if isinstance(found, dict) else Restoring(0, 0, "", f"the note: {found}")
        return checked(note)
    except (TypeError, ValueError):
        return Restoring(0, 0, "", "the note makes no sense")


def write_restoring(disk: WritableDisk, note: Restoring) -> None:
    disk.replace(layout.RESTORING, documents.encode(dict(vars(note))), flushed=True)


def read_file(disk: Disk, name: str) -> bytes | None:
    """A file's bytes; None where there is none, nothing where there is a folder in its place."""
    try:
        return disk.read(name)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        return b""


def _identity(store: Store, problems: list[str]) -> Identity | None:
    try:
        found = store.identity()
    except (NewerFormat, OlderFormat):
        raise
    except DamagedDocument as damage:
        problems.append(damage.problem)
        return None
    if found is not None:
        problems += documents.document_problems(store.disk, layout.FORMAT)
    return found


def _catalog(disk: Disk, problems: list[str]) -> Catalog | None:
    try:
        found = read_catalog(disk)
    except DamagedDocument as damage:
        problems.append(damage.problem)
        return None
    except SlipstreamError as error:  # a name in it that is none
        problems.append(f"{layout.CATALOG}: {error}")
        return None
    if found is not None:
        problems += documents.document_problems(disk, layout.CATALOG)
    return found


def persisted_epoch(progress: Replication | None, fences: set[Fence]) -> int:
    """The epoch up to which a power cut can have left nothing but what was written."""
    if progress is None:
        return 0
    later = [fence.after for fence in fences if fence.incarnation > progress.incarnation]
    return min([progress.persisted, *later])
