"""Small JSON files that must be right: each says the digest of its body, and is there twice.

`{"digest": "0f..", "body": {...}}`: the digest is over the document's name and the body's text as it is written (sorted
keys, no spaces), so that one in the place of another is none. A document is written flushed, first under its name,
then as a copy. A reader takes the first of the two that proves itself; where both are there and neither does, that is
an error that says what is wrong with each. Where neither is there, there is no document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import xxhash

from slipstream.core.errors import DamagedDocument
from slipstream.store.disk import Disk, WritableDisk
from slipstream.store.layout import COPIES, copy_of

Body = dict[str, Any]
T = TypeVar("T")

_FORM = re.compile(rb'\{"digest": "([0-9a-f]+)", "body": (\{.*\})\}', re.DOTALL)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def encode(body: Body, name: str = "") -> bytes:
    """A document's bytes."""
    text = _ENCODER.encode(body).encode()
    return b'{"digest": "' + _digest(text, name) + b'", "body": ' + text + b"}"


def decode(raw: bytes, name: str = "") -> Body | str:
    """A document's body, or what is wrong with it."""
    if not raw.strip(b"\0"):
        return "it is empty" if not raw else "it is filled with zeros"
    found = _FORM.fullmatch(raw)
    if found is None:
        return "it is no checked JSON document"
    digest, text = found.groups()
    if _digest(text, name) != digest:
        return "its checksum is not that of its contents"
    try:
        body: Body = json.loads(text)
    except (ValueError, RecursionError):
        return "it is no checked JSON document"
    return body


def write_document(disk: WritableDisk, name: str, body: Body) -> None:
    """Write a document and its copy, so that at every moment one of them is whole on the disk itself."""
    raw = encode(body, name)
    disk.replace(name, raw, flushed=True)
    disk.make_folder(COPIES)
    disk.replace(copy_of(name), raw, flushed=True)


def read_document(disk: Disk, name: str) -> Body | None:
    """A document's body; None where it was never written."""
    return read_decoded(disk, name, decode)


def read_decoded(disk: Disk, name: str, decode: Callable[[bytes, str], T | str]) -> T | None:
    """What `decode` makes of the bytes and the name of a document; it says what is wrong with them in a text."""
    problems = []
    for each in (name, copy_of(name)):
        try:
            found = decode(disk.read(each), name)
        except FileNotFoundError:
            continue
        except IsADirectoryError:
            problems.append(f"{each}: it is a folder")
            continue
        if not isinstance(found, str):
            return found
        problems.append(f"{each}: {found}")
    if problems:
        raise DamagedDocument(str(disk.root), name, "; ".join(problems))
    return None


def document_problems(disk: Disk, name: str) -> list[str]:
    """What is wrong with either copy of a document, also where the other one is whole."""
    problems = []
    for each in (name, copy_of(name)):
        try:
            found = decode(disk.read(each), name)
        except FileNotFoundError:
            problems.append(f"{each}: it is missing")
            continue
        except IsADirectoryError:
            problems.append(f"{each}: it is a folder")
            continue
        if isinstance(found, str):
            problems.append(f"{each}: {found}")
    return problems


def _digest(text: bytes, name: str) -> bytes:
    return xxhash.xxh3_128_hexdigest(name.encode() + text).encode()
