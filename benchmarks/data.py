"""Input files, made once and fed to every side alike.

A dataset is a folder `<phase>/<source>/<number>.json` of JSON lines (of TPC-H, Parquet) with three phases, fed in
this order: `load` builds up state (all files at once), `warm` warms the engine up (one file of each source, then
wait, and so on), `timed` is what is measured. The generator is seeded, so every run and every side reads the same
rows.

Feeding is a hard link under a hidden name followed by a rename, as a careful writer would do it: a file appears
whole or not at all, and its age keeps the order in which the files were made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

Phase = Literal["load", "warm", "timed"]
PHASES: tuple[Phase, ...] = ("load", "warm", "timed")

TOTALS_SCHEMA = "k long, v long"
ORDERS_SCHEMA = "oid long, cid long, amount long"
CUSTOMERS_SCHEMA = "cid long, country string"
COUNTRIES = 50
KEYS = 1_000_000

Column = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Sizes:
    """Rows in each file of each phase."""

    warm: Sequence[int]
    timed: Sequence[int]


def warmed(small: int, rows: int) -> list[int]:
    """Files to warm an engine up: small ones for what a batch costs, and five of full size for what a row does."""
    return [2_000] * small + [rows] * 5


def make_backlog(folder: Path, small: int, rows: int, files: int) -> None:
    """Files of totals of `KEYS` keys, all of one size."""
    make_totals(folder, KEYS, Sizes(warmed(small, rows), timed=[rows] * files))


def make_totals(folder: Path, keys: int, sizes: Sizes, load: bool = False) -> None:
    """`{"k", "v"}` with uniformly random keys; with `load`, every key once before anything else."""
    random = np.random.default_rng(keys)
    if load:
        per_file = min(keys, 200_000)
        for number, first in enumerate(range(0, keys, per_file)):
            ks = np.arange(first, min(first + per_file, keys))
            _write_totals(folder / "load" / "totals", number, ks, random)
    for phase, counts in (("warm", sizes.warm), ("timed", sizes.timed)):
        for number, rows in enumerate(counts):
            _write_totals(folder / phase / "totals", number, random.integers(0, keys, rows), random)


def make_pieces(folder: Path, sizes: Sizes, pieces: int) -> None:
    """Totals of `KEYS` keys, with so many files of ten rows to warm up with before anything else."""
    random = np.random.default_rng(pieces)
    for number in range(pieces):
        _write_totals(folder / "load" / "totals", number, random.integers(0, KEYS, 10), random)
    make_totals(folder, KEYS, sizes)


def make_shop(folder: Path, customers: int, changes: int, sizes: Sizes) -> None:
    """Orders of random customers, and beside each file of orders one in which `changes` customers move
    country.
    """
    random = np.random.default_rng(customers)
    _write_customers(folder / "load" / "customers", 0, np.arange(customers), random)
    for phase, counts in (("warm", sizes.warm), ("timed", sizes.timed)):
        for number, rows in enumerate(counts):
            cids = random.integers(0, customers, rows)
            amounts = random.integers(1, 10_000, rows)
            orders = zip(range(rows), cids.tolist(), amounts.tolist(), strict=True)
            lines = map('{"oid":%d,"cid":%d,"amount":%d}\n'.__mod__, orders)
            _write(folder / phase / "orders", number, lines)
            moved = random.choice(customers, changes, replace=False)
            _write_customers(folder / phase / "customers", number, moved, random)


def _write_totals(folder: Path, number: int, keys: Column, random: np.random.Generator) -> None:
    values = random.integers(0, 1_000, len(keys))
    _write(folder, number, map('{"k":%d,"v":%d}\n'.__mod__, zip(keys.tolist(), values.tolist(), strict=True)))


def _write_customers(folder: Path, number: int, cids: Column, random: np.random.Generator) -> None:
    countries = random.integers(0, COUNTRIES, len(cids))
    rows = zip(cids.tolist(), countries.tolist(), strict=True)
    _write(folder, number, map('{"cid":%d,"country":"country-%d"}\n'.__mod__, rows))


def _write(folder: Path, number: int, lines: Iterable[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:05d}.json").write_text("".join(lines))


@dataclass(frozen=True)
class Feed:
    """Moves a dataset's files into `landing/<source>`, those of `only` these sources if there are any; `renamed`
    remembers when each timed file arrived.
    """

    dataset: Path
    landing: Path
    renamed: dict[str, float] = field(default_factory=dict)
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for source in self.only or {path.parent.name for path in self.dataset.glob("*/*/*")}:
            (self.landing / source).mkdir(parents=True)

    def files(self, phase: Phase) -> list[list[Path]]:
        """The phase's files; those that belong to one batch together."""
        files = [each for each in (self.dataset / phase).glob("*/*") if self._takes(each)]
        numbers = sorted({path.name for path in files})
        return [sorted(path for path in files if path.name == number) for number in numbers]

    def _takes(self, file: Path) -> bool:
        return not self.only or file.parent.name in self.only

    def drop(self, files: Iterable[Path]) -> None:
        for path in files:
            phase, source = path.parent.parent.name, path.parent.name
            hidden = self.landing / source / f".{phase}-{path.name}"
            os.link(path, hidden)
            hidden.rename(hidden.with_name(hidden.name.removeprefix(".")))
            if phase == "timed":
                self.renamed[f"{phase}-{path.name}"] = time.time()

    def drop_all(self, phase: Phase) -> None:
        for files in self.files(phase):
            self.drop(files)

    def drop_paced(self, phase: Phase, every: float) -> None:
        """One batch's files each `every` seconds, by the clock: a late file does not delay the next."""
        start = time.monotonic()
        for number, files in enumerate(self.files(phase)):
            time.sleep(max(0.0, start + number * every - time.monotonic()))
            self.drop(files)

    def rows(self, phase: Phase) -> int:
        """Lines in all of the phase's files."""
        return sum(path.read_bytes().count(b"\n") for files in self.files(phase) for path in files)
