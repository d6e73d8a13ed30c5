"""Deciding how to start: pure; what is there in, one plan out.

What there is: what is left of the store (`Local`) and what each replica holds (`Remote`). Out of all copies of lineage
that do not contradict each other one history is joined (`splice`), and out of all sound layers, the store's and every
replica's, object by object, the newest epoch of that history is chosen for which every trace has a cover. That is the
**best copy**: neither the store nor a replica need have all of it.

| kind | when | what is done |
| --- | --- | --- |
| go on | the store has all of it | damaged layers that nobody needs are dropped |
| fetch | replicas fill the gaps | those layers are brought |
| step back | the newest epochs have no cover anywhere | they are computed again, from their cuts as they were |
| restore | the store has no lineage or no catalog, or a replica is ahead | the store is made what replicas hold |
| start empty | no sign of life anywhere, and every replica was heard | a new app (consent: see below) |
| refuse | anything else | an error says what is there, what is missing, and which commands choose |

**Never a silent step back.** What was promised is the newest epoch that was ever called safe, as far as anybody
knows: the lineage, commits (by their names, if they are damaged), what the agent said last, and, where the store
cannot say how far it was, every replica that was not heard or has lost everything. A start behind that, or without
lineage that is known to have been there, needs consent (`accept_loss`). Epochs after the promise are another matter:
their input is still there, because input is forgotten only once it is safe.

**History is never lost in silence.** The lineage says from which epoch on the history of views is kept, the catalog
where that of each begins. What is missing of it is brought; where no copy is left, the plan says so. The present is
whole, so that needs no consent.

**Never an empty start.** Where there is any sign of life and none of it can be used, no consent helps. There is one
exception: where the store is gone, and a replica holds nothing but the name of its app or a claim from before the
first epoch, no epoch was ever durable. Whether there were any that are lost with the store nobody can say, so that
needs consent.

A layer of the store counts only if this history made it: its incarnation's log is here, or a commit has its digest,
or an unfinished recovery of this very history brought it. What is left over from another history is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from slipstream.durability.board import Replication, safe_epoch
from slipstream.durability.manifest import CommitName, Kept, Manifest, Stored
from slipstream.durability.splice import Chain, Copies, contradict, splice
from slipstream.errors import CannotRecover, MissingLayer, OtherApp, OtherReplica, SlipstreamError, WouldLose
from slipstream.store.catalog import Catalog, owner_of
from slipstream.store.layers import combined
from slipstream.store.store import Identity
from slipstream.trace import PLACES, Fence, LayerName, Span, cover, history_reach, readable_from, tile

Names = Mapping[str, tuple[LayerName, ...]]
Layer = tuple[str, LayerName]
"""A trace and one of its layers."""

LARGE = 4 << 20
"""Bytes of a layer from which on it may be left on its replica at first."""

_UNKNOWN = 1 << 62


@dataclass(frozen=True)
class Restoring:
    """A recovery that was begun: layers from this incarnation on were brought for the history with this line."""

    incarnation: int
    log: int
    digest: str
    said: str


@dataclass(frozen=True)
class Local:
    """What is left of a store. copies: its logs; None where its chain is known to be whole, and was read from its base.
    layers: the sound ones that no fence bars; damaged: the others, and what is wrong with each. digests: of sound
    layers, as far as they matter. documents: what is wrong with either copy of a document. progress: what the agent
    said last, None if it cannot be read. life: whether there is anything that a new store would not have.
    """

    root: str
    identity: Identity | None = None
    catalog: Catalog | None = None
    chain: Chain = field(default_factory=Chain)
    copies: Copies | None = None
    layers: Names = field(default_factory=dict)
    damaged: Mapping[Layer, str] = field(default_factory=dict)
    digests: Mapping[Layer, str] = field(default_factory=dict)
    fences: frozenset[Fence] = frozenset()
    documents: tuple[str, ...] = ()
    progress: Replication | None = field(default_factory=Replication)
    restoring: Restoring | None = None
    life: bool = False


@dataclass(frozen=True)
class Commit:
    """A commit of a replica: what it says, or what is wrong with it. totals: the epoch checksums that go with it."""

    name: CommitName
    manifest: Manifest | None = None
    problem: str | None = None
    catalog: Catalog | None = None
    totals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Remote:
    """A replica. commits: those that count, newest first. overruled: those that do not, because of a later incarnation
    that has none itself. copies: stretches of lineage. objects: which are there, and their sizes. incarnation: the
    highest that left a trace there. life: whether anything is there of a store that had begun. bare: there is nothing
    but whose replica it is, or who claimed it before the first epoch. error: why it cannot be read.
    """

    url: str
    error: str | None = None
    owner: Identity | None = None
    commits: tuple[Commit, ...] = ()
    overruled: tuple[Commit, ...] = ()
    copies: Copies = field(default_factory=dict)
    objects: Mapping[str, int] = field(default_factory=dict)
    incarnation: int = 0
    life: bool = False
    bare: bool = False

    @property
    def reached(self) -> int | None:
        """The epoch of its newest commit, damaged or not; None if nobody can say what it once had."""
        if self.error is not None or (not self.commits and (self.objects or self.owner is None)):
            return None
        return max((commit.name.epoch for commit in self.commits), default=0)


@dataclass(frozen=True)
class Wanted:
    """A layer to be brought from a replica. stored: the object that it is in, None for an empty layer. instead: of a
    large one, the layers of each other replica that would do as well.
    """

    trace: str
    kept: Kept
    url: str
    stored: Stored | None
    schema: str
    instead: tuple[tuple[Wanted, ...], ...] = ()


class Kind(StrEnum):
    GO_ON = "go on"
    FETCH = "fetch"
    STEP_BACK = "step back"
    RESTORE = "restore"
    START_EMPTY = "start empty"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Plan:
    """What a start does. epoch: from where it goes on. upto: the last epoch whose cut is known: those in between are
    computed again as they were. frontier: the last epoch that was computed, as far as lineage tells. fetch: the layers
    to bring; drop: those of the store that must go. own: the store has lineage of this history. checks: totals to
    compare with, by epoch. lost: what is given up. why: what the user must know. judged: what was found where. error:
    of a refusal.
    """

    kind: Kind
    epoch: int = 0
    upto: int = 0
    frontier: int = 0
    identity: Identity | None = None
    chain: Chain = field(default_factory=Chain)
    catalog: Catalog | None = None
    fetch: tuple[Wanted, ...] = ()
    drop: tuple[Layer, ...] = ()
    checks: tuple[tuple[int, Mapping[str, int]], ...] = ()
    own: bool = True
    lost: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    error: SlipstreamError | None = None

    @property
    def again(self) -> int:
        """How many epochs are computed again."""
        return max(self.upto, self.frontier) - self.epoch

    @property
    def bytes(self) -> int:
        """Bytes of the objects that are brought."""
        return sum({each.stored.name: each.stored.size for each in self.fetch if each.stored}.values())


def decide(
    local: Local,
    remotes: Sequence[Remote],
    *,
    app: str,
    safe_on: int = 1,
    accept_loss: bool = False,
    rebuild: Collection[str] = (),
) -> Plan:
    """What to do at a start. rebuild: views that are computed anew: their layers need not be there."""
    judged = (_seen(local), *(_heard(remote) for remote in remotes))
    owner = _owner(local, remotes, app)
    if isinstance(owner, SlipstreamError):
        return Plan(Kind.REFUSE, judged=judged, error=owner)
    if not local.life and not any(remote.life for remote in remotes):
        if any(remote.error is not None for remote in remotes):
            return Plan(Kind.REFUSE, judged=judged, error=_impossible(local, ["there is no store"], judged))
        gone = [f"{each.url} is of a store that is gone, and holds nothing" for each in remotes if each.bare]
        if gone and not accept_loss:
            error: SlipstreamError = WouldLose(local.root, 0, gone, (), judged[1:])
            return Plan(Kind.REFUSE, judged=judged, error=error)
        why = tuple(f"accepted: {each}" for each in gone)
        return Plan(Kind.START_EMPTY, judged=judged, identity=owner, why=why)
    families = _families(local, remotes, owner, overruled=False)
    if any(remote.overruled for remote in remotes):
        families += _families(local, remotes, owner, overruled=True)
    best = max((_judged(family, remotes, safe_on, rebuild) for family in families), key=_rank)
    if best.impossible:
        error = _impossible(local, best.impossible, judged)
        return replace(best.plan, kind=Kind.REFUSE, judged=judged, error=error)
    if best.consent and not accept_loss:
        error = WouldLose(local.root, best.plan.epoch, best.consent, best.plan.lost, judged[1:])
        return replace(best.plan, kind=Kind.REFUSE, judged=judged, error=error)
    why = (*best.plan.why, *(f"accepted: {each}" for each in best.consent))
    # What is given up may include the input of later cuts: those are cut anew, from what is there.
    upto = best.plan.epoch if best.consent else best.plan.upto
    return replace(best.plan, identity=owner, why=why, judged=judged, upto=upto)


def substitutes_for(layer: Layer, local: Local, remotes: Sequence[Remote]) -> tuple[Wanted, ...] | None:
    """What to bring so that a store in use can do without one of its layers: nothing, if it can already; None if it
    never can. The history that a layer holds is given up only if there are replicas and each was heard.
    """
    trace, name = layer
    family = _families(local, remotes, local.identity, overruled=False)[0]
    catalog = local.catalog or Catalog()
    found = _found(family, catalog, ())
    if trace not in found.traces:
        return ()
    mine = [each for each in found.mine.get(trace, ()) if each != name]
    theirs = found.theirs[trace]
    logged = name.is_log and trace in found.shown
    for names in (mine, [*mine, *theirs]):
        try:
            pieces = tile(names, name.lo, name.hi, name.span, whole=not logged)
        except MissingLayer:
            continue
        return tuple(theirs[each] for each in sorted({piece.layer for piece in pieces}) if each in theirs)
    heard = bool(remotes) and all(remote.error is None for remote in remotes)
    return () if logged and heard and _covered(mine, family.chain.history.frontier) else None


@dataclass(frozen=True)
class LostHistory:
    """History of a view that must be there, from epoch `kept` on, and is there only from `left` on."""

    view: str
    trace: str
    kept: int
    left: int

    def __str__(self) -> str:
        return f"the history of '{self.view}' before epoch {self.left} is lost (it was kept from epoch {self.kept} on)"


@dataclass(frozen=True)
class Examined:
    """What is wrong with a store as a whole. strangers: layers that are whole, and not what their epoch made.
    uncovered: what keeps traces from being read as of the newest epoch, with all copies together. forgotten: the views
    whose history is not all there.
    """

    chain: Chain
    lost: tuple[str, ...]
    strangers: tuple[Layer, ...]
    uncovered: Mapping[str, str]
    forgotten: tuple[LostHistory, ...]


def examine(local: Local, remotes: Sequence[Remote] = ()) -> Examined:
    """Look through a store, with or without the copies that replicas have. All of its logs must have been read."""
    family = _families(local, remotes, local.identity, overruled=False)[0]
    found = _found(family, local.catalog or Catalog(), ())
    frontier = family.chain.history.frontier
    uncovered = {}
    for trace in found.traces:
        try:
            cover(_upto(found.every(trace), frontier), frontier, Span.whole(), directory=trace)
        except MissingLayer as gap:
            uncovered[trace] = str(gap).partition(". ")[0]
    shown = (trace for trace in found.traces if trace not in uncovered)
    forgotten = (found.lost(trace, _upto(found.every(trace), frontier), frontier) for trace in shown)
    return Examined(
        chain=family.chain,
        lost=tuple(_lost_lineage(family)),
        strangers=tuple(sorted(_strangers(family))),
        uncovered=uncovered,
        forgotten=tuple(each for each in forgotten if each is not None),
    )


@dataclass(frozen=True)
class _Family:
    """Copies of one history: the store, if it is one of them, and replicas. overruled: commits count although a later
    incarnation began before them.
    """

    local: Local
    own: bool
    remotes: tuple[Remote, ...]
    chain: Chain
    overruled: bool = False

    @property
    def logged(self) -> bool:
        """Whether the store has lineage of its own for this history."""
        return self.own and (self.local.copies is None or bool(self.logs))

    @cached_property
    def logs(self) -> frozenset[int]:
        """The logs of this history of which the store has at least a line."""
        copies = (self.local.copies or {}) if self.own else {}
        return frozenset(
            log
            for log, raw in self.chain.logs.items()
            if any(set(each.split(b"\n")) & set(raw.split(b"\n")[:-1]) for each in copies.get(log, ()))
        )


@dataclass(frozen=True)
class _Candidate:
    """A plan; why it needs consent, if it does; why it cannot be carried out, if that is so."""

    plan: Plan
    own: bool
    consent: tuple[str, ...] = ()
    impossible: tuple[str, ...] = ()


def _rank(candidate: _Candidate) -> tuple[bool, bool, int, bool, int]:
    plan = candidate.plan
    return not candidate.impossible, not candidate.consent, plan.epoch, candidate.own, plan.upto


def _owner(local: Local, remotes: Sequence[Remote], app: str) -> Identity | SlipstreamError | None:
    """Whose all of this is; an error where it is not one app's, or another's."""
    ours = local.identity
    if ours is None and local.chain.lineage.app is not None:
        ours = Identity(app, local.chain.lineage.app)
    if ours is not None and ours.app != app:
        return OtherApp(local.root, ours.app, app)
    for remote in remotes:
        known = remote.owner
        if known is None:
            continue
        if ours is None and known.app == app:
            ours = known
        elif ours is None or known.id != ours.id:
            given = ours or Identity(app, "new")
            return OtherReplica(remote.url, known.app, known.id, given.app, given.id)
    return ours


def _families(
    local: Local, remotes: Sequence[Remote], owner: Identity | None, *, overruled: bool
) -> list[_Family]:
    """The histories that there are: copies that do not contradict each other are of one."""
    app = None if owner is None else owner.id
    if local.copies is None:
        return [_Family(local, True, (), local.chain)]
    if overruled:
        remotes = [replace(each, commits=(*each.commits, *each.overruled)) for each in remotes]
    groups: list[tuple[bool, list[Remote]]] = [(True, [])]
    for remote in remotes:
        for own, members in groups:
            known = [local.copies] if own else []
            known += [each.copies for each in members]
            if not any(contradict(each, remote.copies, app) for each in known):
                members.append(remote)
                break
        else:
            groups.append((False, [remote]))
    families = []
    for own, members in groups:
        copies = [local.copies] if own else []
        chain = splice([*copies, *(each.copies for each in members)], app)
        if overruled:
            chain = _without_idle(chain, [*copies, *(each.copies for each in members)], app)
        families.append(_Family(local, own, tuple(members), chain, overruled))
    return families


def _without_idle(chain: Chain, copies: Sequence[Copies], app: str | None) -> Chain:
    """The history without the newest incarnations that computed nothing."""
    idle = set()
    for began in reversed(chain.begins):
        if began.incarnation in chain.computed_by.values():
            break
        idle.add(began.incarnation)
    shorter = splice([{log: each for log, each in copy.items() if log not in idle} for copy in copies], app)
    return shorter if shorter.history.frontier > chain.history.frontier else chain


def _judged(family: _Family, remotes: Sequence[Remote], safe_on: int, rebuild: Collection[str]) -> _Candidate:
    """The best that can be made of one history."""
    chain, local = family.chain, family.local
    history = chain.history
    frontier = history.frontier
    catalog, own_catalog = _catalog(family)
    own = family.logged and own_catalog and frontier <= _own_frontier(family)
    upto = max([frontier, *(cut.epoch for cut in history.cuts)])
    base = Plan(Kind.RESTORE, upto=upto, frontier=frontier, chain=chain, catalog=catalog, own=family.logged)
    gone = _lost_lineage(family)
    if not chain.tip or (gone and not upto):
        return _Candidate(base, family.own, impossible=(*gone, "no lineage can be read anywhere"))
    if catalog is None and frontier:
        absent = (
            *gone,
            *local.documents,
            "no catalog can be read anywhere: nobody can say which traces there are",
        )
        return _Candidate(base, family.own, impossible=absent)
    found = _found(family, catalog or Catalog(), rebuild)
    epoch = found.newest(frontier)
    promised = _promised(family, remotes, safe_on, sure=not gone and _knows_its_end(family, epoch))
    fetch, forgotten = found.chosen(epoch)
    drop = found.drop
    consent = [f"{each}; epochs after {frontier} may have been computed" for each in gone]
    consent += _older_catalog(family, catalog or Catalog(), own=own_catalog)
    if family.overruled:
        consent.append("a later incarnation began before the commits that are there, and has none itself")
    if epoch < promised < _UNKNOWN:
        consent.append(f"epochs {epoch + 1} to {promised} were called safe")
    if promised == _UNKNOWN:
        silent = ", ".join(each.url for each in remotes if each.reached is None)
        consent.append(
            f"newer epochs may have been called safe, on what cannot be read or is empty: {silent}"
        )
    if epoch == 0 and frontier and _was_persisted(family):
        gaps = "; ".join(found.gaps(frontier))
        consent.append(f"all of epochs 1 to {frontier} would be computed again ({gaps})")
    lost = _lost_input(chain, epoch) if consent else ()
    kind = _kind(own, epoch, frontier, fetch)
    why = [
        *_told(family, found, kind, epoch, frontier, upto, fetch, anew=bool(consent)),
        *(f"{each}: no copy is left" for each in forgotten),
    ]
    plan = replace(
        base,
        kind=kind,
        epoch=epoch,
        fetch=fetch,
        drop=drop,
        checks=_checks(family, epoch),
        lost=lost,
        why=tuple(why),
    )
    return _Candidate(plan, family.own, tuple(consent))


def _kind(own: bool, epoch: int, frontier: int, fetch: Sequence[Wanted]) -> Kind:
    if not own:
        return Kind.RESTORE
    if epoch < frontier:
        return Kind.STEP_BACK
    return Kind.FETCH if fetch else Kind.GO_ON


def _catalog(family: _Family) -> tuple[Catalog | None, bool]:
    """The catalog of the newest incarnation that has one, and whether it is the store's."""
    best: tuple[int, Catalog | None, bool] = (-1, None, True)
    if family.own and family.local.catalog is not None:
        logs = family.local.copies
        best = (max(logs, default=0) if logs is not None else _UNKNOWN, family.local.catalog, True)
    for commit in _commits(family):
        if commit.catalog is not None and commit.name.incarnation > best[0]:
            best = (commit.name.incarnation, commit.catalog, False)
    return best[1], best[2]


