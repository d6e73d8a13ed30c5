"""The sinks of an app: what each follows, how a start takes up what they have seen, and what they still need.

A follower (`sinks.follower`) knows targets and pauses; here it gets to know the app. `ViewLog` is a view's log as a
follower sees it: the newest epoch that may leave the app, what a target lacks, and the stamp that goes with it.

**At a start** every target is asked for its stamp, before any input is cut (`seen_outside`). Where targets have epochs
whose cuts this store lost, those are taken up and computed again as they were cut, so what is outside stays true. A
target that does not answer soon is not waited for. If it then turns out to have seen what was cut otherwise, its sink
stops and says so: that is the one case in which it has to be written anew.
"""

from __future__ import annotations

import logging
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, get_args

import pyarrow as pa

from slipstream.app.assembly import Running
from slipstream.app.noting import noted
from slipstream.core.clock import Clock
from slipstream.core.durations import seconds as parsed
from slipstream.core.errors import (
    BadSinkOption,
    ColumnsReplaced,
    HistoryBegins,
    HistoryForgotten,
    HistoryLetGo,
    HistoryLost,
    NameTaken,
    PastGone,
    SinkWarning,
    SlipstreamError,
    StoreTrouble,
    Superseded,
    TargetAhead,
    TargetBehind,
    TargetColumns,
    TargetOfAnother,
    TargetOfAnotherForm,
    TargetTaken,
    UnknownSink,
)
from slipstream.core.settings import Durability, History
from slipstream.dataflow.contents import Contents, Reading
from slipstream.durability.board import read_replication
from slipstream.durability.start import Started
from slipstream.durability.stash import Outside, contradicts, digest_of, durable_lineage, missing_cuts
from slipstream.durability.timetravel import check_there
from slipstream.epoch import EpochReport
from slipstream.observe.netting import netted
from slipstream.observe.sinks import SinkStatus, write_sinks
from slipstream.observe.switching import changes_of
from slipstream.sinks import Append, Delivery, Follower, Replace, Sink, Stamp, Upsert, by_key, check_keys
from slipstream.store.catalog import ViewEntry
from slipstream.store.events import fields
from slipstream.store.records import Cut
from slipstream.store.store import Store
from slipstream.trace import shard_span

When = Literal["computed", "safe"]
PATIENCE = 60.0
"""Seconds for which the end of a run waits for a sink that does not fail."""
AGAIN_WITHIN = 3.0
"""The same for one that has failed, and is to be tried again."""
ANSWER_WITHIN = 3.0
"""Seconds for which a start waits for targets."""

_GONE = (HistoryBegins, HistoryForgotten, HistoryLetGo, HistoryLost, PastGone)
_WRITE_EVERY = 1.0  # seconds between two writings of how far sinks are
_LOG = logging.getLogger("slipstream.engine")


@dataclass(frozen=True)
class Declared:
    """A sink as it is declared. hold: how much history is kept for it while it is behind. since: the epoch after which
    it begins, None for the whole view as it is then.
    """

    name: str
    view: str
    sink: Sink
    when: When = "computed"
    hold: History = field(default_factory=lambda: History(seconds=parsed("1 day")))
    since: int | None = None


