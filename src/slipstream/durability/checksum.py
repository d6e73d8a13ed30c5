"""The epoch checksum: for each view and epoch, the sum over its updates of hash(row) * diff, modulo 2^64.

It is linear, so it does not care how updates are cut into layers, shards or merges: the sums of the epochs up to t
add up to the sum over the view's rows as of t, each as often as it occurs. Recorded when the updates are fresh, and
compared with what a store or a replica holds much later, it proves that nothing was lost, doubled or changed on the
way.

A row's hash is over its values (`hashing`), not over a hash that is stored beside them. An update of a keyed trace is
its old version taken away and its new one added.

The agent adds up (`sums`): `sums/N.log` is a chain of checked lines, {"summed": 7, "totals": {KEY: "1f.."}}, by the
keys of `Catalog.summed`: the checksum of what each view holds as of epoch 7. Its first line says where incarnation N
began. So of an earlier log what comes after that epoch counts no more. A view whose total is not in a line is not
known as of that epoch; a total is never made up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from slipstream.core.errors import MissingLayer
from slipstream.durability.hashing import ODD, Words, row_hashes
from slipstream.store import chain, documents
from slipstream.store.disk import Disk
from slipstream.store.layout import SUMS, log_number, sums_log
from slipstream.trace import Span, TraceReader
from slipstream.trace.rows import (
    collapse_keyed,
    column,
    identity_columns,
    integers,
    is_bag,
    key_columns,
    sum_columns,
    value_columns,
)

MODULUS = 1 << 64
_COLUMNS_ADDED = np.uint64(ODD)

Totals = Mapping[str, int]
StateSum = Callable[[str, int], int]


def change_sum(directory: Path, since: int, until: int) -> int:
    """The checksum of the updates of the epochs after `since` up to `until`, from the log of a trace."""
    if until <= since:
        return 0
    reader = TraceReader(directory, until, Span.whole())
    if not is_bag(reader.schema):
        return _keyed_sum(reader, since, until)
    return int(weights(reader.log(since, until, _weighed(reader.schema))).sum(dtype=np.uint64))


def _keyed_sum(reader: TraceReader, since: int, until: int) -> int:
    """The same of a keyed trace: the newest versions of the keys that changed, less the versions before them."""
    schema = reader.schema
    keys, values = key_columns(schema), value_columns(schema)
    table = reader.log(since, until, ["h", *keys, *values, "epoch", "diff"])
    h = integers(table, "h")
    if until > since + 1 or (h[1:] < h[:-1]).any():
        table = collapse_keyed(table, keep_tombstones=True)
        h = integers(table, "h")
    there = integers(table, "diff") != 0
    total = int(row_hashes(table.select([*keys, *values]))[there].sum(dtype=np.uint64))
    if since > 0:
        before = TraceReader(reader.directory, since, Span.whole(), schema=schema)
        known, old = before.newest(h, [column(table, name) for name in keys])
        for name in reversed(keys):
            old = old.add_column(0, name, column(table, name))
        total -= int(row_hashes(old)[known].sum(dtype=np.uint64))
    return total % MODULUS


def state_sum(directory: Path, epoch: int) -> int:
    """The checksum of everything that a trace holds as of an epoch."""
    if epoch == 0:
        return 0
    reader = TraceReader(directory, epoch, Span.whole())
    bag = is_bag(reader.schema)
    total = 0
    for table in reader.snapshot(_weighed(reader.schema) if bag else None):
        rows = table.combine_chunks()
        words = weights(rows) if bag else row_hashes(rows)
        total += int(words.sum(dtype=np.uint64))
    return total % MODULUS


def weights(table: pa.Table) -> Words:
    """What each update of a bag adds to its epoch checksum: the row's hash times its diff, and so with each of its
    sums, by hashes of their own.
    """
    row = row_hashes(table.select(identity_columns(table.schema)))
    with np.errstate(over="ignore"):
        weighted = row * integers(table, "diff").view(np.uint64)
        for i, name in enumerate(sum_columns(table.schema)):
            other = row ^ (_COLUMNS_ADDED * np.uint64(i + 1))
            weighted += other * integers(table, name).view(np.uint64)
    return weighted


def _weighed(schema: pa.Schema) -> list[str]:
    """The columns of a bag that `weights` needs; it tells a bag by `r`."""
    return ["r", *identity_columns(schema), "diff", *sum_columns(schema)]


def encode_totals(totals: Totals) -> dict[str, str]:
    return {key: f"{total:x}" for key, total in sorted(totals.items())}


def decode_totals(said: Mapping[str, str]) -> dict[str, int]:
    return {key: int(total, 16) for key, total in said.items()}


def totals_of(said: documents.Body) -> dict[str, int]:
    """The totals that a document tells; none if it makes no sense."""
    try:
        return decode_totals(said["totals"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def sums_line(before: str, epoch: int, totals: Totals) -> tuple[str, bytes]:
    """The digest of a line of `sums/N.log`, and the line."""
    return chain.encode(before, {"summed": epoch, "totals": encode_totals(totals)})


def sums_of(line: chain.Line) -> tuple[int, dict[str, int]] | None:
    """The epoch and totals that a line tells of; None if it is no such line."""
    try:
        return int(line.body["summed"]), decode_totals(line.body["totals"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def read_totals(disk: Disk) -> tuple[dict[int, dict[str, int]], list[str]]:
    """The totals that are known, by epoch, and what is wrong with the logs, if anything is."""
    known: dict[int, dict[str, int]] = {}
    problems: list[str] = []
    numbers = (log_number(name) for name in disk.list(SUMS))
    for number in sorted(number for number in numbers if number is not None):
        try:
            found = chain.scan(disk.read(sums_log(number)))
        except (FileNotFoundError, IsADirectoryError) as error:
            problems.append(f"{sums_log(number)}: it cannot be read ({type(error).__name__})")
            continue
        if found.problem is not None:
            problems.append(f"{sums_log(number)}: {found.problem}")
        lines = [said for line in found.lines if (said := sums_of(line)) is not None]
        if lines:
            known = {epoch: totals for epoch, totals in known.items() if epoch <= lines[0][0]}
            known |= dict(lines)
    return known, problems


def mismatches(totals: Totals, traces: Mapping[str, str], epoch: int, state: StateSum) -> list[str]:
    """The traces whose contents as of an epoch do not add up to the totals, of those that have one."""
    wrong = []
    for key, trace in traces.items():
        if key in totals:
            try:
                found = state(trace, epoch)
            except MissingLayer:
                continue
            if found != totals[key]:
                wrong.append(trace)
    return sorted(wrong)
