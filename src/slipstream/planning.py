"""The plan of an epoch, made of what is declared, and made anew when measurements say that another would be better."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slipstream.dataflow.graph import Step
from slipstream.epoch import SMALL, Looks, Seen, Stillness, Template, advise
from slipstream.plan import (
    TIME_ZONE,
    Builder,
    Catalyst,
    Commons,
    Compiled,
    Counted,
    Delta,
    Leaf,
    Meaning,
    Meanings,
    Node,
    TraceNames,
    ViewCompiler,
    Way,
    input_delta,
    maintainable,
    mark_of,
    of_source,
    of_view,
    session_settings,
)
from slipstream.settings import Settings
from slipstream.sources import Source
from slipstream.trace import Span, TraceReader, epoch_layers

_KEPT = 4
"""Plans that are kept, in case they are wanted again."""


@dataclass(frozen=True)
class Declared:
    """What plans are made of. known: the traces that views have in the store already, and go on with."""

    spark: SparkSession
    sources: Mapping[str, Source]
    views: Mapping[str, DataFrame]
    recomputed: Collection[str]
    placeholders: Mapping[str, DataFrame]
    shards: int
    settings: Settings
    known: Mapping[str, Collection[str]]


@dataclass(frozen=True)
class _Broadcastable:
    """A side of a join that may be broadcast: its trace, and the sources that it is made of."""

    trace: str
    sources: frozenset[str]


@dataclass(frozen=True)
class _Planned:
    """A plan, and what is known of it. able: operators whose input can be added up first."""

    template: Template
    compiled: list[Compiled]
    leaves: dict[str, Leaf]
    begins: bool
    able: dict[str, Counted]
    broadcastable: dict[str, _Broadcastable]


class Plans:
    """The epoch's plan as it is now."""

    def __init__(self, declared: Declared, root: Path) -> None:
        self._declared, self._root = declared, root
        self._looks, self._still = Looks(), defaultdict[str, Stillness](Stillness)
        self._partial: frozenset[str] = frozenset()
        self._ways: dict[str, Way] = {}  # of those that are not shuffled
        self._wanted: set[str] = set()  # joins that are to broadcast, by where they put rows aside
        self._aside: set[str] = set()  # those that have put rows aside
        self._kept: dict[tuple[frozenset[str], frozenset[tuple[str, Way]]], _Planned] = {}
        self.steps: dict[str, Step] = {}
        self._make()

    def resumed(self, root: Path, epoch: int) -> Template:
        """The plan with which to go on in a store, as of an epoch: joins that had put rows aside go on doing so."""
        if epoch:
            self._aside = {aside for aside in self._broadcastable if _rows(root, aside, epoch)}
            forced = self._declared.settings.broadcast
            self._wanted = set(self._aside if forced is None else self._broadcastable if forced else ())
        return self.fitting(())

    def afresh(self) -> Template:
        """The plan for the first epoch of a store, in which everything changes."""
        self._aside, self._wanted = set(), set()
        return self.fitting(())

    def fitting(self, changed: Collection[str]) -> Template:
        """The plan for an epoch with input from these sources."""
        ways = {aside: self._way(aside, changed) for aside in self._broadcastable}
        ways = {aside: way for aside, way in ways.items() if way != "shuffle"}
        if ways != self._ways:
            self._ways = ways
            self._make()
        return self.template

    def learn(self, epoch: int, rows: int, changed: Collection[str]) -> None:
        """An epoch was computed, of so many rows, from these sources: the next plan may be another one."""
        settings = self._declared.settings
        self._aside = {aside for aside, way in self._ways.items() if way == "broadcast"}
        if settings.broadcast is None:
            for aside in self._broadcastable:
                self._observe(aside, epoch, changed)
            self.fitting(())
        elif settings.broadcast:
            self._wanted = set(self._broadcastable)
        if self._able and settings.partial is None and self._looks.due(rows):
            seen = self._seen(epoch)
            if not seen:
                self._looks.in_vain()
            advised = advise(self._partial, seen)
            if advised != self._partial:
                self._partial = advised
                self._make()

    def _observe(self, aside: str, epoch: int, changed: Collection[str]) -> None:
        """Whether a join is to broadcast its small side from now on."""
        small, still = self._broadcastable[aside], self._still[aside]
        moves = not small.sources.isdisjoint(changed)
        still.note(moves)
        if moves and aside in self._wanted:
            self._wanted.discard(aside)
            still.put_off()
        elif still.due() and aside not in self._wanted:
            if _rows(self._root, small.trace, epoch) <= SMALL:
                self._wanted.add(aside)
            else:
                still.put_off()

    def _way(self, aside: str, changed: Collection[str]) -> Way:
        if aside in self._wanted and self._broadcastable[aside].sources.isdisjoint(changed):
            return "broadcast"
        return "moving" if aside in self._aside else "shuffle"

    def _make(self) -> None:
        """Take up the plan for what is chosen now. Making one takes a second for a view of many joins, so some are
        kept: a side that changes has a join go to and fro between three.
        """
        chosen = (self._partial, frozenset(self._ways.items()))
        plan = self._kept.pop(chosen, None) or self._planned()
        self._kept[chosen] = plan
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        self.template = plan.template
        self.compiled, self.leaves, self.begins = plan.compiled, plan.leaves, plan.begins
        self._able, self._broadcastable = plan.able, plan.broadcastable
        self.steps.update((view.name, view.step) for view in plan.compiled)

    def _planned(self) -> _Planned:
        declared, settings = self._declared, self._declared.settings
        forced = settings.partial
        partial = self._partial.__contains__ if forced is None else lambda trace: bool(forced)
        way: Callable[[str], Way] = lambda aside: self._ways.get(aside, "shuffle")  # noqa: E731
        build = Builder(Catalyst(declared.spark), declared.shards, settings.hash_bits, partial, way)
        compiled, leaves = _compile(build, declared)
        terminals = [*(terminal for view in compiled for terminal in view.terminals), *build.idle]
        alone = {view.name: view.terminals or _read_by_others(view) for view in compiled}
        names = {build.catalyst.leaf_id(leaf.node): name for name, leaf in leaves.items()}
        broadcastable = {
            aside: _Broadcastable(
                small.trace, frozenset(names[leaf] for leaf in small.leaves if leaf in names)
            )
            for aside, small in build.can_be_broadcast.items()
        }
        template = Template(build, leaves, terminals, alone)
        return _Planned(template, compiled, leaves, build.begins, build.can_be_partial, broadcastable)

    def _seen(self, epoch: int) -> dict[str, Seen]:
        measured = self.template.measured()
        found = {}
        for trace, counted in self._able.items():
            figures = [measured.get(each, {}) for each in counted.operators]
            if all("rows_in" in each for each in figures):
                sent = sum(each["rows_out"] for each in figures)
                left = self._left(counted.traces, epoch) if counted.traces else sent
                if left is not None:
                    found[trace] = Seen(sum(each["rows_in"] for each in figures), left)
        return found

    def _left(self, traces: Iterable[str], epoch: int) -> int | None:
        """How many rows would be left of an epoch's if each task added up its own, at most: one for each key and task.
        None if what the epoch wrote has been merged already: the next one will do.
        """
        try:
            layers = [epoch_layers(self._root / trace, epoch) for trace in traces]
        except FileNotFoundError:
            return None
        keys = sum(layer.rows for each in layers for layer in each)
        return keys * self._declared.shards if all(layers) else None


