"""What compiling a node gives: a Spark plan for the change of its output.

The plan outputs the node's own attributes (same expression ids), an attribute `diff` that says how often the
row is added or taken away, and sometimes `route`: the hash by which the rows already lie in shards, so that a
view can be written where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from slipstream.dataflow.graph import Step
from slipstream.plan.catalyst import Catalyst, Expr, Node

Layout = Literal["free", "sharded", "mixed"]
Way = Literal["shuffle", "broadcast", "moving"]
"""How a join gets its large input: by key; where it lies, because the small one is broadcast; or by key with what was
put aside while it was.
"""


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
    step: Step
    layout: Layout
    inserts_only: bool = False  # every diff is 1, so that it need not be sent to an operator
    unrouted: bool = False  # one operator's output all the same, but not always by the same hash

    @property
    def placed(self) -> bool:
        """Whether its last stage is one operator's, with one partition for each shard."""
        return self.layout == "sharded" and (self.route is not None or self.unrouted)

    def extras(self) -> list[Expr]:
        return [self.diff] if self.route is None else [self.diff, self.route]


@dataclass(frozen=True)
class Leaf:
    """A placeholder in the epoch's template that each epoch replaces by a plan with as many columns, by
    position.
    """

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
class Stored:
    """An attribute of an operator's input and the column it is kept in."""

    attribute: Expr
    column: str


@dataclass(frozen=True)
class Small:
    """The side of a join that may be broadcast: its trace, and the leaves that its change is made of."""

    trace: str
    leaves: frozenset[int]


@dataclass(frozen=True)
class Counted:
    """Where to see whether adding rows up before they are shuffled pays: the operators that are given the rows and,
    unless those add them up already, the traces whose layers have a row for each key that they touch.
    """

    operators: tuple[str, ...]
    traces: tuple[str, ...] = ()


class Builder:
    """What all the rules use to build: hashes, shards, leaves, shared plans."""

    def __init__(
        self,
        catalyst: Catalyst,
        shards: int,
        hash_bits: int = 64,
        partial: Callable[[str], bool] = lambda trace: False,
        way: Callable[[str], Way] = lambda aside: "shuffle",
    ) -> None:
        self.catalyst = catalyst
        self.shards = shards
        self.hash_bits = hash_bits
        self.partial = partial
        """Whether an operator, known by its first trace, has its input added up before it is shuffled, if it can."""
        self.can_be_partial: dict[str, Counted] = {}
        self.way = way
        """How a join that may broadcast its small side, known by where it puts rows aside, is to be done."""
        self.can_be_broadcast: dict[str, Small] = {}
        self.idle: list[Node] = []
        """Terminals that only see to it that operators run whose output nothing takes."""
        self.shared: list[Shared] = []
        self.constants: list[Constant] = []
        self.begins = False
        """Whether some view has rows before there is any input, so that the first epoch must not wait for it."""

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
        top = F.shiftright("h", 33) + F.lit(1 << 30)
        return frame.repartitionById(self.shards, F.shiftright(top * F.lit(self.shards), 31).cast("int"))

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
        return self.catalyst.over(plan, lambda frame: frame.repartition(self.shards, *frame.columns))

    def leaf(self, frame: DataFrame) -> Leaf:
        node = self.catalyst.analysed(frame)
        return Leaf(node, tuple(self.catalyst.output(node)))

    def bind(self, leaf: Leaf, plan: Node) -> Node:
        """A plan in the place of a leaf: its columns, by position, under the leaf's expression ids."""
        pairs = zip(self.catalyst.output(plan), leaf.attributes, strict=True)
        return self.catalyst.project([self.catalyst.renamed(mine, theirs) for mine, theirs in pairs], plan)

    def share(self, plan: Node) -> Node:
        """A plan that stands for `plan` wherever it is used, and is computed once."""
        catalyst = self.catalyst
        leaf = self.leaf(catalyst.placeholder(catalyst.schema(plan)))
        self.shared.append(Shared(leaf, plan))
        pairs = zip(leaf.attributes, catalyst.output(plan), strict=True)
        return catalyst.project([catalyst.renamed(mine, theirs) for mine, theirs in pairs], leaf.node)

    def constant(self, plan: Node) -> Node:
        """A plan that stands for the change of a relation that never changes: its rows, once."""
        catalyst = self.catalyst
        leaf = self.leaf(catalyst.placeholder(catalyst.schema(plan)))
        self.constants.append(Constant(leaf, plan))
        self.begins = True
        pairs = zip(leaf.attributes, catalyst.output(plan), strict=True)
        return catalyst.project([catalyst.renamed(mine, theirs) for mine, theirs in pairs], leaf.node)

    def leaves_below(self, plan: Node) -> frozenset[int]:
        """The placeholders whose rows a plan is made of, through all that is shared."""
        leaves = self.catalyst.leaves(plan)
        return leaves.union(*(self.leaves_below(each.plan) for each in self._shared_among(leaves)))

    def reads_shared(self, plan: Node) -> bool:
        """Whether a plan reads what is computed once for several."""
        return bool(self._shared_among(self.catalyst.leaves(plan)))

    def _shared_among(self, leaves: frozenset[int]) -> list[Shared]:
        return [each for each in self.shared if self.catalyst.leaf_id(each.leaf.node) in leaves]

    def restored(self, stage: Node, columns: Iterable[Stored]) -> list[Expr]:
        """Columns of a stage's output under the attributes that they hold."""
        by_name = {attribute.name(): attribute for attribute in self.catalyst.output(stage)}
        return [self.catalyst.renamed(by_name[each.column], each.attribute) for each in columns]

    def out(self, stage: Node, name: str, rename: str | None = None) -> Expr:
        """One column of a stage's output, as a new attribute."""
        found = next(a for a in self.catalyst.output(stage) if a.name() == name)
        return self.catalyst.alias(found, rename or name)

    def store(
        self, attributes: list[Expr], keys: list[Expr], prefix: str
    ) -> tuple[dict[str, tuple[Column, DataType]], list[Stored]]:
        """Columns in which to keep some attributes beside their keys: none for an attribute that is a key
        itself.
        """
        columns: dict[str, tuple[Column, DataType]] = {}
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

    def is_plain(self, key: Expr) -> bool:
        """Whether a key is an attribute that normalising leaves as it is."""
        same: bool = self.catalyst.normalised(key).equals(key)
        return same and self.catalyst.kind(key) == "AttributeReference"
