"""What lowering a node gives: a Spark plan for the change of its output; and what builds it.

The plan outputs the node's own attributes (same expression ids), an attribute `diff` that says how often the
row is added or taken away, and sometimes `route`: the hash by which the rows already lie in shards, so that a
view can be written where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, LongType, StructField, StructType

from slipstream.dataflow.operator import Operator
from slipstream.plan.catalyst import Catalyst, Expr, Node

Layout = Literal["free", "sharded", "mixed"]
Columns = dict[str, tuple[Column, DataType]]
"""What an operator is sent: columns by name."""


@dataclass(frozen=True)
class Delta:
    """A plan for the change of a collection.

    layout says how its last stage lies in partitions. `free`: no operator runs in it, so any partitions will
    do. `sharded`: operators run in it, and partition i holds shard i modulo the number of shards. `mixed`: a
    union of both, sharded partitions first.
    """

    plan: Node
    diff: Expr
    route: Expr | None
    layout: Layout
    inserts_only: bool = False  # every diff is 1, so that it need not be sent to an operator
    unplaced: bool = False  # it is handed in without the route that it has where it is computed

    def extras(self) -> list[Expr]:
        return [self.diff] if self.route is None else [self.diff, self.route]


class Unplaced(Exception):
    """A view would be written by other hashes than epochs write it by: what it reads was handed in without them."""

    def __init__(self, view: str) -> None:
        self.view = view
        super().__init__(view)


@dataclass(frozen=True)
class Leaf:
    """A placeholder in the epoch's template that each epoch replaces by a plan with as many columns, by
    position.
    """

    number: int
    node: Node
    attributes: tuple[Expr, ...]


@dataclass(frozen=True)
class Shared:
    """A change that several operators read: computed once an epoch, kept for the epoch, and bound to its
    leaf.
    """

    leaf: Leaf
    plan: Node


@dataclass(frozen=True)
class Constant:
    """A relation that is part of the query: its rows are bound to its leaf in the first epoch, and never again."""

    leaf: Leaf
    plan: Node


@dataclass(frozen=True)
class Program:
    """The plan of an epoch. leaves: those of the sources, by name. terminals: what an epoch runs; views: the plans that
    compute each view, to try one alone. routed: the sources and views whose change has a route.
    """

    leaves: Mapping[str, Leaf]
    shared: tuple[Shared, ...]
    constants: tuple[Constant, ...]
    terminals: tuple[Node, ...]
    views: Mapping[str, tuple[Node, ...]]
    routed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Stored:
    """An attribute of an operator's input and the column it is kept in."""

    attribute: Expr
    column: str


def bind(catalyst: Catalyst, leaf: Leaf, plan: Node) -> Node:
    """A plan in the place of a leaf: its columns, by position, under the leaf's expression ids."""
    pairs = zip(catalyst.output(plan), leaf.attributes, strict=True)
    return catalyst.project([catalyst.renamed(mine, theirs) for mine, theirs in pairs], plan)


