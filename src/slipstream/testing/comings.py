"""Views that come and go in an app that is tortured: added, replaced and dropped while everything else goes on.

The first column of such a view says which *version* of it a row is of. So whoever reads one as of any epoch knows which
query it was then, and what that query gives can be computed in plain Python.

What is wanted is a file, renamed into place, that the app looks at again and again: an engine that takes over, or one
whose program was loaded before the last change, comes to the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from slipstream.core.errors import HistoryBegins, UnknownView
from slipstream.observe import read_view
from slipstream.testing.oracle import assert_equal_rows

Kind = Literal["groups", "large", "countries", "above"]
Row = tuple[Any, ...]

NAMES = ("guest1", "guest2", "guest3")
WANTED = "wanted.json"

APP = """
import json
from pathlib import Path

there = {}


def come_and_go(epoch=0):
    wanted = json.loads(Path("wanted.json").read_text())
    for name in [name for name in there if name not in wanted]:
        app.drop(name)
        del there[name]
    for name, query in wanted.items():
        if there.get(name) != query:
            app.view(name, query, replace=True)
            there[name] = query


come_and_go()
app.on_turn(come_and_go)
"""
"""What the app's program does about them, behind its own views."""


@dataclass(frozen=True)
class Version:
    """One query that a view may be."""

    number: int
    kind: Kind
    parameter: int

    @property
    def query(self) -> str:
        v, p = self.number, self.parameter
        match self.kind:
            case "groups":
                return f"SELECT {v} v, cid % {p % 7 + 2} g, sum(amount) s, count(*) n FROM orders GROUP BY 2"
            case "large":
                return f"SELECT {v} v, oid, amount FROM orders WHERE amount >= {p}"
            case "countries":
                joined = "orders JOIN customers USING (cid)"
                return (
                    f"SELECT {v} v, country, max(amount) m FROM {joined} WHERE amount < {p} GROUP BY country"
                )
            case "above":
                return f"SELECT {v} v, country, revenue - {p} r, n FROM revenue"

    def expected(self, orders: Sequence[Mapping[str, Any]], customers: Mapping[int, str]) -> list[Row]:
        """The view over these inputs."""
        v, p = self.number, self.parameter
        sums: dict[Any, list[int]] = {}
        match self.kind:
            case "groups":
                for order in orders:
                    sums.setdefault(order["cid"] % (p % 7 + 2), []).append(order["amount"])
                return [(v, group, sum(amounts), len(amounts)) for group, amounts in sums.items()]
            case "large":
                return [(v, order["oid"], order["amount"]) for order in orders if order["amount"] >= p]
        for order in orders:
            if order["cid"] in customers and (self.kind == "above" or order["amount"] < p):
                sums.setdefault(customers[order["cid"]], []).append(order["amount"])
        if self.kind == "above":
            return [(v, country, sum(amounts) - p, len(amounts)) for country, amounts in sums.items()]
        return [(v, country, max(amounts)) for country, amounts in sums.items()]


@dataclass
class Guests:
    """The views that come and go in an app. compared: how often one was there and was compared."""

    folder: Path
    dice: random.Random
    versions: dict[int, Version] = field(default_factory=dict)
    wanted: dict[str, Version] = field(default_factory=dict)
    compared: int = 0

    def __post_init__(self) -> None:
        self._tell()

    def change(self) -> str:
        """Want something else; what."""
        name = self.dice.choice(NAMES)
        if name in self.wanted and self.dice.random() < 0.3:
            del self.wanted[name]
            said = f"{name} goes"
        else:
            said = f"{name} becomes another" if name in self.wanted else f"{name} comes"
            version = Version(
                len(self.versions) + 1, self.dice.choice(get_args(Kind)), self.dice.randrange(1, 1_000)
            )
            self.versions[version.number] = self.wanted[name] = version
        self._tell()
        return said

    def check(
        self, store: Path, epoch: int, orders: Sequence[Mapping[str, Any]], customers: Mapping[int, str]
    ) -> None:
        """Compare those that were there as of an epoch with what the version that each was then gives."""
        for name in NAMES:
            rows = self._rows(store, name, epoch)
            if rows:
                numbers = {row[0] for row in rows}
                assert len(numbers) == 1, f"'{name}' as of epoch {epoch} is of versions {numbers}"
                wanted = self.versions[numbers.pop()].expected(orders, customers)
                assert_equal_rows(rows, wanted, f"view '{name}' as of epoch {epoch}")
                self.compared += 1

    def there(self, store: Path, epoch: int) -> bool:
        """Whether all that is wanted is there, and nothing else."""
        for name in NAMES:
            rows, wanted = self._rows(store, name, epoch), self.wanted.get(name)
            if (rows is None) != (wanted is None):
                return False
            if rows and wanted is not None and rows[0][0] != wanted.number:
                return False
        return True

    def _rows(self, store: Path, name: str, epoch: int) -> list[Row] | None:
        try:
            return [tuple(row.values()) for row in read_view(store, name, epoch).to_pylist()]
        except (UnknownView, HistoryBegins):
            return None

    def _tell(self) -> None:
        hidden = self.folder / f".{WANTED}"
        hidden.write_text(json.dumps({name: version.query for name, version in self.wanted.items()}))
        hidden.rename(self.folder / WANTED)
