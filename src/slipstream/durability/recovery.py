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
whole, so that needs no consent. What a view was before it was replaced, and what a held view shows, is on no replica:
where it is gone, the plan says so once (`losses`).

**Never an empty start.** Where there is any sign of life and none of it can be used, no consent helps. There is one
exception: where the store is gone, and replicas hold nothing but the name of their app, claims from before the first
epoch and what a first upload had sent before any commit, no epoch was ever durable. Whether there were any that are
lost with the store nobody can say, so that needs consent. Where the upload had sent lineage, the epochs that it tells
of are computed again from their input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from slipstream.core.errors import (
    CannotRecover,
    MissingLayer,
    OtherApp,
    OtherReplica,
    SlipstreamError,
    WouldLose,
)
from slipstream.durability.board import safe_epoch
from slipstream.durability.evidence import Layer, Local, Remote, Wanted
from slipstream.durability.families import (
    Family,
    Found,
    LostHistory,
    commits_of,
    families_of,
    found_for,
    is_covered,
    strangers_of,
    up_to,
)
from slipstream.durability.losses import LostPast, lost_pasts
from slipstream.durability.splice import Chain, splice
from slipstream.store.catalog import Catalog, owner_of
from slipstream.store.store import Identity
from slipstream.trace import Span, cover, tile

