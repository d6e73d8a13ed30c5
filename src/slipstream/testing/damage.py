"""Damage to a store and its replica, by seed, and a judge of what a start makes of it; without Spark.

Two kinds of harm, each plain data with a name, so that a failure can be had again from its seed:
- a **single damage**: one file or folder of a store or a replica is flipped, cut, zeroed, deleted, swapped with another
  or overwritten by another, or there once more under a name that nothing has (another number in its name), or a file is
  in the place of a folder, or a folder in that of a file;
- a **power cut**: everything that was not flushed when the power went (layers after the
  persisted epoch, the tail of the newest log, documents that nobody flushes) is as it was, missing, empty,
  zero-filled or half there, each by itself.

Beside what is drawn by seed, each object of a replica can be had flipped, zeroed or gone, with the store gone too
(`each_object`): those are few enough to try all.

The judge remembers what the intact store said: of every trace what it held as of every epoch that could be read, the
updates of every epoch, and which input each epoch took. A case is a copy of store and replica, harmed, on which an app
starts (`claim_store`, `start`). Then every answer is compared, and damage that comes to light only now is healed as a
running engine would.

| verdict | |
| --- | --- |
| right | the newest epoch, every answer as it was |
| past lost | the same, but some past epochs are an error now, which says that they are lost: no sound copy was left |
| stepped back | an older epoch that was allowed, every answer as it was, and the input of the rest not taken twice |
| refused | an error of Slipstream's own; nothing was served |
| raw | any other exception |
| empty | it started from nothing |
| older | before the start, a reader was shown an older epoch as the present |
| WRONG | another answer than before, other input, behind what was promised without consent, or past gone in silence |

Before the start every view is read as it is, as a reader does that needs no engine: the answer is that of the newest
epoch, or an error. After a power cut it may be that of any epoch from the persisted one on.

Copies are hard links, so files are harmed by putting another in their place, and nothing is flushed to disk. What was
compared once is not read again: the same files give the same answer.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from slipstream.core.clock import ManualClock
from slipstream.core.errors import DamagedLayer, HistoryForgotten, HistoryLost, MissingLayer, SlipstreamError
from slipstream.core.settings import Durability
from slipstream.durability.fsck import check_store
from slipstream.durability.restore import heal_layer
from slipstream.durability.start import Started, plan_start, start
from slipstream.durability.survey import read_progress
from slipstream.durability.timetravel import check_there, resolve_epoch
from slipstream.durability.work import LocalWork
from slipstream.observe import read_status
from slipstream.store import layout
from slipstream.store.lineage import read_lineage
from slipstream.store.store import Store, claim_store
from slipstream.trace import LayerName, Span, cover

VERDICTS = ("right", "past lost", "stepped back", "refused", "raw", "empty", "older", "WRONG")
BAD = ("raw", "empty", "older", "WRONG")

PLACES = ("store, replica whole", "store, no replica", "replica, store gone", "replica, store whole")
POWER_CUT = "power cut"
TWO = "one of two replicas, store gone"
_HOLE = 256
_NUMBER = re.compile(r"\d+")
_LOOKED_AT = 5
"""Of so many cases, one is looked at by everything that looks at stores: that costs more than the start."""


@dataclass(frozen=True)
class Intact:
    """What a store said before it was harmed. sums: by trace and epoch, of all that can be read of views, and of all
    other state as of the newest epoch. changes: the same of the updates of views, epoch by epoch. cuts: by epoch, the
    input that it took. persisted, safe: what was promised.
    """

    folder: Path
    app: str
    epoch: int
    persisted: int
    safe: int
    sums: dict[tuple[str, int], int]
    cuts: dict[int, Any]
    changes: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def replicated(self) -> bool:
        return (self.folder / "replica").is_dir()

    @staticmethod
    def of(
        store: str | Path, replica: str | Path | None, to: Path, second: str | Path | None = None
    ) -> Intact:
        """Copy a store and its replicas (folders) to a place of their own, and remember what they say."""
        shutil.copytree(store, to / "store")
        for name, folder in (("replica", replica), ("second", second)):
            if folder is not None:
                shutil.copytree(folder, to / name)
        found = Store.existing(to / "store")
        lineage = read_lineage(found.disk, whole=True)
        epoch, progress = lineage.history.frontier, read_progress(found.disk)
        answers = Answers(found)
        sums = {}
        catalog = found.catalog()
        shown = {view.trace for view in catalog.views.values()}
        for trace in catalog.traces():
            for each in range(1 if trace in shown else epoch, epoch + 1):
                try:
                    sums[trace, each] = answers.total(trace, each)
                except (MissingLayer, HistoryForgotten):
                    continue
        changes = {
            (trace, each): total for trace in shown for each, total in answers.changes(trace, epoch).items()
        }
        return Intact(
            folder=to,
            app=found.name,
            epoch=epoch,
            persisted=progress.persisted if progress is not None else 0,
            safe=max(lineage.history.safe, progress.safe if progress is not None else 0),
            sums=sums,
            cuts={cut.epoch: cut.ranges for cut in lineage.history.cuts},
            changes=changes,
        )


File = tuple[str, int]
"""A file's name and number: the same bytes wherever they are linked to."""


