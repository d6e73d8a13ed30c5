"""What there is when an app starts: what is left of its store, and what each replica holds. Plain data, gathered by
`survey` and `inbox`, judged by `recovery`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.durability.board import Replication
from slipstream.durability.losses import LostPast
from slipstream.durability.manifest import CommitName, Kept, Manifest, Stored
from slipstream.durability.splice import Chain, Copies
from slipstream.store.catalog import Catalog
from slipstream.store.store import Identity
from slipstream.trace import Fence, LayerName

Names = Mapping[str, tuple[LayerName, ...]]
Layer = tuple[str, LayerName]
"""A trace and one of its layers."""


@dataclass(frozen=True)
class Restoring:
    """A recovery that was begun: layers from this incarnation on were brought for the history with this line."""

    incarnation: int
    log: int
    digest: str
    said: str


@dataclass(frozen=True)
class Local:
    """What is left of a store. copies: its logs; None where its chain is known to be whole, and was read from its base.
    layers: the sound ones that no fence bars; damaged: the others, and what is wrong with each. digests: of sound
    layers, as far as they matter. documents: what is wrong with either copy of a document. progress: what the agent
    said last, None if it cannot be read. told: what a start has said to be lost of what views were. life: whether there
    is anything that a new store would not have.
    """

    root: str
    identity: Identity | None = None
    catalog: Catalog | None = None
    chain: Chain = field(default_factory=Chain)
    copies: Copies | None = None
    layers: Names = field(default_factory=dict)
    damaged: Mapping[Layer, str] = field(default_factory=dict)
    digests: Mapping[Layer, str] = field(default_factory=dict)
    fences: frozenset[Fence] = frozenset()
    documents: tuple[str, ...] = ()
    progress: Replication | None = field(default_factory=Replication)
    restoring: Restoring | None = None
    told: frozenset[LostPast] = frozenset()
    life: bool = False


@dataclass(frozen=True)
class Commit:
    """A commit of a replica: what it says, or what is wrong with it. totals: the epoch checksums that go with it."""

    name: CommitName
    manifest: Manifest | None = None
    problem: str | None = None
    catalog: Catalog | None = None
    totals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Remote:
    """A replica. commits: those that count, newest first. overruled: those that do not, because of a later incarnation
    that has none itself. copies: stretches of lineage. objects: which are there, and their sizes. incarnation: the
    highest that left a trace there. life: whether anything is there of a store that had begun. bare: there is nothing
    but whose replica it is, who claimed it before the first epoch, and objects that no commit names. spoiled: objects
    that were read and are not what was written. error: why it cannot be read.
    """

    url: str
    error: str | None = None
    owner: Identity | None = None
    commits: tuple[Commit, ...] = ()
    overruled: tuple[Commit, ...] = ()
    copies: Copies = field(default_factory=dict)
    objects: Mapping[str, int] = field(default_factory=dict)
    incarnation: int = 0
    life: bool = False
    bare: bool = False
    spoiled: frozenset[str] = frozenset()

    @property
    def reached(self) -> int | None:
        """The epoch of its newest commit, damaged or not; None if nobody can say what it once had."""
        if self.error is not None or (not self.commits and (self.objects or self.owner is None)):
            return None
        return max((commit.name.epoch for commit in self.commits), default=0)


@dataclass(frozen=True)
class Wanted:
    """A layer to be brought from a replica. stored: the object that it is in, None for an empty layer. instead: of a
    large one, the layers of each other replica that would do as well.
    """

    trace: str
    kept: Kept
    url: str
    stored: Stored | None
    schema: str
    instead: tuple[tuple[Wanted, ...], ...] = ()