class ViewLog:
    """A view's log, as a follower sees it: see `sinks.follower.Log`."""

    def __init__(self, declared: Declared, running: Running, shards: int, *, replicated: bool) -> None:
        self._declared, self._running, self._shards = declared, running, shards
        self._replicated = replicated
        self._claim = running.started.claim
        self._begun_with = {cut.epoch: digest_of(cut) for cut in running.started.lineage.history.cuts}

    @property
    def _store(self) -> Store:
        return self._claim.store

    def frontier(self) -> int:
        if self._declared.view not in self._store.catalog().readable:
            return 0  # it is on its way
        newest = self._running.loop.frontier
        return newest if self._declared.when == "computed" else min(newest, self._running.ledger.safe())

    def schema(self) -> pa.Schema:
        return self._schema(self._store.catalog().view(self._declared.view), self._running.loop.frontier)

    def joined(self, stamp: Stamp | None) -> Stamp | None:
        name, target = self._declared.name, self._declared.sink.shown
        app, incarnation = self._running.started.identity.id, self._claim.incarnation
        if stamp is None:
            since = self._declared.since
            return None if since is None else self._stamp(since)
        if (stamp.app, stamp.sink) != (app, name):
            whose = f"sink '{stamp.sink}'" + ("" if stamp.app == app else f" of another app ({stamp.app})")
            raise TargetOfAnother(name, target, whose)
        if stamp.incarnation > incarnation:
            raise TargetTaken(name, target, stamp.epoch, stamp.incarnation)
        if stamp.form != self._declared.sink.form:
            raise TargetOfAnotherForm(name, target, stamp.form, self._declared.sink.form)
        last = max([self._running.loop.frontier, *self._begun_with])
        cut = self._running.stash.digest(stamp.epoch) or self._begun_with.get(stamp.epoch, "")
        wrong = contradicts(_outside(name, stamp), last, cut)
        if wrong is not None:
            raise TargetAhead(name, target, stamp.epoch, wrong)
        return stamp.claimed(incarnation)

    def delivery(self, before: Stamp | None, since: int | None, upto: int) -> Delivery:
        self._claim.check_ours()
        entry = self._store.catalog().view(self._declared.view)
        after, schema = self._stamp(upto), self._schema(entry, upto)
        try:
            work = self._work(entry, since, upto)
        except (ColumnsReplaced, HistoryBegins) as error:
            if self._declared.sink.mode == "changes":
                raise self._lasting(error, since) from error
            work = self._whole(entry, upto)  # what it was does not matter to who shows only what is
        except _GONE as error:
            raise self._lasting(error, since) from error
        return Delivery(before, after, schema, work)

    def _lasting(self, error: SlipstreamError, since: int | None) -> SlipstreamError:
        name, target = self._declared.name, self._declared.sink.shown
        if isinstance(error, ColumnsReplaced):
            return TargetColumns(name, target, f"view '{self._declared.view}' has other columns now")
        return TargetBehind(name, target, since or 0, str(error))

    def _stamp(self, epoch: int) -> Stamp:
        stash, said = self._running.stash, read_replication(self._store.disk)
        durable = durable_lineage(said, replicated=self._replicated)
        digest = stash.digest(epoch)
        return Stamp(
            app=self._running.started.identity.id,
            sink=self._declared.name,
            epoch=epoch,
            incarnation=self._claim.incarnation,
            cut=digest,
            form=self._declared.sink.form,
            lineage=stash.forwarded(epoch, durable),
        )

    def _schema(self, entry: ViewEntry, epoch: int) -> pa.Schema:
        contents = Contents.described(entry.at(epoch).contents)
        schema = contents.schema.remove_metadata()
        return _with_beside(schema, contents) if self._declared.sink.mode == "changes" else schema

    def _work(self, entry: ViewEntry, since: int | None, upto: int) -> Append | Replace | Upsert | None:
        if since is None:
            return self._whole(entry, upto)
        contents = Contents.described(entry.at(upto).contents)
        net = self._declared.sink.mode != "changes"
        check_there(self._store, self._declared.view, upto, since, base=net or not contents.is_bag)
        stretches = [(Contents.described(was.contents), a, b) for was, a, b in entry.between(since, upto)]
        reading = changes_of(self._declared.view, stretches, str(self._store.root), self._shards, net=net)

        def changes() -> Iterator[pa.Table]:
            for number in range(self._shards):
                for table in reading.span(number):
                    if table.num_rows:
                        yield table

        if not net:
            schema = _with_beside(contents.schema.remove_metadata(), contents)
            there = next(changes(), None) is not None
            return Append(lambda: (table.cast(schema) for table in changes())) if there else None
        moved = netted(contents.schema.remove_metadata(), changes())
        if not moved.num_rows:
            return None
        if self._declared.sink.mode == "replace":
            return self._whole(entry, upto)
        return by_key(moved, self._declared.sink.key, sink=self._declared.name, view=self._declared.view)

    def _whole(self, entry: ViewEntry, upto: int) -> Replace:
        """All rows as of an epoch."""
        was = entry.at(upto)
        contents, as_of = Contents.described(was.contents), was.shown(upto)
        check_there(self._store, self._declared.view, upto, None, base=not contents.is_bag)
        beside, root = self._declared.sink.mode == "changes", self._store.root
        schema = contents.schema.remove_metadata()

        def rows() -> Iterator[pa.Table]:
            for number in range(self._shards):
                span = shard_span(number, self._shards)
                if not beside:
                    yield from Reading(contents, str(root), self._shards, as_of).span(number)
                    continue
                for table, times in contents.held(root, as_of, span):
                    yield _marked(table, contents, upto, pa.array(times, pa.int64()))

        if self._declared.sink.mode == "upsert":
            key = list(self._declared.sink.key)
            keys = [table.select(key) for table in rows()] or [schema.empty_table().select(key)]
            check_keys(pa.concat_tables(keys), key, sink=self._declared.name, view=self._declared.view)
        final = _with_beside(schema, contents) if beside else schema
        return Replace(lambda: (table.cast(final) for table in rows() if table.num_rows), beside)


def _with_beside(schema: pa.Schema, contents: Contents) -> pa.Schema:
    for name in contents.beside:
        schema = schema.append(pa.field(name, pa.int64()))
    return schema


