"""Traces by what they hold.

A trace is `traces/VIEW/KIND-DIGEST`: the view that it was first made for, what it is to its operator, and the meaning
of that operator down to the sources (`plan/meaning.py`). So whatever is added, removed or put in another order
elsewhere, an operator finds its own state again, and never that of another. Operators of one view with the same digest
are told apart by a number at the end; as they mean the same, it does not matter which has which.

What views have in common lies with one of them. It stays there when others come to share it, or when that view is gone:
what a store has already (`known`, the traces of each view) goes before a new name.

A name is given once. What is made once epochs were computed has a *turn* at the end of its name, which no other plan of
the app ever has: so a view that is computed anew, or comes back, never meets what its traces were before, be that still
read, or in the hands of a merge that knows nothing of the change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from slipstream.plan.catalyst import Catalyst, Describer, Node
from slipstream.plan.functions import PYTHON as PYTHON_VERSION
from slipstream.plan.meaning import DEFAULTS, LEGACY, PYTHON, TIME_ZONE, Meaning, of_node
from slipstream.plan.settled import settled

Known = Mapping[str, Collection[str]]

_TURN = re.compile(r"-t\d+(\.\d+)?$")

_NOTHING = {"SubqueryAlias", "Repartition", "RepartitionByExpression", "RebalancePartitions"}
"""Nodes that give what they are given."""


def session_settings(spark: SparkSession) -> dict[str, str]:
    """The settings of a session that change answers."""
    given = {
        key: value.lower() if value.lower() in ("true", "false") else value
        for key, value in spark.conf.getAll.items()
    }
    legacy = {key: value for key, value in given.items() if key.startswith(LEGACY)}
    known = {key: given.get(key, default) for key, default in DEFAULTS.items()}
    zone = spark.conf.get(TIME_ZONE) or "UTC"
    return {**legacy, **known, TIME_ZONE: zone, PYTHON: PYTHON_VERSION}


class Meanings:
    """What the nodes of an app's plans mean."""

    def __init__(self, catalyst: Catalyst, session: Mapping[str, str]) -> None:
        self._catalyst = catalyst
        self._session = session
        self._describer = Describer(catalyst)
        self._leaves: dict[int, Meaning] = {}
        self._nodes: dict[Node, Meaning] = {}

    def know(self, leaf: int, meaning: Meaning) -> None:
        """What a placeholder stands for."""
        self._leaves[leaf] = meaning

    def of(self, node: Node) -> Meaning:
        leaf = self._catalyst.leaf_id(node)
        if leaf is not None and leaf in self._leaves:
            return self._leaves[leaf]
        if node in self._nodes:
            return self._nodes[node]
        inputs = [self.of(child) for child in self._catalyst.children(node)]
        if self._catalyst.kind(node) in _NOTHING:
            return inputs[0]
        return self._nodes.setdefault(node, of_node(self._describer.node(node), inputs, self._session))

    def of_query(self, plan: Node) -> Meaning:
        """A view's query. In which order its rows are shown is no part of what is kept."""
        while self._catalyst.kind(plan) == "Sort":
            plan = self._catalyst.children(plan)[0]
        return self.of(plan)


def means_the_same(catalyst: Catalyst, leaves: Mapping[int, str], before: DataFrame, now: DataFrame) -> bool:
    """Whether two queries mean the same. leaves: the placeholders that both read, with their names."""
    told = []
    for frame in (before, now):
        meanings = Meanings(catalyst, session_settings(frame.sparkSession))
        for leaf, name in leaves.items():
            meanings.know(leaf, Meaning(name, name))
        told.append(meanings.of(settled(catalyst, catalyst.optimised(frame))))
    return told[0].whole == told[1].whole


class TraceNames:
    """Gives the traces of a view, or of a source, their names. turn: that of new ones; none before the first epoch."""

    def __init__(self, view: str, known: Known, turn: str = "") -> None:
        self._view, self._turn = view, turn
        self._own = {_last(trace): trace for trace in known.get(view, ())}
        self._all = {_last(trace): trace for view in sorted(known) for trace in known[view]}
        self._taken: Counter[str] = Counter()
        self._sharing = False

    @contextmanager
    def sharing(self, shared: bool = True) -> Iterator[None]:
        """While this is open, what is named is in common with other views, if it is: then it may lie with any of
        them.
        """
        before, self._sharing = self._sharing, self._sharing or shared
        try:
            yield
        finally:
            self._sharing = before

    def name(self, kind: str, meaning: Meaning) -> str:
        name = f"{kind}-{meaning.short}"
        self._taken[name] += 1
        if self._taken[name] > 1:
            name = f"{name}-{self._taken[name]}"
        if name in self._own:
            return self._own[name]
        if self._sharing and name in self._all:
            return self._all[name]
        return in_turn(f"traces/{self._view}/{name}", self._turn)


def in_turn(trace: str, turn: str) -> str:
    """The name of a trace that is made in a turn."""
    return f"{trace}-t{turn}" if turn else trace


def _last(trace: str) -> str:
    """What a trace is, of whichever turn."""
    return _TURN.sub("", trace.rpartition("/")[2])