def _older_catalog(family: _Family, catalog: Catalog, *, own: bool) -> list[str]:
    """What a catalog lacks that the newest commit has: then that commit had a later one, which cannot be read."""
    newest = max(_commits(family), key=lambda each: (each.name.incarnation, each.name.sequence), default=None)
    if newest is None or newest.manifest is None or newest.catalog is not None:
        return []
    if own and newest.name.incarnation <= max(family.local.copies or (), default=0):
        return []
    known = catalog.identities()
    lacks = {
        owner_of(trace) for trace, each in newest.manifest.identities.items() if known.get(trace) != each
    }
    what = (
        f"the catalog of the newest commit cannot be read, and an older one lacks {', '.join(sorted(lacks))}"
    )
    return [what] if lacks else []


def _own_frontier(family: _Family) -> int:
    """How far the store itself was computed, by its lineage or by its layers."""
    if family.local.copies is None:
        return family.chain.history.frontier
    reached = [name.hi for names in family.local.layers.values() for name in names]
    reached += [name.hi for _, name in family.local.damaged]
    return max([splice([family.local.copies], None).history.frontier, *reached])


def _commits(family: _Family) -> list[Commit]:
    """The commits that belong to a history, of all replicas."""
    chain = family.chain
    known = {began.incarnation for began in chain.begins}
    return [
        commit
        for remote in family.remotes
        for commit in remote.commits
        if commit.manifest is not None
        and commit.name.incarnation in known
        and commit.name.epoch <= chain.history.frontier
        and chain.bounded(commit.name.epoch, commit.name.incarnation) == commit.name.epoch
    ]