class Answers:
    """What a store says, read once for the same files: of the whole trace, and else of the layers that are read."""

    _known: ClassVar[dict[tuple[str, int, frozenset[File]], int]] = {}
    _changes: ClassVar[dict[tuple[str, int, frozenset[File]], dict[int, int]]] = {}

    def __init__(self, store: Store) -> None:
        self._store, self._work = store, LocalWork(store)
        self._files: dict[str, dict[LayerName, File]] = {}

    def total(self, trace: str, epoch: int) -> int:
        """The checksum of what a trace holds as of an epoch."""
        if trace not in self._files:
            self._files[trace] = self._listed(trace)
        files = self._files[trace]
        whole = (trace, epoch, frozenset(files.values()))
        if whole not in self._known:
            pieces = cover(files, epoch, Span.whole(), directory=trace)
            read = (trace, epoch, frozenset(files[piece.layer] for piece in pieces))
            if read not in self._known:
                self._known[read] = self._work.state_sum(trace, epoch)
            self._known[whole] = self._known[read]
        return self._known[whole]

    def changes(self, trace: str, until: int) -> dict[int, int]:
        """The checksum of the updates of each epoch up to one, of all that are there."""
        if trace not in self._files:
            self._files[trace] = self._listed(trace)
        files = self._files[trace]
        logs = (trace, until, frozenset(file for name, file in files.items() if name.is_log))
        if logs not in self._changes:
            found = self._changes[logs] = {}
            for epoch in range(1, until + 1):
                with suppress(MissingLayer, HistoryForgotten):
                    found[epoch] = self._work.change_sum(trace, epoch - 1, epoch)
        return self._changes[logs]

    def forget(self) -> None:
        """Files may have changed."""
        self._files.clear()

    def _listed(self, trace: str) -> dict[LayerName, File]:
        """The layers that count."""
        names = self._store.valid_layers(trace)
        if not names:
            return {}
        with os.scandir(self._store.root / trace) as entries:
            numbers = {entry.name: entry.inode() for entry in entries}
        return {name: (name.filename, numbers[name.filename]) for name in names}


@dataclass(frozen=True)
class Case:
    """A harm: where, what is done, to what; and the seed that it comes from."""

    place: str
    operation: str
    target: str
    seed: int

    def __str__(self) -> str:
        return f"{self.operation} {self.target} ({self.place}, seed {self.seed})"


@dataclass(frozen=True)
class Judged:
    """What became of a case."""

    case: Case
    verdict: str
    said: str = ""


