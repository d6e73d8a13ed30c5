"""The catalog: the sources and views of an app, as the engine that ran last knew them.

It is what a reader needs to read a view without the app's own file, and what the next start compares with to find out
which views changed. A trace's name says whose it is and which operator's. Whoever holds something about a trace (a
replica its layers, `sums` its checksums) holds it about an *identity*: the name, and the incarnation that rebuilt the
view last.

A view whose query was replaced has *generations*: what it was is read from the trace that it had, up to the epoch
before the new one took over, for as long as history reaches. Nothing is added to such a trace any more.

A view that is *held* is none of the views that epochs compute, so nobody asks for a cover of it as of a later epoch
than its last. As of that one it is read from the trace that it had, like a generation, for as long as it is held; and
so it is, of the epochs in which it was held, once it has joined again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slipstream.core.errors import DamagedDocument, IsASource, UnknownView
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.documents import Body, read_document, write_document
from slipstream.store.layout import CATALOG
from slipstream.store.shapes import checked
from slipstream.trace.naming import checked_trace

JSON = Any


@dataclass(frozen=True)
class SourceEntry:
    kind: str
    schema: JSON


@dataclass(frozen=True)
class HeldSince:
    """Why a view stays what it was. last: the epoch that it shows, 0 if it was never computed. cause: what it failed
    of, or another view that it reads (because). row: on which row of its input, where that is known. tried: the newest
    epoch up to which it was tried, and failed.
    """

    last: int
    cause: str
    row: str = ""
    because: str = ""
    tried: int = 0


@dataclass(frozen=True)
class Generation:
    """A view as it was until it was replaced. since, upto: its first epoch and its last. last: the epoch that it showed
    from there on, where it was held.
    """

    since: int
    upto: int
    schema: JSON
    contents: Mapping[str, JSON]
    order: tuple[tuple[str, bool, bool], ...] = ()
    last: int | None = None

    @property
    def trace(self) -> str:
        trace: str = self.contents["trace"]
        return trace


@dataclass(frozen=True)
class ViewEntry:
    """schema: Spark's, as JSON. contents: how its rows are kept (`dataflow.Contents`). traces: all that it keeps.
    order: (column, ascending, nulls first). role: "view", or "rejected" or "late" rows. rebuilt: the incarnation that
    computed it anew, 0 for none. since: the epoch at which its history begins. settings: those of the session that its
    answers depend on; functions: the user's own that it calls, by name, each with a digest of its code. past: what it
    was before, oldest first, without gaps. held: why it is held, if it is. last: the newest epoch that this shows.
    """

    schema: JSON
    fingerprint: str
    contents: Mapping[str, JSON]
    traces: tuple[str, ...]
    order: tuple[tuple[str, bool, bool], ...] = ()
    role: str = "view"
    rebuilt: int = 0
    since: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    past: tuple[Generation, ...] = ()
    held: HeldSince | None = None
    last: int | None = None

    @property
    def trace(self) -> str:
        """The trace that the view is read from."""
        trace: str = self.contents["trace"]
        return trace

    @property
    def sums_key(self) -> str:
        """Under which the checksums of its rows are noted."""
        return f"{self.trace}@{self.rebuilt}" if self.rebuilt else self.trace

    def at(self, epoch: int) -> ViewEntry:
        """The view as it was at an epoch, without its past. Before all that is known it is what is known first."""
        if epoch >= self.since or not self.past:
            return replace(self, past=())
        was = next((each for each in self.past if epoch <= each.upto), self.past[-1])
        return replace(
            self,
            since=was.since,
            schema=was.schema,
            contents=was.contents,
            order=was.order,
            past=(),
            held=None,
            last=was.last,
        )

    def shown(self, epoch: int) -> int:
        """As of which epoch this is to be read, to know what it was at another one: it may have been held."""
        return epoch if self.last is None else min(epoch, self.last)

    def between(self, since: int, until: int) -> list[tuple[ViewEntry, int, int]]:
        """The view as it was from one epoch to another, each with the epochs between which it was that."""
        found = []
        for each in self.past:
            if since <= each.upto < until:
                found.append(self._stretch(self.at(each.upto), since, each.upto))
                since = each.upto + 1
        return [*found, self._stretch(self.at(until), since, until)]

    def _stretch(self, was: ViewEntry, since: int, until: int) -> tuple[ViewEntry, int, int]:
        return was, was.shown(since), was.shown(until)


@dataclass(frozen=True)
class Catalog:
    """views: those that epochs compute. held: those that are held, with nothing but what they are read from."""

    sources: Mapping[str, SourceEntry] = field(default_factory=dict)
    views: Mapping[str, ViewEntry] = field(default_factory=dict)
    held: Mapping[str, ViewEntry] = field(default_factory=dict)

    @property
    def readable(self) -> dict[str, ViewEntry]:
        """All views that can be read."""
        return {**self.views, **self.held}

    def view(self, name: str) -> ViewEntry:
        """A view's entry; an error that lists the others where there is none."""
        known = self.readable
        if name in self.sources and name not in known:
            raise IsASource(name, known)
        if name not in known:
            raise UnknownView(name, known)
        return known[name]

    def traces(self) -> list[str]:
        """The traces that its views keep."""
        return sorted({trace for view in self.views.values() for trace in (view.trace, *view.traces)})

    def past_traces(self) -> list[str]:
        """The traces that views are read from to which nothing is added any more: they were replaced, or are held."""
        replaced = {each.trace for view in self.readable.values() for each in view.past}
        return sorted(replaced | {view.trace for view in self.held.values()})

    def identities(self) -> dict[str, str]:
        """The identity of each trace; that of a source's own trace never changes."""
        found = {}
        for trace in self.traces():
            view = self.views.get(owner_of(trace))
            found[trace] = "" if view is None else f"{view.fingerprint}.{view.rebuilt}"
        return found

    def summed(self) -> dict[str, str]:
        """The traces that views are read from, by the key under which their checksums are noted."""
        return {view.sums_key: view.trace for view in self.views.values()}

    def without(self, views: Mapping[str, object] | set[str]) -> Catalog:
        return replace(self, views={name: view for name, view in self.views.items() if name not in views})

    def encode(self) -> Body:
        return {
            "sources": {name: vars(source) for name, source in self.sources.items()},
            "views": {name: _encoded(view) for name, view in self.views.items()},
            **({"held": {name: _encoded(view) for name, view in self.held.items()}} if self.held else {}),
        }

    @staticmethod
    def decode(body: Body) -> Catalog:
        """The catalog that a document holds; every trace's name in it is checked."""
        try:
            sources = {name: SourceEntry(**each) for name, each in body["sources"].items()}
            views = {name: _decoded(each) for name, each in body["views"].items()}
            held = {name: _decoded(each) for name, each in body.get("held", {}).items()}
            for view in [*views.values(), *held.values()]:
                for trace in (view.trace, *(was.trace for was in view.past)):
                    checked_trace(trace)
            if any(view.held is None or view.last is None for view in held.values()):
                raise ValueError("a view is held for no reason")
            return checked(Catalog(sources, views, held))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DamagedDocument("", CATALOG, f"it is no catalog ({error})") from error


