"""How a stamp is kept in the log of a Delta table, so that nothing that tidies the log can lose it.

A commit has two places for what is no row. Its *custom metadata* takes any text, and is the commit's own: once a
checkpoint has taken its place and the log's retention is over, the commit's file is removed, and that text with it. Its
*application transactions* are whole numbers under names, and part of what a table is: checkpoints carry them, and
nothing removes them. So each commit has the stamp in both: as text, whole; and in numbers without the forwarded lineage
(which is of use for as long as lineage takes to become durable, and that is not weeks).

The numbers: `slipstream` is the epoch. It is in every commit of a sink, and in no other, so two commits of sinks that
do not know of each other conflict. `slipstream.0`, `slipstream.1` and so on are the rest: JSON in ASCII, eight bytes in
a number, up to a byte that is zero. Numbers beyond that are of an earlier stamp, which was longer.

To read a number the library reads the log from its last checkpoint on, each time anew. The text of the newest commit is
one small file. So the text is looked for first, and the numbers are read where it is not among the newest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count

from slipstream.core.errors import DamagedStamp
from slipstream.sinks.base import Stamp

FENCE = "slipstream"
"""The application transaction that is in every commit of a sink."""
METADATA = "slipstream"
"""The key in a commit's metadata."""

_WIDTH = 8
_END = b"\0"


def without_lineage(stamp: Stamp | None) -> Stamp | None:
    """What tells stamps apart, and is always kept."""
    return None if stamp is None else replace(stamp, lineage=())


def numbered(stamp: Stamp) -> Mapping[str, int]:
    """A stamp without its lineage, as application transactions: their names, and the versions."""
    rest = [stamp.app, stamp.sink, stamp.incarnation, stamp.cut, stamp.form]
    text = json.dumps(rest, separators=(",", ":")).encode("ascii") + _END
    pieces = [text[at : at + _WIDTH].ljust(_WIDTH, _END) for at in range(0, len(text), _WIDTH)]
    return {
        FENCE: stamp.epoch,
        **{f"{FENCE}.{number}": int.from_bytes(piece, "big") for number, piece in enumerate(pieces)},
    }


def from_numbers(version: Callable[[str], int | None], where: str) -> Stamp | None:
    """What `numbered` wrote, by a function that gives an application transaction's version; None if nothing did."""
    epoch = version(FENCE)
    if epoch is None:
        return None
    text = b"".join(_pieces(version, where)).partition(_END)[0]
    try:
        match json.loads(text):
            case [str(app), str(sink), int(incarnation), str(cut), str(form)]:
                return Stamp(app, sink, epoch, incarnation, cut, form)
    except ValueError:
        pass
    raise DamagedStamp(where)


def _pieces(version: Callable[[str], int | None], where: str) -> Iterator[bytes]:
    """Up to the one that has the end in it."""
    for number in count():
        piece = version(f"{FENCE}.{number}")
        if piece is None or piece < 0:
            raise DamagedStamp(where)
        raw = piece.to_bytes(_WIDTH, "big")
        yield raw
        if _END in raw:
            return