def _marked(table: pa.Table, contents: Contents, epoch: int, times: pa.Array) -> pa.Table:
    """Rows as updates: all of one epoch, each as often as it is there."""
    for name, what in contents.beside.items():
        values = times if what == "diff" else pa.repeat(pa.scalar(epoch, pa.int64()), table.num_rows)
        table = table.append_column(name, values)
    return table


def _outside(name: str, stamp: Stamp) -> Outside:
    return Outside(f"sink '{name}'", stamp.epoch, stamp.cut, stamp.lineage)


class Deliveries:
    """The sinks of an app that are declared, and the followers of those of one that runs."""

    def __init__(self, clock: Clock, durability: Durability) -> None:
        """Of an app that only rehearses (`Durability.read_only`), nothing is delivered: targets are not copied."""
        self._clock, self._replicated = clock, bool(durability.replicas)
        self._rehearses = durability.read_only
        self._declared: dict[str, Declared] = {}
        self._followers: dict[str, Follower] = {}
        self._running: tuple[Running, int] | None = None
        self._dirty = threading.Event()
        self._written = 0.0
        self._lock = threading.RLock()

    def of_view(self, view: str) -> list[str]:
        """The sinks that follow a view."""
        return [each.name for each in self._declared.values() if each.view == view]

    def declare(self, declared: Declared) -> None:
        """Add a sink; one that is declared again as it is stays."""
        with self._lock:
            _check(declared)
            known = self._declared.get(declared.name)
            if known is not None and known != declared:
                raise NameTaken(declared.name, "sink", f"drop it first: app.drop_sink('{declared.name}')")
            if declared.when == "safe" and not self._replicated:
                raise BadSinkOption(
                    f"when='safe' for sink '{declared.name}', and the app has no replicas to be safe on",
                    "name replicas (App(..., replicas=[URL])), or leave out when=",
                )
            if known is None:
                self._declared[declared.name] = declared
                self._follow(declared)

    def drop(self, name: str) -> None:
        """Let go of a sink. Its target stays as it is."""
        with self._lock:
            self._check(name)
            del self._declared[name]
            follower = self._followers.pop(name, None)
        if follower is not None:
            follower.close()
        self._dirty.set()

    def reset(self, name: str) -> None:
        """Have a target written anew as a whole, whatever it has."""
        with self._lock:
            self._check(name)
            if name not in self._followers:
                raise BadSinkOption(
                    f"sink '{name}' is reset before the app runs", "call app.run or app.start before"
                )
            self._followers[name].reset()

    def _check(self, name: str) -> None:
        if name not in self._declared:
            raise UnknownSink(name, self._declared)

    def begin(self, running: Running, shards: int) -> None:
        """Follow an app that runs from now on."""
        with self._lock:
            self._running = running, shards
            for declared in self._declared.values():
                self._follow(declared)

    def _follow(self, declared: Declared) -> None:
        if self._running is None or self._rehearses:
            return
        running, shards = self._running
        log = ViewLog(declared, running, shards, replicated=self._replicated)
        sink = declared.sink
        opened = sink.opened
        if not sink.exactly_once:
            opened = partial(noted, sink, running.started.claim)
        follower = Follower(declared.name, sink, opened, log, self._clock, self._dirty.set)
        self._followers[declared.name] = follower
        follower.start()

    def wake(self, report: EpochReport) -> None:
        """An epoch was computed."""
        for follower in list(self._followers.values()):
            follower.wake()

    def turn(self, epoch: int) -> None:
        """Between epochs, in the thread that runs them: now and then note how far sinks are, and have those look that
        wait for what is safe, which becomes so with no epoch.
        """
        if not self._declared or self._clock.monotonic() < self._written:
            return
        self._written = self._clock.monotonic() + _WRITE_EVERY
        for name, follower in list(self._followers.items()):
            if self._declared[name].when == "safe":
                follower.wake()
        if self._dirty.is_set():
            self._write()

    def _write(self) -> None:
        if self._running is None or self._rehearses:
            return
        self._dirty.clear()
        try:
            write_sinks(self._running[0].started.claim.owned, self.status())
        except (StoreTrouble, Superseded, OSError) as error:  # it is for people; the targets know
            _LOG.warning("how far sinks are cannot be written", extra=fields(cause=str(error)))

    def status(self) -> dict[str, SinkStatus]:
        """How far each sink is."""
        with self._lock:
            return {name: self._status(declared) for name, declared in self._declared.items()}

    def _status(self, declared: Declared) -> SinkStatus:
        follower = self._followers.get(declared.name)
        known = None if follower is None else follower.progress
        return SinkStatus(
            view=declared.view,
            kind=declared.sink.kind,
            target=declared.sink.shown,
            mode=declared.sink.mode,
            when=declared.when,
            exactly_once=declared.sink.exactly_once,
            epoch=None if known is None else known.epoch,
            error=None if known is None else known.error,
            stopped=known is not None and known.stopped,
            failures=0 if known is None else known.failures,
            delivered_at=0.0 if known is None else known.delivered_at,
        )

    def needed(self, computed: int, now: float, clocks: Sequence[tuple[float, int]]) -> int:
        """The epoch from which on sinks need history: what they have not delivered, as far back as each holds."""
        oldest = computed
        for declared in list(self._declared.values()):
            follower = self._followers.get(declared.name)
            reached = None if follower is None else follower.needs
            bound = declared.hold.keep_from(computed, now, clocks)
            oldest = min(oldest, max(bound, reached or 0))
        return oldest

    def catch_up(self) -> bool:
        """Wait until targets have all that is computed, but for those that fail, or wait for what is safe; of those
        that fail a warning is given.
        """
        if self._running is None:
            return True
        frontier, done = self._running[0].loop.frontier, True
        for declared in list(self._declared.values()):
            follower = self._followers.get(declared.name)
            if follower is None:
                continue
            patience = AGAIN_WITHIN if follower.progress.failures else PATIENCE
            if declared.when == "safe" or follower.await_epoch(frontier, patience):
                continue
            done = False
            why = follower.progress.error or f"it has not delivered epoch {frontier} within {patience:.0f} s"
            warnings.warn(SinkWarning(f"sink '{declared.name}' is behind: {why}"), stacklevel=4)
        return done

    def await_epoch(self, epoch: int, timeout: float | None) -> bool:
        """Wait until all targets have an epoch, whatever it takes; False if the timeout passes before."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        for follower in list(self._followers.values()):
            while not follower.await_epoch(epoch, _left(deadline, self._clock)):
                if follower.progress.stopped or (
                    deadline is not None and self._clock.monotonic() >= deadline
                ):
                    return False
        return True

    def close(self) -> None:
        """Deliver no more, and note how far sinks are."""
        for follower in list(self._followers.values()):
            follower.close()
        if self._declared:
            self._write()

    def taken_up(self, started: Started) -> Started:
        """A start that goes on with the cuts that only targets have, if there are any."""
        if self._rehearses or not any(each.sink.exactly_once for each in self._declared.values()):
            return started
        seen = self._seen_outside()
        lineage = started.lineage
        ours = [each for each in seen if each[0] == started.identity.id]
        cuts = missing_cuts(lineage.history, [each for _, each in ours])
        if not cuts:
            return started
        history = lineage.history
        for cut in cuts:
            started.claim.check_ours()
            started.writer.append(cut)
            history = history.after(cut)
        told = _told(cuts)
        _LOG.warning("lineage was taken up from targets", extra=fields(epoch=history.frontier, cause=told))
        return replace(started, lineage=replace(lineage, history=history))

    def _seen_outside(self) -> list[tuple[str, Outside]]:
        """What targets have, of those that answer soon; with the identity of the app that wrote it."""
        found: list[tuple[str, Outside]] = []

        def ask(declared: Declared) -> None:
            try:
                target = declared.sink.opened(declared.name)
                try:
                    stamp = target.stamp()
                finally:
                    target.close()
                if stamp is not None and stamp.sink == declared.name:
                    found.append((stamp.app, _outside(declared.name, stamp)))
            except Exception as error:  # a target that fails is no reason not to start
                _LOG.info("a target does not answer", extra=fields(sink=declared.name, cause=str(error)))

        telling = [each for each in self._declared.values() if each.sink.exactly_once]
        asked = [threading.Thread(target=ask, args=(each,), daemon=True) for each in telling]
        for thread in asked:
            thread.start()
        deadline = self._clock.monotonic() + ANSWER_WITHIN
        for thread in asked:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        return list(found)


def _check(declared: Declared) -> None:
    if not re.fullmatch(r"\w[\w.-]*", declared.name):
        raise BadSinkOption(f"name={declared.name!r}", "use letters, digits, '_', '-' and '.'")
    if declared.when not in get_args(When):
        raise BadSinkOption(f"when={declared.when!r}", f"give one of {', '.join(map(repr, get_args(When)))}")
    if declared.since is not None and (declared.since < 0 or declared.sink.mode != "changes"):
        raise BadSinkOption(
            f"since={declared.since} with mode={declared.sink.mode!r}",
            "give an epoch of a sink with mode='changes', or leave it out: then it begins with the whole view",
        )


def _left(deadline: float | None, clock: Clock) -> float | None:
    return None if deadline is None else max(0.0, deadline - clock.monotonic())


def _told(cuts: Sequence[Cut]) -> str:
    numbers = [cut.epoch for cut in cuts]
    some = f"epoch {numbers[0]}" if len(numbers) == 1 else f"epochs {numbers[0]} to {numbers[-1]}"
    return f"{some}: the store had lost of what they were made, and a sink's target knows"