@dataclass
class Table:
    """Verdicts, counted by place."""

    judged: list[Judged] = field(default_factory=list)

    def add(self, judged: Judged) -> None:
        self.judged.append(judged)

    def count(self, *verdicts: str) -> int:
        return sum(each.verdict in verdicts for each in self.judged)

    def bad(self) -> list[Judged]:
        return [each for each in self.judged if each.verdict in BAD]

    def __str__(self) -> str:
        places = list(dict.fromkeys(each.case.place for each in self.judged))
        rows = [["where", "cases", *VERDICTS]]
        for place in [*places, "all"]:
            here = [each for each in self.judged if place in (each.case.place, "all")]
            counts = Counter(each.verdict for each in here)
            rows.append([place, str(len(here)), *(str(counts[verdict]) for verdict in VERDICTS)])
        rows.insert(1, ["---"] * len(rows[0]))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


# Harming


def damage(intact: Intact, seed: int) -> tuple[Case, Callable[[Path], None]]:
    """One random damage, and what carries it out on a copy."""
    rng = random.Random(seed)
    place = rng.choice(PLACES if intact.replicated else PLACES[1:2])
    side = "replica" if place.startswith("replica") else "store"
    root = intact.folder / side
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    folders = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_dir())
    if rng.random() < 0.12:
        operation = rng.choice(
            ["delete folder", "file in its place", "swap folders", "copy folder over", "copy folder anew"]
        )
        first = rng.choice(folders)
        peers = [
            each
            for each in folders
            if each != first and first not in each.parents and each not in first.parents
        ]
        second = rng.choice(peers) if peers else None
        operation = operation if second is not None or operation in _ALONE else "delete folder"
    else:
        operation = rng.choice(
            [
                *("flip", "cut", "zero", "zero tail", "zero hole", "delete", "swap", "copy over"),
                *("folder in its place", "copy anew", "copy anew"),
            ]
        )
        # by folder first, so that the few small files have their turn as the many layers have
        folder = rng.choice(sorted({each.parent for each in files}))
        first = rng.choice([each for each in files if each.parent == folder])
        near = [each for each in files if each != first and each.parent == folder]
        others = [each for each in files if each != first]
        second = rng.choice(near if near and rng.random() < 0.7 else others)
    if operation in _ANEW:
        first, second = _another_name(root, first, rng), first
    target = f"{side}/{first}" if operation in _ALONE else f"{side}/{first} <- {side}/{second}"
    case = Case(place, operation, target, seed)

    def harm(copy: Path) -> None:
        _HARMS[operation](copy / side / first, copy / side / (second or first), rng)
        if place == "replica, store gone":
            shutil.rmtree(copy / "store")

    return case, harm


def _another_name(root: Path, name: Path, rng: random.Random) -> Path:
    """A name beside one that nothing has: with another number in it, where it has some."""
    numbers = list(_NUMBER.finditer(name.name))
    while True:
        if numbers:
            found = rng.choice(numbers)
            other = max(0, int(found[0]) + rng.choice((-2, -1, 1, 2, 5, 90, 10**6)))
            made = f"{name.name[: found.start()]}{other:0{len(found[0])}}{name.name[found.end() :]}"
        else:
            made = f"{name.stem}{rng.choice('-0_x')}{rng.randrange(100)}{name.suffix}"
        if not (root / name.with_name(made)).exists():
            return name.with_name(made)


def each_object(intact: Intact, seed: int) -> Iterator[tuple[Case, Callable[[Path], None]]]:
    """Every object of a replica harmed, one at a time, with the store gone, and what carries it out on a copy; with a
    second replica that is whole, and without. That the newest commit of a lone replica was deleted nobody can tell.
    """
    rng = random.Random(seed)
    root = intact.folder / "replica"
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    newest = max(file for file in files if file.parent.name == "commits")
    places = (PLACES[2], TWO) if (intact.folder / "second").is_dir() else PLACES[2:3]
    for place in places:
        for file in files:
            for operation in ("flip", "delete"):
                if (place, operation, file) == (PLACES[2], "delete", newest):
                    continue

                def harm(copy: Path, place: str = place, file: Path = file, done: str = operation) -> None:
                    shutil.rmtree(copy / "store")
                    if place != TWO:
                        shutil.rmtree(copy / "second", ignore_errors=True)
                    _HARMS[done](copy / "replica" / file, copy / "replica" / file, rng)

                yield Case(place, operation, f"replica/{file}", seed), harm


