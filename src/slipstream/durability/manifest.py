"""What a replica holds: one JSON object, the *commit*, that names every other object that counts.

| object | name | what |
| --- | --- | --- |
| owner | `owner.json` | whose replica it is: a checked document with the app's name and identity |
| claim | `incarnations/INCARNATION-AFTER-TOKEN` | this incarnation began after that epoch |
| commit | `commits/EPOCH-INCARNATION-SEQUENCE-CRC.json` | everything up to EPOCH is here, and where; twice |
| data | `data/INCARNATION-LO-HI-TOKEN-N.parquet` | layers of one schema, each some row groups |
| lineage | `lineage/LOG-START-STOP-TOKEN.log` | bytes START to STOP of the lineage log of incarnation LOG |
| sums | `sums/INCARNATION-TOKEN.log` | the epoch checksums as of the commit |
| catalog | `catalog/INCARNATION-TOKEN.json` | the store's catalog, a checked document; two objects, one a copy |

A commit is written after all that it names, so a reader needs nothing but a listing and one read: the newest valid
commit is the whole truth about layers, and what it does not name is not there. Its name has the CRC of its body, and
the object holds that body twice, a line each: a flipped bit or a cut costs one of them. A TOKEN is random, so that no
name is used twice, whoever writes.

Lineage runs ahead of commits. It is small, it is sent more often, and its lines prove themselves (`store.chain`): a
reader takes the lineage objects that are there by their names, whether a commit names them or not, as far as the chain
holds. So a restored store knows the cuts of epochs whose layers never arrived, and computes them again as they were.

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
from functools import cached_property
from typing import Any

from slipstream.core.errors import BadName, BadTraceName, DamagedObject
from slipstream.store.shapes import checked
from slipstream.trace import LayerName
from slipstream.trace.naming import checked_trace

FORMAT = 2
OWNER = "owner.json"
_COMMIT = re.compile(r"commits/(\d{10,18})-(\d{6,18})-(\d{8,18})-([0-9a-f]{8})\.json", re.ASCII)
_LINEAGE = re.compile(r"lineage/(\d{6,18})-(\d{12,18})-(\d{12,18})-[0-9a-f]+\.log", re.ASCII)
_OBJECT = re.compile(r"(data|lineage|sums|catalog)/[\w-][\w.-]*", re.ASCII)
_CLAIM = re.compile(r"incarnations/(\d{6,18})-(\d{10,18})-([0-9a-f]+)", re.ASCII)


@dataclass(frozen=True)
class Stored:
    """An object and what it must be like."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Kept:
    """A layer on a replica: `groups` row groups of an object, from `first` on. An empty layer is in no object. digest:
    that of the file that it was made of; a file with another digest is not this layer.
    """

    layer: LayerName
    rows: int
    bytes: int
    object: str = ""
    first: int = 0
    groups: int = 0
    digest: str = ""


@dataclass(frozen=True)
class Segment:
    """A stretch of a lineage log: its bytes from `start` up to `stop`."""

    log: int
    start: int
    stop: int
    object: str

    @staticmethod
    def parse(name: str) -> Segment | None:
        """What the name of a lineage object says; None if it is none."""
        found = _LINEAGE.fullmatch(name)
        return found and Segment(int(found[1]), int(found[2]), int(found[3]), name)


def segment_name(log: int, start: int, stop: int, token: str) -> str:
    return f"lineage/{log:06d}-{start:012d}-{stop:012d}-{token}.log"


