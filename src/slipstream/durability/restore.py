"""Carrying out a recovery that was decided (`recovery`), and replacing damaged layers of a store that is in use.

Everything that is brought is written under the incarnation that brings it, so that nobody who was succeeded can mean
it. A note, `restoring`, is there from before the first layer until the new incarnation has begun. It names a line of
the history that layers are brought for, so a recovery that was cut short goes on from what it has. What is brought is
there, flushed, before what it replaces goes; lineage comes after the layers that it tells of. So whenever this ends,
what is left can be judged again in the same way.

What was put together is then compared with the epoch checksums of a commit: layers that are each what was written may
still not be those that belong together.

An app that starts does not wait for large layers: they are left on the replica, with a note in their place, and are
brought when somebody needs them, or by the agent (`homecoming`). `slipstream recover` brings everything.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slipstream.core.clock import Clock, SystemClock
from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.errors import ChecksumMismatch, MissingLayer
from slipstream.durability import families
from slipstream.durability.checksum import mismatches, read_totals, sums_line
from slipstream.durability.evidence import Layer, Local, Remote, Restoring, Wanted
from slipstream.durability.homecoming import list_away
from slipstream.durability.inbox import PARALLEL, Spoiled, fetch_layers, leave, look
from slipstream.durability.joining import Guarded, Opener
from slipstream.durability.recovery import Plan, substitutes_for
from slipstream.durability.replica import Objects, Replica, shown
from slipstream.durability.survey import log_numbers, read_log, survey, write_restoring
from slipstream.durability.suspects import write_suspects
from slipstream.durability.work import LayerWork, LocalWork
from slipstream.store import chain, documents, layout
from slipstream.store.catalog import Catalog, owner_of
from slipstream.store.events import fields
from slipstream.store.layers import remove_layer
from slipstream.store.store import FENCES, Claim, Store, claim_body
from slipstream.trace import Fence, LayerName, tile

_LOG = logging.getLogger("slipstream.engine")

crash_points(
    restore__begun="a recovery has left its note, and changed nothing else",
    restore__fetched="the layers are there, and the lineage is not",
    restore__before_done="everything is recovered, and the new incarnation has not begun",
)


@dataclass(frozen=True)
class Bringing:
    """How layers are brought. lazily: large ones are left on their replica at first. parallel: objects at a time."""

    urls: Mapping[str, str]
    objects: Mapping[str, Objects]
    work: LayerWork
    clock: Clock
    lazily: bool = False
    parallel: int = PARALLEL

    @staticmethod
    def from_replicas(
        urls: Sequence[str],
        opener: Opener,
        work: LayerWork,
        clock: Clock,
        *,
        lazily: bool = False,
        parallel: int = PARALLEL,
    ) -> Bringing:
        return Bringing(
            urls={shown(url): url for url in urls},
            objects={shown(url): Guarded(url, opener) for url in urls},
            work=work,
            clock=clock,
            lazily=lazily,
            parallel=parallel,
        )


class Unlike(Exception):
    """Layers from these replicas do not add up to what was computed."""

    def __init__(self, urls: frozenset[str], error: ChecksumMismatch) -> None:
        self.urls, self.error = urls, error
        super().__init__(str(error))


def carry_out(claim: Claim, plan: Plan, bringing: Bringing, rebuild: Collection[str] = ()) -> None:
    """Make a store what a plan says, so that an incarnation can begin there. rebuild: see `decide`. Raises `Spoiled` or
    `Unlike` if replicas do not hold what they promise: then a plan is to be made without that.
    """
    store, disk = claim.store, claim.owned
    disk.check()
    if plan.fetch or not plan.own:
        known = plan.chain.lineage
        source = ", ".join(sorted({each.url for each in plan.fetch})) or "replicas"
        note = Restoring(claim.incarnation, known.incarnation, known.digest, f"from {source}")
        write_restoring(disk, note)
        crash_point("restore.begun")
    away = _bring(claim, plan, bringing)
    crash_point("restore.fetched")
    for trace, name in plan.drop:
        remove_layer(disk, trace, name)
    _write_lineage(claim, plan)
    put_up_fences(claim, plan)
    _write_totals(claim, plan)
    if plan.catalog is not None and not _is_written(store, plan):
        claim.write_catalog(plan.catalog)
    if plan.fetch or not plan.own:
        anew = {trace for trace in (plan.catalog or Catalog()).traces() if owner_of(trace) in rebuild}
        _compare(claim, plan, bringing, {trace for trace, _ in away} | anew)
    crash_point("restore.before_done")


def _bring(claim: Claim, plan: Plan, bringing: Bringing) -> list[Layer]:
    """Have every layer of a plan there, or a note of one that is large; those that are left on a replica."""
    store = claim.store

    def may_wait(each: Wanted) -> bool:
        return bringing.lazily and each.stored is not None and each.kept.bytes >= families.LARGE

    late = [each for each in plan.fetch if may_wait(each)]
    away = [(each.trace, leave(store, claim.incarnation, each, bringing.urls)) for each in late]
    if away:
        list_away(claim.owned, plan.epoch, away)
    fetch_layers(
        store,
        claim.incarnation,
        (each for each in plan.fetch if not may_wait(each)),
        bringing.objects,
        bringing.work,
        bringing.clock,
        parallel=bringing.parallel,
    )
    return away


def _write_lineage(claim: Claim, plan: Plan) -> None:
    """Have every log of the history there, as far as it counts, and the claim of each."""
    disk = claim.owned
    app = plan.identity.app if plan.identity is not None else ""
    for number, raw in plan.chain.logs.items():
        if not read_log(disk, number).startswith(raw):
            disk.replace(layout.lineage_log(number), raw, flushed=True)
        disk.create(layout.claim_of(number), claim_body(app, began=True))
    if plan.own:
        return
    for number in log_numbers(disk):
        if number not in plan.chain.logs:  # of a history that parted from this one
            disk.remove(layout.lineage_log(number))
    for name in disk.list(layout.LINEAGE):
        if name.endswith(".json"):  # a base of it
            disk.remove(f"{layout.LINEAGE}/{name}")


def _write_totals(claim: Claim, plan: Plan) -> None:
    """Have the checksums as of the epoch that the store goes on from, so that those of later epochs can follow."""
    disk = claim.owned
    totals = next((totals for epoch, totals in plan.checks if epoch == plan.epoch), None)
    if totals and (not plan.own or plan.epoch not in read_totals(disk)[0]):
        _, line = sums_line(chain.START, plan.epoch, totals)
        disk.replace(layout.sums_log(claim.incarnation), line, flushed=True)


def put_up_fences(claim: Claim, plan: Plan) -> None:
    """Have the fences of this history in every trace, and of no other."""
    store, disk = claim.store, claim.owned
    if not plan.chain.begins:
        return
    recent = [each for each in plan.chain.begins if each.incarnation > claim.incarnation - FENCES]
    wanted = {Fence(each.incarnation, each.after) for each in recent}
    known = {each.incarnation for each in plan.chain.begins}
    for trace in store.traces():
        there = set(store.layers.listed(trace)[1])
        for fence in there - wanted:
            if not plan.own or fence.incarnation in known:
                disk.remove(f"{trace}/{fence.filename}")
        for fence in wanted - there:
            disk.check()
            disk.create(f"{trace}/{fence.filename}", b"")


def _is_written(store: Store, plan: Plan) -> bool:
    """Whether both copies of the catalog are what they must be."""
    assert plan.catalog is not None
    if documents.document_problems(store.disk, layout.CATALOG):
        return False
    return store.catalog() == plan.catalog


def _compare(claim: Claim, plan: Plan, bringing: Bringing, left_out: set[str]) -> None:
    """Raise unless the rows of every view but some add up to the checksums of the newest commit that has some."""
    catalog = plan.catalog
    checks = [(epoch, totals) for epoch, totals in plan.checks if totals][-1:]
    own = read_totals(claim.store.disk)[0].get(plan.epoch) if plan.own else None
    if own:
        checks.append((plan.epoch, own))
    for epoch, totals in checks:
        assert catalog is not None
        here = {key: trace for key, trace in catalog.summed().items() if trace not in left_out}
        wrong = mismatches(totals, here, epoch, bringing.work.state_sum)
        if not wrong:
            continue
        error = ChecksumMismatch(str(claim.store.root), epoch, wrong)
        urls = frozenset(each.url for each in plan.fetch if each.trace in wrong)
        if not urls:
            raise error
        for trace in wrong:
            for name in claim.store.layers.listed(trace)[0]:
                if name.incarnation == claim.incarnation:
                    remove_layer(claim.owned, trace, name)
        raise Unlike(urls, error)


def heal_layer(
    store: Store,
    incarnation: int,
    trace: str,
    name: LayerName,
    urls: Sequence[str],
    work: LayerWork | None = None,
    *,
    opener: Opener = Replica,
    clock: Clock | None = None,
    parallel: int = PARALLEL,
) -> bool:
    """Replace one damaged layer of a store in use, out of what the store and its replicas have; whether that could be
    done. The new layers are there before the damaged one goes, so that a reader always finds a cover.
    """
    bringing = Bringing.from_replicas(
        urls, opener, work or LocalWork(store), clock or SystemClock(), parallel=parallel
    )
    local = survey(store, whole=True)
    problem = local.damaged.get((trace, name), "a reader found it so")
    sound = tuple(each for each in local.layers.get(trace, ()) if each != name)
    local = replace(
        local,
        layers={**local.layers, trace: sound},
        damaged={**local.damaged, (trace, name): problem},
    )
    remotes = [look(url, opener, bringing.clock) for url in urls]
    return bool(replaced(store, incarnation, local, [(trace, name)], remotes, bringing))


def heal_store(
    claim: Claim,
    urls: Sequence[str],
    work: LayerWork | None = None,
    *,
    opener: Opener = Replica,
    clock: Clock | None = None,
    parallel: int = PARALLEL,
) -> tuple[str, ...]:
    """Read every layer of a store in use, and replace those that are damaged; the ones that were, as TRACE/LAYER."""
    store = claim.store
    bringing = Bringing.from_replicas(
        urls, opener, work or LocalWork(store), clock or SystemClock(), parallel=parallel
    )
    local = survey(store, whole=True, deep=True)
    remotes = [look(url, opener, bringing.clock) for url in urls] if local.damaged else ()
    healed = replaced(store, claim.incarnation, local, sorted(local.damaged), remotes, bringing)
    write_suspects(claim.owned, set(local.damaged) - set(healed))
    return tuple(f"{trace}/{name.filename}" for trace, name in healed)


def replaced(
    store: Store,
    incarnation: int,
    local: Local,
    damaged: Iterable[Layer],
    remotes: Sequence[Remote],
    bringing: Bringing,
) -> list[Layer]:
    """Replace layers one by one; those for which it could be done."""
    healed = []
    for trace, name in damaged:
        wanted = _brought(store, incarnation, local, (trace, name), remotes, bringing)
        if wanted is None or store.superseded(incarnation):
            continue
        if not any(replace(each.kept.layer, incarnation=incarnation) == name for each in wanted):
            remove_layer(store.owned_by(incarnation), trace, name)
        said = fields(part="heal", trace=trace, layer=name.filename, layers=len(wanted))
        given_up = not wanted and _holds_history(local, trace, name)
        told = (
            "a damaged layer of history was dropped: no replica has it"
            if given_up
            else "a damaged layer was replaced"
        )
        _LOG.warning(told, extra=said)
        healed.append((trace, name))
    return healed


def _holds_history(local: Local, trace: str, name: LayerName) -> bool:
    """Whether a layer holds updates of a view that no other sound layer of the store holds one by one."""
    shown_by = [view for view in (local.catalog or Catalog()).views.values() if view.trace == trace]
    others = [each for each in local.layers.get(trace, ()) if each != name]
    try:
        tile(others, name.lo, name.hi, name.span, whole=False)
    except MissingLayer:
        return bool(shown_by) and name.is_log
    return False


def _brought(
    store: Store,
    incarnation: int,
    local: Local,
    layer: Layer,
    remotes: Sequence[Remote],
    bringing: Bringing,
) -> tuple[Wanted, ...] | None:
    """Bring what stands in for a layer; None if nobody has it."""
    left = list(remotes)
    while True:
        wanted = substitutes_for(layer, local, left)
        if not wanted:
            return wanted
        try:
            fetch_layers(
                store,
                incarnation,
                wanted,
                bringing.objects,
                bringing.work,
                bringing.clock,
                parallel=bringing.parallel,
            )
            return wanted
        except Spoiled as spoiled:
            left = [without(remote, spoiled) for remote in left]


def without(remote: Remote, spoiled: Spoiled) -> Remote:
    """A replica without what turned out to be damaged."""
    if remote.url in spoiled.silent:
        return replace(remote, error=spoiled.silent[remote.url])
    bad = {name for url, name in spoiled.objects if url == remote.url}
    left = {name: size for name, size in remote.objects.items() if name not in bad}
    return replace(remote, objects=left, spoiled=remote.spoiled | bad)


def without_commits(remote: Remote, why: str) -> Remote:
    """A replica whose commits hold what was never computed."""
    commits = tuple(replace(each, manifest=None, problem=why) for each in remote.commits)
    spoiled = remote.spoiled | {each.name.object for each in commits}
    return replace(remote, commits=commits, overruled=(), spoiled=spoiled)
