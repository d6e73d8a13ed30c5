"""The epoch's plan, made of what is declared, and made anew when measurements say that another would be better.

What is declared becomes operators once (`plan/compile.py`). The plan of an epoch is made of these and of what is
chosen; where the choice changes (`plan/choosing.py`), the plan is made anew of the same operators. Here the facts are
gathered that choices go by: what Spark measured of the last epoch, and how many rows it left in the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slipstream import plan
from slipstream.core.settings import Settings
from slipstream.dataflow.combine import PARTIAL
from slipstream.dataflow.graph import Step
from slipstream.epoch import Planned, Template
from slipstream.plan import (
    TIME_ZONE,
    Catalyst,
    Choices,
    Fact,
    Looks,
    Meaning,
    Pace,
    TraceNames,
    choose,
    mark_of,
)
from slipstream.sources import Source
from slipstream.trace import epoch_layers


@dataclass(frozen=True)
class Declared:
    """What plans are made of. known: the traces that views, and sources, have in the store already and go on with.
    turn: that of new traces' names. left_out: views that are held, of which nothing is computed.
    """

    spark: SparkSession
    sources: Mapping[str, Source]
    views: Mapping[str, DataFrame]
    recomputed: Collection[str]
    placeholders: Mapping[str, DataFrame]
    shards: int
    settings: Settings
    known: Mapping[str, Collection[str]]
    turn: str = ""
    left_out: Collection[str] = ()


class Plans:
    """The plans of an epoch as they are now: one for much input, by shards, and one for little, by one task."""

    def __init__(self, declared: Declared, root: Path) -> None:
        self._declared, self._root = declared, root
        self._catalyst = Catalyst(declared.spark)
        self.compiled = plan.compile_views(self._catalyst, _to_compile(declared))
        self._addable = self.compiled.addable()
        forced = declared.settings.partial
        self._adaptive = forced is None and bool(self._addable)
        self._choices = Choices(partial=frozenset(self._addable if forced else ()))
        self._looks = Looks()
        self._pace = Pace()
        self._made: dict[bool, Template] = {}
        self._last: Template | None = None
        self.steps: dict[str, Step] = {}
        self._tell()

    def by_shards(self) -> Planned:
        """The plan for much input."""
        return self._planned(one_task=False)

    def by_one_task(self) -> Planned:
        """The plan for little input."""
        return self._planned(one_task=True)

    def chosen(self, rows: int | None) -> Planned:
        """The plan of the next epoch, of about so many rows of input."""
        return self.by_one_task() if self._is_little(rows) and self._pace.one_task() else self.by_shards()

    def took(self, planned: Planned, rows: int | None, seconds: float) -> None:
        """An epoch of about so many rows was computed in so many seconds."""
        self._last = planned.template
        if self._is_little(rows):
            self._pace = self._pace.after(planned.one_task, seconds)

    def measured(self) -> dict[str, dict[str, int]]:
        """What Spark measured of each operator in the last epoch, by the operator's own trace."""
        return {} if self._last is None else self._last.measured()

    def learn(self, epoch: int, rows: int) -> None:
        """An epoch was computed, of so many rows: the next plan may be another one."""
        if not self._adaptive:
            return
        due, self._looks = self._looks.after(rows)
        if not due:
            return
        facts = self._facts(epoch)
        if not facts:
            self._looks = self._looks.in_vain()
        chosen = choose(self._choices, facts)
        if chosen != self._choices:
            self._choices = chosen
            self._made.pop(False, None)
            self._tell()

    def backfilling(self, views: Collection[str], held: Collection[str], *, beside: bool) -> Planned:
        """A plan that computes some views only, given the changes of views that they read. beside: by half as many
        tasks as an epoch, so that epochs find a core that is free. Raises `plan.Unplaced` where that cannot be done
        with these given.
        """
        shards = max(1, self._declared.shards // 2) if beside else self._declared.shards
        alone = beside and shards == 1
        program = plan.lower(
            self._catalyst,
            self.compiled,
            shards=None if alone else shards,
            hash_bits=self._declared.settings.hash_bits,
            partial=() if alone else self._addable,
            only=views,
            held=held,
            routed=self.by_one_task().template.routed,
        )
        return Planned(Template(self._catalyst, program), shards, alone)

    def recorded_schema(self, root: plan.Record) -> pa.Schema:
        """The columns of the trace of a view that is recorded."""
        return plan.recorded_schema(self._catalyst, root)

    def _is_little(self, rows: int | None) -> bool:
        return rows is not None and rows < self._declared.settings.little

    def _planned(self, one_task: bool) -> Planned:
        """A plan, made when it is first asked for. One task adds nothing up for others."""
        declared = self._declared
        if one_task not in self._made:
            program = plan.lower(
                self._catalyst,
                self.compiled,
                shards=None if one_task else declared.shards,
                hash_bits=declared.settings.hash_bits,
                partial=() if one_task else self._choices.partial,
            )
            self._made[one_task] = Template(self._catalyst, program)
        return Planned(self._made[one_task], 1 if one_task else declared.shards, one_task)

    def _tell(self) -> None:
        """Take up what is chosen now where plans are explained."""
        partial = self._choices.partial
        self.steps.update(
            (view.name, plan.step_of(self._catalyst, view.root, partial)) for view in self.compiled.views
        )

    def _facts(self, epoch: int) -> dict[str, Fact]:
        """What is known of the last epoch. Of an aggregation that adds up first, the rows that were left; of any other,
        how many there would have been at most: one for each key and task.
        """
        measured = self.measured()
        found = {}
        for trace in self._addable:
            adds_up = trace in self._choices.partial
            figures = measured.get(f"{trace}{PARTIAL}" if adds_up else trace, {})
            if "rows_in" in figures:
                left = figures["rows_out"] if adds_up else self._most_left(trace, epoch)
                if left is not None:
                    found[trace] = Fact(figures["rows_in"], left)
        return found

    def _most_left(self, trace: str, epoch: int) -> int | None:
        """None if what the epoch wrote has been merged already: the next one will do."""
        try:
            layers = epoch_layers(self._root / trace, epoch)
        except FileNotFoundError:
            return None
        return sum(layer.rows for layer in layers) * self._declared.shards if layers else None


def _to_compile(declared: Declared) -> plan.Declared:
    written = [frame.sparkSession for frame in declared.views.values()]
    session = plan.session_settings(written[0]) if written else {}

    def names(source: str) -> TraceNames:
        return TraceNames(source, declared.known, declared.turn)

    return plan.Declared(
        sources={
            name: _source(source, declared.placeholders[name].schema, session, names(name))
            for name, source in declared.sources.items()
        },
        views=declared.views,
        recomputed=declared.recomputed,
        placeholders=declared.placeholders,
        known=declared.known,
        session=session,
        hash_bits=declared.settings.hash_bits,
        turn=declared.turn,
        left_out=declared.left_out,
    )


def _source(
    source: Source, rows: StructType, session: Mapping[str, str], names: TraceNames
) -> tuple[plan.Source, Meaning]:
    name, changes = source.name, source.changes
    orders = [field.dataType.simpleString() for field in source.order_fields]
    columns = [(field.name, field.dataType.simpleString(), field.nullable, mark_of(field)) for field in rows]
    zone = session.get(TIME_ZONE) if source.goes_by_zone else None
    meaning = plan.of_source(name, columns, [changes.mode, *changes.key, *orders], zone)
    read = plan.Source(
        name=name,
        schema=rows,
        mode=changes.mode,
        key=tuple(changes.key),
        orders=tuple(source.order_fields),
        rejects=source.can_reject,
        trace=names.name("upsert", meaning),
    )
    return read, meaning
