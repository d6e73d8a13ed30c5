"""The app: what users touch.

An app is sources and views in one store. It has two Spark sessions on one context: the user's, in which
queries are written and answered, and one for epochs. Views are analysed as they are declared; the epoch's
template is built when the app first runs.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import get_args, overload

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from slipstream.app.assembly import Assembly, Setup, assemble
from slipstream.app.catching import CatchingUp
from slipstream.app.changing import Changes, Wanted
from slipstream.app.declarations import Declarations
from slipstream.app.declared import Declared
from slipstream.app.definitions import Maintain, OnError, Query, ViewDefinition, given_as, inputs_of
from slipstream.app.delivering import Declared as Following
from slipstream.app.delivering import Deliveries, When
from slipstream.app.opening import check_on_its_own, check_options, claimed, watching, without_gone
from slipstream.app.proposal import Proposal, propose
from slipstream.app.reading import frame_of, warn_if_held
from slipstream.app.rebuild import with_readers
from slipstream.app.screens import can_animate, screen
from slipstream.app.showing import Told, app_picture, declared_picture, view_picture
from slipstream.app.watching import watch
from slipstream.core.clock import Clock, SystemClock
from slipstream.core.durations import seconds as parsed
from slipstream.core.errors import (
    AnotherSource,
    AppClosed,
    AppRuns,
    BadSinkOption,
    BadSourceOption,
    BadViewOption,
    DamagedSummary,
    HoldNeedsInput,
    NameTaken,
    OnItsWay,
    RecoveryWarning,
    SessionWarning,
    SlipstreamError,
    StandingBy,
    StillRead,
    UnknownEpoch,
    UnknownView,
    WaitingWarning,
    WaitsForItself,
    listed,
)
from slipstream.core.settings import Declaration, Durability, Exposure, History, Settings, starting
from slipstream.dataflow.graph import Step
from slipstream.durability.newest import newest_epoch
from slipstream.durability.replica import check_apart, own_folders
from slipstream.durability.start import Started, start
from slipstream.durability.timetravel import resolve_epoch
from slipstream.epoch import EpochReport, Loop, Summary
from slipstream.observe import Backlog, Frontiers, notes, read_frontiers, read_status, wording
from slipstream.observe.datasource import SlipstreamSource
from slipstream.observe.pictures import Sample, ViewPicture, app_html, view_html
from slipstream.observe.sinks import SinkStatus
from slipstream.plan import (
    Catalyst,
    marked_schema,
)
from slipstream.sinks import Sink
from slipstream.sources import SESSION_SETTINGS, Source
from slipstream.spark.jvm import Remembered
from slipstream.spark.session import active_session_kept, check_session, epoch_session, start_session
from slipstream.store.catalog import ViewEntry
from slipstream.store.disk import LocalDisk
from slipstream.store.events import EventLog, fields, log_events, stop_logging
from slipstream.store.history import History as Past
from slipstream.store.layers import LocalLayers
from slipstream.store.layout import SOURCES
from slipstream.store.lineage import read_lineage, read_whole
from slipstream.store.store import Store, await_claim, watch_store

SPARK_STARTED = "Spark is started"
ROWS = 20
"""Rows of a view that a picture shows."""

_LOG = logging.getLogger("slipstream.engine")


@dataclasses.dataclass(frozen=True)
class _Request:
    """A view is to be computed anew although nothing changed. version: of the declarations when that was asked.
    dropped: because it was dropped, and declared again.
    """

    version: int
    dropped: bool


class App:
    """Sources, views and their results, in one store."""

    def __init__(
        self,
        name: str,
        store: str | Path,
        spark: SparkSession | None = None,
        master: str | None = None,
        shards: int | None = None,
        target_latency: str | float = "1s",
        history: str | int | None = "1 day",
        replicas: Sequence[str] = (),
        safe_on: int = 1,
        max_unsafe: str | float | None = None,
        *,
        shared: bool = False,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_options(name, shards, replicas)
        self.name = name
        self._settings = settings or Settings()
        self._target = parsed(target_latency)
        self._history = History.parse(history)
        self._clock = clock or SystemClock()
        durability = Durability(tuple(replicas), safe_on, Exposure.parse(max_unsafe))
        opened_as = starting().declared(Declaration(name, Path(store), durability))
        self.store, self._durability = opened_as.store, opened_as.durability
        check_apart(self.store, self._durability.replicas)
        check_on_its_own(self.store)
        self._asked = starting()  # epochs may run in another thread, which knows nothing of it
        self._owns_spark = self._closed = False
        self._started: Started | None = None
        self._events: EventLog | None = None
        root = self.store.absolute()
        opened = Store(LocalDisk(root, shared=shared), LocalLayers(root))
        self._looking = TemporaryDirectory() if watching() == "looking" else None
        if watching():
            self._claim = watch_store(opened)
        else:
            self._claim = claimed(opened, name, takeover=starting().takeover)
            self._begin()
        try:
            began = self._clock.monotonic()
            self.spark = self._session(spark, master, shards)
            took = round(self._clock.monotonic() - began, 3)
            _LOG.info(SPARK_STARTED, extra=fields(epoch=self._past.frontier, seconds=took))
            self.shards = shards or max(1, self.spark.sparkContext.defaultParallelism)
            self._epochs = epoch_session(self.spark, self.shards)
            for key, value in SESSION_SETTINGS.items():
                self._epochs.conf.set(key, value)
            self._jvm = Remembered(self.spark._jvm)
            self._catalyst = Catalyst(self.spark)
            self.spark.dataSource.register(SlipstreamSource)
        except BaseException:
            self.close()
            raise
        self._declaring = threading.RLock()
        self._declared = Declarations(self.spark, self._catalyst)
        self._deliveries = Deliveries(self._clock, self._durability)
        self._given_as: dict[str, tuple[object, ...]] = {}
        self._turns_of_traces = count(1)
        self._rehearsable: set[str] = set()
        self._requests: dict[str, _Request] = {}
        self._dropped: set[str] = set()
        self._told_of: dict[str, str] = {}
        self._assembly: tuple[int, Assembly] | None = None
        self._loop: Loop | None = None
        self._changes: Changes | None = None
        self._listeners: list[Callable[[EpochReport], None]] = []
        self._turns: list[Callable[[int], None]] = []
        self._notices: list[Callable[[str], None]] = []
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._summary: Summary | None = None
        self._error: BaseException | None = None
        self._running = self._closed = False

    # Declaring

    def source(
        self,
        name: str,
        source: Source,
        *,
        watermark: tuple[str, str] | None = None,
        keep: bool = False,
    ) -> DataFrame:
        """Declare an input. Returns a DataFrame that stands for it in queries.

        watermark: the column that is its event time, and by how much rows may come late, as in ("ts", "10 minutes").
        keep: have the store keep its rows, as a view NAME_kept, so that views can be added and changed after its files
        are gone.
        """
        self._check_open()
        if not isinstance(source, Source):
            raise BadSourceOption(
                f"app.source('{name}', ...) was given a {type(source).__name__}",
                "give it what sl.files(...), sl.memory(...), or for a DataFrame sl.table(...) makes",
            )
        if not isinstance(keep, bool):
            raise BadSourceOption(
                f"keep={keep!r} for source '{name}': rows are kept for ever, or not at all",
                "write keep=True, or leave it out",
            )
        if source.forgets_each and not self._durability.replicas:
            raise BadSourceOption(
                f"source '{name}' is to remove input that is safe, and the app has no replicas to be safe on",
                "name replicas (App(..., replicas=[URL])), or leave out after_safe=",
            )
        folder = source.input_folder
        if folder is not None and folder.resolve() in own_folders(self.store, self._durability.replicas):
            raise BadSourceOption(
                f"source '{name}' reads the folder '{folder}', which is the store of this app or a replica of it",
                "let input arrive in a folder of its own",
            )
        with self._declaring:
            if name in self._declared.sources:
                return self._source_again(name, source, given_as(source, watermark, keep))
            return self._new_source(name, source, watermark, keep)

    def _new_source(
        self, name: str, source: Source, watermark: tuple[str, str] | None, keep: bool
    ) -> DataFrame:
        names, given = self._declared.names, given_as(source, watermark, keep)
        for view in self._declared.waiting:
            self._check_catches_up(view, name, source, keep=keep)
        if keep:
            names.check_free(f"{name}_kept")
        if source.can_reject:
            names.check_free(f"{name}_rejected")
        names.take(name, "source")
        source.asked_in(self.spark)
        try:
            if self._claim.held:
                self._attach(name, source)
            elif source.stand_by(name, self._epochs, self._made_folder(name)):
                self._rehearsable.add(name)
            schema = source.row_schema
            if watermark is not None:
                schema = marked_schema(self._catalyst, name, schema, watermark)
        except SlipstreamError:
            names.free(name)
            raise
        if source.can_reject:
            names.take(f"{name}_rejected", "view of rejected rows")
        self._given_as[name] = given
        try:
            self._declared.source(name, source, schema, keep=keep)
        finally:
            if name in self._declared.sources:
                self._take_up()
            else:
                names.free(name)
                if source.can_reject:
                    names.free(f"{name}_rejected")
        return self._stands_for(name, "source")

    def _source_again(self, name: str, source: Source, given: tuple[object, ...]) -> DataFrame:
        """A source that is declared once more, as by a cell that is run twice: it is the one that it was."""
        known = self._declared.sources[name]
        if source is not known and (source.keeps_rows or given != self._given_as[name]):
            raise NameTaken(name, "source", "go on with the one that is there" if source.keeps_rows else None)
        return self._stands_for(name, "source")

    @overload
    def view(
        self, name: Query, /, *, maintain: Maintain = ..., replace: bool = ..., on_error: OnError = ...
    ) -> DataFrame: ...
    @overload
    def view(
        self,
        name: str,
        query: str | Query,
        /,
        *,
        maintain: Maintain = ...,
        replace: bool = ...,
        on_error: OnError = ...,
    ) -> DataFrame | None: ...
    @overload
    def view(
        self, /, *, maintain: Maintain = ..., replace: bool = ..., on_error: OnError = ...
    ) -> Callable[[Query], DataFrame | None]: ...

    def view(
        self,
        name: str | Query | None = None,
        query: str | Query | None = None,
        /,
        *,
        maintain: Maintain = "incremental",
        replace: bool = False,
        on_error: OnError = "stop",
    ) -> DataFrame | Callable[[Query], DataFrame | None] | None:
        """Declare a view: a function whose parameters name its inputs (as a decorator, or with a name), or
        SQL text.

        With `maintain="recompute"` every epoch computes the query anew, over all of its input: for what cannot be
        maintained by its changes. Returns a DataFrame that stands for the view in queries, or None while an
        input is not declared yet; without a query, a decorator.

        A view may be declared at any time. Once the app has begun, it is computed over all input that was taken so far
        and joins the others at one epoch: beside the epochs, where they run in another thread (`await_views`), else
        before the next. Declared again with the same meaning it is what it was; with another one it is an error, unless
        `replace` says that it takes the place of what it was.

        An epoch that fails in the view stops the run, or with `on_error="hold"` only the view and what reads it: these
        stay what they were, the run goes on without them, and they catch up once what they fail of is mended.
        """
        self._check_open()
        for option, given, known_as in (("maintain", maintain, Maintain), ("on_error", on_error, OnError)):
            if given not in get_args(known_as):
                raise BadViewOption(f"{option}={given!r}", [repr(each) for each in get_args(known_as)])
        if name is None and query is None:
            return lambda function: self.view(function, maintain=maintain, replace=replace, on_error=on_error)
        if callable(name):
            definition = ViewDefinition(name.__name__, inputs_of(name), name)
        elif isinstance(name, str) and isinstance(query, str):
            definition = self._declared.from_sql(name, query)
        elif isinstance(name, str) and callable(query):
            definition = ViewDefinition(name, inputs_of(query), query)
        else:
            raise TypeError("app.view takes a function, or a name and a function or SQL text")
        definition = dataclasses.replace(definition, maintain=maintain, on_error=on_error)
        with self._declaring:
            for source in definition.inputs:
                self._check_catches_up(definition, source, self._sources.get(source))
            known = self._declared.view(definition, may_replace=replace)
            if definition.name in self._dropped:  # it is another view, of the same name
                self._dropped.remove(definition.name)
                self._requests[definition.name] = _Request(self._declared.version, dropped=True)
            self._take_up()
            return None if known is None else self._stands_for(definition.name, "view")

    def _check_catches_up(
        self, view: ViewDefinition, source: str, read: Source | None, *, keep: bool = False
    ) -> None:
        """Raise if a view is to be held that could not be computed anew afterwards."""
        kept = keep or source in self._declared.kept
        forgets = read is not None and read.forgets and bool(self._durability.replicas) and not kept
        reads = source.lower() in map(
            str.lower, view.inputs
        )  # it may wait, and Spark's names do not heed case
        if view.on_error == "hold" and forgets and reads:
            raise HoldNeedsInput(view.name, source)

    def _stands_for(self, name: str, kind: str) -> DataFrame:
        """What stands for a source or view in queries, and shows it in a notebook."""
        frame = self._declared.placeholders[name]

        def picture() -> str:
            read, plan = partial(self._now, name), partial(self.explain, name)
            return view_html(declared_picture(self._told(), name, kind, frame, read, plan, ROWS))

        return Declared(name, kind, frame, picture)

    def drop(self, name: str) -> None:
        """Take a view away, with all that it keeps and its history. One that another view reads cannot be, nor one that
        a sink follows.
        """
        self._check_open()
        followers = self._deliveries.of_view(name)
        if followers:
            raise StillRead(name, [f"sink {each}" for each in followers])
        with self._declaring:
            self._declared.drop(name)
            self._requests.pop(name, None)
            self._dropped.add(name)
            self._take_up()

    def sink(
        self,
        view: str,
        to: Sink,
        *,
        name: str | None = None,
        when: When = "computed",
        since: int | None = None,
        hold: str | int | None = "1 day",
    ) -> None:
        """Have a view's results written somewhere: first all rows as of an epoch, then every later change.

        name: of the sink; by default the view's and the kind of target. when: "computed", at once, and with the lineage
        that is not durable yet; or "safe". since: leave out what there is, and begin with the changes after an epoch.
        hold: how much history is kept for it while it is behind: "1 day", "100 epochs", None for all.

        A sink follows by itself: one that is slow or fails slows nobody, is tried again, and `app.sinks` says why.
        """
        self._check_open()
        if not isinstance(to, Sink):
            raise BadSinkOption(
                f"app.sink('{view}', {to!r})", "give what sl.to_folder, sl.to_delta, ... returns"
            )
        with self._declaring:
            self._check_followed(view, to)
            declared = Following(name or f"{view}-{to.kind}", view, to, when, History.parse(hold), since)
            self._deliveries.declare(declared)

    def _check_followed(self, view: str, to: Sink) -> None:
        """Raise unless there is such a view, with such columns."""
        names = [*self._declared.definitions, *(view.name for view in self._declared.waiting)]
        beside = {f"{name}_rejected" for name, source in self._sources.items() if source.can_reject}
        if view not in names and view not in beside:
            raise UnknownView(view, [*names, *beside])
        if view in self._declared.placeholders:
            columns = self._declared.placeholders[view].columns
            unknown = [column for column in to.key if column not in columns]
            if unknown:
                raise BadSinkOption(
                    f"key={unknown[0]!r}, which view '{view}' does not have",
                    f"name some of {listed(columns)}",
                )
            if len({*columns}) < len(columns):
                raise BadSinkOption(
                    f"view '{view}' has two columns of one name", "give each a name of its own (AS)"
                )

    def drop_sink(self, name: str) -> None:
        """Let go of a sink. What it has written stays where it is."""
        self._check_open()
        self._deliveries.drop(name)

    def reset_sink(self, name: str) -> None:
        """Have a sink write its target anew, whatever that has, with all rows of the view as they are now."""
        self._check_open()
        self._ready()
        self._deliveries.reset(name)

    def await_sinks(self, epoch: int | None = None, timeout: float | None = None) -> bool:
        """Wait until every sink has delivered an epoch, the newest unless given. False if the timeout passes before, or
        if one of them has stopped.
        """
        return self._deliveries.await_epoch(self._ready().frontier if epoch is None else epoch, timeout)

    @property
    def sinks(self) -> dict[str, SinkStatus]:
        """How far each sink is, and what is wrong with it, if anything is."""
        return self._deliveries.status()

    def rebuild(self, name: str) -> None:
        """Compute a view, and what reads it, anew from all input that was taken. Their history begins anew, too."""
        self._check_open()
        with self._declaring:
            self._declared.check_there(name)
            if name not in self._declared.definitions:
                raise UnknownView(name, self._declared.definitions)
            self._declared.version += 1
            dropped = name in self._to_rebuild() and self._requests[name].dropped
            self._requests[name] = _Request(self._declared.version, dropped=dropped)
            self._take_up()

    def await_views(self, timeout: float | None = None) -> bool:
        """Wait until the app is what is declared: views that were added or replaced while it runs are there, dropped
        ones are gone. False if the timeout passes before; an error if they cannot be taken up.
        """
        self._check_may_wait(self._ready())
        assert self._changes is not None
        made = self._changes.wait(lambda: self._declared.version, timeout)
        self._changes.check(self._declared.version)
        return made

    @property
    def definitions(self) -> dict[str, ViewDefinition]:
        """The views that are declared, and how."""
        return self._declared.definitions

    # Running

    def stand_by(self, waiting: Callable[[], bool], alone: Callable[[], bool] = lambda: False) -> bool:
        """Wait, ready to go on at once, until the engine that has the store is gone, and take its place.

        `waiting` is asked many times a second, and ends the wait by saying no. `alone`: whether it is known that there
        is no such engine any more; until then a store that is gone is waited for. Returns whether the place is taken.
        Only for an app that was opened inside `standing_by`.
        """
        with active_session_kept(self._jvm):
            rehearsal = self._assembled().rehearsal

            def idle() -> bool:
                rehearsal.keep_warm(self._claim.store, self._rehearsable, self._clock.monotonic())
                return waiting()

            claim = await_claim(self._claim.store, self.name, idle, self._clock, alone)
        if claim is None:
            return False
        self._claim = claim
        self._begin()
        for name, source in self._sources.items():
            self._attach(name, source)
        self._ready()
        return True

    def run(self, until: str | int | None = None, *, progress: bool | None = None) -> Summary:
        """Run epochs in this thread: until "caught_up", up to an epoch, or until stopped.

        progress: whether to draw a bar while it catches up; by default in a terminal and in a notebook.
        """
        if until not in (None, "caught_up") and not isinstance(until, int):
            raise ValueError(f"until={until!r}: give 'caught_up', the number of an epoch, or None")
        self._reraise()
        loop = self._ready_to_run()
        self._tell_of_waiting()
        assert self._changes is not None
        if not self._changes.active:
            self._changes.check(self._declared.version)
        with (
            self._under_way(),
            active_session_kept(self._jvm),
            self._noting_errors(),
            self._bar(until, progress),
        ):
            summary = self._summed_up(loop.run(until))
            if until is not None:
                self._deliveries.catch_up()
            return summary

    def _ready_to_run(self) -> Loop:
        """The loop, before a run: views that are held are tried again, if what mends them may have come."""
        if self._changes is not None:
            self._changes.look_again(begins=True)
        return self._ready()

    def _tell_of_waiting(self) -> None:
        """Warn of views that wait for an input, once while it is the same ones."""
        waits = self._declared.waits()
        if waits and waits != self._told_of:
            warnings.warn(WaitingWarning(self.name, waits), stacklevel=3)
        self._told_of = waits

    def _summed_up(self, summary: Summary) -> Summary:
        """What a run did, with the views that are held at its end."""
        assert self._changes is not None
        summary.held = tuple(sorted(self._changes.assembly.held.keys() & self.definitions.keys()))
        return summary

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """A run: what is declared meanwhile is taken up beside it."""
        assert self._changes is not None
        if not self._changes.begin_run():
            raise AppRuns(self.name)
        try:
            yield
        finally:
            self._changes.end_run()

    @contextmanager
    def _noting_errors(self) -> Iterator[None]:
        """While epochs run here; what ended it is remembered, to be shown."""
        self._running, self._error = True, None
        try:
            yield
        except Exception as error:
            self._error = error
            raise
        finally:
            self._running = False

    @contextmanager
    def _bar(self, until: str | int | None, asked: bool | None) -> Iterator[None]:
        """A bar, drawn while a run catches up."""
        console = Console(stderr=True, highlight=False)
        if asked is False or until != "caught_up" or not can_animate(console):
            yield
            return
        with screen(console, kept=False) as shown:
            bar = CatchingUp(self.name, shown, self._clock, self.backlog)
            self._listeners.append(bar.epoch)
            try:
                yield
            finally:
                self._listeners.remove(bar.epoch)
            bar.end()

    def start(self) -> App:
        """Run epochs in the background."""
        if self._thread is not None and self._thread.is_alive():
            self._ready()
            return self
        loop = self._ready_to_run()
        self._tell_of_waiting()
        changes = self._changes
        assert changes is not None
        if not changes.begin_run():  # what is declared from here on is taken up beside it
            raise AppRuns(self.name)

        def work() -> None:
            try:
                with self._noting_errors():
                    self._summary = self._summed_up(loop.run(None))
            except BaseException as error:  # handed to whoever calls next
                self._failure = error
            finally:
                changes.end_run()
                loop.wake()

        self._thread = threading.Thread(target=work, name=f"slipstream-{self.name}", daemon=True)
        self._thread.start()
        return self

    def await_epoch(self, epoch: int, timeout: float | None = None) -> bool:
        """Wait until an epoch is computed; False if the timeout passes before."""
        loop = self._ready()
        if loop.frontier < epoch:
            self._check_may_wait(loop)
        reached = loop.await_epoch(epoch, timeout, lambda: self._failure is not None)
        self._reraise()
        return reached

    def stop(self) -> Summary | None:
        """Finish the epoch in hand and begin no other; what the background run did."""
        if self._loop is not None:
            self._loop.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._reraise()
        return self._summary

    def close(self) -> None:
        """Stop, and close what the app opened."""
        self._closed = True
        try:
            if getattr(self, "_loop", None) is not None:
                self.stop()
        finally:
            if hasattr(self, "_deliveries"):
                self._deliveries.close()
            if getattr(self, "_changes", None) is not None and self._changes is not None:
                self._changes.stop(self.spark)
            if getattr(self, "_loop", None) is not None and self._loop is not None:
                self._loop.close()
                self._loop = None
            for source in self._sources.values():
                source.close()
            if self._owns_spark:
                self.spark.stop()
            if self._events is not None:
                stop_logging(self._events, "engine")
            self._claim.release()
            if self._looking is not None:
                self._looking.cleanup()

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def on_epoch(self, listener: Callable[[EpochReport], None]) -> None:
        """Call a function after each epoch, in the thread that runs them."""
        self._listeners.append(listener)

    def on_turn(self, listener: Callable[[int], None]) -> None:
        """Call a function with the last computed epoch at each turn of the loop, in its thread: before every
        epoch, and many times a second while there is no input.
        """
        self._turns.append(listener)

    def on_notice(self, listener: Callable[[str], None]) -> None:
        """Call a function, in the thread that runs epochs, with what the user should know of: that the engine waits for
        a disk that is full, that it goes on, that a damaged layer was replaced.
        """
        self._notices.append(listener)

    def backlog(self) -> dict[str, Backlog]:
        """How much input of each source waits. To be asked where epochs run (in `on_epoch`), or while none runs."""
        return {name: Backlog(source.backlog(), source.unit) for name, source in self._sources.items()}

    @property
    def epoch(self) -> int:
        """The last computed epoch."""
        return self._loop.frontier if self._loop is not None else newest_epoch(self._claim.store)

    def frontiers(self) -> Frontiers:
        """How far the app is computed, flushed to disk, durable on each replica, safe and compacted."""
        return read_frontiers(self._claim.store.root)

    # Reading

    def read(self, view: str, as_of: int | str | datetime | None = None) -> DataFrame:
        """A view's contents, now or as of an epoch or a point in time."""
        entry = self._entry(view)
        epoch = resolve_epoch(self._claim.store, as_of, [entry.trace])
        warn_if_held(view, entry, epoch)
        return self._load(view, epoch, in_order=True)

    def changes(self, view: str, since: int, until: int | None = None) -> DataFrame:
        """A view's updates after one epoch and up to another, with _epoch and _diff; where the view has such a
        column itself, with __epoch and __diff.
        """
        if since is None:
            raise UnknownEpoch(
                "since=None is no epoch. Give the number of an epoch, 0 for all changes, or a time such as "
                "2026-01-31T12:00:00."
            )
        entry, store = self._entry(view), self._claim.store
        epoch = resolve_epoch(store, until, [entry.trace])
        warn_if_held(view, entry, epoch)
        return self._load(view, epoch, resolve_epoch(store, since, [entry.trace]))

    def sql(self, text: str, as_of: int | str | datetime | None = None) -> DataFrame:
        """Answer SQL over views and whatever else the session knows, all views as of one epoch."""
        self._check_open()
        epoch = resolve_epoch(self._claim.store, as_of)
        known = self._catalog()
        views = {view.lower(): view for view in known}  # Spark's names do not heed case
        relations = self._catalyst.relations(text)
        self._declared.check_readable(name for name in relations if name.lower() not in views)
        mentioned = [name for name in relations if name.lower() in views]
        for name in mentioned:
            warn_if_held(views[name.lower()], known[views[name.lower()]], epoch)
        frames = {name: self._load(views[name.lower()], epoch) for name in mentioned}
        return self._declared.with_names(frames, text)

    def watch(
        self,
        view: str,
        every: str | float = "1s",
        rows: int = ROWS,
        *,
        seconds: float | None = None,
        until: int | None = None,
    ) -> None:
        """Show a view as it changes: in a notebook or a terminal in one place, elsewhere one picture after another.

        It ends by Ctrl-C (in a notebook, by interrupting the cell), after so many `seconds`, or when the epoch `until`
        is shown. An app that does not run in the background is run meanwhile.
        """
        interval = parsed(every)
        self._entry(view)

        def epoch() -> int:
            self._reraise()
            return self.epoch

        def picture(before: Sample | None) -> ViewPicture:
            return view_picture(self._told(), view, partial(self._now, view), rows, before)

        self._ready()
        assert self._changes is not None
        ours = not self._changes.active
        if ours:
            self.start()
        try:
            with screen() as shown:
                watch(shown, self._clock, epoch, picture, every=interval, seconds=seconds, until=until)
        finally:
            if ours:
                self.stop()

    def _repr_html_(self) -> str:
        return app_html(app_picture(self._told(), self._clock))

    def _told(self) -> Told:
        """What the app's pictures are made of."""
        in_background = self._thread is not None and self._thread.is_alive()
        state = "running" if self._running or in_background else "not running"
        if self._closed:
            state = "closed"
        elif self._loop is None:
            state = "not run yet"
        kinds = {**dict.fromkeys(self._sources, "source"), **dict.fromkeys(self.definitions, "view")}
        waits = self._declared.waits()
        status = partial(read_status, self._claim.store.root)
        return Told(self.name, state, kinds, waits, self._error, status, self.backlog)

    def _now(self, view: str) -> tuple[int, DataFrame, str | None]:
        """A view as it is now, as of which epoch that is, and what is to be said of it."""
        epoch, why = self.epoch, self._entry(view).held
        frame = self._load(view, epoch, in_order=True)
        return (epoch, frame, None) if why is None else (min(epoch, why.last), frame, wording.held(why))

    def explain(self, view: str | None = None, stats: bool = False) -> str:
        """How views are maintained: their operators, what each costs, what each keeps.

        With `stats` also what each did in the last epoch: rows in and out, time, and the state that it keeps now.
        """
        steps = self.steps(view)
        note = None
        if stats:
            loop = self._ready()
            note = notes(self._claim.store.root, loop.frontier, loop.measured())
        told = [f"{name}\n{step.render(1, note)}" for name, step in steps.items()]
        if view is None:
            told += [f"{name}\n  waits for {awaited}" for name, awaited in self._declared.waits().items()]
        return "\n\n".join(told)

    def plan(self) -> Proposal:
        """What the next run would do first, with nothing changed: which views go on, which are computed from what, what
        cannot be, and how long it should take. To be printed.
        """
        self._check_open()
        with self._declaring, active_session_kept(self._jvm):
            asked = (*self._asked.rebuild, *self._to_rebuild())
            assembly = self._assemble(self._declared.copied(), asked, compared=False)
            waits = self._declared.waits()
            new = waits if self._loop is not None else self._requests.keys()
        return propose(assembly, self._claim.store, waits, new)

    def steps(self, view: str | None = None) -> dict[str, Step]:
        """What `explain` tells, as data: the last operator of each view, or of one, and what feeds it."""
        self._check_open()
        steps = self._assembled().steps
        if view is None:
            return steps
        if view not in steps:
            self._declared.check_there(view)
            raise UnknownView(view, steps)
        return {view: steps[view]}

    # Inside

    def _begin(self) -> None:
        """See to it that the claimed store is whole, and go on from there: nobody else's epochs count any more."""
        try:
            self._started = start(
                self._claim,
                self.name,
                self._durability,
                accept_loss=self._asked.accept_loss,
                rebuild=self._asked.rebuild,
                clock=self._clock,
            )
        except BaseException:
            self._claim.release()
            raise
        self._claim = self._started.claim
        owned = self._claim.store.owned_by(self._claim.incarnation)
        self._events = log_events(owned, "engine", self._claim.incarnation)
        history = self._started.lineage.history
        told = fields(epoch=history.frontier, pending=len(history.pending), cause=self._started.said)
        _LOG.info("an incarnation begins", extra=told)
        if self._started.said is not None:
            warnings.warn(f"{self.name}: {self._started.said}", RecoveryWarning, stacklevel=4)

    @property
    def _past(self) -> Past:
        """What was computed before this start; of a store that is only watched, what is known of it now."""
        if self._started is not None:
            return self._started.lineage.history
        return read_lineage(self._claim.store.disk).history if self.store.exists() else Past()

    def _made_folder(self, source: str) -> Path:
        """Where a source may keep what it must, which whoever may read the store may read."""
        if self._looking is not None:
            folder = Path(self._looking.name) / SOURCES / source
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        disk = self._claim.store.disk
        if not self._claim.held:
            disk.make_folder("")
        disk.make_folder(f"{SOURCES}/{source}")
        return disk.root / SOURCES / source

    def _attach(self, name: str, source: Source) -> None:
        """Give a source its place. A summary of old input that does not prove itself is made anew from all of it."""
        source.check_ours = self._claim.check_ours
        past = self._past if self._loop is None else read_lineage(self._claim.store.disk).history
        self._check_kind(name, source, past)
        folder = self._made_folder(name)
        try:
            source.attach(name, self._epochs, folder, past.taken(name), past.summary(name))
        except DamagedSummary:
            whole = read_whole(self._claim.store.disk)
            source.attach(name, self._epochs, folder, whole.taken(name), None)

    def _check_kind(self, name: str, source: Source, past: Past) -> None:
        """Raise if the input that was taken under this name is that of a source of another kind."""
        if not past.taken(name) and past.summary(name) is None:
            return
        was, kind = self._claim.store.catalog().sources.get(name), type(source).__name__
        if was is not None and was.kind != kind:
            raise AnotherSource(name, was.kind.lower(), kind.lower())

    def _session(self, spark: SparkSession | None, master: str | None, shards: int | None) -> SparkSession:
        if spark is None:
            running = SparkSession.getActiveSession()
            started = start_session(self.name, master, shards or 2)
            self._owns_spark = running is None
            return started
        for text in check_session(spark):
            warnings.warn(text, SessionWarning, stacklevel=3)
        return spark

    def _check_open(self) -> None:
        if self._closed:
            raise AppClosed(self.name, str(self.store))

    def _check_may_wait(self, loop: Loop) -> None:
        """Raise where the thread that runs epochs would wait for what it is to do itself."""
        if loop.is_run_here:
            raise WaitsForItself(self.name)

    def _ready(self) -> Loop:
        """The loop; while no run is under way, with all that is declared."""
        self._check_open()
        if self._changes is not None:
            self._changes.check_whole()
        if self._loop is None:
            with self._declaring:  # whoever else asks waits for the one that there is to be
                if self._loop is None:
                    self._loop = self._first_loop()
        elif self._changes is not None and not self._changes.made(self._declared.version):
            if self._changes.active or not self._loop.settled:
                self._changes.beside()
            else:
                with self._declaring, active_session_kept(self._jvm):
                    self._changes.now(self._wanted())
        return self._loop

    def _first_loop(self) -> Loop:
        if not self._claim.held:
            raise StandingBy(str(self.store))
        assert self._started is not None, "a claimed store is started"
        taken_up = self._deliveries.taken_up(self._started)
        if taken_up is not self._started:
            self._started = taken_up
            for name, source in self._sources.items():  # what is in these cuts is not to be cut again
                self._attach(name, source)
        if self._past.frontier:
            self._declared.check_none_lost(
                self._claim.store.catalog().readable.keys() - self._requests.keys()
            )
        self._started = without_gone(self.name, self._started, self._sources, accept=self._asked.accept_loss)
        with active_session_kept(self._jvm):
            assembly, running = self._assembled().started(self._started)
        version = self._declared.version
        self._changes = Changes(running, assembly, version, self._clock, self._wanted)
        self._turns[:0] = [self._look_again, self._deliveries.turn]
        self._listeners.insert(0, self._deliveries.wake)
        self._deliveries.begin(running, self.shards)
        loop = running.loop
        loop.listeners, loop.turns, loop.notices = self._listeners, self._turns, self._notices
        return loop

    def _take_up(self) -> None:
        """Begin to make the app what is declared, if a run is under way; else it is made so when it is needed."""
        if self._changes is not None and self._changes.active:
            self._changes.beside()

    def _look_again(self, epoch: int) -> None:
        if self._changes is not None:
            self._changes.look_again()

    def _wanted(self) -> Wanted:
        with self._declaring:
            declared, asked = self._declared.copied(), self._to_rebuild()

            def assembled() -> Assembly:
                with active_session_kept(self._jvm):
                    return self._assemble(declared, asked)

            made = None if self._changes is None else self._changes.assembly
            before = {} if made is None else made.setup.views
            own = declared.definitions.keys() - {*declared.kept.values()}
            names = sorted(n for n in own if n in asked or before.get(n) is not declared.views[n])
            return Wanted(declared.version, tuple(names), assembled)

    def _to_rebuild(self) -> tuple[str, ...]:
        """The views that are to be computed anew although nothing changed, as was asked and is not made yet. A request
        cannot be taken back, as a declaration can: where it is itself what the app refuses, it is forgotten.
        """
        changes, inputs = self._changes, {name: view.inputs for name, view in self.definitions.items()}
        if changes is not None:
            self._requests = {
                name: asked
                for name, asked in self._requests.items()
                if asked.version > changes.version
                and (asked.dropped or not with_readers({name}, inputs) & changes.at_fault(asked.version))
            }
        return tuple(sorted(self._requests.keys() & self.definitions.keys()))

    @property
    def _sources(self) -> dict[str, Source]:
        declared = getattr(self, "_declared", None)
        return {} if declared is None else declared.sources

    def _assembled(self) -> Assembly:
        """What is declared, as it would run."""
        version = self._declared.version
        if self._changes is not None and self._changes.version == version:
            return self._changes.assembly
        if self._assembly is None or self._assembly[0] != version:
            asked = (*self._asked.rebuild, *self._to_rebuild())
            self._assembly = version, self._assemble(self._declared.copied(), asked)
        return self._assembly[1]

    def _assemble(self, declared: Declarations, asked: Sequence[str], *, compared: bool = True) -> Assembly:
        definitions = declared.definitions
        setup = Setup(
            spark=self._epochs,
            claim=self._claim,
            sources=declared.sources,
            views=declared.views,
            recomputed={n for n, view in definitions.items() if view.maintain == "recompute"},
            placeholders=declared.placeholders,
            inputs={name: view.inputs for name, view in definitions.items()},
            shards=self.shards,
            target=self._target,
            history=self._history,
            settings=self._settings,
            clock=self._clock,
            durability=self._durability,
            asked=asked,
            replacing=None if self._asked.replace else declared.replacing,
            kept=declared.kept,
            turns=self._turns_of_traces,
            may_hold=frozenset(name for name, view in definitions.items() if view.on_error == "hold"),
            needed=self._deliveries.needed,
        )
        frontier = self._past.frontier if self._loop is None else self._loop.frontier
        return assemble(setup, frontier, compared=compared)

    def _reraise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _catalog(self) -> Mapping[str, ViewEntry]:
        self._ready()
        return self._claim.store.catalog().readable

    def _entry(self, view: str) -> ViewEntry:
        self._ready()
        known = self._claim.store.catalog()
        if view in self._declared.definitions and view not in known.readable and self._changes is not None:
            self._changes.check(self._declared.version)
            raise OnItsWay(view)
        self._declared.check_there(view)
        return known.view(view)

    def _load(self, view: str, as_of: int, since: int | None = None, in_order: bool = False) -> DataFrame:
        entry, store = self._entry(view), self._claim.store
        return frame_of(self.spark, store, self.shards, view, entry, as_of, since, in_order=in_order)