def _rows(root: Path, trace: str, epoch: int) -> int:
    """The updates that a trace consists of as of an epoch."""
    return TraceReader(root / trace, epoch, Span.whole()).stats().rows


def _compile(build: Builder, declared: Declared) -> tuple[list[Compiled], dict[str, Leaf]]:
    """Every view, in the order in which they can be compiled, and the leaves of the sources that they read."""
    catalyst = build.catalyst
    views, recomputed, placeholders = declared.views, declared.recomputed, declared.placeholders
    names = {catalyst.leaf_of(frame): name for name, frame in placeholders.items()}
    readers: Counter[str] = Counter()
    plans = {name: maintainable(catalyst, frame) for name, frame in views.items()}
    for plan in plans.values():
        for node in catalyst.nodes(plan):
            identity = catalyst.leaf_id(node)
            if identity in names:
                readers[names[identity]] += 1
    commons = Commons(catalyst, names)
    for name, plan in plans.items():
        if name not in recomputed:
            commons.count(plan, readers[name])
    inputs: dict[int, Delta] = {}
    leaves: dict[str, Leaf] = {}
    session = _session(declared)
    meanings = Meanings(catalyst, session)
    for name, source in declared.sources.items():
        if readers[name]:
            meaning = _source_meaning(name, source, placeholders[name].schema, session)
            meanings.know(catalyst.leaf_of(placeholders[name]), meaning)
            leaf, delta = input_delta(
                build,
                name,
                placeholders[name].schema,
                source.changes.mode,
                source.changes.key,
                source.order_fields,
                source.can_reject,
                TraceNames(name, {}).name("upsert", meaning),
            )
            leaves[name] = leaf
            if readers[name] > 1:
                delta = replace(delta, plan=build.share(delta.plan))
            inputs[catalyst.leaf_of(placeholders[name])] = delta
    compiled = []
    for name, frame in views.items():
        compiler = ViewCompiler(build, name, inputs, commons, meanings, TraceNames(name, declared.known))
        view = compiler.compile(plans[name], frame.schema, readers[name], name in recomputed)
        compiled.append(view)
        meanings.know(catalyst.leaf_of(placeholders[name]), of_view(name, view.meaning))
        if view.delta is not None:
            inputs[catalyst.leaf_of(placeholders[name])] = replace(view.delta, step=Step("View", name))
    return compiled, leaves


def _session(declared: Declared) -> dict[str, str]:
    """The settings of the session in which the views were written."""
    written = [frame.sparkSession for frame in declared.views.values()]
    return session_settings(written[0]) if written else {}


def _source_meaning(name: str, source: Source, rows: StructType, session: Mapping[str, str]) -> Meaning:
    changes = source.changes
    orders = [field.dataType.simpleString() for field in source.order_fields]
    columns = [(field.name, field.dataType.simpleString(), field.nullable, mark_of(field)) for field in rows]
    zone = session.get(TIME_ZONE) if source.goes_by_zone else None
    return of_source(name, columns, [changes.mode, *changes.key, *orders], zone)


def _read_by_others(view: Compiled) -> tuple[Node, ...]:
    """The plan of a view that has no terminal of its own, because others read its change."""
    return () if view.delta is None else (view.delta.plan,)