def _lost_lineage(family: _Family) -> list[str]:
    """What shows that more lineage was there than can be read."""
    chain, local = family.chain, family.local
    frontier, tip = chain.history.frontier, chain.tip
    found = [] if chain.lineage.broken is None else [chain.lineage.broken]
    if chain.gap is not None and not _was_unflushed(family):
        found.append(chain.gap)
    if family.own and not found:
        begun = {fence.incarnation for fence in local.fences if fence.incarnation > tip}
        layers = [name for names in local.layers.values() for name in names]
        begun |= {name.incarnation for name in layers if name.incarnation > tip and name.hi > frontier}
        brought = local.restoring.incarnation if local.restoring is not None else _UNKNOWN
        begun = {each for each in begun if each < brought}
        found += [f"the lineage of incarnation {each} is missing" for each in sorted(begun)]
        progress = local.progress
        if progress is not None and progress.persisted:
            persisted = chain.bounded(progress.persisted, progress.incarnation)
            if persisted > frontier:
                found.append(f"lineage up to epoch {persisted} was on the disk, and ends at epoch {frontier}")
    for remote in family.remotes:
        for name in (commit.name for commit in remote.commits):
            unknown = name.incarnation > tip or name.epoch > frontier
            if unknown and chain.bounded(name.epoch, name.incarnation) == name.epoch:
                found.append(f"{remote.url} has {name.object}, whose lineage is missing")
                break
    return found


