"""The epoch checksum: for each view and epoch, the sum over its updates of hash(row) * diff, modulo 2^64.

It is linear, so it does not care how updates are cut into layers, shards or merges: the sums of the epochs up to t add
up to the sum over the view's rows as of t, each as often as it occurs. Recorded when the updates are fresh, and
compared with what a store or a replica holds much later, it proves that nothing was lost or doubled on the way.

A bag's rows bring their hash with them (`r`). The rows of a keyed trace are hashed here, from their columns; an update
of one is its old version taken away and its new one added. The agent does this, before it merges: `sums.jsonl` has a
line an epoch, {"epoch": 7, "sums": {KEY: "1f..."}}, by the keys of `identity.summed`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from slipstream.errors import MissingLayer
from slipstream.trace import Span, TraceReader
from slipstream.trace.rows import added_columns, column, integers, is_bag, key_columns, value_columns, weights

FILE = "sums.jsonl"
Words = npt.NDArray[np.uint64]

_MIX = np.uint64(0x9E3779B97F4A7C15)


def epoch_sums(directory: Path, since: int, until: int) -> dict[int, int]:
    """The checksum of each epoch after `since` up to `until`, from the log of a trace."""
    reader = TraceReader(directory, until, Span.whole())
    if not is_bag(reader.schema):
        return {epoch: _keyed_sum(directory, epoch, reader.schema) for epoch in range(since + 1, until + 1)}
    table = reader.log(since, until, ["r", "epoch", *added_columns(reader.schema)])
    weighted = weights(table)
    epochs = integers(table, "epoch")
    found = dict.fromkeys(range(since + 1, until + 1), 0)
    order = np.argsort(epochs, kind="stable")
    firsts = np.flatnonzero(np.diff(epochs[order], prepend=-1)) if len(order) else order
    for epoch, total in zip(
        epochs[order][firsts].tolist(), _sums(weighted[order], firsts).tolist(), strict=True
    ):
        found[epoch] = total
    return found


def _keyed_sum(directory: Path, epoch: int, schema: pa.Schema) -> int:
    """The checksum of one epoch of a keyed trace: the new versions of its keys less the old ones."""
    keys, values = key_columns(schema), value_columns(schema)
    table = TraceReader(directory, epoch, Span.whole(), schema=schema).log(
        epoch - 1, epoch, ["h", *keys, *values, "diff"]
    )
    h = integers(table, "h")
    if (h[1:] < h[:-1]).any():
        table = table.take(pa.array(np.argsort(h, kind="stable"))).combine_chunks()
        h = integers(table, "h")
    there = integers(table, "diff") != 0
    total = int(row_hashes(table.select([*keys, *values]))[there].sum(dtype=np.uint64))
    if epoch > 1:
        before = TraceReader(directory, epoch - 1, Span.whole(), schema=schema)
        known, old = before.newest(h, [column(table, name) for name in keys])
        for name in reversed(keys):
            old = old.add_column(0, name, column(table, name))
        total -= int(row_hashes(old)[known].sum(dtype=np.uint64))
    return total % (1 << 64)


def state_sum(directory: Path, epoch: int) -> int:
    """The checksum of everything that a trace holds as of an epoch."""
    reader = TraceReader(directory, epoch, Span.whole())
    total = 0
    bag = is_bag(reader.schema)
    for table in reader.snapshot(["r", *added_columns(reader.schema)] if bag else None):
        rows = table.combine_chunks()
        words = weights(rows) if bag else row_hashes(rows)
        total += int(words.sum(dtype=np.uint64))
    return total % (1 << 64)


def row_hashes(table: pa.Table) -> Words:
    """A hash of each row, over all columns in order: the same for the same values, in any process."""
    hashes = np.full(table.num_rows, _MIX, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in table.column_names:
            hashes = (hashes ^ _mixed(_words(column(table, name)))) * _MIX
            hashes ^= hashes >> np.uint64(29)
    return hashes


def record(root: Path, traces: Mapping[str, str], since: int, until: int) -> None:
    """Note the checksums of the epochs after `since` up to `until`."""
    by_epoch: dict[int, dict[str, str]] = {epoch: {} for epoch in range(since + 1, until + 1)}
    for key, trace in traces.items():
        for epoch, total in epoch_sums(root / trace, since, until).items():
            by_epoch[epoch][key] = f"{total:x}"
    with (root / FILE).open("a") as file:
        file.write(
            "".join(json.dumps({"epoch": epoch, "sums": sums}) + "\n" for epoch, sums in by_epoch.items())
        )


class SumsTail:
    """Reads on from where it stopped: the notes of some epochs, as lines."""

    def __init__(self, root: Path) -> None:
        self._path, self._offset = root / FILE, 0
        self._waiting: dict[int, str] = {}

    def read(self, since: int, until: int) -> list[str]:
        """The notes of epochs after `since` up to `until`, each once."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        break
                    self._offset += len(raw)
                    self._waiting |= {epoch: raw.decode() for epoch in parse_sums(raw.decode())}
        due = sorted(epoch for epoch in self._waiting if epoch <= until)
        return [line for epoch in due if (line := self._waiting.pop(epoch)) and epoch > since]


