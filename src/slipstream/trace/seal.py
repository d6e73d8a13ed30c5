"""The seal at the end of a layer's file: what the file is, and what its bytes must be. Pure: bytes in, bytes out.

    [Arrow bytes][body][8 bytes: length of the body][8 bytes: xxh3_64 of the body][b"SLIPSEAL"]

Numbers are little-endian. The body is JSON: the format, the layer's file name, the trace (the last two components of
its folder), the number of Arrow bytes, a digest of the Arrow bytes that are in no part (schema and footer), and for
each part its offset, length, rows, first and last `h` and a digest. All digests are xxh3_64.

Whoever opens a layer checks the seal and what is in no part, which is some hundred bytes. Each part is checked when
it is first read. So every byte of a file is under exactly one digest, no byte counts before its digest was compared,
and what is not read costs nothing. A file under another layer's name, or in another trace, is not that layer even if
each byte of it is whole. The seal says which hashes a part holds, so a lookup can choose parts without reading them.

The *digest of a layer* is the xxh3_128 of the body. The body has the digests of everything else in it, so two layers
with one digest are the same bytes.

Not promised: safety against somebody who forges a seal. A digest tells accidents, not malice.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from xxhash import xxh3_64, xxh3_64_intdigest, xxh3_128_hexdigest

FORMAT = 2
MAGIC = b"SLIPSEAL"
TAIL = struct.Struct("<QQ8s")
MAGIC_BYTES = 8  # of an Arrow file, before its schema

_compact = json.JSONEncoder(separators=(",", ":")).encode


class BrokenSeal(ValueError):
    """Bytes that are not what a seal says, or no seal. Its text is what is wrong with the file."""


class SealedPart(NamedTuple):
    """Where a part's bytes are, what they hold, and their digest."""

    offset: int
    length: int
    rows: int
    first: int
    last: int
    digest: int

    @property
    def end(self) -> int:
        return self.offset + self.length

    def check(self, message: Any) -> None:
        """Raise unless these are the part's bytes."""
        if xxh3_64_intdigest(message) != self.digest:
            raise BrokenSeal(f"its bytes {self.offset} to {self.end} are not those that were written")


@dataclass(frozen=True)
class Seal:
    """length: how many Arrow bytes there are. outside: the digest of those that are in no part."""

    layer: str
    trace: str
    length: int
    outside: int
    parts: tuple[SealedPart, ...]

    def encode(self) -> bytes:
        """The body."""
        said = {"format": FORMAT, "layer": self.layer, "trace": self.trace, "bytes": self.length}
        return _compact({**said, "outside": self.outside, "parts": self.parts}).encode()

    @staticmethod
    def decode(body: bytes) -> Seal:
        """What a body says. It must make sense: parts follow one another, in bytes and in hashes."""
        try:
            said = json.loads(body)
            if said["format"] != FORMAT:
                raise BrokenSeal(f"it has the format {said['format']}, and this version reads {FORMAT}")
            parts = tuple(SealedPart(*part) for part in said["parts"])
            seal = Seal(said["layer"], said["trace"], said["bytes"], said["outside"], parts)
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, BrokenSeal):
                raise
            raise BrokenSeal(f"its seal makes no sense ({error!r})") from error
        if not seal._makes_sense():
            raise BrokenSeal("its seal makes no sense")
        return seal

    def check_outside(self, file: memoryview) -> None:
        """Raise unless the Arrow bytes that are in no part are what was written."""
        if outside_digest(file[: self.length], self.parts) != self.outside:
            raise BrokenSeal("its schema or its footer is not what was written")

    def _makes_sense(self) -> bool:
        numbers = [self.length, self.outside, *(number for part in self.parts for number in part)]
        if not all(type(number) is int for number in numbers):
            return False
        spread = all(part.offset > 0 and part.rows > 0 and part.first <= part.last for part in self.parts)
        apart = all(a.end == b.offset and a.last < b.first for a, b in pairwise(self.parts))
        return spread and apart and (not self.parts or self.parts[-1].end <= self.length)


def outside_digest(arrow: memoryview, parts: Sequence[SealedPart]) -> int:
    """The digest of the Arrow bytes before the first part and after the last."""
    if not parts:
        return xxh3_64_intdigest(arrow)
    digest = xxh3_64(arrow[: parts[0].offset])
    digest.update(arrow[parts[-1].end :])
    return digest.intdigest()


def closed(body: bytes) -> bytes:
    """What is written after the Arrow bytes."""
    return body + TAIL.pack(len(body), xxh3_64_intdigest(body), MAGIC)


def digest_of(body: bytes) -> str:
    """The digest of a layer."""
    return xxh3_128_hexdigest(body)


def body_length(tail: bytes | memoryview, size: int) -> int:
    """How long the body is, by the last bytes of a file of this size."""
    length, _, magic = TAIL.unpack(tail) if len(tail) == TAIL.size else (0, 0, b"")
    if magic != MAGIC:
        raise BrokenSeal("it does not end with a seal: it was cut short, or overwritten, or never finished")
    if length > size - TAIL.size:
        raise BrokenSeal("its seal is damaged")
    return int(length)


def checked_body(end: bytes | memoryview, size: int) -> bytes:
    """The body, out of at least as much of the end of a file of this size as it takes up."""
    tail = end[-TAIL.size :]
    length = body_length(tail, size)
    body = bytes(end[-TAIL.size - length : -TAIL.size])
    if xxh3_64_intdigest(body) != TAIL.unpack(tail)[1]:
        raise BrokenSeal("its seal is damaged")
    return body


def check_identity(body: bytes, layer: str, trace: str) -> None:
    """Raise unless a body is that of this layer in this trace."""
    if not body.startswith(_identity(layer, trace)):
        seal = Seal.decode(body)
        raise BrokenSeal(f"it was written as the layer {seal.layer} of {seal.trace}")


def read_seal(file: memoryview, layer: str, trace: str) -> tuple[Seal, str]:
    """The seal of a whole file that must be this layer, and the layer's digest. Parts are yet to be checked."""
    body = checked_body(file, len(file))
    check_identity(body, layer, trace)
    seal = Seal.decode(body)
    written, found = seal.length, len(file) - len(body) - TAIL.size
    if found != written:
        raise BrokenSeal(f"it has {found} bytes before its seal, and was written with {written}")
    seal.check_outside(file)
    return seal, digest_of(body)


def _identity(layer: str, trace: str) -> bytes:
    """How the body of a layer begins: the same for the same layer only."""
    return _compact({"format": FORMAT, "layer": layer, "trace": trace})[:-1].encode() + b","
