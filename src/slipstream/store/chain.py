"""A log as a chain of checked lines: each line's digest is over its own text *and the digest of the line before*.

    3f0c.. {"cut":7,...}\n

So a line that is missing, doubled, edited, moved or of another log does not follow from the one above it. A log is
read as far as the chain holds. What comes after is one of two things:
- a **torn tail**: an append that a crash or a power cut left half done (cut short, zero-filled, garbage to the end).
  Nothing after it makes sense, and nothing is lost that was flushed;
- a **hole**: further down a line again follows from the one above it. Lines in between were destroyed later.

Not promised: to notice that whole lines are missing at the very end. Whoever knows how long the log was must say so
(`lineage`: a successor names the digest that it follows).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import xxhash

START = "0" * 16
_WIDTH = 16
_ENCODER = json.JSONEncoder(separators=(",", ":"))

End = Literal["whole", "torn", "hole"]


@dataclass(frozen=True)
class Line:
    """A line that follows from the one before it. end: the byte after it."""

    digest: str
    body: dict[str, Any]
    end: int


@dataclass(frozen=True)
class Scan:
    """The lines of a log as far as the chain holds, and how it ends."""

    lines: tuple[Line, ...]
    end: End
    problem: str | None = None

    @property
    def digest(self) -> str:
        return self.lines[-1].digest if self.lines else START


def follow(before: str, text: bytes) -> str:
    """The digest of a line after another."""
    return xxhash.xxh3_64_hexdigest(before.encode() + text)


def encode(before: str, body: dict[str, Any]) -> tuple[str, bytes]:
    """A line's digest, and the line."""
    text = _ENCODER.encode(body).encode()
    digest = follow(before, text)
    return digest, digest.encode() + b" " + text + b"\n"


def body_of(text: bytes) -> dict[str, Any]:
    """What a line says; ValueError if that is no JSON object."""
    try:
        body = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested without end") from error
    if not isinstance(body, dict):
        raise ValueError("it is no JSON object")
    return body


def scan(raw: bytes, before: str = START, offset: int = 0) -> Scan:
    """Read a log, or what follows a line of it whose digest and end are known."""
    lines: list[Line] = []
    at = 0
    while at < len(raw):
        stop = raw.find(b"\n", at)
        if stop < 0:
            return Scan(tuple(lines), "torn", f"the last line is cut short, at byte {offset + at}")
        line = raw[at:stop]
        digest, text = line[:_WIDTH], line[_WIDTH + 1 :]
        if follow(before, text).encode() != digest or line[_WIDTH : _WIDTH + 1] != b" ":
            end: End = "hole" if _goes_on(raw[at:]) else "torn"
            said = (
                "a line does not follow from the one before it" if text.strip(b"\0") else "it is zero-filled"
            )
            return Scan(tuple(lines), end, f"{said}, at byte {offset + at}")
        try:
            body = body_of(text)
        except ValueError:
            return Scan(tuple(lines), "torn", f"a line is no JSON object, at byte {offset + at}")
        before = digest.decode()
        at = stop + 1
        lines.append(Line(before, body, offset + at))
    return Scan(tuple(lines), "whole")


def _goes_on(raw: bytes) -> bool:
    """Whether some line further down follows from what the line above it says of itself."""
    above: bytes | None = None
    for line in raw.split(b"\n")[:-1]:
        digest, text = line[:_WIDTH], line[_WIDTH + 1 :]
        if above is not None and len(above) == _WIDTH:
            try:
                if follow(above.decode(), text).encode() == digest:
                    return True
            except UnicodeDecodeError:
                pass
        above = digest
    return False