_UNKNOWN = 1 << 62


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
    compare with, by epoch. lost: what is given up. pasts: what is lost of what views were. why: what the user must
    know. judged: what was found where. error: of a refusal.
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
    pasts: tuple[LostPast, ...] = ()
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
        gone = [
            f"{each.url} is of a store that is gone, and holds {_held(each)}" for each in remotes if each.bare
        ]
        if gone and not accept_loss:
            error: SlipstreamError = WouldLose(local.root, 0, gone, (), judged[1:])
            return Plan(Kind.REFUSE, judged=judged, error=error)
        why = tuple(f"accepted: {each}" for each in gone)
        return Plan(Kind.START_EMPTY, judged=judged, identity=owner, why=why)
    families = families_of(local, remotes, owner, overruled=False)
    if any(remote.overruled for remote in remotes):
        families += families_of(local, remotes, owner, overruled=True)
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
    family = families_of(local, remotes, local.identity, overruled=False)[0]
    catalog = local.catalog or Catalog()
    found = found_for(family, catalog, ())
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
    return () if logged and heard and is_covered(mine, family.chain.history.frontier) else None


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
    family = families_of(local, remotes, local.identity, overruled=False)[0]
    found = found_for(family, local.catalog or Catalog(), ())
    frontier = family.chain.history.frontier
    uncovered = {}
    for trace in found.traces:
        try:
            cover(up_to(found.every(trace), frontier), frontier, Span.whole(), directory=trace)
        except MissingLayer as gap:
            uncovered[trace] = str(gap).partition(". ")[0]
    shown = (trace for trace in found.traces if trace not in uncovered)
    forgotten = (found.lost(trace, up_to(found.every(trace), frontier), frontier) for trace in shown)
    return Examined(
        chain=family.chain,
        lost=tuple(_lost_lineage(family)),
        strangers=tuple(sorted(strangers_of(family, local.catalog or Catalog()))),
        uncovered=uncovered,
        forgotten=tuple(each for each in forgotten if each is not None),
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


def _judged(family: Family, remotes: Sequence[Remote], safe_on: int, rebuild: Collection[str]) -> _Candidate:
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
    uncommitted = catalog is None and frontier > 0 and _uncommitted(local, remotes)
    if catalog is None and frontier and not uncommitted:
        absent = (
            *gone,
            *local.documents,
            "no catalog can be read anywhere: nobody can say which traces there are",
        )
        return _Candidate(base, family.own, impossible=absent)
    found = found_for(family, catalog or Catalog(), rebuild)
    epoch = 0 if uncommitted else found.newest(frontier)
    promised = _promised(family, remotes, safe_on, sure=not gone and _knows_its_end(family, epoch))
    fetch, forgotten = found.chosen(epoch)
    drop = found.drop
    consent = [f"{each}; epochs after {frontier} may have been computed" for each in gone]
    consent += _older_catalog(family, catalog or Catalog(), own=own_catalog)
    if family.overruled:
        consent.append("a later incarnation began before the commits that are there, and has none itself")
    if epoch < promised < _UNKNOWN:
        consent.append(f"epochs {epoch + 1} to {promised} were called safe")
    if uncommitted:
        holding = "; ".join(f"{each.url} holds {_held(each)}" for each in remotes if each.life)
        consent.append(f"{holding}; all of epochs 1 to {frontier} would be computed again")
    elif promised == _UNKNOWN:
        silent = ", ".join(each.url for each in remotes if each.reached is None)
        consent.append(
            f"newer epochs may have been called safe, on what cannot be read or is empty: {silent}"
        )
    if epoch == 0 and frontier and not uncommitted and _was_persisted(family):
        gaps = "; ".join(found.gaps(frontier))
        consent.append(f"all of epochs 1 to {frontier} would be computed again ({gaps})")
    lost = _lost_input(chain, epoch) if consent else ()
    kind = _kind(own, epoch, frontier, fetch)
    pasts = lost_pasts(catalog or Catalog(), found.mine, epoch, history.kept, rebuild)
    why = [
        *_told(family, found, kind, epoch, frontier, upto, fetch, anew=bool(consent)),
        *(f"{each}: no copy is left" for each in forgotten),
        *(str(each) for each in pasts if not each.is_in(local.told)),
    ]
    plan = replace(
        base,
        kind=kind,
        epoch=epoch,
        fetch=fetch,
        drop=drop,
        checks=_checks(family, epoch),
        lost=lost,
        pasts=pasts,
        why=tuple(why),
    )
    return _Candidate(plan, family.own, tuple(consent))


def _uncommitted(local: Local, remotes: Sequence[Remote]) -> bool:
    """Whether all that is left is a first upload that ended before its commit."""
    return not local.life and all(
        remote.error is None and not remote.commits and not remote.overruled for remote in remotes
    )


def _held(remote: Remote) -> str:
    """What there is on a replica without a commit."""
    if not remote.objects and not remote.copies:
        return "nothing"
    return (
        f"no commit, but {len(remote.objects)} object(s) and {len(remote.copies)} log(s) of lineage: a first upload "
        "that was cut short, if nobody deleted its commits"
    )


def _kind(own: bool, epoch: int, frontier: int, fetch: Sequence[Wanted]) -> Kind:
    if not own:
        return Kind.RESTORE
    if epoch < frontier:
        return Kind.STEP_BACK
    return Kind.FETCH if fetch else Kind.GO_ON


def _catalog(family: Family) -> tuple[Catalog | None, bool]:
    """The catalog of the newest incarnation that has one, and whether it is the store's."""
    best: tuple[int, Catalog | None, bool] = (-1, None, True)
    if family.own and family.local.catalog is not None:
        logs = family.local.copies
        best = (max(logs, default=0) if logs is not None else _UNKNOWN, family.local.catalog, True)
    for commit in commits_of(family):
        if commit.catalog is not None and commit.name.incarnation > best[0]:
            best = (commit.name.incarnation, commit.catalog, False)
    return best[1], best[2]


def _older_catalog(family: Family, catalog: Catalog, *, own: bool) -> list[str]:
    """What a catalog lacks that the newest commit has: then that commit had a later one, which cannot be read."""
    newest = max(
        commits_of(family), key=lambda each: (each.name.incarnation, each.name.sequence), default=None
    )
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


def _own_frontier(family: Family) -> int:
    """How far the store itself was computed, by its lineage or by its layers."""
    if family.local.copies is None:
        return family.chain.history.frontier
    reached = [name.hi for names in family.local.layers.values() for name in names]
    reached += [name.hi for _, name in family.local.damaged]
    return max([splice([family.local.copies], None).history.frontier, *reached])


def _lost_lineage(family: Family) -> list[str]:
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


def _was_unflushed(family: Family) -> bool:
    """Whether all that is missing at the end of the lineage is known not to have been flushed."""
    said, chain = family.local.progress, family.chain
    if not family.own or said is None or not said.incarnation:
        return False
    return chain.bounded(said.persisted, said.incarnation) <= chain.history.frontier


def _promised(family: Family, remotes: Sequence[Remote], safe_on: int, *, sure: bool) -> int:
    """The newest epoch that was ever called safe, as far as can be told; _UNKNOWN where too little is. sure: the store
    itself knows, whatever replicas were not heard.
    """
    chain, local = family.chain, family.local
    known = [chain.history.safe]
    known += [
        min(commit.manifest.safe, commit.name.epoch) for commit in commits_of(family) if commit.manifest
    ]
    # A claim without lineage may be of nobody: what it overrules was called safe all the same.
    idle = (commit.name for remote in family.remotes for commit in remote.overruled)
    known += [chain.bounded(name.epoch, name.incarnation) for name in idle]
    progress = local.progress if family.own else None
    if progress is not None:
        told = [progress.safe, *(each.durable for each in progress.replicas.values())]
        known.append(chain.bounded(max(told), progress.incarnation))
    needed = min(safe_on, len(remotes))
    reached = [_reached(family, remote) for remote in remotes]
    if needed and reached.count(None) >= needed and not sure:
        return _UNKNOWN
    return max([*known, safe_epoch([each for each in reached if each is not None], needed)])


def _reached(family: Family, remote: Remote) -> int | None:
    """How far a replica was, of this history if it is one of its copies."""
    if remote.reached is None or remote not in family.remotes:
        return remote.reached
    names = [commit.name for commit in remote.commits]
    return max((family.chain.bounded(name.epoch, name.incarnation) for name in names), default=0)


def _knows_its_end(family: Family, epoch: int) -> bool:
    """Whether the store itself can say what was safe: it never lags a replica."""
    said = family.local.progress
    at_end = epoch == family.chain.history.frontier
    return family.logged and (at_end or (said is not None and said.incarnation > 0))


def _was_persisted(family: Family) -> bool:
    """Whether epochs were called persisted, or that cannot be told."""
    progress = family.local.progress
    if not family.logged or progress is None:
        return True
    return family.chain.bounded(progress.persisted, progress.incarnation) > 0


def _checks(family: Family, epoch: int) -> tuple[tuple[int, Mapping[str, int]], ...]:
    """The totals that what is there must add up to, by epoch, of commits up to one."""
    found = {commit.name.epoch: commit.totals for commit in commits_of(family) if commit.totals}
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
    family: Family,
    found: Found,
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
    dropped = [layer for layer in found.drop if layer in local.damaged]
    if not fetch and kind is not Kind.RESTORE and dropped:
        views = sorted({f"'{owner_of(trace)}'" for trace, _ in dropped})
        told.append(f"{len(dropped)} damaged layer(s) of {', '.join(views)} were dropped")
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


def _mended(family: Family) -> list[str]:
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
    if not remote.commits and not remote.overruled:
        return f"{remote.url} holds {_held(remote)}"
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