def read_sums(root: Path) -> dict[int, dict[str, int]]:
    """What was noted, by epoch and trace; the last note of an epoch counts."""
    return parse_sums((root / FILE).read_text() if (root / FILE).exists() else "")


def parse_sums(text: str) -> dict[int, dict[str, int]]:
    found = {}
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except json.JSONDecodeError:  # torn by a crash: those epochs are noted again
            continue
        found[said["epoch"]] = {trace: int(total, 16) for trace, total in said["sums"].items()}
    return found


def noted(root: Path) -> int:
    """The epoch up to which every checksum is noted, from the first on."""
    epochs = read_sums(root)
    last = 0
    while last + 1 in epochs:
        last += 1
    return last


def mismatches(
    root: Path, sums: Mapping[int, Mapping[str, int]], epoch: int, traces: Mapping[str, str]
) -> list[str]:
    """The traces whose contents as of an epoch do not add up to what was noted, of those that were noted throughout."""
    noted_sums = [sums.get(each, {}) for each in range(1, epoch + 1)]
    wrong = []
    for key, trace in traces.items():
        if epoch and all(key in each for each in noted_sums):
            total = sum(each[key] for each in noted_sums) % (1 << 64)
            with suppress(MissingLayer):
                if state_sum(root / trace, epoch) != total:
                    wrong.append(trace)
    return sorted(wrong)


def _sums(words: Words, firsts: npt.NDArray[np.int64]) -> Words:
    return np.add.reduceat(words, firsts) if len(firsts) else words


def _mixed(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _words(array: pa.Array) -> Words:
    """Each value as 64 bits; NULL as one number of its own, every NaN as one, and -0.0 as 0.0."""
    kind = array.type
    if pt.is_floating(kind):
        values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        words = np.where(np.isnan(values), np.nan, values).view(np.uint64)
    elif pt.is_integer(kind) or pt.is_boolean(kind):
        words = array.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pt.is_temporal(kind) and kind.bit_width == 64:
        words = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    elif pt.is_decimal(kind) and kind.bit_width % 64 == 0:
        width = kind.bit_width // 64
        stored = np.frombuffer(array.buffers()[1], dtype=np.uint64)
        wide = stored[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)
        words = wide[:, 0].copy()
        for i in range(1, width):
            words = _mixed(words) ^ wide[:, i]
    else:
        from pandas.util import hash_array  # slow to load, and seldom needed

        words = hash_array(np.array([repr(value) for value in array.to_pylist()], dtype=object))
    if array.null_count:
        words = np.where(array.is_null().to_numpy(zero_copy_only=False), np.uint64(0x6E756C6C), words)
    return words.astype(np.uint64, copy=False)