def _was_unflushed(family: _Family) -> bool:
    """Whether all that is missing at the end of the lineage is known not to have been flushed."""
    said, chain = family.local.progress, family.chain
    if not family.own or said is None or not said.incarnation:
        return False
    return chain.bounded(said.persisted, said.incarnation) <= chain.history.frontier


def _promised(family: _Family, remotes: Sequence[Remote], safe_on: int, *, sure: bool) -> int:
    """The newest epoch that was ever called safe, as far as can be told; _UNKNOWN where too little is. sure: the store
    itself knows, whatever replicas were not heard.
    """
    chain, local = family.chain, family.local
    known = [chain.history.safe]
    known += [min(commit.manifest.safe, commit.name.epoch) for commit in _commits(family) if commit.manifest]
    progress = local.progress if family.own else None
    if progress is not None:
        told = [progress.safe, *(each.durable for each in progress.replicas.values())]
        known.append(chain.bounded(max(told), progress.incarnation))
    needed = min(safe_on, len(remotes))
    reached = [_reached(family, remote) for remote in remotes]
    if needed and reached.count(None) >= needed and not sure:
        return _UNKNOWN
    return max([*known, safe_epoch([each for each in reached if each is not None], needed)])


def _reached(family: _Family, remote: Remote) -> int | None:
    """How far a replica was, of this history if it is one of its copies."""
    if remote.reached is None or remote not in family.remotes:
        return remote.reached
    names = [commit.name for commit in remote.commits]
    return max((family.chain.bounded(name.epoch, name.incarnation) for name in names), default=0)