@dataclass(frozen=True)
class Manifest:
    """All that a replica holds as of an epoch. A trace's schema is here, because an empty layer has none elsewhere.
    id: the app's identity. catalog: the objects that hold the store's, each all of it. safe: the newest epoch that was
    called safe by then.
    """

    app: str
    id: str
    incarnation: int
    sequence: int
    epoch: int
    clock: float
    catalog: tuple[str, ...]
    objects: Mapping[str, Stored]
    layers: Mapping[str, tuple[Kept, ...]]
    schemas: Mapping[str, str]
    identities: Mapping[str, str]
    lineage: tuple[Segment, ...]
    sums: str = ""
    safe: int = 0

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(each.size for each in self.objects.values())

    def names(self, trace: str) -> list[LayerName]:
        return [kept.layer for kept in self.layers.get(trace, ())]

    def referred(self) -> set[str]:
        """The objects that something in here is in."""
        data = {kept.object for layers in self.layers.values() for kept in layers if kept.object}
        return (data | {segment.object for segment in self.lineage} | {*self.catalog, self.sums}) - {""}

    def tidy(self) -> Manifest:
        """Without objects that nothing is in any more."""
        needed = self.referred()
        return replace(self, objects={name: each for name, each in self.objects.items() if name in needed})

    @cached_property
    def object(self) -> str:
        """The commit's name."""
        return self.encode()[0]

    def encode(self) -> tuple[str, bytes]:
        """The commit's name and body."""
        body = json.dumps(
            {
                "format": FORMAT,
                "app": self.app,
                "id": self.id,
                "incarnation": self.incarnation,
                "sequence": self.sequence,
                "epoch": self.epoch,
                "clock": self.clock,
                "catalog": list(self.catalog),
                "objects": [[each.name, each.size, each.sha256] for each in self.objects.values()],
                "layers": {
                    trace: [
                        [
                            each.layer.filename,
                            each.rows,
                            each.bytes,
                            each.object,
                            each.first,
                            each.groups,
                            each.digest,
                        ]
                        for each in layers
                    ]
                    for trace, layers in self.layers.items()
                },
                "schemas": dict(self.schemas),
                "identities": dict(self.identities),
                "lineage": [each.object for each in self.lineage],
                "sums": self.sums,
                "safe": self.safe,
            },
            separators=(",", ":"),
        ).encode()
        name = CommitName(self.epoch, self.incarnation, self.sequence, zlib.crc32(body))
        return name.object, body + b"\n" + body + b"\n"

    @staticmethod
    def decode(name: CommitName, body: bytes, where: str) -> Manifest:
        """What a commit says; an error if it is not what its name promises, or names what no replica has."""
        whole = [line for line in body.split(b"\n") if line and zlib.crc32(line) == name.crc]
        if not whole:
            raise DamagedObject(where, name.object, "its checksum is not the one in its name")
        try:
            made = checked(_decoded(json.loads(whole[0])))
            if (made.epoch, made.incarnation, made.sequence) != (name.epoch, name.incarnation, name.sequence):
                raise ValueError("it is another than its name says")
            if made.layers.keys() - made.schemas.keys():
                raise ValueError("a trace has no schema")
            return made
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            RecursionError,
            BadName,
            BadTraceName,
        ) as error:
            raise DamagedObject(where, name.object, f"it is no commit ({error})") from error


def _decoded(said: dict[str, Any]) -> Manifest:
    if said["format"] != FORMAT:
        raise ValueError(
            f"it has format {said['format']}, and this version of Slipstream reads format {FORMAT}"
        )
    objects = {each[0]: Stored(*each) for each in said["objects"]}
    for name in objects:
        if not _OBJECT.fullmatch(name):
            raise BadName(name)
    return Manifest(
        app=said["app"],
        id=said["id"],
        incarnation=said["incarnation"],
        sequence=said["sequence"],
        epoch=said["epoch"],
        clock=said["clock"],
        catalog=tuple(said["catalog"]) if isinstance(said["catalog"], list) else (said["catalog"],),
        objects=objects,
        layers={
            checked_trace(trace): tuple(_kept(*each) for each in listed)
            for trace, listed in said["layers"].items()
        },
        schemas=said["schemas"],
        identities=said["identities"],
        lineage=tuple(_segment(each) for each in said["lineage"]),
        sums=said["sums"],
        safe=said["safe"],
    )


def _segment(name: str) -> Segment:
    segment = Segment.parse(name)
    if segment is None:
        raise ValueError(f"'{name}' is no stretch of lineage")
    return segment


def _kept(filename: str, *rest: Any) -> Kept:
    name = LayerName.parse(filename)
    if name is None:
        raise ValueError(f"'{filename}' is no layer's name")
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
