"""Input for the shop: files of orders (JSON) and of changes to customers (CSV: insert, update, delete by key), each
renamed into place when it is whole.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

PRODUCTS = ("anchor", "biscuit", "compass", "dinghy", "ensign", "fender", "galley", "halyard")
COUNTRIES = ("Chile", "Egypt", "Ghana", "India", "Japan", "Nepal", "Spain", "Yemen")
STARTING_CUSTOMERS = 500
FILES_PER_SECOND = 2


@dataclass
class Feed:
    """Writes both kinds of files until it is told to stop. The same seed makes the same shop."""

    landing: Path
    rate: int
    random: random.Random = field(default_factory=lambda: random.Random(7))
    orders: int = 0
    customers: int = 0
    version: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        for source in ("orders", "customers"):
            (self.landing / source).mkdir(parents=True)
        self._write_customers(self._join() for _ in range(STARTING_CUSTOMERS))

    def run(self) -> None:
        started = time.monotonic()
        tick = 0
        while not self.ended.wait(max(0.0, started + tick / FILES_PER_SECOND - time.monotonic())):
            self._write_orders(self.rate // FILES_PER_SECOND)
            if tick % FILES_PER_SECOND == 0:
                self._write_customers(self._change() for _ in range(10))
            tick += 1

    def _write_orders(self, count: int) -> None:
        lines = []
        for _ in range(count):
            self.orders += 1
            order = {
                "oid": self.orders,
                "cid": int(self.customers * self.random.random() ** 1.2),
                "product": self.random.choice(PRODUCTS),
                "cents": self.random.randrange(100, 20_000),
            }
            lines.append(json.dumps(order))
        self._write(self.landing / "orders" / f"{self.orders:09d}.json", lines)

    def _write_customers(self, rows: Iterable[str]) -> None:
        lines = list(rows)
        self._write(self.landing / "customers" / f"{self.version:09d}.csv", lines)

    def _join(self) -> str:
        self.customers += 1
        return self._row("insert", self.customers - 1)

    def _change(self) -> str:
        """One in ten joins, one in ten leaves (or is told again to leave), the others move."""
        choice = self.random.random()
        if choice < 0.1:
            return self._join()
        return self._row("delete" if choice < 0.2 else "update", self.random.randrange(self.customers))

    def _row(self, op: str, cid: int) -> str:
        self.version += 1
        return f"{op},{cid},customer {cid},{self.random.choice(COUNTRIES)},{self.version}"

    def _write(self, path: Path, lines: list[str]) -> None:
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(path)