def _knows_its_end(family: _Family, epoch: int) -> bool:
    """Whether the store itself can say what was safe: it never lags a replica."""
    said = family.local.progress
    at_end = epoch == family.chain.history.frontier
    return family.logged and (at_end or (said is not None and said.incarnation > 0))


def _was_persisted(family: _Family) -> bool:
    """Whether epochs were called persisted, or that cannot be told."""
    progress = family.local.progress
    if not family.logged or progress is None:
        return True
    return family.chain.bounded(progress.persisted, progress.incarnation) > 0


@dataclass(frozen=True)
class _Found:
    """The layers that there are for one history: the store's own, and those on replicas that it lacks."""

    traces: tuple[str, ...]
    shown: Mapping[
        str, tuple[str, int]
    ]  # by trace, a view that is read from it, and where its history begins
    kept: int  # the epoch from which on history is kept
    mine: Names
    theirs: Mapping[str, Mapping[LayerName, Wanted]]
    by_replica: Mapping[tuple[str, str], Mapping[LayerName, Wanted]]  # all that each has of a trace
    drop: tuple[Layer, ...]

    def newest(self, frontier: int) -> int:
        """The newest epoch that everything can be read as of; 0 is the one before the first."""
        if all(_covered(self.every(trace), frontier) for trace in self.traces):
            return frontier
        ends = [{name.hi for name in self.every(trace)} for trace in self.traces]
        for epoch in sorted(set.intersection(*ends), reverse=True):
            if all(_covered(self.every(trace), epoch) for trace in self.traces):
                return epoch
        return 0

    def chosen(self, epoch: int) -> tuple[tuple[Wanted, ...], list[LostHistory]]:
        """What to bring for an epoch, and which history is lost."""
        fetch: list[Wanted] = []
        forgotten: list[LostHistory] = []
        for trace in self.traces:
            mine = _upto(self.mine.get(trace, ()), epoch)
            every = _upto(self.every(trace), epoch)
            wanted: set[LayerName] = set()
            if epoch and not _covered(mine, epoch):
                wanted |= {piece.layer for piece in cover(every, epoch, Span.whole())}
            if trace in self.shown:
                wanted |= _history(mine, every, epoch)
            lost = self.lost(trace, [*mine, *(name for name in every if name in wanted)], epoch)
            forgotten += [lost] if lost is not None else []
            theirs = self.theirs.get(trace, {})
            chosen = [theirs[name] for name in sorted(wanted) if name in theirs]
            fetch += [replace(each, instead=self._instead(each, mine, epoch)) for each in chosen]
        return tuple(fetch), forgotten

    def _instead(
        self, wanted: Wanted, mine: Sequence[LayerName], epoch: int
    ) -> tuple[tuple[Wanted, ...], ...]:
        """What each other replica has that does as well as a layer: the same epochs, or all of them up to one."""
        if wanted.kept.bytes < LARGE:
            return ()
        name = wanted.kept.layer
        logged = name.is_log and wanted.trace in self.shown
        found = []
        for (url, trace), layers in self.by_replica.items():
            if url == wanted.url or trace != wanted.trace:
                continue
            names = _upto([*mine, *layers], epoch)
            for first, last, span, whole in (
                (name.lo, name.hi, name.span, not logged),
                (1, epoch, Span.whole(), True),
            ):
                with suppress(MissingLayer):
                    pieces = tile(names, first, last, span, whole=whole)
                    chosen = sorted({piece.layer for piece in pieces})
                    found.append(tuple(layers[each] for each in chosen if each in layers))
                    break
        return tuple(found)

    def lost(self, trace: str, names: Sequence[LayerName], epoch: int) -> LostHistory | None:
        """What is lost of the history of a trace up to an epoch, if a view is read from it and these are its layers."""
        if trace not in self.shown:
            return None
        view, since = self.shown[trace]
        kept, left = min(max(self.kept, since), epoch), readable_from(names, epoch, Span.whole())
        return LostHistory(view, trace, kept, left) if left > kept else None

    def gaps(self, epoch: int) -> tuple[str, ...]:
        """What is missing for an epoch."""
        texts = []
        for trace in self.traces:
            try:
                cover(_upto(self.every(trace), epoch), epoch, Span.whole(), directory=trace)
            except MissingLayer as gap:
                texts.append(str(gap).partition(". ")[0])
        return tuple(texts)

    def every(self, trace: str) -> list[LayerName]:
        """The store's and all others."""
        return [*self.mine.get(trace, ()), *self.theirs.get(trace, {})]


