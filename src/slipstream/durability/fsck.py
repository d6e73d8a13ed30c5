"""Looking through a store or a replica: is everything there, is it what was written, does it belong together?

A store: both copies of every document, every line of every log, every byte of every layer, the layers that each epoch's
record names, covers of the present and of the history, fences, claims, notes, what was read of tables, and the rows of
every view against the epoch checksums. A replica: every object of every commit that is kept, whether a newer one
replaces it or not, its owner, claims and lineage, and then the store that it would give, restored into a temporary
folder, in the same way.

What is wrong is a *finding*. What is only worth knowing (a tail that a crash tore, files that are nobody's,
permissions) is *told*. What could not be checked is said, too: that nothing was found there means nothing.

Looking changes nothing. `repair` does (`durability.repair`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from slipstream.core.errors import (
    DamagedLayer,
    DamagedObject,
    HistoryForgotten,
    MissingLayer,
    NotAReplica,
    NotAStore,
    ReplicaTrouble,
    SlipstreamError,
)
from slipstream.core.parts import named
from slipstream.core.parts import problem_of as problem_of_part
from slipstream.core.settings import Durability
from slipstream.durability.board import PLACES, decode_replication
from slipstream.durability.checksum import MODULUS, read_totals
from slipstream.durability.evidence import Local, Remote
from slipstream.durability.homecoming import all_home, listed_away
from slipstream.durability.inbox import Enduring, look
from slipstream.durability.joining import Opener
from slipstream.durability.losses import lost_of, pasts_of, read_told
from slipstream.durability.manifest import OWNER, ClaimName, CommitName, Segment, Stored
from slipstream.durability.recovery import Examined, Kind, decide, examine
from slipstream.durability.replica import Objects, Replica, checked_body, shown
from slipstream.durability.splice import splice
from slipstream.durability.start import start
from slipstream.durability.survey import highest_incarnation, log_numbers, read_file, read_log, survey
from slipstream.durability.suspects import read_suspects
from slipstream.durability.work import LocalWork
from slipstream.store import chain, documents, layout
from slipstream.store.catalog import Catalog
from slipstream.store.disk import Disk, is_shared
from slipstream.store.links import links_in
from slipstream.store.store import FENCES, Identity, Store, claim_store
from slipstream.trace import (
    Fence,
    LayerName,
    history_reach,
    is_away,
    open_layer,
    problem_of,
)
from slipstream.trace.naming import Span

_FEW = 20


@dataclass(frozen=True)
class Finding:
    """Something wrong, or worth knowing: where, and what."""

    where: str
    what: str


@dataclass(frozen=True)
class Checked:
    """What was looked at, what is wrong, what is only told, what could not be checked, and up to which epoch everything
    can be had from here.
    """

    path: str
    epoch: int
    layers: int
    objects: int
    findings: tuple[Finding, ...]
    recoverable: int
    told: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.findings


def check_store(path: str | Path) -> Checked:
    """Look through a store."""
    return looked_through(*seen_whole(path))


def seen_whole(path: str | Path) -> tuple[Store, Local]:
    """A store, and what is left of it, by every byte."""
    store = Store.in_folder(path)
    local = survey(store, whole=True, deep=True)
    if not local.life:
        raise NotAStore(str(path))
    return store, local


def looked_through(store: Store, local: Local) -> Checked:
    """What is wrong with a store of which this is left."""
    return _StoreCheck(store, local).run()


class _StoreCheck:
    """One look through a store; what it finds gathers here."""

    def __init__(self, store: Store, local: Local) -> None:
        self._store, self._disk, self._local = store, store.disk, local
        self._examined: Examined = examine(local)
        self._findings: list[Finding] = []
        self._told: list[Finding] = []
        self._unchecked: list[str] = []

    def run(self) -> Checked:
        for name in links_in(self._store.root):
            self._find(name, "it is a symbolic link, and nothing in a store is a path to follow")
        if self._store.root.joinpath(layout.LOCK).is_dir():
            self._find(layout.LOCK, "it is a folder: nobody can hold it")
        self._documents()
        self._logs()
        self._claims()
        self._layers()
        self._fences()
        self._notes()
        self._sums()
        self._reads()
        self._strays()
        local, history = self._local, self._examined.chain.history
        app = local.identity.app if local.identity is not None else ""
        plan = decide(local, (), app=app)
        if plan.kind is not Kind.GO_ON and not self._findings:
            self._find("start", str(plan.error) if plan.error is not None else f"it would {plan.kind}")
        return Checked(
            path=str(self._store.root),
            epoch=history.frontier,
            layers=sum(map(len, local.layers.values())),
            objects=0,
            findings=tuple(self._findings),
            recoverable=plan.epoch if plan.error is None else 0,
            told=tuple(self._told),
            unchecked=tuple(self._unchecked),
        )

    def _find(self, where: str, what: str) -> None:
        self._findings.append(Finding(where, what))

    def _tell(self, where: str, what: str) -> None:
        self._told.append(Finding(where, what))

    def _documents(self) -> None:
        for problem in self._local.documents:
            where, _, what = problem.partition(": ")
            self._find(where, what)
        if self._local.identity is None and not self._local.documents:
            self._find(layout.FORMAT, "it is missing")
        if self._local.catalog is None and self._examined.chain.history.frontier:
            self._find(layout.CATALOG, "there is none that can be read")
        if not self._disk.exists(layout.PROGRESS):
            self._tell(layout.PROGRESS, "it is missing: nobody knows what was persisted and safe")
        for name in PLACES:
            raw = read_file(self._disk, name)
            if raw is not None and decode_replication(raw) is None:
                self._find(name, "it cannot be read: it says what was persisted and safe")
        if read_suspects(self._disk) is None:
            self._find(layout.SUSPECTED, "it cannot be read: a start reads every layer whole")
        if read_told(self._disk) is None:
            self._find(layout.LOST, "it cannot be read: a start says again what is lost")
        if self._local.restoring is not None:
            self._find(
                layout.RESTORING, f"a recovery was begun and not finished ({self._local.restoring.said})"
            )
        for name in self._disk.list(layout.LINEAGE):
            if name.endswith(".json"):
                found = documents.decode(read_file(self._disk, f"{layout.LINEAGE}/{name}") or b"")
                if isinstance(found, str):
                    self._find(f"{layout.LINEAGE}/{name}", f"{found}: a start takes longer")

    def _logs(self) -> None:
        """Every line of every log that counts, and whether they add up to one history. Of a log that others went on
        from, what they follow counts, and of one that they passed over, nothing: what is wrong with the rest is what a
        crash left.
        """
        chain_found, numbers = self._examined.chain, log_numbers(self._disk)
        for number in numbers:
            raw = read_log(self._disk, number)
            found, name = chain.scan(raw), layout.lineage_log(number)
            ended = number < chain_found.tip and raw.startswith(chain_found.logs.get(number, b""))
            if found.problem is not None and ended:
                self._tell(name, f"{found.problem}: a crash left it, and it counts for nobody")
            elif found.end == "hole" or (found.problem and number != max(numbers)):
                self._find(name, found.problem or "it has a hole")
            elif found.problem is not None:
                self._tell(name, f"{found.problem}: a crash left it, and what it told of is computed again")
            if not found.lines and ended:
                self._tell(name, "it has no line that can be read: a start was cut short before it began")
            elif not found.lines:
                self._find(name, "it has no line that can be read")
            elif found.lines[0].body.get("began") != number:
                self._find(name, "it is not the log of this incarnation")
            elif number not in chain_found.logs:
                self._tell(name, "nobody goes on from it")
        for lost in self._examined.lost:
            self._find(layout.LINEAGE, lost)

    def _claims(self) -> None:
        known = {name for name in self._disk.list(layout.INCARNATIONS) if layout.number_of(name) is not None}
        for number in log_numbers(self._disk):
            if str(number) not in known:
                self._find(layout.claim_of(number), "the claim is missing, and its log is there")
        if highest_incarnation(self._local) > max((int(name) for name in known), default=0):
            self._find(layout.INCARNATIONS, "an incarnation left something here, and its claim is missing")
        logs = log_numbers(self._disk)
        for number in sorted(map(int, known)):
            app = claimed_by(self._disk, number)
            if number not in logs and self._disk.size(layout.claim_of(number)) == 0:
                self._tell(layout.claim_of(number), "it is empty: a start was cut short before it began")
            elif app is None:
                self._find(layout.claim_of(number), "it cannot be read")
            elif self._local.identity is not None and app != self._local.identity.app:
                self._find(layout.claim_of(number), f"it is a claim of another app ('{app}')")

    def _layers(self) -> None:
        """Every layer by itself, and whether those that are sound are enough."""
        for (trace, name), problem in sorted(self._local.damaged.items()):
            self._find(f"{trace}/{name.filename}", problem)
        for trace, names in self._local.layers.items():
            for name in names:
                unruly = self._problem(trace, name)
                if unruly is not None:
                    self._find(f"{trace}/{name.filename}", unruly)
        for trace, name in self._examined.strangers:
            self._find(f"{trace}/{name.filename}", "it is whole, and not what the record of its epoch names")
        for trace, gap in self._examined.uncovered.items():
            self._find(trace, gap)
        for lost in self._examined.forgotten:
            self._find(lost.trace, str(lost))
        catalog = self._local.catalog or Catalog()
        self._pasts(catalog)
        known = {*catalog.traces(), *catalog.past_traces()}
        for trace in self._local.layers:
            if trace not in known:
                self._tell(trace, "no view of the catalog has it")
        merged = [
            done.epoch for done in self._examined.chain.history.computed if not self._has_own(done.epoch)
        ]
        if merged:
            self._unchecked.append(
                f"the layers of {len(merged)} epochs against their records: they are merged, or were fetched"
            )

    def _pasts(self, catalog: Catalog) -> None:
        """What held views show, and what views were before they were replaced. That is not on replicas: where nothing
        of it is there, the store may have come back from one.
        """
        for past in pasts_of(catalog):
            if not self._local.layers.get(past.trace):
                self._unchecked.append(
                    f"what '{past.view}' was up to epoch {past.shown}: nothing of it is in this store"
                )
                continue
            there = self._store.valid_layers(past.trace)
            names = [each for each in there if not self._is_damaged(past.trace, each)]
            for lost in lost_of(past, names, self._examined.chain.history.kept):
                self._find(past.trace, str(lost))

    def _is_damaged(self, trace: str, name: LayerName) -> bool:
        return (trace, name) in self._local.damaged

    def _has_own(self, epoch: int) -> bool:
        by = self._examined.chain.computed_by.get(epoch)
        return any(
            name.single and name.lo == epoch and name.incarnation == by for _, name in self._local.digests
        )

    def _problem(self, trace: str, name: LayerName) -> str | None:
        """What is wrong with the rows of a layer that is what was written."""
        directory = self._store.root / trace
        try:
            if is_away(directory / name.filename):
                return None
            return problem_of(open_layer(directory, name))
        except FileNotFoundError:
            return None
        except DamagedLayer as damage:
            return damage.problem

    def _fences(self) -> None:
        begins = self._examined.chain.begins
        newest = begins[-1].incarnation if begins else 0
        for trace, names in self._local.layers.items():
            there = set(self._store.layers.listed(trace)[1])
            for began in begins:
                older = any(name.incarnation < began.incarnation for name in names)
                fence = Fence(began.incarnation, began.after)
                if older and began.incarnation > newest - FENCES and fence not in there:
                    self._find(f"{trace}/{fence.filename}", "the fence is missing")
            for fence in sorted(there):
                if self._disk.size(f"{trace}/{fence.filename}"):
                    self._find(f"{trace}/{fence.filename}", "a fence is empty, and this file is not")

    def _notes(self) -> None:
        if all_home(self._disk):
            return
        if isinstance(documents.decode(self._disk.read(layout.AWAY), layout.AWAY), str):
            self._find(layout.AWAY, "it cannot be read")
        away = [
            f"{trace}/{name.filename}"
            for trace, name in listed_away(self._store)[1]
            if self._disk.exists(f"{trace}/{name.filename}")
            and is_away(self._store.root / trace / name.filename)
        ]
        if away:
            self._unchecked.append(f"{len(away)} layers that are still on a replica")

    def _sums(self) -> None:
        """The rows of every view, now and epoch by epoch as far as its history reaches, against the checksums."""
        self._sum_logs()
        totals, _ = read_totals(self._disk)
        work = LocalWork(self._store)
        frontier = self._examined.chain.history.frontier
        skipped = {trace for trace, _ in self._local.damaged} | set(self._examined.uncovered)
        for key, trace in (self._local.catalog or Catalog()).summed().items():
            known = {
                epoch: each[key] for epoch, each in totals.items() if key in each and 0 < epoch <= frontier
            }
            if trace in skipped or not known:
                self._unchecked.append(f"the rows of {trace} against checksums")
                continue
            self._summed(work, trace, known)

    def _sum_logs(self) -> None:
        """Whether each log of checksums is whole and its incarnation's, and the one that must be there is. At the end
        of one whose incarnation is over is what a crash left. Two that began at one epoch may well be equal.
        """
        after = {began.incarnation: began.after for began in self._examined.chain.begins}
        seen: dict[str, int] = {}
        numbers = _sum_logs(self._disk)
        for number in numbers:
            try:
                found = chain.scan(self._disk.read(layout.sums_log(number)))
            except IsADirectoryError:
                self._find(layout.sums_log(number), "it is a folder")
                continue
            lines, ended = found.lines, number < self._examined.chain.tip
            if found.end == "torn" and lines and ended:
                self._tell(
                    layout.sums_log(number), f"{found.problem}: a crash left it, and it counts for nobody"
                )
            elif found.problem is not None:
                self._find(layout.sums_log(number), found.problem)
            if not lines:
                self._find(layout.sums_log(number), "it is empty")
                continue
            epoch = lines[0].body.get("summed", 0)
            if epoch < after.get(number, 0):
                self._find(layout.sums_log(number), f"it begins with epoch {epoch}, before its incarnation")
            other = seen.get(lines[-1].digest)
            if other is not None and not epoch == after.get(number) == after.get(other):
                self._find(layout.sums_log(number), f"it is that of incarnation {other}")
            seen[lines[-1].digest] = number
        progress = self._local.progress
        if progress is not None and progress.incarnation == max(
            after, default=0
        ):  # one before it may have ended early
            written = progress.persisted > after[progress.incarnation]
            if written and progress.incarnation not in numbers:
                self._find(layout.sums_log(progress.incarnation), "it is missing")

    def _summed(self, work: LocalWork, trace: str, known: dict[int, int]) -> None:
        last = max(known)
        reach = history_reach(self._local.layers.get(trace, ()), last, Span.whole())
        try:
            if work.state_sum(trace, last) != known[last]:
                self._find(trace, f"its rows as of epoch {last} do not add up to the epoch checksums")
                return
            for since, until in pairwise(sorted(epoch for epoch in known if epoch >= reach)):
                if (known[until] - known[since] - work.change_sum(trace, since, until)) % MODULUS:
                    told = f"epoch {until}" if until == since + 1 else f"epochs {since + 1} to {until}"
                    self._find(trace, f"its changes of {told} do not add up to the epoch checksums")
        except (MissingLayer, HistoryForgotten):
            self._unchecked.append(f"the history of {trace} against checksums")
        except DamagedLayer as damage:
            self._find(f"{trace}/{damage.layer.filename}", damage.problem)

    def _reads(self) -> None:
        """What was read of tables: each part that a cut names, against the digest in its name. None of it is on
        replicas: where nothing of it is there, the store may have come back from one.
        """
        parts: dict[str, set[str]] = {}
        for cut in self._examined.chain.history.cuts:
            for source, taken in cut.ranges.items():
                parts.setdefault(source, set()).update(_parts_of(taken))
        for source, names in sorted(parts.items()):
            folder = self._store.root / layout.SOURCES / source
            problems = {name: problem_of_part(folder / name) for name in sorted(names)}
            if problems and set(problems.values()) == {"is gone"}:
                self._unchecked.append(
                    f"what was read of the table '{source}': nothing of it is in this store"
                )
                continue
            for name, problem in problems.items():
                if problem is not None:
                    self._find(
                        f"{layout.SOURCES}/{source}/{name}",
                        f"it {problem}, and was read of the table '{source}': the next read of that needs it, and so "
                        "does a view that is added",
                    )

    def _strays(self) -> None:
        root = self._store.root
        self._unchecked += [f"what sources keep ({layout.SOURCES}/)", f"what is told in {layout.EVENTS}/"]
        strays = []
        for path in _walk(root):
            name = str(path.relative_to(root))
            if not path.is_dir() and not _is_known(name):
                strays.append(name)
        for name in strays[:_FEW]:
            self._tell(name, "it is nobody's")
        if len(strays) > _FEW:
            self._tell(str(root), f"{len(strays) - _FEW} more files are nobody's")
        if is_shared(root / layout.FORMAT):
            self._tell(str(root), "it may be read by others than its owner")


def claimed_by(disk: Disk, number: int) -> str | None:
    """The app that claimed an incarnation; None where that cannot be read."""
    try:
        said = json.loads(read_file(disk, layout.claim_of(number)) or b"")
    except (ValueError, RecursionError):
        return None
    app = said.get("app") if isinstance(said, dict) else None
    return app if isinstance(app, str) else None


def _sum_logs(disk: Disk) -> list[int]:
    numbers = (layout.log_number(name) for name in disk.list(layout.SUMS))
    return sorted(number for number in numbers if number is not None)


def _parts_of(taken: object) -> Iterator[str]:
    """The parts that a range of a table names."""
    if isinstance(taken, dict) and "read" in taken:
        for key in ("parts", "contents"):
            listed = taken.get(key)
            yield from (name for name in listed or () if isinstance(name, str) and named(name) is not None)


def _walk(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if parts[0] not in (layout.SOURCES, layout.EVENTS):
            yield path


def _is_known(name: str) -> bool:
    parts = name.split("/")
    match parts:
        case [
            layout.FORMAT
            | layout.CATALOG
            | layout.LOCK
            | layout.PROGRESS
            | layout.SUSPECTED
            | layout.AWAY
            | layout.LOST
            | layout.RESTORING
        ]:
            return True
        case [layout.COPIES, layout.FORMAT | layout.CATALOG | layout.PROGRESS]:
            return True
        case [layout.INCARNATIONS, number]:
            return layout.number_of(number) is not None
        case [layout.LINEAGE | layout.SUMS, log]:
            return layout.log_number(log) is not None or log.endswith(".json")
        case [layout.TRACES, _, _, file]:
            return LayerName.parse(file) is not None or Fence.parse(file) is not None
    return False


def replica_in(path: str | Path) -> str | None:
    """The URL of the replica that a folder is; None where it is none."""
    folder = Path(path).absolute()
    is_replica = (folder / OWNER).is_file() or (folder / "commits").is_dir()
    is_store = any((folder / name).exists() for name in (layout.FORMAT, layout.TRACES))
    return folder.as_uri() if is_replica and not is_store else None


def check_replica(url: str, opener: Opener = Replica) -> Checked:
    """Look through a replica. Raises `NotAReplica` where there is nothing, and what storage says where it fails."""
    objects = Enduring(url, opener)
    remote = look(url, opener)
    if remote.error is not None:
        raise ReplicaTrouble(shown(url), "reading it", remote.error)
    if not remote.life:
        raise NotAReplica(shown(url))
    findings, told = _objects(objects, remote)
    with tempfile.TemporaryDirectory(prefix="slipstream-fsck-") as folder:
        restored = _restored(url, opener, remote, Path(folder) / "store")
    findings += restored.findings
    newest = max((commit.name.epoch for commit in remote.commits), default=0)
    whole = [commit.manifest for commit in remote.commits if commit.manifest is not None]
    if newest > restored.recoverable and not findings:
        findings.append(
            Finding("commits", f"epoch {newest} cannot be had, only epoch {restored.recoverable}")
        )
    return Checked(
        path=shown(url),
        epoch=newest,
        layers=sum(map(len, whole[0].layers.values())) if whole else 0,
        objects=len({name for manifest in whole for name in manifest.objects}),
        findings=tuple(findings),
        recoverable=restored.recoverable,
        told=tuple(told),
        unchecked=restored.unchecked,
    )


def _objects(objects: Objects, remote: Remote) -> tuple[list[Finding], list[Finding]]:
    """Everything on a replica, one by one."""
    findings: list[Finding] = []
    told: list[Finding] = []
    said = _owner_document(objects)
    if isinstance(said, str):
        findings.append(Finding(OWNER, said))
    elif remote.owner != Identity(str(said.get("app")), str(said.get("id"))):
        findings.append(Finding(OWNER, "it does not say whose replica it is"))
    stored: dict[str, Stored] = {}
    numbers = {commit.name.sequence for commit in remote.commits}
    for number in range(min(numbers, default=0), max(numbers, default=0)):
        if number not in numbers:
            findings.append(Finding("commits", f"the commit number {number} is missing"))
    for commit in remote.commits:
        if commit.manifest is None:
            findings.append(Finding(commit.name.object, "it is damaged"))
            continue
        body = _get(objects, commit.name.object)
        lines = [line for line in body.split(b"\n") if line]
        if len(lines) != 2 or lines[0] != lines[1]:
            findings.append(Finding(commit.name.object, "one of its two copies is damaged"))
        stored |= commit.manifest.objects
    with tempfile.TemporaryDirectory(prefix="slipstream-fsck-") as spool:
        for each in stored.values():
            try:
                checked = checked_body(objects, each, Path(spool))
            except DamagedObject as error:
                what = str(error).partition("damaged: ")[2].partition(". ")[0]
                findings.append(Finding(each.name, what))
                continue
            if isinstance(checked, Path):
                checked.unlink()
    owner = remote.owner.id if remote.owner is not None else None
    lineage = splice([remote.copies], owner).lineage
    for problem in (lineage.broken, lineage.torn):
        if problem is not None:
            findings.append(Finding(layout.LINEAGE, problem))
    for name, size in objects.list(layout.LINEAGE).items():
        segment = Segment.parse(name)
        if segment is not None and segment.stop - segment.start != size:
            findings.append(Finding(name, f"it has {size} bytes, and its name says another number"))
    claims = objects.list("incarnations")
    claimed_by = {claim.incarnation for name in claims if (claim := ClaimName.parse(name)) is not None}
    for incarnation in sorted({commit.name.incarnation for commit in remote.commits} - claimed_by):
        findings.append(Finding("incarnations", f"the claim of incarnation {incarnation} is missing"))
    for name in claims:
        if ClaimName.parse(name) is None:
            told.append(Finding(name, "it is nobody's"))
            continue
        try:
            claimed = json.loads(_get(objects, name))
            if remote.owner is not None and Identity(**claimed) != remote.owner:
                findings.append(Finding(name, f"it is a claim of another app ('{claimed['app']}')"))
        except (ValueError, TypeError, KeyError, RecursionError):
            findings.append(Finding(name, "it cannot be read"))
    told += [
        Finding(name, "it is nobody's") for name in objects.list("commits") if CommitName.parse(name) is None
    ]
    spare = [name for name in remote.objects if name not in stored]
    if spare:
        told.append(Finding("data", f"{len(spare)} objects are in no commit: garbage, or on their way"))
    return findings, told


def _owner_document(objects: Objects) -> documents.Body | str:
    """What says whose replica it is, or what is wrong with it."""
    try:
        return documents.decode(objects.get(OWNER))
    except FileNotFoundError:
        return "it is missing"
    except DamagedObject as error:
        return error.problem


def _get(objects: Objects, name: str) -> bytes:
    """An object's bytes; none where it cannot be read."""
    try:
        return objects.get(name)
    except (FileNotFoundError, DamagedObject):
        return b""


def _restored(url: str, opener: Opener, remote: Remote, to: Path) -> Checked:
    """The store that a replica would give, looked through."""
    app = remote.owner.app if remote.owner is not None else ""
    claim = claim_store(Store.at(to), app)
    try:
        started = start(claim, app, Durability((url,)), objects=opener, lazily=False)
        checked = _StoreCheck(claim.store, survey(claim.store, whole=True, deep=True)).run()
        return Checked(
            path=checked.path,
            epoch=checked.epoch,
            layers=checked.layers,
            objects=0,
            findings=checked.findings,
            recoverable=started.plan.epoch,
            unchecked=checked.unchecked,
        )
    except SlipstreamError as error:
        wrong = (Finding("contents", str(error)),)
        return Checked(path=str(to), epoch=0, layers=0, objects=0, findings=wrong, recoverable=0)
    finally:
        claim.release()
