"""The histories that there are evidence of, and the layers that there are for each. Pure.

Copies of lineage that do not contradict each other are of one history, a *family*; whoever contradicts it is of
another. For a family every sound layer counts, the store's and every replica's, object by object, if this history made
it: its incarnation's log is here, or a commit has its digest, or an unfinished recovery of this very history brought
it. What is left over from another history is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from slipstream.core.errors import MissingLayer
from slipstream.durability.evidence import Commit, Layer, Local, Names, Remote, Wanted
from slipstream.durability.splice import Chain, Copies, contradict, splice
from slipstream.store.catalog import Catalog, owner_of
from slipstream.store.layers import combined
from slipstream.store.store import Identity
from slipstream.trace import PLACES, LayerName, Span, cover, history_reach, readable_from, tile

LARGE = 4 << 20
"""Bytes of a layer from which on it may be left on its replica at first."""


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
class Family:
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


def families_of(
    local: Local, remotes: Sequence[Remote], owner: Identity | None, *, overruled: bool
) -> list[Family]:
    """The histories that there are: copies that do not contradict each other are of one."""
    app = None if owner is None else owner.id
    if local.copies is None:
        return [Family(local, True, (), local.chain)]
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
        families.append(Family(local, own, tuple(members), chain, overruled))
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


def commits_of(family: Family) -> list[Commit]:
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


@dataclass(frozen=True)
class Found:
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
        if all(is_covered(self.every(trace), frontier) for trace in self.traces):
            return frontier
        ends = [{name.hi for name in self.every(trace)} for trace in self.traces]
        for epoch in sorted(set.intersection(*ends), reverse=True):
            if all(is_covered(self.every(trace), epoch) for trace in self.traces):
                return epoch
        return 0

    def chosen(self, epoch: int) -> tuple[tuple[Wanted, ...], list[LostHistory]]:
        """What to bring for an epoch, and which history is lost."""
        fetch: list[Wanted] = []
        forgotten: list[LostHistory] = []
        for trace in self.traces:
            mine = up_to(self.mine.get(trace, ()), epoch)
            every = up_to(self.every(trace), epoch)
            wanted: set[LayerName] = set()
            if epoch and not is_covered(mine, epoch):
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
            names = up_to([*mine, *layers], epoch)
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
                cover(up_to(self.every(trace), epoch), epoch, Span.whole(), directory=trace)
            except MissingLayer as gap:
                texts.append(str(gap).partition(". ")[0])
        return tuple(texts)

    def every(self, trace: str) -> list[LayerName]:
        """The store's and all others."""
        return [*self.mine.get(trace, ()), *self.theirs.get(trace, {})]


def found_for(family: Family, catalog: Catalog, rebuild: Collection[str]) -> Found:
    chain, local = family.chain, family.local
    every = catalog.identities()
    identities = {trace: every[trace] for trace in every if owner_of(trace) not in rebuild}
    strangers = strangers_of(family, catalog)
    kept: dict[Layer, str] = {}
    for commit in commits_of(family):
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
    return Found(
        traces=tuple(identities),
        shown=shown,
        kept=chain.history.kept,
        mine=mine,
        theirs=theirs,
        by_replica=by_replica,
        drop=tuple(sorted(each for each in drop if owner_of(each[0]) not in rebuild)),
    )


def _offers(family: Family, trace: str, identity: str) -> Iterable[Wanted]:
    """The layers of a trace that replicas have, whole as far as a listing tells."""
    counting = {commit.name for commit in commits_of(family)}
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


def _is_ours(family: Family, trace: str, name: LayerName, kept: Mapping[Layer, str]) -> bool:
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


def strangers_of(family: Family, catalog: Catalog) -> set[Layer]:
    """Layers of the store that an epoch's record does not name: whole, and not those that it made. What a view that was
    computed anew held when its history began was made by no epoch.
    """
    local, chain = family.local, family.chain
    begun = {trace: view.since for view in catalog.readable.values() for trace in (view.trace, *view.traces)}
    begun |= {was.trace: was.since for view in catalog.readable.values() for was in view.past}
    by_epoch: dict[tuple[str, int, int], list[LayerName]] = {}
    for trace, name in local.digests:
        if name.single and name.lo > begun.get(trace, 0) and _counts(chain, name):
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


def up_to(names: Iterable[LayerName], epoch: int) -> list[LayerName]:
    """The layers that are left by a start from an epoch: none that reaches past it."""
    return [name for name in names if name.hi <= epoch]


def is_covered(names: Iterable[LayerName], epoch: int) -> bool:
    try:
        cover(up_to(names, epoch), epoch, Span.whole())
    except MissingLayer:
        return False
    return True


def _history(mine: Sequence[LayerName], every: Sequence[LayerName], epoch: int) -> set[LayerName]:
    """The layers that bring back past epochs that the store lacks."""
    reach, first = reaches(every, epoch)
    known, readable = reaches(mine, epoch)
    if reach >= known and first >= readable:
        return set()
    wanted = {piece.layer for piece in tile(every, reach + 1, epoch, Span.whole(), whole=False)}
    if is_covered(every, first):
        wanted |= {piece.layer for piece in cover(every, first, Span.whole())}
    return wanted - set(mine)


def reaches(names: Sequence[LayerName], epoch: int) -> tuple[int, int]:
    """From where on updates are there one by one, and from where on epochs can be read."""
    return history_reach(names, epoch, Span.whole()), readable_from(names, epoch, Span.whole())
