"""What is declared, and what becomes of it when it is declared again.

A view is analysed, and refused if it cannot be maintained, as soon as all its inputs are known. One that is declared
again and means the same is what it was, so a cell of a notebook can be run twice. One that means something else is
replaced if that is asked for: its placeholder stays, unless its columns became others; then every view that reads it,
directly or not, is analysed anew, and if one of them cannot be, nothing is changed.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slipstream.app.declared import StandIn
from slipstream.app.definitions import Names, ViewDefinition, missing_inputs
from slipstream.core.errors import (
    AsksForRows,
    BadQuery,
    IsASource,
    NameTaken,
    ReaderBroken,
    SourceStays,
    StillRead,
    UnknownInput,
    UnknownView,
    ViewCycle,
    first_line,
    nearest,
)
from slipstream.plan import (
    Catalyst,
    check_deterministic,
    check_plan,
    check_recomputed,
    check_sql,
    check_types,
    keeping_watermarks,
    late_names,
    maintainable,
    means_the_same,
)
from slipstream.sources import Source
from slipstream.spark.jvm import text_of

NO_ROWS = "slipstream: what stands for a source or a view has no rows"


@dataclass(frozen=True)
class _Analysed:
    """A view whose query can be maintained. late: its views of late rows."""

    definition: ViewDefinition
    frame: DataFrame
    late: tuple[str, ...]


@dataclass
class Declarations:
    """Sources and views by name, each view after those that it reads. placeholders: the frames that stand for both in
    queries. waiting: views of which some input is not declared. replacing: those that may take the place of what the
    store has under their names. kept: the views that hold the rows of sources, by source. version: grows with whatever
    an app that runs must take up.
    """

    spark: SparkSession
    catalyst: Catalyst
    names: Names = field(default_factory=Names)
    sources: dict[str, Source] = field(default_factory=dict)
    views: dict[str, DataFrame] = field(default_factory=dict)
    definitions: dict[str, ViewDefinition] = field(default_factory=dict)
    placeholders: dict[str, DataFrame] = field(default_factory=dict)
    waiting: list[ViewDefinition] = field(default_factory=list)
    replacing: set[str] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)
    version: int = 0
    _late: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _naming: threading.Lock = field(default_factory=threading.Lock)

    def source(self, name: str, source: Source, schema: StructType, *, keep: bool = False) -> DataFrame:
        """A source whose name is taken already, and what its rows are. keep: in a view of their own; a source whose
        rows cannot be kept is none. A view that has waited for it and cannot be maintained is let go, and raised for
        when everything else is done.
        """
        self.sources[name] = source
        self.placeholders[name] = self._stand_in(name, "source", schema)
        self.version += 1
        if keep:
            try:
                self._keep(name)
            except BaseException:
                del self.sources[name], self.placeholders[name]
                raise
        self._analyse_ready()
        return self.placeholders[name]

    def _keep(self, source: str) -> None:
        name = f"{source}_kept"
        self.names.take(name, "view")
        try:
            self._admit(ViewDefinition(name, (source,), _as_it_is))
        except BaseException:
            self.names.free(name)
            raise
        self.replacing.add(name)
        self.kept[source] = name

    def view(self, definition: ViewDefinition, *, may_replace: bool) -> DataFrame | None:
        """A view; None while an input is not declared yet. Until then a later declaration takes its place."""
        if definition.name in self.kept.values():
            raise NameTaken(definition.name, "view of the kept rows of a source")
        name = definition.name
        waited = any(view.name == name for view in self.waiting)
        if name not in self.definitions and not waited:
            self.names.check_free(name)
        self._check_circle(definition)
        if may_replace:
            self.replacing.add(name)
        if name in self.definitions:
            return self._again(definition, may_replace=may_replace)
        if waited:  # what it meant was not known yet
            self.waiting = [view for view in self.waiting if view.name != name]
        else:
            self.names.take(name, "view")
        self.waiting.append(definition)
        self.version += 1
        self._analyse_ready()
        return self.placeholders.get(name)

    def drop(self, name: str) -> None:
        """Take away a view. One that others read cannot be."""
        readers = [view.name for view in self._all() if name in view.inputs]
        if name in self.kept.values():
            raise UnknownView(name, self.definitions.keys() - {*self.kept.values()})
        if name in self.sources:
            raise SourceStays(name, {*readers} - {*self.kept.values()})
        if readers:
            raise StillRead(name, readers)
        if name in self.definitions:
            del self.definitions[name], self.views[name]
            for late in self._late.pop(name, ()):
                self.names.free(late)
        elif any(view.name == name for view in self.waiting):
            self.waiting = [view for view in self.waiting if view.name != name]
        else:
            raise UnknownView(name, self.definitions)
        self.placeholders.pop(name, None)
        self.names.free(name)
        self.replacing.discard(name)
        self.version += 1

    def waits(self) -> dict[str, str]:
        """The views that wait, and in words for what."""
        missing = missing_inputs(self.waiting, self.placeholders)
        return {name: self._awaited(inputs) for name, inputs in missing.items()}

    def check_there(self, name: str) -> None:
        """Raise if a view waits."""
        missing = missing_inputs(self.waiting, self.placeholders)
        if name in missing:
            raise UnknownInput(name, self._awaited(missing[name]), self._known)

    def check_readable(self, names: Iterable[str]) -> None:
        """Raise if SQL names a view that waits, or a source, and Spark has nothing of that name."""
        for name in map(self.names.known_as, names):
            if self._exists(name):
                continue
            self.check_there(name)
            if name in self.sources:
                raise IsASource(name, self.definitions.keys() - {*self.kept.values()})

    def check_none_lost(self, computed: Collection[str]) -> None:
        """Raise if a view waits that the store has: it would be dropped for a name that is not there yet."""
        for name, awaited in self.waits().items():
            if name in computed:
                raise UnknownInput(name, awaited, self._known, computed=True)

    @property
    def _known(self) -> set[str]:
        """What views can read."""
        return self.placeholders.keys() - {*self.kept.values()}

    def _awaited(self, names: Iterable[str]) -> str:
        return ", ".join(nearest(name, self._known) for name in names)

    def from_sql(self, name: str, text: str) -> ViewDefinition:
        """A view whose query is SQL."""
        with _told_of(name):
            check_sql(self.catalyst, name, text)
            mentioned = [each for each in self.catalyst.relations(text) if not self._is_table(each)]

        def query(*frames: DataFrame) -> DataFrame:
            with _told_of(name):
                return self.with_names(dict(zip(mentioned, frames, strict=True)), text)

        return ViewDefinition(name, tuple(self.names.known_as(each) for each in mentioned), query)

    def with_names(self, frames: dict[str, DataFrame], text: str) -> DataFrame:
        """Spark's answer to SQL in which some names stand for frames, for as long as it takes to analyse it. Temporary
        views of the user's own that have such a name are put back.
        """
        with self._naming:
            catalog = self.spark.catalog
            own = {name: self.spark.table(f"`{name}`") for name in frames if self._is_temporary(name)}
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)
            try:
                return self.spark.sql(text)
            finally:
                for name in frames:
                    catalog.dropTempView(name)
                for name, frame in own.items():
                    frame.createOrReplaceTempView(name)

    def _is_table(self, name: str) -> bool:
        """Whether SQL names a table of Spark's catalog and nothing of this app."""
        return self.names.known_as(name) not in self.names and self._exists(name)

    def _exists(self, name: str) -> bool:
        """Whether Spark's catalog has a table or a view of this name, which is one word however it is written."""
        return self.spark.catalog.tableExists(f"`{name.replace('`', '``')}`")

    def _is_temporary(self, name: str) -> bool:
        """Whether the user has a temporary view of this name."""
        return self._exists(name) and self.spark.catalog.getTable(name).isTemporary

    def _all(self) -> Iterable[ViewDefinition]:
        return [*self.definitions.values(), *self.waiting]

    def _stand_in(self, name: str, kind: str, schema: StructType) -> DataFrame:
        return StandIn(name, kind, self.catalyst.stand_in(schema, NO_ROWS))

    def _analyse_ready(self) -> None:
        """Analyse every waiting view whose inputs are all known; each may be what another waits for. One that is
        refused waits no longer, and its name is free; the others are none the worse.
        """
        refused: Exception | None = None
        self.waiting = [self._by_its_names(view) for view in self.waiting]
        while (view := next(filter(self._ready, self.waiting), None)) is not None:
            self.waiting.remove(view)
            try:
                self._admit(view)
            except BaseException as error:
                self.names.free(view.name)
                if not isinstance(error, Exception):
                    raise
                refused = refused or error
        if refused is not None:
            raise refused

    def _by_its_names(self, view: ViewDefinition) -> ViewDefinition:
        """A view that reads what it reads under the names that it was declared with."""
        return replace(view, inputs=tuple(self.names.known_as(each) for each in view.inputs))

    def _ready(self, view: ViewDefinition) -> bool:
        return all(each in self.placeholders for each in view.inputs)

    def _admit(self, view: ViewDefinition) -> None:
        """Take in a view whose inputs are all known, or raise and change nothing."""
        analysed = self._analysed(view, self.placeholders)
        for late in analysed.late:
            self.names.check_free(late)
        for late in analysed.late:
            self.names.take(late, "view of late rows")
        self._late[view.name] = analysed.late
        self.views[view.name] = analysed.frame
        self.definitions[view.name] = view
        self.placeholders[view.name] = self._stand_in(view.name, "view", analysed.frame.schema)

    def _analysed(self, view: ViewDefinition, placeholders: dict[str, DataFrame]) -> _Analysed:
        catalyst = self.catalyst
        with keeping_watermarks(catalyst, view.name):
            frame = _made(view, placeholders)
        check_deterministic(catalyst, view.name, catalyst.analysed(frame))
        known = {catalyst.leaf_of(each) for each in placeholders.values()}
        with _told_of(view.name):
            plan = maintainable(catalyst, frame)
        check_types(catalyst, view.name, plan)
        late: list[str] = []
        if view.maintain == "recompute":
            check_recomputed(catalyst, view.name, plan, known)
        else:
            check_plan(catalyst, view.name, plan, known)
            late = late_names(catalyst, view.name, plan)
        return _Analysed(view, frame, tuple(late))

    # Declared again

    def _again(self, definition: ViewDefinition, *, may_replace: bool) -> DataFrame:
        name = definition.name
        missing = missing_inputs([*self.waiting, definition], self.placeholders)[name]
        if missing:
            raise UnknownInput(name, self._awaited(missing), self._known - {name})
        now, before = self._analysed(definition, self.placeholders), self.definitions[name]
        if definition.maintain == before.maintain and self._means_the_same(self.views[name], now.frame):
            if definition.on_error != before.on_error:
                self.definitions[name] = replace(before, on_error=definition.on_error)
                self.version += 1
            return self.placeholders[name]
        if not may_replace:
            raise NameTaken(name, "view", "replace its query with replace=True")
        placeholders, analysed = self._with_readers(now)
        late = {each.definition.name: each.late for each in analysed}
        for view in late:
            for gone in self._late.get(view, ()):
                self.names.free(gone)
        for each in analysed:
            for kept in each.late:
                self.names.take(kept, "view of late rows")
            self.definitions[each.definition.name] = each.definition
            self.views[each.definition.name] = each.frame
        self._late |= late
        self.placeholders.update(placeholders)
        self.replacing |= {each.definition.name for each in analysed}
        self.views = {view: self.views[view] for view in self._in_order()}
        self.definitions = {view: self.definitions[view] for view in self.views}
        self.version += 1
        return self.placeholders[name]

    def _means_the_same(self, before: DataFrame, now: DataFrame) -> bool:
        leaves = {self.catalyst.leaf_of(frame): name for name, frame in self.placeholders.items()}
        return _columns(before) == _columns(now) and means_the_same(self.catalyst, leaves, before, now)

    def _with_readers(self, now: _Analysed) -> tuple[dict[str, DataFrame], list[_Analysed]]:
        """Placeholders that become others by a view, and all views that have to be analysed anew, itself included."""
        fresh: dict[str, DataFrame] = {}
        analysed = [now]
        for name in [now.definition.name, *self._in_order()]:
            if name == now.definition.name:
                each = now
            elif fresh.keys() & set(self.definitions[name].inputs):
                each = self._read_anew(self.definitions[name], now.definition.name, fresh)
                analysed.append(each)
            else:
                continue
            if name not in fresh and _columns(self.placeholders[name]) != _columns(each.frame):
                fresh[name] = self._stand_in(name, "view", each.frame.schema)
        return fresh, analysed

    def _read_anew(self, view: ViewDefinition, replaced: str, fresh: dict[str, DataFrame]) -> _Analysed:
        """A view over what another comes to be, or an error that names both."""
        try:
            return self._analysed(view, {**self.placeholders, **fresh})
        except (AnalysisException, BadQuery) as error:
            said = error.said if isinstance(error, BadQuery) else text_of(error)
            raise ReaderBroken(replaced, view.name, said) from None

    def _check_circle(self, definition: ViewDefinition) -> None:
        """Raise if a view would come to read itself, be it once that is there which others wait for."""
        own = definition.name.lower()
        reads = {view.name.lower(): view.inputs for view in self._all()} | {own: definition.inputs}
        seen = set[str]()
        paths = [[definition.name]]
        while paths:
            path = paths.pop()
            for each in reads.get(path[-1].lower(), ()):
                if each.lower() == own:
                    raise ViewCycle([*path, definition.name])
                if each.lower() not in seen:
                    seen.add(each.lower())
                    paths.append([*path, each])

    def _in_order(self) -> list[str]:
        """The views, each after those that it reads."""
        order: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in self.definitions and name not in order:
                for each in self.definitions[name].inputs:
                    visit(each)
                order[name] = None

        for name in self.definitions:
            visit(name)
        return list(order)

    def copied(self) -> Declarations:
        """These, as they are now, for whoever goes on with them while more is declared."""
        return replace(
            self,
            sources=dict(self.sources),
            views=dict(self.views),
            definitions=dict(self.definitions),
            placeholders=dict(self.placeholders),
            waiting=list(self.waiting),
            replacing=set(self.replacing),
            kept=dict(self.kept),
        )


@contextmanager
def _told_of(view: str) -> Iterator[None]:
    """What Spark says of a query is said of the view; where in its text, too, but not with which plan."""
    try:
        yield
    except PySparkException as error:
        said = text_of(error)
        raise BadQuery(
            view, said.strip() if isinstance(error, ParseException) else first_line(said)
        ) from None


def _made(view: ViewDefinition, placeholders: Mapping[str, DataFrame]) -> DataFrame:
    """What a view's function makes of what stands for its inputs."""
    try:
        return view.frame(placeholders[name] for name in view.inputs)
    except Exception as error:
        if NO_ROWS in str(error):
            raise AsksForRows(view.name) from None
        raise


def _as_it_is(rows: DataFrame) -> DataFrame:
    return rows


def _columns(frame: DataFrame) -> list[tuple[str, object]]:
    return [(each.name, each.dataType) for each in frame.schema]
