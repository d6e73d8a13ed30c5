"""Views that are new, or mean something else than before, computed beside those that run.

A backfill is a store of its own in the folder of the app's, in which only these views are computed. Its first epoch is
all that was consumed up to some epoch of the app, each following one whatever was consumed since: so it may catch up
while the app goes on. What it reads is the nearest that is kept: a view that goes on gives what it holds, and then its
changes; a source gives its input again, from the ranges in the lineage.

What is computed is put in place as layers that stand for all these epochs, in traces that no plan ever had: also a view
that is computed anew although nothing changed has other ones than before (`plan/identity.py`). So nothing of what is
there is touched, and a merge that is under way in a trace of before can harm nothing. Nobody reads the new ones until
the catalog names them; what a change that is let go has put in place is removed, and of a process that ends before, by
the next start.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from slipstream.core.columns import DIFF
from slipstream.core.crashing import crash_point, crash_points
from slipstream.core.errors import EpochFailed, MissingLayer
from slipstream.dataflow.contents import Contents, Reading, places
from slipstream.dataflow.task import EpochProperty
from slipstream.dataflow.telling import Telling
from slipstream.epoch import Template
from slipstream.epoch.diagnosis import Diagnosis
from slipstream.epoch.spark_job import added_up
from slipstream.epoch.template import FAILURES
from slipstream.epoch.trouble import trouble_of
from slipstream.observe.switching import Standing
from slipstream.sources import Source
from slipstream.sources.joined import joined
from slipstream.spark.session import BACKFILL_POOL
from slipstream.store.catalog import ViewEntry
from slipstream.store.history import History
from slipstream.store.layout import REBUILD
from slipstream.store.lineage import read_lineage, read_whole
from slipstream.store.store import Claim
from slipstream.trace import LayerName, Span, as_flat, cover, list_layers

crash_points(
    backfill__computed="new views are computed up to some epoch, and nothing of them is in place",
    backfill__in_place="the traces of new views are in place, and the catalog does not name them",
    backfill__taken_up="the catalog names the traces of new views, and no epoch was computed with them",
)


@dataclass
class Backfill:
    """Computes views in a store of their own. template: gives their plan. held: the views that are handed in, as the
    catalog has them. upto: the epoch of the app up to which it is computed. placed: traces that it has made. mending:
    some of these views have failed, so rows that were taken back since are left out. token: by which it knows what its
    tasks say of themselves.
    """

    spark: SparkSession
    claim: Claim
    template: Template
    sources: Mapping[str, Source]
    held: Mapping[str, ViewEntry]
    shards: int
    upto: int = 0
    placed: set[str] = field(default_factory=set)
    mending: bool = False
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _number: int = field(default_factory=count(1).__next__)
    _tried: int = 0
    _epochs: list[tuple[int, int, int]] = field(default_factory=list)
    """Of each epoch of the backfill: its number, and the first and the last of the app's that it stands for."""

    @property
    def folder(self) -> Path:
        """Its own: two may be under way, one beside the run and one of views that the run holds."""
        return self.claim.store.root / f"{REBUILD}-{self.claim.incarnation}-{self._number}"

    def begin(self) -> None:
        self.claim.store.disk.make_folder(self.folder.name)

    def advance(self, upto: int, pool: str = BACKFILL_POOL) -> None:
        """Compute what epochs have brought since, up to one that is computed. If it fails it is tried once more without
        the rows that were taken back since: Spark would not see them either.
        """
        self._tried = upto
        number, sent = self._next()
        try:
            self.template.run(self.spark, self._frames(upto), sent, pool)
        except FAILURES as error:
            trouble = trouble_of(error, self.token)
            if trouble is not None:
                raise trouble from error
            if self.mending or not (
                self.held or any(each.changes.mode == "diff" for each in self.sources.values())
            ):
                raise
            self.mending = True
            self._remove(number)
            self.template.run(self.spark, self._frames(upto), sent, pool)
        self._epochs.append((number, self.upto + 1, upto))
        self.upto = upto

    def explained(self, error: Exception, reads: Mapping[str, set[str]], pool: str) -> EpochFailed:
        """What `advance` failed of when it raised this: in which views, and on which rows."""
        _, sent = self._next()
        diagnosis = Diagnosis(self.spark, self.template, lambda: self._frames(self._tried), sent, reads, pool)
        return diagnosis.told(error)

    def gone(self, name: str, source: Source) -> tuple[str, ...]:
        """What cannot be read any more of the input that was consumed of a source."""
        taken = read_whole(self.claim.store.disk).consumed(name)
        return tuple(each for ranges in taken for each in source.left(ranges)[1])

    def _next(self) -> tuple[int, EpochProperty]:
        number = len(self._epochs) + 1
        return number, EpochProperty(
            str(self.folder), number, self.claim.incarnation, self.shards, token=self.token
        )

    def place(self, wanted: Collection[str]) -> None:
        """Put new traces in place. What was put in place before is added to."""
        crash_point("backfill.computed")
        root = self.claim.store.root
        for trace in wanted:
            if trace not in self.placed:
                remove_trace(self.claim, trace)  # of an attempt of this process to start
                self.placed.add(trace)
        for trace in sorted(self.placed):
            done = max((name.hi for name in list_layers(root / trace)), default=0)
            for number, first, last in self._epochs:
                if last > done:
                    self._add(trace, number, max(first, done + 1), last)
        crash_point("backfill.in_place")

    def end(self) -> None:
        """Remove what it has computed, which is in place by now or of no use."""
        self.claim.check_ours()
        shutil.rmtree(self.folder, ignore_errors=True)

    def displace(self) -> None:
        """Remove what it has put in place, unless the catalog names it by now."""
        if self.placed:
            known = self.claim.store.catalog()
            for trace in sorted(self.placed.difference(known.traces(), known.past_traces())):
                remove_trace(self.claim, trace)

    def _add(self, trace: str, number: int, first: int, last: int) -> None:
        made = self.folder / trace
        for layer in list_layers(made):
            if layer.lo == number:
                as_flat(made, layer, self.claim.store.root / trace, last, first)

    def _remove(self, number: int) -> None:
        """Remove what an attempt has left of an epoch of the backfill."""
        for made in self.folder.glob("traces/*/*"):
            for layer in list_layers(made):
                if layer.lo == number:
                    (made / layer.filename).unlink()

    def _frames(self, upto: int) -> dict[str, DataFrame]:
        """What is to be computed now, of each input that has something."""
        past = read_lineage(self.claim.store.disk).history
        if past.base.epoch > self.upto:
            past = read_whole(self.claim.store.disk)
        frames = {}
        for name, source in self.sources.items():
            ranges = self._ranges(past, name, upto)
            if ranges:
                frames[name] = joined(source, ranges)
        if upto > self.upto:
            frames |= {name: self._handed_in(entry, upto) for name, entry in self.held.items()}
        return {name: added_up(frame) if self.mending else frame for name, frame in frames.items()}

    def _ranges(self, past: History, source: str, upto: int) -> list[object]:
        cuts = [cut.ranges for cut in past.cuts if self.upto < cut.epoch <= upto]
        first = list(past.base.unfolded.get(source, ())) if not self.upto else []
        return [*first, *(ranges[source] for ranges in cuts if source in ranges)]

    def _handed_in(self, entry: ViewEntry, upto: int) -> DataFrame:
        """What a view holds, or its changes since the last time: as it is, also where it was replaced and no epoch has
        come since.
        """
        root, rows = str(self.claim.store.root), list(StructType.fromJson(entry.schema))
        reading: Standing | Reading
        contents = Contents.described(entry.contents)
        if not self.upto:
            reading = Standing(contents, root, self.shards, upto)
            beside = [DIFF]
        else:
            reading = Reading(contents, root, self.shards, upto, self.upto)
            beside = ["", DIFF]
        by_place = places(len(rows) + len(beside))
        kinds = [row.dataType for row in rows] + [LongType()] * len(beside)
        schema = StructType([StructField(*each) for each in zip(by_place, kinds, strict=True)])
        frame = self.spark.range(0, self.shards, 1, self.shards).mapInArrow(
            Telling(reading, self.token), schema
        )
        return frame.select(*by_place[: len(rows)], F.col(by_place[-1]).alias(DIFF))


def clear(claim: Claim) -> None:
    """Remove what backfills of processes before this one have left."""
    for folder in claim.store.root.glob(f"{REBUILD}-*"):
        claim.check_ours()
        shutil.rmtree(folder, ignore_errors=True)


def clear_traces(claim: Claim, named: Collection[str]) -> None:
    """Remove traces that no view has and none was read from: a process that ended in the middle of a change has left
    them. For a start: nothing else is on its way.
    """
    for trace in sorted({*claim.store.traces()} - {*named}):
        remove_trace(claim, trace)


def remove_trace(claim: Claim, trace: str) -> None:
    """Remove a trace with all its layers. Each is named before it is asked whose the store is: who takes it over
    meanwhile, and computes the same trace, gives its layers other names.
    """
    folder = claim.store.root / trace
    with suppress(FileNotFoundError):
        for path in list(folder.iterdir()):
            claim.check_ours()
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it is another's
            folder.rmdir()


def is_whole(claim: Claim, trace: str, epoch: int) -> bool:
    """Whether a trace holds all as of an epoch."""
    try:
        names: list[LayerName] = claim.store.valid_layers(trace)
        return bool(cover(names, epoch, Span.whole()))
    except (MissingLayer, FileNotFoundError):
        return False