def _found(family: _Family, catalog: Catalog, rebuild: Collection[str]) -> _Found:
    chain, local = family.chain, family.local
    every = catalog.identities()
    identities = {trace: every[trace] for trace in every if owner_of(trace) not in rebuild}
    strangers = _strangers(family)
    kept: dict[Layer, str] = {}
    for commit in _commits(family):
        assert commit.manifest is not None
        for trace, layers in commit.manifest.layers.items():
            kept |= {(trace, each.layer): each.digest for each in layers}
    mine: dict[str, tuple[LayerName, ...]] = {}
    drop = set(local.damaged) | strangers
    for trace, names in local.layers.items():
        ours = [
            name for name in names if _is_ours(family, trace, name, kept) and (trace, name) not in strangers
        ]
        drop |= {(trace, name) for name in names if name not in ours}
        mine[trace] = tuple(name for name in ours if _counts(chain, name))
    theirs: dict[str, dict[LayerName, Wanted]] = {}
    by_replica: dict[tuple[str, str], dict[LayerName, Wanted]] = {}
    for trace, identity in identities.items():
        here = {_stretch(name) for name in mine.get(trace, ())}
        offers: dict[tuple[int, int, int, int, str], Wanted] = {}
        for wanted in _offers(family, trace, identity):
            by_replica.setdefault((wanted.url, trace), {}).setdefault(wanted.kept.layer, wanted)
            stretch = _stretch(wanted.kept.layer)
            best = offers.get(stretch)
            if stretch not in here and (
                best is None or wanted.kept.layer.incarnation > best.kept.layer.incarnation
            ):
                offers[stretch] = wanted
        theirs[trace] = {wanted.kept.layer: wanted for wanted in offers.values()}
    shown: dict[str, tuple[str, int]] = {}
    for name, view in catalog.views.items():
        if view.trace not in shown or view.since < shown[view.trace][1]:
            shown[view.trace] = (name, view.since)
    return _Found(
        traces=tuple(identities),
        shown=shown,
        kept=chain.history.kept,
        mine=mine,
        theirs=theirs,
        by_replica=by_replica,
        drop=tuple(sorted(drop)),
    )


