"""Starting on a store that was claimed: look, decide, carry out, begin.

A store that is plainly whole asks nobody: identity, catalog and lineage prove themselves, every layer does, every
trace has a cover, and no replica was ever said to be ahead. Anything else looks at all replicas, and
`recovery.decide` makes a plan of everything that is there. What turns out to be damaged while it is fetched is left
out, and the plan is made again, until it succeeds or refuses. Each round leaves out something, so it ends. Where a
layer of the store itself turns out to be damaged, every byte of the store is read for the next plan.

The claim comes first: what is brought has its incarnation. Where a replica knows of later incarnations than the store
does (the store is new), a number above them all is claimed. The identity is written last, after the new incarnation has
begun: so a store that has one has been begun, and one without lineage has lost it.

`plan_start` does the same without a claim and without changing anything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from slipstream.core.clock import Clock, SystemClock
from slipstream.core.errors import (
    DamagedLayer,
    DamagedLineage,
    NotAReplica,
    OtherReplica,
    StoreNotEmpty,
    StoreVanished,
)
from slipstream.core.settings import Durability
from slipstream.durability.board import (
    PLACES,
    Progress,
    Replication,
    damaged_place,
    read_replication,
    write_replication,
)
from slipstream.durability.evidence import Local, Remote
from slipstream.durability.inbox import PARALLEL, Spoiled, look
from slipstream.durability.joining import Opener
from slipstream.durability.losses import write_told
from slipstream.durability.manifest import ClaimName, CommitName
from slipstream.durability.recovery import Kind, Plan, decide
from slipstream.durability.replica import Replica, shown
from slipstream.durability.restore import Bringing, Unlike, carry_out, put_up_fences, without, without_commits
from slipstream.durability.survey import highest_incarnation, survey
from slipstream.durability.work import LayerWork, LocalWork
from slipstream.store import documents, layout
from slipstream.store.disk import check_folder
from slipstream.store.lineage import Lineage, LineageWriter, read_lineage
from slipstream.store.links import refuse_links
from slipstream.store.store import Claim, Identity, Store, claim_number, claim_store

Spoils = Mapping[str, frozenset[str]]
"""By replica, the objects that are not what was written."""

SLOW = 20e6
"""Bytes a second that a replica is taken to give where none was measured."""

_ANSWER_WITHIN = 3.0  # seconds for which a start on a whole store waits for replicas
_RECENT = 100  # epochs whose median is what one is expected to take


@dataclass(frozen=True)
class Started:
    """A store on which a new incarnation has begun. claim: under the number that counts. lineage: with the beginning.
    said: what the user must know, if anything.
    """

    claim: Claim
    identity: Identity
    writer: LineageWriter
    lineage: Lineage
    said: str | None
    plan: Plan


@dataclass(frozen=True)
class Estimate:
    """How long it should take until the app is where it was, Spark's start aside. epoch_seconds: what an epoch took, of
    the latest; first_seconds: what the first of a process took; None if none is known. rate: bytes a second that
    replicas gave while they were looked at; None where that was too little.
    """

    epochs: int
    epoch_seconds: float | None
    bytes: int
    rate: float | None
    first_seconds: float | None = None

    @property
    def seconds(self) -> float | None:
        """All of it; None where something is not known."""
        if self.epochs and self.epoch_seconds is None:
            return None
        first = self.first_seconds if self.first_seconds is not None else self.epoch_seconds
        compute = (first or 0.0) + (self.epochs - 1) * (self.epoch_seconds or 0.0) if self.epochs else 0.0
        return compute + self.bytes / (self.rate or SLOW)


@dataclass(frozen=True)
class Planned:
    """What a start would do now, and how long it should take."""

    plan: Plan
    estimate: Estimate


def start(
    claim: Claim,
    app: str,
    durability: Durability,
    *,
    accept_loss: bool = False,
    rebuild: Collection[str] = (),
    clock: Clock | None = None,
    work: LayerWork | None = None,
    objects: Opener = Replica,
    lazily: bool = True,
    deep: bool = False,
    parallel: int = PARALLEL,
) -> Started:
    """Bring a claimed store into a state that an app can go on from, and begin; or raise, with nothing lost.

    rebuild: views that are about to be computed anew, whose layers need not be there. lazily: large layers may come
    later. deep: every byte of the store is read first.
    """
    clock = clock or SystemClock()
    store = claim.store
    with _vanishing(store):
        local = survey(store, deep=deep)
        plan = decide(local, (), app=app, rebuild=rebuild)
        highest = highest_incarnation(local)
        whole = plainly_whole(local, plan)
        spoiled: Spoils = {}
        if whole and not _outrun(durability.replicas, objects, plan.epoch, highest, parallel):
            claim = _above(claim, app, highest)
        else:
            bringing = Bringing.from_replicas(
                durability.replicas,
                objects,
                work or LocalWork(store),
                clock,
                lazily=lazily,
                parallel=parallel,
            )
            claim, plan, spoiled = _recovered(
                claim,
                app,
                durability,
                bringing,
                objects,
                accept_loss=accept_loss,
                rebuild=rebuild,
                deep=deep,
            )
        identity = plan.identity or Identity.new(app)
        put_up_fences(claim, plan)
        brought = _brought(store, plan, claim.incarnation)
        if not plan.own:  # what an agent said of other lineage says nothing of this
            for name in PLACES:
                claim.owned.remove(name)
        if spoiled:
            write_replication(claim.owned, _doubted(read_replication(store.disk), claim.incarnation, spoiled))
        elif damaged_place(store.disk):
            write_replication(claim.owned, read_replication(store.disk))
        writer = claim.begin(identity, plan.chain.lineage, plan.epoch, plan.upto, brought)
        if plan.kind is Kind.START_EMPTY:  # nothing was ever called safe, whatever a replica comes to lose
            write_replication(claim.owned, Replication(incarnation=claim.incarnation))
        if plan.kind is not Kind.GO_ON or documents.document_problems(store.disk, layout.FORMAT):
            claim.write_identity(identity)
        claim.owned.remove(layout.RESTORING)
        write_told(claim.owned, plan.pasts)
    lineage = read_lineage(store.disk)
    if (lineage.broken, lineage.history.frontier) != (None, plan.epoch):
        claim.check_ours()  # a successor may have begun meanwhile
        raise DamagedLineage(
            f"the store '{store.root}' was to go on from epoch {plan.epoch}, and its lineage says "
            f"{lineage.broken or f'epoch {lineage.history.frontier}'}. Please report this."
        )
    return Started(
        claim=claim,
        identity=identity,
        writer=writer,
        lineage=lineage,
        said="; ".join(plan.why) or None,
        plan=plan,
    )


def _outrun(urls: Sequence[str], objects: Opener, epoch: int, incarnation: int, parallel: int) -> bool:
    """Whether a replica knows of later epochs or incarnations than a store that is whole: then the store is an old
    copy, or another machine went on. Names are all that is looked at. One that does not answer soon is not waited for.
    """
    found = threading.Event()

    def ask(url: str) -> None:
        with suppress(Exception):  # storage fails in many ways, and a store that is whole can go on without
            replica = objects(url)
            claims = [ClaimName.parse(name) for name in replica.list("incarnations")]
            commits = [CommitName.parse(name) for name in replica.list("commits")]
            later = any(each is not None and each.incarnation > incarnation for each in (*claims, *commits))
            if later or any(each is not None and each.epoch > epoch for each in commits):
                found.set()

    if parallel == 1:
        for url in urls:
            ask(url)
        return found.is_set()
    asked = [threading.Thread(target=ask, args=(url,), daemon=True) for url in urls]
    for thread in asked:
        thread.start()
    deadline = time.monotonic() + _ANSWER_WITHIN
    for thread in asked:
        thread.join(max(0.0, deadline - time.monotonic()))
    return found.is_set()


def _brought(store: Store, plan: Plan, incarnation: int) -> set[int]:
    """Incarnations that left layers here and never began: recoveries that were cut short, whose layers count."""
    if not plan.chain.logs:  # a store that is plainly whole: nothing was brought since it began
        return set()
    there = {name.incarnation for trace in store.traces() for name in store.valid_layers(trace)}
    return there - set(plan.chain.logs) - plan.chain.brought - {incarnation}


def plan_start(
    path: str | Path,
    app: str | None,
    durability: Durability,
    *,
    accept_loss: bool = False,
    rebuild: Collection[str] = (),
    clock: Clock | None = None,
    objects: Opener = Replica,
) -> Planned:
    """What a start would do now, without changing anything; a refusal is a plan too. app: where it is not given, the
    one that the store or a replica names.
    """
    clock = clock or SystemClock()
    local = _seen(Store.at(path))
    name = app or (local.identity.app if local.identity is not None else "")
    plan = decide(local, (), app=name, rebuild=rebuild)
    rate = None
    highest = highest_incarnation(local)
    whole = plainly_whole(local, plan)
    if not whole or _outrun(durability.replicas, objects, plan.epoch, highest, PARALLEL):
        local = _seen(Store.at(path), whole=True)
        began = clock.monotonic()
        remotes = [look(url, objects, clock) for url in durability.replicas]
        rate = _rate(remotes, clock.monotonic() - began)
        owner = next((remote.owner for remote in remotes if remote.owner is not None), None)
        plan = decide(
            local,
            remotes,
            app=name or (owner.app if owner is not None else ""),
            safe_on=durability.safe_on,
            accept_loss=accept_loss,
            rebuild=rebuild,
        )
    computed = plan.chain.history.computed
    recent = [done.seconds for done in computed[-_RECENT:]]
    firsts = {began.after + 1 for began in plan.chain.begins}
    cold = [done.seconds for done in computed if done.epoch in firsts]
    estimate = Estimate(
        epochs=plan.again,
        epoch_seconds=median(recent) if recent else None,
        bytes=plan.bytes,
        rate=rate,
        first_seconds=median(cold) if cold else None,
    )
    return Planned(plan, estimate)


def _seen(store: Store, *, whole: bool = False) -> Local:
    """What is left of a store that nobody has claimed, if there is a folder at all."""
    check_folder(store.root)
    refuse_links(store.root)
    if not store.root.is_dir():
        return Local(str(store.root), copies={} if whole else None)
    return survey(store, whole=whole)


def recover_into(
    lost: Path, urls: Sequence[str], to: Path, *, accept_loss: bool = False, objects: Opener = Replica
) -> Started:
    """Rebuild a store in a new folder from what replicas hold. One that was cut short may be begun again."""
    target = Store.at(to)
    if to.is_file() or ((to.exists() and any(to.iterdir())) and not _was_begun(target)):
        raise StoreNotEmpty(str(to))
    planned = plan_start(to, None, Durability(tuple(urls)), accept_loss=accept_loss, objects=objects).plan
    if planned.error is not None:
        raise planned.error
    if planned.identity is None:
        raise NotAReplica(", ".join(map(shown, urls)))
    known, owner = _seen(Store.at(lost)).identity, planned.identity
    if known is not None and known.id != owner.id:
        raise OtherReplica(", ".join(map(shown, urls)), owner.app, owner.id, known.app, known.id)
    claim = claim_store(target, planned.identity.app)
    try:
        return start(
            claim,
            planned.identity.app,
            Durability(tuple(urls)),
            accept_loss=accept_loss,
            objects=objects,
            lazily=False,
        )
    finally:
        claim.release()


def _was_begun(store: Store) -> bool:
    """Whether a folder holds a recovery that was cut short, however early, and nothing else."""
    if store.disk.exists(layout.RESTORING):
        return True
    files = {path.relative_to(store.root) for path in store.root.rglob("*") if not path.is_dir()}
    claims = {path for path in files if str(path.parent) == layout.INCARNATIONS}
    made = {path.name for path in store.root.iterdir()} <= {layout.LOCK, *layout.FOLDERS}
    return made and files - claims <= {Path(layout.LOCK)} and not survey(store).life


def plainly_whole(local: Local, plan: Plan) -> bool:
    """Whether a store can go on without asking anybody, given what it would do without replicas."""
    if not local.life or local.restoring is not None or local.documents:
        return False
    if plan.kind is not Kind.GO_ON or plan.why or plan.drop or plan.chain.lineage.torn is not None:
        return False
    return plan.epoch > 0


def _recovered(
    claim: Claim,
    app: str,
    durability: Durability,
    bringing: Bringing,
    objects: Opener,
    *,
    accept_loss: bool,
    rebuild: Collection[str],
    deep: bool,
) -> tuple[Claim, Plan, Spoils]:
    """Decide with everything that is there, and carry it out; also what turned out to be spoiled on replicas."""
    store = claim.store
    spoiled: list[Spoiled] = []
    unlike: dict[str, str] = {}
    while True:
        local = survey(store, whole=True, deep=deep)
        remotes = [look(url, objects, bringing.clock) for url in durability.replicas]
        for each in spoiled:
            remotes = [without(remote, each) for remote in remotes]
        remotes = [
            without_commits(remote, unlike[remote.url]) if remote.url in unlike else remote
            for remote in remotes
        ]
        plan = decide(
            local,
            remotes,
            app=app,
            safe_on=durability.safe_on,
            accept_loss=accept_loss,
            rebuild=rebuild,
        )
        if plan.error is not None:
            claim.check_ours()  # what another is just changing says nothing
            raise plan.error
        claim = _above(claim, app, max([highest_incarnation(local), *(each.incarnation for each in remotes)]))
        try:
            carry_out(claim, plan, bringing, rebuild)
            return claim, plan, {each.url: each.spoiled for each in remotes if each.spoiled}
        except Spoiled as found:
            spoiled.append(found)
        except Unlike as found:
            unlike |= dict.fromkeys(found.urls, str(found.error))
        except DamagedLayer:  # of the store, and told to be on disk: others may be damaged too
            if deep:
                raise
            deep = True


def _doubted(known: Replication, incarnation: int, spoiled: Spoils) -> Replication:
    """What is known of replicas, without what some of them do not hold after all."""
    doubted = {
        url: replace(
            known.replicas.get(url, Progress()),
            durable=0,
            spoiled=tuple(sorted({*known.replicas.get(url, Progress()).spoiled, *names})),
        )
        for url, names in spoiled.items()
    }
    return replace(
        known, replicas={**known.replicas, **doubted}, incarnation=known.incarnation or incarnation
    )


@contextmanager
def _vanishing(store: Store) -> Iterator[None]:
    """A folder that was there a moment ago and is gone is a store that vanishes."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreVanished(str(store.root)) from error


def _above(claim: Claim, app: str, known: int) -> Claim:
    """The claim, under a number above all that are known."""
    if claim.incarnation > known:
        return claim
    claim.check_ours()
    return replace(claim, incarnation=claim_number(claim.store, app, known))


def _rate(remotes: Sequence[Remote], seconds: float) -> float | None:
    """Bytes a second that were read of lineage, if they were enough to tell."""
    size = sum(len(each) for remote in remotes for stretches in remote.copies.values() for each in stretches)
    return size / seconds if size >= 1 << 20 and seconds > 0 else None
