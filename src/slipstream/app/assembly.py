"""From declarations to a running loop: compile every view, build the template, compare with the store, start the loop;
and from other declarations to the same loop, which goes on with them.

A store is changed between two epochs, in an order that no crash can harm: the traces of new views are put in place, all
is flushed (behind the epoch at which these begin nobody can go back, not even after a power cut), the catalog names
them, and only then traces that nobody has any more are removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from slipstream.app.backfill import Backfill, clear, clear_traces, is_whole, remove_trace
from slipstream.app.describing import catalog_of, contents_of, reads_of, rejects_of
from slipstream.app.holding import Fault, faults_of, held_entries, with_their_readers
from slipstream.app.planning import Declared, Plans
from slipstream.app.rebuild import Rebuild, idle_traces, plan_rebuild, succeeding, with_readers
from slipstream.core.clock import Clock
from slipstream.core.crashing import crash_point
from slipstream.core.errors import CannotHeal, ChangeFailed, JobHindered, SlipstreamError, ViewChanged
from slipstream.core.settings import Durability, History, Limits, Settings
from slipstream.dataflow.contents import Contents
from slipstream.dataflow.graph import Step
from slipstream.durability.agent import Agent, Charge, rest_within
from slipstream.durability.board import read_replication
from slipstream.durability.frontiers import Watching
from slipstream.durability.ledger import StoreLedger, Upkeep
from slipstream.durability.persist import flush_after
from slipstream.durability.restore import heal_store
from slipstream.durability.start import Started
from slipstream.durability.stash import Stash
from slipstream.durability.work import LocalWork
from slipstream.epoch import (
    Budget,
    Loop,
    Options,
    Place,
    Planned,
    Policy,
    Rehearsal,
    Rejects,
    SparkJob,
    Watermarks,
)
from slipstream.epoch.job import JobTroubled
from slipstream.epoch.machine import cause_of
from slipstream.epoch.rejects import begin_rejects
from slipstream.epoch.template import FAILURES
from slipstream.plan import Unplaced
from slipstream.sources import Source
from slipstream.spark.jvm import text_of
from slipstream.spark.session import EPOCH_POOL
from slipstream.store.catalog import Catalog, ViewEntry, owner_of
from slipstream.store.history import History as Past
from slipstream.store.store import Claim, Store
from slipstream.trace import Span, shard_span

_SHOWN = 5
Needed = Callable[[int, float, Sequence[tuple[float, int]]], int]
"""The epoch from which on followers need history, given the newest epoch, the time, and when epochs were computed."""


def nothing_needed(computed: int, now: float, clocks: Sequence[tuple[float, int]]) -> int:
    """Of an app whose views nobody follows."""
    return computed


@dataclass
class Running:
    """An app that runs: its loop, what the loop writes down in, and the cuts that may not be durable yet."""

    loop: Loop
    ledger: StoreLedger
    started: Started
    spark: SparkSession
    stash: Stash

    def job_group(self, name: str) -> None:
        """Have Spark know the jobs of this thread by a name, so that they can be ended."""
        self.spark.sparkContext.setJobGroup(name, name, interruptOnCancel=True)


@dataclass(frozen=True)
class Changing:
    """A change of an app on its way: what is computed anew, what computes it, if anything is, and the newest epoch when
    it began. mending: the views of that which were held.
    """

    rebuild: Rebuild
    backfill: Backfill | None
    after: int
    mending: frozenset[str] = frozenset()

    def abandon(self) -> None:
        """Remove what was computed for it: it is begun anew, or not at all."""
        if self.backfill is not None:
            with suppress(SlipstreamError):  # the store is another's: what is in it, too
                self.backfill.end()
                self.backfill.displace()


@dataclass(frozen=True)
class Computed:
    """How views are computed anew. nearest: inputs that are held, and the view that holds each. sources: those that are
    read.
    """

    planned: Planned
    nearest: Mapping[str, str]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Setup:
    """What is declared of an app, and how it is to run. inputs: what each view reads. asked: views to be computed anew
    by request. replacing: views that may take the place of what they were; None for all. kept: the view of each source
    that keeps its rows. turns: a number for each plan of this process that has traces of its own. may_hold: the views
    that are held if they fail. needed: what history followers still need.
    """

    spark: SparkSession
    claim: Claim
    sources: Mapping[str, Source]
    views: Mapping[str, DataFrame]
    recomputed: Collection[str]
    placeholders: Mapping[str, DataFrame]
    inputs: Mapping[str, tuple[str, ...]]
    shards: int
    target: float
    history: History
    settings: Settings
    clock: Clock
    durability: Durability
    asked: Collection[str]
    replacing: Collection[str] | None
    kept: Mapping[str, str]
    turns: Iterator[int]
    may_hold: frozenset[str] = frozenset()
    needed: Needed = nothing_needed


@dataclass(frozen=True)
class Assembly:
    """Everything that is made of one set of declarations. held: views that are held, so that nothing here is made of
    them. idle: sources that only these read. there: the catalog that it was compared with.
    """

    setup: Setup
    plans: Plans
    used: Mapping[str, Source]
    contents: Mapping[str, Contents]
    rejects: Mapping[str, Rejects]
    late: Mapping[str, str]
    delays: Mapping[str, int]
    catalog: Catalog
    rehearsal: Rehearsal
    held: Mapping[str, Fault]
    idle: Mapping[str, Source]
    there: Catalog

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """What each view reads that is computed."""
        return {name: read for name, read in self.setup.inputs.items() if name not in self.held}

    @property
    def taken(self) -> dict[str, Source]:
        """The sources whose input epochs take: also of those that only held views read, for what mends these may be in
        it.
        """
        return {**self.used, **self.idle}

    @property
    def steps(self) -> dict[str, Step]:
        held = {name: fault.step for name, fault in self.held.items() if fault.step is not None}
        return {**self.plans.steps, **held}

    def without(self, faults: Mapping[str, Fault], frontier: int, asked: Collection[str] = ()) -> Assembly:
        """The same, with more views held: these, and what reads them. asked: views to be computed anew by request."""
        held = with_their_readers({**self.held, **faults}, self.setup.inputs, self.catalog)
        described = {name: self._described(name, fault) for name, fault in held.items()}
        setup = replace(self.setup, asked=[name for name in asked if name not in held])
        return assemble(setup, frontier, compared=False, held=described)

    def anew(self, frontier: int) -> Assembly:
        """The same with nothing held, to be compared with the store as it is."""
        return assemble(replace(self.setup, asked=()), frontier, compared=False)

    def _described(self, name: str, fault: Fault) -> Fault:
        if name not in self.catalog.views:
            return fault
        return replace(fault, entry=self.catalog.views[name], step=self.plans.steps.get(name))

    def blaming(self, changing: Changing | None, error: Exception, pool: str, *, starts: bool) -> Assembly:
        """What is left of a change whose views could not be computed, once those are held that may be: new views, those
        that were held before (whatever they say of errors), and where an app starts, those that mean something else.
        Raises the error where none of these is to blame. Where nobody can tell which is, those that were held before
        stay held.
        """
        if changing is None or changing.backfill is None:
            raise error
        rebuild, backfill = changing.rebuild, changing.backfill
        new = {*rebuild.added, *(rebuild.changed if starts else ())}
        wanted = {*changing.mending, *(new & self.setup.may_hold)}
        gone = self._gone(changing)
        told = gone or faults_of(backfill.explained(error, reads_of(self.plans.steps), pool))
        held = {view: fault for view, fault in told.items() if view in wanted}
        if not told:
            held = {view: Fault(text_of(error)) for view in changing.mending}
        if not held and told and not starts:
            causes = {view: f"{fault.cause} {fault.row}".strip() for view, fault in told.items()}
            named = (
                causes.values() if len(causes) == 1 else [f"'{view}': {why}" for view, why in causes.items()]
            )
            raise ChangeFailed(causes, " ".join(named), known=True) from error
        if not held:
            raise error
        return self.without(held, backfill.upto or changing.after, self.setup.asked)

    def _gone(self, changing: Changing) -> dict[str, Fault]:
        """Views that read input that is gone."""
        assert changing.backfill is not None
        found: dict[str, Fault] = {}
        for name, source in changing.backfill.sources.items():
            files = changing.backfill.gone(name, source)
            if files:
                named = ", ".join(files[:_SHOWN]) + (", ..." if len(files) > _SHOWN else "")
                cause = (
                    f"it would have to be computed anew from all input, and {len(files)} of what source '{name}' gave "
                    f"are gone: {named}. With app.source('{name}', ..., keep=True) rows outlast their files."
                )
                found |= {
                    view: Fault(cause)
                    for view in changing.rebuild.views
                    if name in self._read(view, changing)
                }
        return found

    def _read(self, view: str, changing: Changing) -> set[str]:
        """What is read for a view: its inputs, and those of views that are computed along with it."""
        assert changing.backfill is not None
        inputs = [*self.setup.inputs[view]]
        for name in inputs:  # it grows
            if name not in changing.backfill.held and name not in changing.rebuild.views:
                inputs += self.setup.inputs.get(name, ())
        return {*inputs}

    def fits(self, claim: Claim, frontier: int) -> bool:
        """Whether all goes on, or this was made of the store as it is, by the process that has it. What stood by was
        not, and names that it gave could be another's.
        """
        known = self.there == _catalog_at(claim.store, frontier)
        return (known and self.setup.claim.held) or not self.compare(claim, frontier).views

    def compare(self, claim: Claim, frontier: int) -> Rebuild:
        """What this asks for of a store; an error where it is more than the user has agreed to."""
        catalog = claim.store.catalog() if frontier else self.catalog
        known = {name: view for name, view in catalog.views.items() if name not in self.held}
        idle = idle_traces(claim.store.root, known, frontier)
        wanted = self.setup.asked if frontier else ()
        root = str(claim.store.root)
        return plan_rebuild(
            store=root,
            known=known,
            declared=self.catalog.views,
            inputs=self.inputs,
            asked=wanted,
            idle=idle,
            replacing=self.setup.replacing,
            beside=catalog.traces(),
        )

    def proposed(self, known: Mapping[str, ViewEntry], store: Store, frontier: int) -> tuple[Rebuild, bool]:
        """What this would do to a store, whoever has agreed to it; and whether all of that was agreed to."""
        views, root = known if frontier else self.catalog.views, store.root
        wanted, idle = self.setup.asked if frontier else (), idle_traces(root, views, frontier)
        given = (str(root), views, self.catalog.views, self.inputs, wanted, idle)
        try:
            return plan_rebuild(*given, self.setup.replacing), True
        except ViewChanged:
            return plan_rebuild(*given, None), False

    def computed(self, rebuild: Rebuild, *, beside: bool = False) -> Computed:
        """How views are computed anew: each from the nearest that is kept, a view that goes on or a source's kept rows.
        What a view reads is computed along with it where its rows could not be written as epochs write them.
        """
        apart: set[str] = set()
        while True:
            views, nearest = self._nearest(rebuild, apart)
            try:
                planned = self.plans.backfilling(views, nearest, beside=beside)
            except Unplaced as unplaced:
                apart |= set(self.inputs[unplaced.view])
                continue
            read = {name for view in views for name in self.inputs[view]} - nearest.keys()
            return Computed(planned, nearest, tuple(name for name in self.used if name in read))

    def _nearest(self, rebuild: Rebuild, apart: Collection[str]) -> tuple[list[str], dict[str, str]]:
        """What is to be computed for some views; and of what that reads, what is held, and by which view."""
        views, nearest = list(rebuild.views), dict[str, str]()
        for view in views:  # it grows
            for name in self.inputs[view]:
                holder = self.setup.kept.get(name, name)
                if name not in apart and holder in rebuild.reused:
                    nearest[name] = holder
                elif name in self.inputs and name not in views:
                    views.append(name)
        return views, nearest

    def begin(self, claim: Claim, frontier: int, *, beside: bool = False) -> Changing:
        """Begin to change a store to this, with nothing computed yet. beside: while epochs run."""
        rebuild = self.compare(claim, frontier)
        if not rebuild.views:
            return Changing(rebuild, None, frontier)
        catalog = claim.store.catalog()
        known, mending = catalog.views, catalog.held.keys() & {*rebuild.views}
        how = self.computed(rebuild, beside=beside)
        held = {name: known[view] for name, view in how.nearest.items()}
        sources = {name: self.used[name] for name in how.sources}
        planned = how.planned
        backfill = Backfill(
            self.setup.spark, claim, planned.template, sources, held, planned.shards, mending=bool(mending)
        )
        backfill.begin()
        return Changing(rebuild, backfill, frontier, frozenset(mending))

    def place(self, claim: Claim, changing: Changing) -> None:
        """Put in place what is computed so far: nobody reads it before the rest is. Epochs go on in the traces that the
        catalog names, so whatever is in these stays.
        """
        if changing.backfill is not None:
            live = set(claim.store.catalog().traces())
            changing.backfill.place([trace for trace in self.catalog.traces() if trace not in live])

    def take_up(self, claim: Claim, changing: Changing, epoch: int, kept: int) -> Catalog:
        """Make a store that of these declarations, as of its newest epoch, with all computed up to that."""
        rebuild, backfill = changing.rebuild, changing.backfill
        known = _catalog_at(claim.store, epoch)
        assert changing.after or not epoch, "a change that began with nothing was to begin anew"
        if backfill is not None:
            assert backfill.upto == epoch, (
                f"computed up to epoch {backfill.upto}, and to be taken up at {epoch}"
            )
            self.place(claim, changing)
        newly = [name for name in self.held if name in known.views]
        had = {name for name in self.rejects if f"{name}_rejected" in known.views}
        begin_rejects(claim.store.root, claim.incarnation, self.rejects, had, epoch)
        if backfill is not None or newly:  # what one that was killed has put in place may not be flushed
            said = read_replication(claim.store.disk)
            flush_after(claim.store, said.persisted if said.incarnation == claim.incarnation else 0)
        lost = {
            name for name, view in known.held.items() if not is_whole(claim, view.trace, view.shown(epoch))
        }
        was = {name: view for name, view in known.held.items() if name not in lost and view.last}
        joined = succeeding(self.catalog, known.views, rebuild, claim.incarnation, epoch, kept, was)
        final = replace(joined, held=held_entries(self.held, known, epoch))
        claim.write_catalog(final)
        crash_point("backfill.taken_up")
        if backfill is not None:
            backfill.end()
        gone = {*known.traces(), *known.past_traces()} - {*final.traces(), *final.past_traces()}
        for trace in sorted(gone):
            remove_trace(claim, trace)
        return final

    def note(self, claim: Claim, epoch: int) -> None:
        """Have a store say what held views failed of last."""
        known = claim.store.catalog()
        claim.write_catalog(replace(known, held=held_entries(self.held, known, epoch)))

    def started(self, started: Started) -> tuple[Assembly, Running]:
        """A loop that goes on from where a store is, and what it runs: views that fail and may be held are."""
        claim, frontier = started.claim, started.lineage.history.frontier
        clear(claim)
        assembly = (
            self if self.fits(claim, frontier) else assemble(replace(self.setup, claim=claim), frontier)
        )
        healed = False
        while True:
            changing = None
            try:
                changing = assembly.begin(claim, frontier)
                if changing.backfill is not None:
                    changing.backfill.advance(frontier, EPOCH_POOL)
            except (*FAILURES, JobTroubled, SlipstreamError) as error:
                try:
                    if cause_of(error) == "damage" and not healed:
                        healed = True
                        heal_store(claim, self.setup.durability.replicas, LocalWork(claim.store))
                        assembly = assemble(assembly.setup, frontier)
                    elif cause_of(error) != "fault":  # no view's
                        raise _in_words(error, frontier) from error.__cause__
                    else:
                        assembly = assembly.blaming(changing, error, EPOCH_POOL, starts=True)
                finally:
                    if changing is not None:
                        changing.abandon()
            else:
                return assembly, assembly.loop(started, changing)

    def loop(self, started: Started, changing: Changing) -> Running:
        claim, past = started.claim, started.lineage.history
        final = self.take_up(claim, changing, past.frontier, past.kept)
        named = [*final.traces(), *final.past_traces()]
        clear_traces(claim, named)
        claim.fence(past.frontier, named)
        stash = Stash(past.cuts)
        ledger = StoreLedger(
            claim=claim,
            lineage=started.writer,
            past=past,
            durability=self.setup.durability,
            agent=Agent(_charge(started, self.setup.durability)),
            watching=Watching(claim.store.disk),
            traces=self._spans(final),
            upkeep=Upkeep(self._histories(final), _keeper(self.setup.history, past, self.setup.needed)),
            sources=self.taken,
            heal=lambda: heal_store(claim, self.setup.durability.replicas, LocalWork(claim.store)),
            stash=stash,
        )
        options = Options(
            budgets=self._budgets(),
            watermarks=Watermarks(self.delays, past.watermarks, past.latest),
            policy=Policy(
                limit=self.setup.durability.max_unsafe,
                begins=self.plans.compiled.begins,
                may_hold=self._may_hold,
            ),
            computed_before=started.plan.frontier,
            forgetting=bool(self.setup.durability.written),
            due=_is_due(final, past.frontier),
        )
        loop = Loop(self._job(claim), self.taken, ledger, past, options, self.setup.clock)
        return Running(loop, ledger, started, self.setup.spark, stash)

    def join(self, running: Running, changing: Changing) -> None:
        """Take the place of what a loop runs, between two of its epochs."""
        loop, claim = running.loop, running.started.claim
        final = self.take_up(claim, changing, loop.frontier, running.ledger.kept)
        running.ledger.change(self._spans(final), self._histories(final), self.taken)
        begins, due = self.plans.compiled.begins, _is_due(final, loop.frontier)
        loop.change(
            self._job(claim),
            self.taken,
            self._budgets(),
            self.delays,
            begins=begins,
            due=due,
            may_hold=self._may_hold,
        )

    @property
    def _may_hold(self) -> frozenset[str]:
        return self.setup.may_hold - self.held.keys()

    def _job(self, claim: Claim) -> SparkJob:
        return SparkJob(
            spark=self.setup.spark,
            plans=self.plans,
            inputs=self.used,
            place=Place(claim.store.root, claim.incarnation),
            rejects=self.rejects,
            late=self.late,
            reads=reads_of(self.plans.steps),
            clock=self.setup.clock,
            idle=self.idle,
        )

    def _budgets(self) -> dict[str, Budget]:
        return {
            name: _budget(source, self.setup.target, self.setup.settings.limits.get(name))
            for name, source in self.taken.items()
        }

    def _spans(self, final: Catalog) -> dict[str, tuple[list[Span], ...]]:
        """All that epochs write to, and where the layers of each lie, in either way."""
        whole = {each.trace for each in self.rejects.values()}
        spans = [shard_span(shard, self.setup.shards) for shard in range(self.setup.shards)]
        either = ([Span.whole()], spans)
        return {trace: either[:1] if trace in whole else either for trace in final.traces()}

    def _histories(self, final: Catalog) -> tuple[str, ...]:
        """The traces whose history is kept."""
        histories = [each.trace for each in self.contents.values()]
        histories += [each.trace for each in self.rejects.values()]
        return tuple(dict.fromkeys([*histories, *self.late.values(), *final.past_traces()]))


def assemble(
    setup: Setup, frontier: int, *, compared: bool = True, held: Mapping[str, Fault] | None = None
) -> Assembly:
    """frontier: the newest epoch. compared: refuse at once what the user has not agreed to. held: views that are left
    out.
    """
    held, sources = held or {}, setup.sources
    there = _catalog_at(setup.claim.store, frontier)
    again = with_readers(set(setup.asked), setup.inputs)
    stay: dict[str, list[str]] = {}
    for name, view in there.views.items():
        whose = (
            owner_of(view.trace) if view.role == "late" else name
        )  # late rows are kept by the view's own plan
        if whose not in again:
            stay.setdefault(whose, []).extend(view.traces)
    turn = f"{setup.claim.incarnation}.{next(setup.turns)}" if frontier else ""
    declared = Declared(
        spark=setup.spark,
        sources=sources,
        views=setup.views,
        recomputed=setup.recomputed,
        placeholders=setup.placeholders,
        shards=setup.shards,
        settings=setup.settings,
        known=stay | {name: [each for each in there.traces() if owner_of(each) == name] for name in sources},
        turn=turn,
        left_out=held.keys(),
    )
    plans = Plans(declared, setup.claim.store.root)
    compiled = plans.compiled.views
    used = {source.name: sources[source.name] for source in plans.compiled.sources}
    read = {name for view in held for name in setup.inputs.get(view, ())} - used.keys()
    idle = {name: sources[name] for name in sources if name in read}
    contents = {view.name: contents_of(plans, view) for view in compiled}
    rejects = {
        name: rejects_of(source, there, turn)
        for name, source in {**used, **idle}.items()
        if source.can_reject
    }
    assembly = Assembly(
        setup=setup,
        plans=plans,
        used=used,
        contents=contents,
        rejects=rejects,
        late={each.name: each.trace for view in compiled for each in view.late},
        delays={name: delay for view in compiled for name, delay in view.watermarks.items()},
        catalog=catalog_of(sources, plans, contents, rejects),
        rehearsal=Rehearsal(setup.spark, (plans.by_one_task, plans.by_shards), used),
        held=held,
        idle=idle,
        there=there,
    )
    if compared:
        assembly.compare(setup.claim, frontier)
    return assembly


def _catalog_at(store: Store, frontier: int) -> Catalog:
    """What a store has: nothing before its first epoch, whatever is there."""
    return store.catalog() if frontier else Catalog()


def _in_words(error: Exception, frontier: int) -> Exception:
    """What a job failed of at a start that was no view's fault, as an epoch would tell it."""
    if isinstance(error, JobTroubled):
        hindered = error.trouble == "hindered"
        return JobHindered(frontier + 1, str(error)) if hindered else CannotHeal(frontier, str(error))
    return error