def _offers(family: _Family, trace: str, identity: str) -> Iterable[Wanted]:
    """The layers of a trace that replicas have, whole as far as a listing tells."""
    counting = {commit.name for commit in _commits(family)}
    for remote in family.remotes:
        for commit in remote.commits:
            manifest = commit.manifest
            if manifest is None or commit.name not in counting or manifest.identities.get(trace) != identity:
                continue
            for each in manifest.layers.get(trace, ()):
                stored = manifest.objects.get(each.object)
                there = not each.object or (
                    stored is not None and remote.objects.get(each.object) == stored.size
                )
                if there and _counts(family.chain, each.layer):
                    yield Wanted(trace, each, remote.url, stored, manifest.schemas[trace])


def _is_ours(family: _Family, trace: str, name: LayerName, kept: Mapping[Layer, str]) -> bool:
    """Whether a layer of the store was made by this history."""
    local = family.local
    if local.copies is None:
        return True
    if name.incarnation in family.chain.logs and name.incarnation <= max(family.logs, default=0):
        return True  # each log proves which one it follows
    if name.incarnation in family.chain.brought:
        return True
    note = local.restoring
    if note is not None and name.incarnation >= note.incarnation:
        return family.chain.holds(note.log, note.digest)
    digest = kept.get((trace, name))
    return bool(digest) and digest == local.digests.get((trace, name))


def _strangers(family: _Family) -> set[Layer]:
    """Layers of the store that an epoch's record does not name: whole, and not those that it made."""
    local, chain = family.local, family.chain
    by_epoch: dict[tuple[str, int, int], list[LayerName]] = {}
    for trace, name in local.digests:
        if name.single and _counts(chain, name):
            by_epoch.setdefault((trace, name.lo, name.incarnation), []).append(name)
    after = {fence.incarnation: fence.after for fence in local.fences}
    after |= {began.incarnation: began.after for began in chain.begins}
    named = {done.epoch: done.layers for done in chain.history.computed}
    found: set[Layer] = set()
    for (trace, epoch, incarnation), names in by_epoch.items():
        said = named.get(epoch, {}).get(trace)
        by = chain.computed_by.get(epoch, incarnation)
        if said is None or by != incarnation or after.get(incarnation, 0) >= epoch or not _whole_span(names):
            continue
        if combined(local.digests[trace, name] for name in names) != said:
            found |= {(trace, name) for name in names}
    return found


def _whole_span(names: Sequence[LayerName]) -> bool:
    at = 0
    for name in sorted(names, key=lambda each: each.start):
        if name.start != at:
            return False
        at = name.stop
    return at == PLACES


def _counts(chain: Chain, name: LayerName) -> bool:
    """Whether a history has what a layer holds: nobody succeeded its incarnation before."""
    return name.hi <= chain.history.frontier and chain.bounded(name.hi, name.incarnation) == name.hi


def _stretch(name: LayerName) -> tuple[int, int, int, int, str]:
    return name.lo, name.hi, name.start, name.stop, name.kind


def _upto(names: Iterable[LayerName], epoch: int) -> list[LayerName]:
    """The layers that are left by a start from an epoch: none that reaches past it."""
    return [name for name in names if name.hi <= epoch]


def _covered(names: Iterable[LayerName], epoch: int) -> bool:
    try:
        cover(_upto(names, epoch), epoch, Span.whole())
    except MissingLayer:
        return False
    return True


def _history(mine: Sequence[LayerName], every: Sequence[LayerName], epoch: int) -> set[LayerName]:
    """The layers that bring back past epochs that the store lacks."""
    reach, first = _reaches(every, epoch)
    known, readable = _reaches(mine, epoch)
    if reach >= known and first >= readable:
        return set()
    wanted = {piece.layer for piece in tile(every, reach + 1, epoch, Span.whole(), whole=False)}
    if _covered(every, first):
        wanted |= {piece.layer for piece in cover(every, first, Span.whole())}
    return wanted - set(mine)


def _reaches(names: Sequence[LayerName], epoch: int) -> tuple[int, int]:
    """From where on updates are there one by one, and from where on epochs can be read."""
    return history_reach(names, epoch, Span.whole()), readable_from(names, epoch, Span.whole())


