"""What a start, or the next change, would do to a store: told beforehand, with nothing changed.

Which views go on, which are computed and why, which are dropped; from what: the rows that a view holds, or the input of
a source, and what of that is gone. How long it should take is told by the rate at which the store's largest epochs were
computed; an estimate, as these computed all views and a change computes some.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from slipstream.app.assembly import Assembly
from slipstream.app.rebuild import Rebuild
from slipstream.dataflow.contents import Contents
from slipstream.observe import wording
from slipstream.plan import differences
from slipstream.sources import Source
from slipstream.store.catalog import Catalog, ViewEntry
from slipstream.store.history import History
from slipstream.store.lineage import read_whole
from slipstream.store.store import Store
from slipstream.trace import Span, TraceReader

What = Literal["goes on", "new", "tried again", "replaced", "computed anew", "dropped", "waits"]
_LARGEST = 10  # epochs, of those with most rows, that tell the rate
_SHOWN = 5
_COUNTED = 1 << 20  # rows, of those that are stored, up to which those that are there are counted


@dataclass(frozen=True)
class ViewProposal:
    """One view. why: what is known of why it means something else, or what it waits for. reads: its inputs, where it is
    computed. consent: whether it is to be replaced and nobody has agreed to that. lost: whether it waits, and the store
    has it, so that nothing can be begun without losing it.
    """

    name: str
    what: What
    why: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    consent: bool = False
    lost: bool = False


@dataclass(frozen=True)
class InputProposal:
    """What is read for views that are computed. kind: a view's rows, or a source's input. rows: about how many; None
    where that is not known. gone: what cannot be read any more.
    """

    name: str
    kind: Literal["view", "source"]
    rows: int | None
    gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """See the module's docstring. seconds: None where nothing tells how long it takes. unbuildable: sources of
    which input is gone, so that no view that reads them can be added or changed.
    """

    epoch: int
    views: tuple[ViewProposal, ...]
    inputs: tuple[InputProposal, ...]
    seconds: float | None
    unbuildable: Mapping[str, int]

    @property
    def rows(self) -> int | None:
        """About how many rows are read; None where that is not known."""
        known = [each.rows for each in self.inputs]
        return None if None in known else sum(each or 0 for each in known)

    @property
    def possible(self) -> bool:
        """Whether all input is there, and everybody has agreed."""
        hindered = any(view.consent or view.lost for view in self.views)
        return not hindered and not any(each.gone for each in self.inputs)

    @property
    def _why_unknown(self) -> str:
        return (
            "no epoch has been measured" if self.rows is not None else "nobody knows how many rows there are"
        )

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        told = [f"as of epoch {self.epoch}:"]
        width = max((len(view.name) for view in self.views), default=0)
        for view in self.views:
            why = f" ({'; '.join(view.why)})" if view.why else ""
            if view.what == "waits":
                why = f" for {', '.join(view.why)}"
            reads = f", from {', '.join(view.reads)}" if view.reads else ""
            told.append(f"  {view.name:<{width}}  {view.what}{why}{reads}")
        for each in self.inputs:
            rows = "an unknown number of rows" if each.rows is None else f"about {each.rows:,} rows"
            from_ = "what it holds" if each.kind == "view" else "its input"
            told.append(f"read of {each.kind} '{each.name}': {from_}, {rows}")
            if each.gone:
                named = ", ".join(each.gone[:_SHOWN]) + (", ..." if len(each.gone) > _SHOWN else "")
                told.append(f"  cannot be built: {len(each.gone)} of its files are gone: {named}")
        if self.inputs:
            told.append(
                f"it should take an unknown time: {self._why_unknown}"
                if self.seconds is None
                else f"it should take about {self.seconds:,.0f} s"
            )
        if not self.inputs and not any(view.what == "dropped" for view in self.views):
            told.append("nothing has to be computed")
        asked = [view.name for view in self.views if view.consent]
        if asked:
            told.append(
                f"to be agreed to: {', '.join(asked)} would be replaced (slipstream run FILE.py --replace, or "
                "app.view(..., replace=True))"
            )
        for view in self.views:
            if view.lost:
                told.append(
                    f"to be mended: '{view.name}' waits, and the store has rows and history of it: declare what it "
                    f"waits for, or correct the name; app.drop('{view.name}') has them dropped"
                )
        for source, files in self.unbuildable.items():
            told.append(
                f"source '{source}': {files} of its files are gone, so a view that reads it can be neither added nor "
                "changed, unless it can be computed from a view that goes on"
            )
        return told


def propose(
    assembly: Assembly, store: Store, waits: Mapping[str, str] | None = None, new: Collection[str] = ()
) -> Proposal:
    """What these declarations would do to a store. waits: views that wait, and for what. new: those of them that are
    not what the store has under their names.
    """
    there = store.root.is_dir() and store.identity() is not None
    past = read_whole(store.disk) if there else History()
    catalog = store.catalog() if past.frontier else Catalog()
    rebuild, agreed = assembly.proposed(catalog.views, store, past.frontier)
    views = _views(assembly, catalog, rebuild, agreed) if past.frontier else _first(assembly)
    lost = {name for name in waits or {} if name in catalog.readable and name not in new}
    views = (
        *(view for view in views if view.name not in lost),
        *(ViewProposal(name, "waits", (why,), lost=name in lost) for name, why in (waits or {}).items()),
    )
    gone = {name: _gone(source, past, name) for name, source in assembly.setup.sources.items()}
    inputs = _inputs(assembly, catalog, rebuild, past, store, gone)
    rows = [each.rows for each in inputs]
    rate = _rate(past)
    return Proposal(
        epoch=past.frontier,
        views=views,
        inputs=inputs,
        seconds=None if rate is None or None in rows else sum(each or 0 for each in rows) / rate,
        unbuildable={
            name: len(files) for name, files in gone.items() if files and name not in assembly.setup.kept
        },
    )


def _first(assembly: Assembly) -> tuple[ViewProposal, ...]:
    """Of a store without an epoch: every view begins with the first."""
    own = (name for name, view in assembly.catalog.views.items() if view.role == "view")
    return tuple(ViewProposal(name, "new") for name in own)


def _views(assembly: Assembly, catalog: Catalog, rebuild: Rebuild, agreed: bool) -> tuple[ViewProposal, ...]:
    found = []
    for name, view in assembly.catalog.views.items():
        if view.role != "view":
            continue
        what: What = "goes on"
        held = catalog.held[name].held if name in catalog.held else None
        if held is not None:
            what = "tried again"
        elif name in rebuild.added:
            what = "new"
        elif name in rebuild.changed:
            what = "replaced"
        elif name in rebuild.views:
            what = "computed anew"
        why = differences(catalog.views[name], view) if what == "replaced" else []
        own = what == "replaced" and catalog.views[name].fingerprint != view.fingerprint
        if held is not None:
            why = [wording.held(held)]
        if what == "replaced" and not why:
            why = ["its query changed" if own else "what it reads is replaced"]
        asked = assembly.setup.replacing is not None and name not in {
            *assembly.setup.replacing,
            *assembly.setup.asked,
        }
        reads = assembly.inputs[name] if what != "goes on" else ()
        found.append(ViewProposal(name, what, tuple(why), tuple(reads), own and asked and not agreed))
    return (*found, *(ViewProposal(name, "dropped") for name in rebuild.dropped))


def _inputs(
    assembly: Assembly,
    catalog: Catalog,
    rebuild: Rebuild,
    past: History,
    store: Store,
    gone: Mapping[str, tuple[str, ...]],
) -> tuple[InputProposal, ...]:
    if not rebuild.views:
        return ()
    how = assembly.computed(rebuild)
    views = [
        InputProposal(view, "view", _held(store, catalog.views[view], past.frontier))
        for view in dict.fromkeys(how.nearest.values())
    ]
    sources = [
        InputProposal(name, "source", _taken(assembly, past, name), gone[name]) for name in how.sources
    ]
    return (*views, *sources)


def _held(store: Store, view: ViewEntry, epoch: int) -> int:
    """About how many rows a view holds."""
    contents = Contents.described(view.at(epoch).contents)
    reader = TraceReader(store.root / contents.trace, epoch, Span.whole(), schema=contents.stored)
    stored = reader.stats().rows
    return stored if stored > _COUNTED else contents.count(store.root, epoch)


def _taken(assembly: Assembly, past: History, name: str) -> int | None:
    """About how many rows a source has given: counted where it counts rows, else its share of all rows by bytes."""
    sizes = {
        each: [source.size(taken) for taken in past.consumed(each)]
        for each, source in assembly.setup.sources.items()
    }
    if None in sizes[name]:
        return None
    own = sum(size or 0 for size in sizes[name])
    if assembly.setup.sources[name].unit == "rows":
        return own
    in_rows = [each for each in sizes if assembly.setup.sources[each].unit == "rows"]
    left = sum(done.rows for done in past.computed) - sum(
        size or 0 for each in in_rows for size in sizes[each]
    )
    whole = sum(size or 0 for each in sizes if each not in in_rows for size in sizes[each])
    return round(left * own / whole) if whole else 0


def _gone(source: Source, past: History, name: str) -> tuple[str, ...]:
    return tuple(each for taken in past.consumed(name) for each in source.left(taken)[1])


def _rate(past: History) -> float | None:
    """Rows a second, of the epochs with most rows."""
    largest = sorted(past.computed, key=lambda done: done.rows)[-_LARGEST:]
    rows, seconds = sum(done.rows for done in largest), sum(done.seconds for done in largest)
    return rows / seconds if rows and seconds else None