class Builder:
    """What all of lowering uses to build: hashes, shards, leaves, shared plans.

    shards: None for a plan that one task runs from end to end, with no shuffle in it. There is one shard then, which
    holds everything, and Spark knows that its rows lie together for whatever Catalyst does between two operators.
    """

    def __init__(self, catalyst: Catalyst, shards: int | None, hash_bits: int = 64) -> None:
        self.catalyst = catalyst
        self._shards = shards
        self.hash_bits = hash_bits
        self.shared: list[Shared] = []
        self.constants: list[Constant] = []

    def hash(self, keys: Iterable[Column]) -> Column:
        """The 64-bit hash of some columns; tests shorten it so that hashes collide."""
        columns = list(keys)
        if not columns:
            return F.lit(0).cast("long")
        return self.shortened(F.xxhash64(*columns))

    def hashable(self, values: Iterable[tuple[Column, DataType]]) -> list[Column]:
        """Those of a row's values that Spark hashes: all but maps. Rows of one hash are told apart by their
        values.
        """
        return [column for column, kind in values if "map<" not in kind.simpleString()]

    def shortened(self, value: Column) -> Column:
        cut = 64 - self.hash_bits
        return F.shiftleft(F.shiftright(value, cut), cut) if cut else value

    def by_shard(self, frame: DataFrame) -> DataFrame:
        """Rows sent to the shard that holds their `h`: a contiguous range of it."""
        if self._shards is None:
            return frame.coalesce(1)
        top = F.shiftright("h", 33) + F.lit(1 << 30)
        return frame.repartitionById(self._shards, F.shiftright(top * F.lit(self._shards), 31).cast("int"))

    def together(self, frame: DataFrame, *columns: Column | str) -> DataFrame:
        """Rows in as many partitions as there are shards, those with equal columns in one."""
        return frame.coalesce(1) if self._shards is None else frame.repartition(self._shards, *columns)

    def union(self, parts: Sequence[tuple[Node, Layout]]) -> tuple[Node, Layout]:
        """The union of some plans with the same attributes, and its layout.

        A task knows its shard by the number of its partition, and Spark numbers the partitions of a union one
        part after another. So sharded parts come first; a part that is mixed itself is shuffled, which ends
        its stage.
        """
        ended = [
            (self._ended(plan), "free") if layout == "mixed" else (plan, layout) for plan, layout in parts
        ]
        sharded = [plan for plan, layout in ended if layout == "sharded"]
        free = [plan for plan, layout in ended if layout == "free"]
        layout: Layout = "free" if not sharded else "mixed" if free else "sharded"
        return self.catalyst.union([*sharded, *free]), layout

    def _ended(self, plan: Node) -> Node:
        return self.catalyst.over(plan, lambda frame: self.together(frame, *frame.columns))

    def leaf(self, frame: DataFrame) -> Leaf:
        node = self.catalyst.analysed(frame)
        return Leaf(self.catalyst.leaf_of(frame), node, tuple(self.catalyst.output(node)))

    def share(self, plan: Node) -> Node:
        """A plan that stands for `plan` wherever it is used, and is computed once."""
        catalyst = self.catalyst
        leaf = self.leaf(catalyst.placeholder(catalyst.schema(plan)))
        self.shared.append(Shared(leaf, plan))
        return self._under(leaf, plan)

    def constant(self, plan: Node) -> Node:
        """A plan that stands for the change of a relation that never changes: its rows, once."""
        catalyst = self.catalyst
        leaf = self.leaf(catalyst.placeholder(catalyst.schema(plan)))
        self.constants.append(Constant(leaf, plan))
        return self._under(leaf, plan)

    def _under(self, leaf: Leaf, plan: Node) -> Node:
        """A leaf under the attributes of the plan that it stands for."""
        pairs = zip(leaf.attributes, self.catalyst.output(plan), strict=True)
        return self.catalyst.project(
            [self.catalyst.renamed(mine, theirs) for mine, theirs in pairs], leaf.node
        )

    def restored(self, stage: Node, columns: Iterable[Stored]) -> list[Expr]:
        """Columns of a stage's output under the attributes that they hold."""
        by_name = {self.catalyst.name(attribute): attribute for attribute in self.catalyst.output(stage)}
        return [self.catalyst.renamed(by_name[each.column], each.attribute) for each in columns]

    def out(self, stage: Node, name: str, rename: str | None = None) -> Expr:
        """One column of a stage's output, as a new attribute."""
        found = next(a for a in self.catalyst.output(stage) if self.catalyst.name(a) == name)
        return self.catalyst.alias(found, rename or name)

    def store(
        self, attributes: Sequence[Expr], keys: Sequence[Expr], prefix: str
    ) -> tuple[Columns, list[Stored]]:
        """Columns in which to keep some attributes beside their keys: none for an attribute that is a key
        itself.
        """
        columns: Columns = {}
        stored = []
        for attribute in attributes:
            same = [
                i for i, key in enumerate(keys) if self.is_plain(key) and self.catalyst.same(key, attribute)
            ]
            name = f"k{same[0]}" if same else f"{prefix}{len(columns)}"
            if not same:
                columns[name] = (self.catalyst.column(attribute), self.catalyst.type_of(attribute))
            stored.append(Stored(attribute, name))
        return columns, stored

    def keys(self, exprs: Sequence[Expr]) -> Columns:
        """The columns k0, k1, ... of some keys."""
        return {
            f"k{i}": (self.catalyst.column(each), self.catalyst.type_of(each)) for i, each in enumerate(exprs)
        }

    def whole_row(self, values: Columns) -> Columns:
        """Rows by a hash of all that is in them: h, r and the values."""
        row = self.hash(self.hashable(values.values()))
        return {"h": (row, LongType()), "r": (row, LongType()), **values}

    def input_schema(self, columns: Columns) -> pa.Schema:
        """What an operator is given that is sent these columns."""
        return self.catalyst.schema_of({name: kind for name, (_, kind) in columns.items()})

    def stage(self, child: Node, columns: Columns, operator: Operator, shuffle: bool = True) -> Node:
        """The node that runs an operator over some columns of `child`, by shard."""
        known = from_arrow_schema(operator.output(), prefer_timestamp_ntz=True)
        sent = {name: kind for name, (_, kind) in columns.items()}
        output = StructType([StructField(f.name, sent.get(f.name, f.dataType)) for f in known])

        def run(frame: DataFrame) -> DataFrame:
            selected = frame.select(*[column.alias(name) for name, (column, _) in columns.items()])
            routed = self.by_shard(selected) if shuffle else selected
            return routed.mapInArrow(operator, output)

        return self.catalyst.over(child, run)

    def is_plain(self, key: Expr) -> bool:
        """Whether a key is an attribute that normalising leaves as it is."""
        return self.catalyst.normalised(key) == key and self.catalyst.kind(key) == "AttributeReference"