def _checks(family: _Family, epoch: int) -> tuple[tuple[int, Mapping[str, int]], ...]:
    """The totals that what is there must add up to, by epoch, of commits up to one."""
    found = {commit.name.epoch: commit.totals for commit in _commits(family) if commit.totals}
    return tuple(sorted((at, totals) for at, totals in found.items() if at <= epoch))


def _lost_input(chain: Chain, epoch: int) -> tuple[str, ...]:
    """The input of all later epochs whose cuts are known, by source."""
    ranges: dict[str, list[object]] = {}
    for cut in chain.history.cuts:
        if cut.epoch > epoch:
            for source, taken in cut.ranges.items():
                ranges.setdefault(source, []).append(taken)
    return tuple(f"source '{name}': {_described(taken)}" for name, taken in sorted(ranges.items()))


def _described(ranges: Sequence[object]) -> str:
    """Ranges of a source, for people: files by name, anything else as it is; the first few."""
    parts: list[str] = []
    for taken in ranges:
        match taken:
            case {"files": list(files)}:
                parts += [str(file[0]) if isinstance(file, list) and file else str(file) for file in files]
            case _:
                parts.append(str(taken))
    few = ", ".join(parts[:10])
    return few if len(parts) <= 10 else f"{few} and {len(parts) - 10} more"


def _told(
    family: _Family,
    found: _Found,
    kind: Kind,
    epoch: int,
    frontier: int,
    upto: int,
    fetch: Sequence[Wanted],
    *,
    anew: bool,
) -> list[str]:
    """What the user must know. anew: later epochs are not computed as they were cut (consent was needed)."""
    told = []
    local = family.local
    urls = sorted({each.url for each in fetch}) or sorted({each.url for each in family.remotes if each.life})
    if kind is Kind.RESTORE:
        told.append(f"the store was restored from {', '.join(urls)}, as of epoch {epoch}")
    else:
        told += _mended(family)
    if fetch and kind is not Kind.RESTORE:
        told.append(f"{len(fetch)} layer(s) were missing or damaged, and were fetched from {', '.join(urls)}")
    if not fetch and kind is not Kind.RESTORE and any(layer in local.damaged for layer in found.drop):
        told.append(f"{len(local.damaged)} damaged layer(s) were dropped")
    torn = family.chain.lineage.torn or family.chain.gap
    if torn is not None and not told:
        told.append(f"{torn}: what it told of is computed again")
    if anew and epoch < max(upto, frontier):
        told.append(
            f"the input of epochs {epoch + 1} to {max(upto, frontier)} is taken again as far as it is still there, in "
            "epochs that are cut anew"
        )
    elif epoch < frontier:
        told.append(f"epochs {epoch + 1} to {max(upto, frontier)} are computed again, from the same input")
    elif kind is Kind.RESTORE and upto > epoch:
        told.append(
            f"epochs {epoch + 1} to {upto} were cut and not computed, and are computed as they were cut"
        )
    return told


def _mended(family: _Family) -> list[str]:
    """Which logs of the store others had more of."""
    copies = family.local.copies or {}
    logs = family.chain.logs.items()
    short = [log for log, raw in logs if not any(each.startswith(raw) for each in copies.get(log, ()))]
    return [f"lineage of incarnation {', '.join(map(str, short))} was fetched from replicas"] if short else []


def _impossible(local: Local, why: Sequence[str], judged: Sequence[str]) -> CannotRecover:
    damaged = [f"{trace}/{name.filename}: {what}" for (trace, name), what in sorted(local.damaged.items())]
    shown = damaged if len(damaged) <= 5 else [*damaged[:5], f"and {len(damaged) - 5} more damaged layers"]
    note = [f"a recovery was begun and not finished ({local.restoring.said})"] if local.restoring else []
    return CannotRecover(local.root, "; ".join([*why, *note, *shown]), judged[1:])


def _seen(local: Local) -> str:
    if not local.life:
        return "the store: nothing"
    layers = sum(map(len, local.layers.values()))
    parts = [f"the store: epoch {local.chain.history.frontier}, {layers} sound layers"]
    if local.damaged:
        parts.append(f"{len(local.damaged)} damaged")
    parts += local.documents
    parts += [each for each in (local.chain.lineage.torn, local.chain.lineage.broken) if each is not None]
    return ", ".join(parts)


def _heard(remote: Remote) -> str:
    if remote.error is not None:
        return f"{remote.url} cannot be read ({remote.error})"
    whole = [commit for commit in remote.commits if commit.manifest is not None]
    text = f"{remote.url} holds epoch {whole[0].name.epoch}" if whole else f"{remote.url} holds nothing"
    bad = [commit for commit in remote.commits if commit.manifest is None]
    if bad:
        names = ", ".join(f"{commit.name.object} of epoch {commit.name.epoch}" for commit in bad)
        text += f", and damaged commits: {names}"
    if not whole and remote.life:
        text += " that can be used, but objects of an app"
    if remote.overruled and not whole:
        newest = remote.overruled[0].name.epoch
        text += f"; its commits up to epoch {newest} are overruled by a later incarnation that has none"
    return text
