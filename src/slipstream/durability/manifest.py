"""What a replica holds: one JSON object, the *commit*, that names every other object that counts.

| object | name | what |
| --- | --- | --- |
| claim | `incarnations/INCARNATION-AFTER-TOKEN` | this incarnation began after that epoch |
| commit | `commits/EPOCH-INCARNATION-SEQUENCE-CRC.json` | everything up to EPOCH is here, and where |
| data | `data/INCARNATION-LO-HI-TOKEN-N.parquet` | layers of one schema, each some row groups |
| lineage | `lineage/INCARNATION-LO-HI-TOKEN.jsonl` | lines of the lineage log |
| catalog | `catalog/INCARNATION-TOKEN.json` | the store's catalog |

A commit is written after all that it names, so a reader needs nothing but a listing and one read: the newest valid
commit is the whole truth, and what it does not name is not there. Its name has the CRC of its body: one that was
written in part is no commit. A TOKEN is random, so that no name is used twice, whoever writes.

Newest means: of the highest incarnation, then of the highest sequence. Valid means: an incarnation's commits count
up to the epoch after which a later one began. So a process that was succeeded and does not know it may go on
writing; nobody reads it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from slipstream.errors import DamagedObject
from slipstream.trace import LayerName

FORMAT = 1
_COMMIT = re.compile(r"commits/(\d{10,})-(\d{6,})-(\d{8,})-([0-9a-f]{8})\.json")
_CLAIM = re.compile(r"incarnations/(\d{6,})-(\d{10,})-([0-9a-f]+)")


@dataclass(frozen=True)
class Stored:
    """An object and what it must be like."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Kept:
    """A layer on a replica: `groups` row groups of an object, from `first` on. An empty layer is in no object."""

    layer: LayerName
    rows: int
    bytes: int
    object: str = ""
    first: int = 0
    groups: int = 0


@dataclass(frozen=True)
class Segment:
    """A stretch of lineage: the lines of epochs `lo` to `hi`."""

    lo: int
    hi: int
    object: str


@dataclass(frozen=True)
class Manifest:
    """All that a replica holds as of an epoch. A trace's schema is here, because an empty layer has none elsewhere."""

    app: str
    incarnation: int
    sequence: int
    epoch: int
    clock: float
    catalog: str
    objects: Mapping[str, Stored]
    layers: Mapping[str, tuple[Kept, ...]]
    schemas: Mapping[str, str]
    identities: Mapping[str, str]
    lineage: tuple[Segment, ...]

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(each.size for each in self.objects.values())

    def names(self, trace: str) -> list[LayerName]:
        return [kept.layer for kept in self.layers.get(trace, ())]

    def referred(self) -> set[str]:
        """The objects that something in here is in."""
        data = {kept.object for layers in self.layers.values() for kept in layers if kept.object}
        return data | {segment.object for segment in self.lineage} | {self.catalog}

    def tidy(self) -> Manifest:
        """Without objects that nothing is in any more."""
        needed = self.referred()
        return replace(self, objects={name: each for name, each in self.objects.items() if name in needed})

    def encode(self) -> tuple[str, bytes]:
        """The commit's name and body."""
        body = json.dumps(
            {
                "format": FORMAT,
                "app": self.app,
                "incarnation": self.incarnation,
                "sequence": self.sequence,
                "epoch": self.epoch,
                "clock": self.clock,
                "catalog": self.catalog,
                "objects": [[each.name, each.size, each.sha256] for each in self.objects.values()],
                "layers": {
                    trace: [
                        [each.layer.filename, each.rows, each.bytes, each.object, each.first, each.groups]
                        for each in layers
                    ]
                    for trace, layers in self.layers.items()
                },
                "schemas": dict(self.schemas),
                "identities": dict(self.identities),
                "lineage": [[each.lo, each.hi, each.object] for each in self.lineage],
            },
            separators=(",", ":"),
        ).encode()
        name = CommitName(self.epoch, self.incarnation, self.sequence, zlib.crc32(body))
        return name.object, body

    @staticmethod
    def decode(name: CommitName, body: bytes, where: str) -> Manifest:
        """What a commit says; an error if it is not what its name promises."""
        if zlib.crc32(body) != name.crc:
            raise DamagedObject(where, name.object, "its checksum is not the one in its name")
        said = json.loads(body)
        layers = {trace: tuple(_kept(*each) for each in listed) for trace, listed in said["layers"].items()}
        return Manifest(
            said["app"],
            said["incarnation"],
            said["sequence"],
            said["epoch"],
            said["clock"],
            said["catalog"],
            {each[0]: Stored(*each) for each in said["objects"]},
            layers,
            said["schemas"],
            said["identities"],
            tuple(Segment(*each) for each in said["lineage"]),
        )


def _kept(filename: str, *rest: Any) -> Kept:
    name = LayerName.parse(filename)
    assert name is not None, f"'{filename}' is no layer's name"
    return Kept(name, *rest)


@dataclass(frozen=True)
class CommitName:
    """What a commit's name says."""

    epoch: int
    incarnation: int
    sequence: int
    crc: int

    @property
    def object(self) -> str:
        return f"commits/{self.epoch:010d}-{self.incarnation:06d}-{self.sequence:08d}-{self.crc:08x}.json"

    @staticmethod
    def parse(name: str) -> CommitName | None:
        found = _COMMIT.fullmatch(name)
        return found and CommitName(int(found[1]), int(found[2]), int(found[3]), int(found[4], 16))


@dataclass(frozen=True)
class ClaimName:
    """What a claim's name says: an incarnation, the epoch after which it began, and who claims it."""

    incarnation: int
    after: int
    token: str

    @property
    def object(self) -> str:
        return f"incarnations/{self.incarnation:06d}-{self.after:010d}-{self.token}"

    @staticmethod
    def parse(name: str) -> ClaimName | None:
        found = _CLAIM.fullmatch(name)
        return found and ClaimName(int(found[1]), int(found[2]), found[3])


def valid_commits(commits: Iterable[str], claims: Iterable[str]) -> list[CommitName]:
    """The commits that count, by their names alone, newest first."""
    began = [claim for name in claims if (claim := ClaimName.parse(name)) is not None]

    def counts(commit: CommitName) -> bool:
        return all(commit.epoch <= claim.after for claim in began if claim.incarnation > commit.incarnation)

    parsed = [commit for name in commits if (commit := CommitName.parse(name)) is not None]
    return sorted(filter(counts, parsed), key=lambda each: (each.incarnation, each.sequence), reverse=True)