def power_cut(intact: Intact, seed: int) -> tuple[Case, Callable[[Path], None]]:
    """One random image of a power cut, and what carries it out on a copy."""
    rng = random.Random(seed)
    place = "power cut, replica" if intact.replicated and rng.random() < 0.5 else "power cut, no replica"
    root = intact.folder / "store"
    doomed: list[Path] = []
    for path in sorted((root / layout.TRACES).glob("*/*/*")):
        name = LayerName.parse(path.name)
        if name is not None and name.hi > intact.persisted:
            doomed.append(path.relative_to(root))
    doomed += [Path(layout.PROGRESS), *(Path(layout.EVENTS) / name for name in ("engine.log", "agent.log"))]
    fates = ("kept", "missing", "empty", "zeros", "half", "half zeros")
    lean = rng.choice(fates)
    spared = rng.random() < 0.1
    chosen = {
        each: "kept" if spared else rng.choice((lean, rng.choice(fates)))
        for each in doomed
        if (root / each).exists()
    }
    newest = max(_logs(root))
    flushed = _flushed_bytes(root, newest, intact.persisted)
    raw = (root / layout.lineage_log(newest)).read_bytes()
    end = len(raw) if spared else rng.choice([len(raw), rng.randint(flushed, len(raw)), flushed])
    hole = rng.randint(0, len(raw) - end)
    tails = [
        b"",
        bytes(len(raw) - end),
        rng.randbytes(min(len(raw) - end, 40)),
        bytes(hole) + raw[end + hole :],
    ]
    tail = rng.choice(tails)
    lost = ", ".join(f"{each.name} {fate}" for each, fate in chosen.items() if fate != "kept")
    case = Case(place, POWER_CUT, f"log {newest} at {end} of {len(raw)} + {len(tail)}; {lost}", seed)

    def harm(copy: Path) -> None:
        store = copy / "store"
        _put(store / layout.lineage_log(newest), raw[:end] + tail)
        for each, fate in chosen.items():
            body = (store / each).read_bytes()
            match fate:
                case "missing":
                    (store / each).unlink()
                case "empty":
                    _put(store / each, b"")
                case "zeros":
                    _put(store / each, bytes(len(body)))
                case "half":
                    _put(store / each, body[: len(body) // 2])
                case "half zeros":
                    _put(store / each, body[: len(body) // 2] + bytes(len(body) - len(body) // 2))

    return case, harm


def _logs(root: Path) -> list[int]:
    numbers = (layout.log_number(path.name) for path in (root / layout.LINEAGE).iterdir())
    return [number for number in numbers if number is not None]


def _flushed_bytes(root: Path, log: int, persisted: int) -> int:
    """The bytes of a log that survive: up to the line that tells of the persisted epoch, at least its first."""
    raw = (root / layout.lineage_log(log)).read_bytes()
    lines = raw.split(b"\n")[:-1]
    end = len(lines[0]) + 1
    at = 0
    for line in lines:
        at += len(line) + 1
        head = line[17:50]
        if head.startswith(b'{"computed":') and int(head[12:].split(b",")[0]) <= persisted:
            end = at
    return end


def _put(path: Path, body: bytes) -> None:
    """Another file in the place of one: the original, of which it is a link, stays as it is."""
    temporary = path.with_name(f"{path.name}.harmed")
    temporary.write_bytes(body)
    temporary.replace(path)


def _flip(path: Path, _: Path, rng: random.Random) -> None:
    body = bytearray(path.read_bytes())
    if body:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    _put(path, bytes(body))


def _cut(path: Path, _: Path, rng: random.Random) -> None:
    body = path.read_bytes()
    _put(path, body[: rng.randrange(len(body) + 1)])


def _zero(path: Path, _: Path, rng: random.Random) -> None:
    _put(path, bytes(path.stat().st_size))


def _zero_tail(path: Path, _: Path, rng: random.Random) -> None:
    body = path.read_bytes()
    kept = rng.randrange(len(body) + 1)
    _put(path, body[:kept] + bytes(len(body) - kept))


def _zero_hole(path: Path, _: Path, rng: random.Random) -> None:
    body = bytearray(path.read_bytes())
    at = rng.randrange(len(body) + 1)
    body[at : at + _HOLE] = bytes(len(body[at : at + _HOLE]))
    _put(path, bytes(body))


def _delete(path: Path, _: Path, rng: random.Random) -> None:
    path.unlink()


def _swap(path: Path, other: Path, rng: random.Random) -> None:
    one, two = path.read_bytes(), other.read_bytes()
    _put(path, two)
    _put(other, one)


def _copy_over(path: Path, other: Path, rng: random.Random) -> None:
    _put(path, other.read_bytes())


def _delete_folder(path: Path, _: Path, rng: random.Random) -> None:
    shutil.rmtree(path)


def _file_in_its_place(path: Path, _: Path, rng: random.Random) -> None:
    shutil.rmtree(path)
    path.write_bytes(rng.randbytes(rng.choice((0, 40))))


def _folder_in_its_place(path: Path, _: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _swap_folders(path: Path, other: Path, rng: random.Random) -> None:
    aside = path.with_name(f"{path.name}.aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


def _copy_folder_over(path: Path, other: Path, rng: random.Random) -> None:
    shutil.rmtree(path)
    shutil.copytree(other, path, copy_function=os.link)


def _copy_folder_anew(path: Path, other: Path, rng: random.Random) -> None:
    shutil.copytree(other, path, copy_function=os.link)


_HARMS: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "flip": _flip,
    "cut": _cut,
    "zero": _zero,
    "zero tail": _zero_tail,
    "zero hole": _zero_hole,
    "delete": _delete,
    "swap": _swap,
    "copy over": _copy_over,
    "delete folder": _delete_folder,
    "file in its place": _file_in_its_place,
    "folder in its place": _folder_in_its_place,
    "swap folders": _swap_folders,
    "copy folder over": _copy_folder_over,
    "copy anew": _copy_over,
    "copy folder anew": _copy_folder_anew,
}
_ANEW = {"copy anew", "copy folder anew"}
_ALONE = set(_HARMS) - {"swap", "copy over", "swap folders", "copy folder over"} - _ANEW


# Judging


def judge(intact: Intact, case: Case, harm: Callable[[Path], None], scratch: Path) -> Judged:
    """Start an app on a harmed copy, and compare what it says with what the intact store said."""
    copied(intact.folder, scratch)
    harm(scratch)
    alone = "no replica" in case.place
    lost = not (scratch / "store").exists()
    there = [name for name in ("replica", "second") if (intact.folder / name).is_dir() and not alone]
    if case.place in PLACES:
        there = there[:1]
    urls = tuple(f"file://{scratch}/{name}" for name in there)
    store = Store.at(scratch / "store")
    claim = None
    try:
        oldest = max(intact.persisted, intact.safe) if case.operation == POWER_CUT else intact.epoch
        shown = _shown(intact, store.root, oldest)
        if case.seed % _LOOKED_AT == 0 or "its place" in case.operation:
            _looked_at(store.root, urls)
        if shown is not None:
            return Judged(case, *shown)
        claim = claim_store(store, intact.app)
        started = start(claim, intact.app, Durability(urls), clock=ManualClock(), parallel=1)
        promised = intact.safe if lost else max(intact.persisted, intact.safe)
        return Judged(case, *_compared(intact, started, urls, promised))
    except SlipstreamError as error:
        return Judged(case, "refused", f"{type(error).__name__}: {error}")
    except Exception as error:
        return Judged(case, "raw", f"{type(error).__name__}: {error} {_where(error)}")
    finally:
        if claim is not None:
            claim.release()


def _shown(intact: Intact, root: Path, oldest: int) -> tuple[str, str] | None:
    """What is wrong with what readers see of a store that nobody has started; an error is not."""
    try:
        store = Store.existing(root)
        for view in store.catalog().views.values():
            epoch = resolve_epoch(store, None, [view.trace])
            if epoch < oldest and not _unpublished(intact, store, epoch):
                return "older", f"epoch {epoch} of {intact.epoch} is shown as the newest"
            if (
                epoch > intact.epoch
                or Answers(store).total(view.trace, epoch) != intact.sums[view.trace, epoch]
            ):
                return "WRONG", f"{view.trace} as of epoch {epoch} is another before the start"
    except SlipstreamError:
        pass
    return None


def _looked_at(root: Path, urls: tuple[str, ...]) -> None:
    """What looks at a store and changes nothing: it may refuse, and raises nothing else."""
    looks: tuple[Callable[[], object], ...] = (
        lambda: plan_start(root, None, Durability(urls), clock=ManualClock()),
        lambda: read_status(root),
        lambda: check_store(root),
    )
    for look in looks:
        with suppress(SlipstreamError):
            look()


def _unpublished(intact: Intact, store: Store, epoch: int) -> bool:
    """Whether a store is as a crash leaves it right before its last epoch is published."""
    pending = [cut.epoch for cut in read_lineage(store.disk).history.pending]
    return epoch == intact.epoch - 1 >= intact.persisted and pending == [intact.epoch]


def copied(folder: Path, to: Path) -> None:
    """A copy of a store and its replica, of hard links, in the place of whatever was there. Files that are links
    already stay, so that a copy after another costs what the last case changed.
    """
    to.mkdir(parents=True, exist_ok=True)
    with os.scandir(folder) as entries:
        wanted = {entry.name: entry for entry in entries}
    with os.scandir(to) as entries:
        there = {entry.name: entry for entry in entries}
    for name, entry in there.items():
        other = wanted.get(name)
        if other is not None and entry.is_dir() and other.is_dir():
            continue
        if other is None or entry.is_dir() or entry.inode() != other.inode():
            _removed(Path(entry.path))
    for name, entry in wanted.items():
        if entry.is_dir():
            copied(Path(entry.path), to / name)
        elif name == "lock":
            shutil.copy(entry.path, to / name)
        elif not (to / name).exists():
            os.link(entry.path, to / name)


def _removed(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _compared(intact: Intact, started: Started, urls: Sequence[str], promised: int) -> tuple[str, str]:
    """The verdict. promised: the epoch up to which lineage must be known."""
    plan, history = started.plan, started.lineage.history
    said = started.said or ""
    if plan.epoch == 0 and plan.upto == 0:
        return "empty", said
    for cut in history.cuts:
        if cut.ranges != intact.cuts.get(cut.epoch):
            return "WRONG", f"epoch {cut.epoch} takes {cut.ranges}, and took {intact.cuts.get(cut.epoch)}"
    known = max(plan.upto, plan.epoch)
    if len(history.cuts) != known or known < promised:
        return "WRONG", f"the input of epochs after {known} would be taken again; {said}"
    if plan.epoch < intact.safe:
        return "WRONG", f"behind epoch {intact.safe}, which was safe, without consent; {said}"
    store, lost = started.claim.store, 0
    answers = Answers(store)
    for (trace, epoch), total in intact.sums.items():
        if epoch > plan.epoch:
            continue
        try:
            found = _read(answers, store, started.claim.incarnation, trace, epoch, urls)
        except (MissingLayer, HistoryForgotten, DamagedLayer) as error:
            if epoch == plan.epoch:
                return "refused", f"at the first read: {error}"
            if epoch < history.kept:  # it may be there or not
                continue
            if not isinstance(error, DamagedLayer) and not _told(store, trace, epoch):
                return "WRONG", f"{trace} as of epoch {epoch} is gone, and a reader is not told; {said}"
            lost += 1
            continue
        if found != total:
            return "WRONG", f"{trace} as of epoch {epoch} is another; {said}"
    there = {trace: answers.changes(trace, plan.epoch) for trace in {trace for trace, _ in intact.changes}}
    for (trace, epoch), total in intact.changes.items():
        if epoch in there[trace] and there[trace][epoch] != total:
            return "WRONG", f"the changes of {trace} in epoch {epoch} are others; {said}"
        if epoch not in there[trace] and history.kept < epoch <= plan.epoch:
            if not _told(store, trace, epoch, epoch - 1):
                return (
                    "WRONG",
                    f"the changes of {trace} in epoch {epoch} are gone, and a reader is not told; {said}",
                )
            lost += 1
    if lost:
        return "past lost", f"{lost} answers; {said}"
    if plan.epoch < intact.epoch:
        return "stepped back", f"to epoch {plan.epoch} of {intact.epoch}; {said}"
    return "right", said


def _told(store: Store, trace: str, epoch: int, since: int | None = None) -> bool:
    """Whether a reader is told that what it asks for is lost: a view as of an epoch, or its changes since another."""
    view = next(name for name, each in store.catalog().views.items() if each.trace == trace)
    try:
        check_there(store, view, epoch, since, base=since is not None)
    except HistoryLost:
        return True
    return False


def _read(
    answers: Answers, store: Store, incarnation: int, trace: str, epoch: int, urls: Sequence[str]
) -> int:
    """An answer; a damaged layer that is met is healed, as an engine does."""
    for _ in range(10):
        try:
            return answers.total(trace, epoch)
        except DamagedLayer as damaged:
            if not heal_layer(
                store, incarnation, damaged.trace, damaged.layer, urls, clock=ManualClock(), parallel=1
            ):
                raise
            answers.forget()
    return answers.total(trace, epoch)


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    places = []
    while trace is not None:
        places.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " < ".join(reversed(places[-4:]))


def torture(intact: Intact, damages: int, cuts: int, seed: int, scratch: Path) -> Table:
    """Judge so many single damages and power cuts."""
    table = Table()
    with unflushed():
        for number in range(damages + cuts):
            made = damage if number < damages else power_cut
            case, harm = made(intact, seed + number)
            table.add(judge(intact, case, harm, scratch))
    return table


@contextmanager
def unflushed() -> Iterator[None]:
    """Nothing here outlives the process, so nothing needs to reach the disk."""
    with patch("os.fsync"):
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m slipstream.testing.damage", description=__doc__.splitlines()[0]
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("--replica", help="the folder of a replica, as a path or a file:// URL")
    parser.add_argument("--count", type=int, default=1000, help="single damages")
    parser.add_argument(
        "--cuts", type=int, help="images of a power cut; half as many as damages unless given"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    replica = given.replica.removeprefix("file://") if given.replica else None
    cuts = given.count // 2 if given.cuts is None else given.cuts
    with tempfile.TemporaryDirectory(
        prefix="slipstream-damage-", dir=given.store.absolute().parent
    ) as folder:
        intact = Intact.of(given.store, replica, Path(folder) / "intact")
        table = torture(intact, given.count, cuts, given.seed, Path(folder) / "case")
    sys.stdout.write(f"{table}\n")
    for each in table.bad():
        sys.stdout.write(f"{each.verdict}: {each.case}: {each.said}\n")
    return 1 if table.bad() else 0


if __name__ == "__main__":
    sys.exit(main())