def _is_due(catalog: Catalog, frontier: int) -> bool:
    """Whether a view is to be another from the next epoch on, so that it must not wait for input."""
    return any(view.since > frontier for view in catalog.views.values())


def _charge(started: Started, durability: Durability) -> Charge:
    return Charge(
        root=str(started.claim.store.root),
        app=started.identity.app,
        id=started.identity.id,
        incarnation=started.claim.incarnation,
        after=started.lineage.history.frontier,
        replicas=durability.written,
        safe_on=durability.safe_on,
        rest=rest_within(durability.max_unsafe),
    )


def _budget(source: Source, target: float, limits: Limits | None) -> Budget:
    least, most = (limits.least, limits.most) if limits is not None else (None, None)
    return Budget.start(source.unit, target, least, most)


def _keeper(history: History, past: Past, needed: Needed) -> Callable[[int, float], int]:
    """Which epochs to keep, with the times of those that are still of interest."""
    clocks: deque[tuple[float, int]] = deque(past.clocks())

    def keep_from(computed: int, now: float) -> int:
        clocks.append((max(now, clocks[-1][0]), computed))
        oldest = min(history.keep_from(computed, now, clocks), needed(computed, now, clocks))
        while clocks and clocks[0][1] < oldest:
            clocks.popleft()
        return oldest

    return keep_from