def _encoded(view: ViewEntry) -> JSON:
    said = {
        **vars(view),
        "contents": dict(view.contents),
        "traces": list(view.traces),
        "order": [list(each) for each in view.order],
        "settings": dict(view.settings),
        "functions": dict(view.functions),
        "past": [
            {
                **vars(each),
                "contents": dict(each.contents),
                "order": [list(column) for column in each.order],
            }
            for each in view.past
        ],
        "held": None if view.held is None else vars(view.held),
    }
    return said if view.held is not None else {key: each for key, each in said.items() if key not in _OF_HELD}


_OF_HELD = ("held", "last")


def _decoded(said: Mapping[str, JSON]) -> ViewEntry:
    held = said.get("held")
    return ViewEntry(
        **{
            **said,
            "traces": tuple(checked_trace(trace) for trace in said["traces"]),
            "order": tuple(tuple(column) for column in said["order"]),
            "past": tuple(_generation(was) for was in said.get("past", ())),
            "held": None if held is None else HeldSince(**held),
        }
    )


def _generation(said: Mapping[str, JSON]) -> Generation:
    return Generation(**{**said, "order": tuple(tuple(column) for column in said["order"])})


def owner_of(trace: str) -> str:
    """The view or source whose trace it is."""
    return trace.split("/")[1]


def read_catalog(disk: Disk) -> Catalog | None:
    """The catalog of a store; None where none was ever written."""
    body = read_document(disk, CATALOG)
    return None if body is None else Catalog.decode(body)


def write_catalog(disk: WritableDisk, catalog: Catalog) -> None:
    write_document(disk, CATALOG, catalog.encode())
